//! Making a volume larger or smaller at its end. Objects stay where they are.
//!
//! Safe when power fails: the superblock says what size counts, and its copies switch it. The host's file is made longer
//! before that and cut after it, and groups that are to be cut off go out of use before it. A resize that was
//! interrupted leaves a volume of either size, whose file may be too long; the next resize mends that.

use std::path::Path;

use eyrie_medium::{Addr, Ordered, PagedOptions, SegmentId};
use rustix::io::Errno;

use super::geometry::{Geometry, page_addr, page_of};
use super::layout::GROUPS_IN_USE;
use super::superblock::failure;
use super::{MIN_HOST_BYTES, Opened, Volume, device, host, medium};
use crate::Result;

impl Volume {
    /// The least size that [`Volume::resize`] can give it, in bytes: to the end of the last page in use.
    pub fn least_bytes(&self) -> u64 {
        let used_end = self.space.free_map().pages.end_of_missing(page_of(self.space.shared().end()));
        page_addr(used_end).offset().max(self.geometry().data_start() + 4096).max(MIN_HOST_BYTES)
    }

    /// Makes the volume in directory `path`, which this is, larger or smaller, and opens it again. What is free in it
    /// must be known, and nothing of it in use.
    ///
    /// # Errors
    /// [`Error::Volume`](crate::Error::Volume) says how small or large it can be; [`Error::Fault`](crate::Error::Fault)
    /// when the host is full. Whatever happens, the volume has its old size or the new one.
    pub fn resize(self, path: &Path, bytes: u64, paged: PagedOptions) -> Result<(Volume, Opened)> {
        if device::is_device(path) {
            let what = "a volume on a block device is as large as the device: copy it to a new volume";
            return Err(failure(&path.display().to_string(), what, Errno::INVAL));
        }
        self.resize_by_steps(path, bytes, paged, &mut || Ok(()))
    }

    /// [`Volume::resize`], which stops wherever `step` fails.
    fn resize_by_steps(
        mut self,
        path: &Path,
        bytes: u64,
        paged: PagedOptions,
        step: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(Volume, Opened)> {
        let place = path.display().to_string();
        let geometry = self.size_fits(bytes, &place)?;
        let old = self.geometry().volume_bytes();
        if bytes < old {
            self.switch(geometry, step)?;
        }
        self.medium.drain_home()?;
        step()?;
        let (kind, is) = (self.medium.kind(), self.medium.segment_sizes().next());
        let lock = self._lock.take();
        drop(self);
        let file = host::segment_file(path)?;
        if is != Some(bytes) {
            medium::resize(&file, kind, bytes, &place)?;
            step()?;
        }
        let open = |lock| Volume::open_in(host::map_segment(path, &file, paged)?, lock, &place);
        let (mut volume, opened) = open(lock)?;
        if bytes <= old {
            return Ok((volume, opened));
        }
        volume.switch(geometry, step)?;
        volume.medium.drain_home()?;
        step()?;
        let lock = volume._lock.take();
        drop(volume);
        open(lock)
    }

    /// The geometry of this volume with another size, if it can have that.
    fn size_fits(&self, bytes: u64, place: &str) -> Result<Geometry> {
        let refuse = |what: String| Err(failure(place, what, Errno::INVAL));
        let (least, most) = (self.least_bytes(), self.geometry().most_bytes());
        if bytes < least {
            return refuse(format!(
                "cannot be made as small as {bytes} bytes: what is in use goes to {least} bytes, and nothing is moved"
            ));
        }
        if bytes > most {
            return refuse(format!(
                "cannot be made as large as {bytes} bytes: its tables have room for {most} bytes; copy it to a new volume"
            ));
        }
        self.geometry().resized(bytes).or_else(|what| refuse(what.to_string()))
    }

    /// Makes `geometry` what counts. The host's file is long enough for it.
    fn switch(&mut self, geometry: Geometry, step: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let (now, end) = (self.space.central().groups(), self.space.shared().end());
        let groups = now.min(geometry.groups());
        let new_end = geometry.end_of_groups(groups);
        if new_end > end {
            // The last group was short, and is in use.
            self.medium.back(Addr::new(SegmentId(0), end), new_end - end)?;
        }
        let gate = self.medium.enter()?;
        if groups < now {
            let published = self.medium.publish(GROUPS_IN_USE, groups, Ordered::nothing())?;
            self.medium.settle(published);
        }
        drop(gate);
        step()?;
        let _gate = self.medium.enter()?;
        self.found.set_size(&self.medium, geometry)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::object::pointer::Extent;
    use crate::volume::{MediumChoice, Options, segment_path};
    use crate::{Error, Time};

    const GROUP: u64 = 1 << 18;
    /// Not a whole number of groups.
    const OLD: u64 = (2 << 20) + 8192;

    struct Case {
        path: PathBuf,
        kept: Extent,
        _parent: tempfile::TempDir,
    }

    impl Case {
        /// A volume that is used up to its last, short group.
        fn new(medium: MediumChoice) -> Case {
            let parent = tempfile::tempdir().expect("a directory");
            let path = parent.path().join("v");
            let random = Options::random(Time::new(0, 0)).expect("random bytes");
            let volume = Volume::create(&path, Some(OLD), &Options { group_bytes: GROUP, medium, ..random });
            let volume = volume.expect("created");
            let gate = volume.medium().enter().expect("sound");
            let kept = volume.space().allocate(5000).expect("empty");
            drop(volume.medium().write(kept.addr, &[7; 5000]).expect("in bounds"));
            let others: Vec<_> = std::iter::from_fn(|| volume.space().allocate(8192).ok()).collect();
            assert!(others.len() > 200, "{}", others.len());
            drop(gate);
            others.into_iter().for_each(|extent| volume.space().release(extent));
            let last = volume.geometry().groups();
            assert_eq!(volume.space().central().groups(), last);
            volume.close().expect("sound");
            Case { path, kept, _parent: parent }
        }

        fn open(&self) -> Volume {
            let (mut volume, opened) = Volume::open(&self.path, PagedOptions::for_host()).expect("a volume");
            if opened == Opened::Crashed {
                let marks = volume.marks();
                marks.mark_extent(self.kept).expect("within");
                volume.adopt(&marks);
            }
            volume
        }

        /// Resizes, stopping after so many steps; whether it was stopped.
        fn resize(&self, bytes: u64, mut steps: usize) -> bool {
            let done = self.open().resize_by_steps(&self.path, bytes, PagedOptions::for_host(), &mut || {
                steps = steps.checked_sub(1).ok_or(Error::NoSpace)?;
                Ok(())
            });
            match done {
                Ok((volume, _)) => assert_eq!(volume.geometry().volume_bytes(), bytes),
                Err(Error::NoSpace) => return true,
                Err(error) => panic!("{error}"),
            }
            false
        }

        /// What was stored is there, and every page that should be free can be used.
        fn assert_sound(&self, volume: &Volume) {
            let gate = volume.medium().enter().expect("sound");
            let mut bytes = vec![0; 5000];
            volume.medium().read(self.kept.addr, &mut bytes).expect("in bounds");
            assert!(bytes.iter().all(|&byte| byte == 7));
            let total = volume.geometry().volume_bytes() - volume.geometry().data_start();
            let pages: Vec<_> = std::iter::from_fn(|| volume.space().allocate(4096).ok()).collect();
            assert_eq!(pages.len() as u64, (total - 8192) / 4096);
            for page in &pages {
                drop(volume.medium().write(page.addr, &[9; 4096]).expect("in bounds"));
            }
            drop(gate);
            pages.into_iter().for_each(|page| volume.space().release(page));
        }
    }

    #[test]
    fn a_resize_that_is_stopped_at_any_step_leaves_either_size() {
        for medium in [MediumChoice::Dram, MediumChoice::Paged] {
            for new in [8 << 20, OLD + 4096, OLD - 4096, 1 << 20] {
                let mut stops = 0;
                for steps in 0.. {
                    let case = Case::new(medium);
                    if !case.resize(new, steps) {
                        break;
                    }
                    stops += 1;
                    let volume = case.open();
                    assert!([OLD, new].contains(&volume.geometry().volume_bytes()));
                    case.assert_sound(&volume);
                    volume.close().expect("sound");
                    assert!(!case.resize(new, usize::MAX), "nothing stops it now");
                    case.assert_sound(&case.open());
                    let file = std::fs::metadata(segment_path(&case.path)).expect("there").len();
                    let journal = eyrie_medium::Medium::paged_bytes(new);
                    assert_eq!(file, if medium == MediumChoice::Dram { new } else { journal });
                }
                assert!(stops >= 3, "{medium:?} {new}: {stops}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        let case = Case::new(MediumChoice::Dram);
        let refusal = |bytes| {
            let done = case.open().resize(&case.path, bytes, PagedOptions::for_host());
            done.err().expect("refused").to_string()
        };
        let least = case.open().least_bytes();
        assert_eq!(least, 1 << 20);
        let what = refusal(least - 4096);
        assert!(what.contains(&least.to_string()) && what.contains("nothing is moved"), "{what}");
        let what = refusal(4 << 30);
        assert!(what.contains("2147483648") && what.contains("copy it"), "{what}");
        assert!(refusal((2 << 20) + 1).contains("multiple of 4096"));

        let volume = case.open();
        let low: Vec<_> = std::iter::from_fn(|| volume.space().allocate(4096).ok()).collect();
        let (last, low) = low.split_last().expect("some");
        let high = low.iter().chain([last]).max_by_key(|page| page.addr).expect("some").addr;
        low.iter()
            .chain([last])
            .filter(|page| page.addr != high)
            .for_each(|page| volume.space().release(*page));
        assert_eq!(volume.least_bytes(), high.offset() + 4096);
    }
}
