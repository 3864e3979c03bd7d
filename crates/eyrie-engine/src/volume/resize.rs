//! Making a volume larger or smaller at its end. Objects stay where they are.
//!
//! Safe when power fails: the superblock says what size counts, and its copies switch it. The host's file is made longer
//! before that and cut after it, and groups that are to be cut off go out of use before it. A resize that was
//! interrupted leaves a volume of either size, whose file may be too long; the next resize mends that. On a device the
//! place of the journal is what gets longer and shorter: see `device`.

use std::fs::File;
use std::path::Path;

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium, MediumKind, Ordered, PagedOptions, SegmentId};
use rustix::io::Errno;

use super::geometry::{Geometry, page_addr, page_of};
use super::layout::GROUPS_IN_USE;
use super::superblock::failure;
use super::{Hold, MIN_HOST_BYTES, Opened, Volume, device, host, medium};
use crate::Result;

/// Where the segment of a volume is whose size changes, and how that is used.
struct Host<'a> {
    path: &'a Path,
    file: File,
    is_device: bool,
    paged: PagedOptions,
}

impl Host<'_> {
    /// Gives the segment, which is not mapped, room for `bytes` and no more.
    fn resize(&self, kind: MediumKind, bytes: u64, step: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let place = self.path.display().to_string();
        if self.is_device {
            return device::resize(&self.file, bytes, &place, step);
        }
        medium::resize(&self.file, kind, bytes, &place)?;
        step()
    }

    fn map(&self) -> Result<Medium> {
        if self.is_device {
            return device::mount(&self.file, self.paged, &self.path.display().to_string());
        }
        host::map_segment(self.path, &self.file, self.paged)
    }

    fn open(&self, hold: Option<Hold>) -> Result<(Volume, Opened)> {
        Volume::open_in(self.map()?, hold, &self.path.display().to_string())
    }
}

impl Volume {
    /// The least size that [`Volume::resize`] can give it, in bytes: to the end of the last page in use.
    pub fn least_bytes(&self) -> u64 {
        let used_end = self.space.free_map().pages.end_of_missing(page_of(self.space.shared().end()));
        page_addr(used_end).offset().max(self.geometry().data_start() + 4096).max(MIN_HOST_BYTES)
    }

    /// Makes the volume at `path`, which this is, larger or smaller, or (without `bytes`) as large as its device, and opens
    /// it again. What is free in it must be known, and nothing of it in use.
    ///
    /// # Errors
    /// [`Error::Volume`](crate::Error::Volume) says how small or large it can be; [`Error::Fault`](crate::Error::Fault)
    /// when the host is full. Whatever happens, the volume has its old size or the new one.
    pub fn resize(self, path: &Path, bytes: Option<u64>, paged: PagedOptions) -> Result<(Volume, Opened)> {
        self.resize_by_steps(path, bytes, paged, &mut || Ok(()))
    }

    /// Makes the volume on a medium of its own larger or smaller, up to the size of its segment. What is free in it must be
    /// known.
    ///
    /// # Errors
    /// As [`Volume::resize`].
    pub fn resize_on_medium(&mut self, bytes: u64) -> Result<()> {
        let geometry = self.size_fits(bytes, "volume")?;
        self.switch(geometry, &mut || Ok(()))
    }

    /// [`Volume::resize`], which stops wherever `step` fails.
    fn resize_by_steps(
        mut self,
        path: &Path,
        bytes: Option<u64>,
        paged: PagedOptions,
        step: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(Volume, Opened)> {
        let (is_device, file) = match &self.hold {
            Some(Hold::Device(file)) => (true, device::again(file, path)?),
            _ => (false, host::segment_file(path)?),
        };
        let host = Host { path, file, is_device, paged };
        let geometry = self.new_geometry(&host, bytes).inspect_err(|_| {
            // The refusal is what there is to report.
            let _ = self.save();
        })?;
        let (bytes, old) = (geometry.volume_bytes(), self.geometry().volume_bytes());
        if bytes < old || broken(SafetyRule::FileIsLongEnoughBeforeItsSize) {
            self.switch(geometry, step)?;
        }
        self.medium.drain_home()?;
        step()?;
        let (kind, is) = (self.medium.kind(), self.medium.segment_sizes().next());
        let hold = self.hold.take();
        drop(self);
        if is != Some(bytes) {
            host.resize(kind, bytes, step)?;
        }
        let (mut volume, opened) = host.open(hold)?;
        if bytes <= old {
            return Ok((volume, opened));
        }
        volume.switch(geometry, step)?;
        volume.medium.drain_home()?;
        step()?;
        let hold = volume.hold.take();
        drop(volume);
        host.open(hold)
    }

    /// The geometry with the size that is asked for, or that of the device.
    fn new_geometry(&self, host: &Host<'_>, bytes: Option<u64>) -> Result<Geometry> {
        let place = host.path.display().to_string();
        let room = if host.is_device { Some(device::room(&host.file, &place)?) } else { None };
        let most = self.geometry().most_bytes();
        match (bytes, room) {
            (Some(bytes), Some(room)) if bytes > room => {
                let what = format!(
                    "cannot be made as large as {bytes} bytes: its device has room for {room} bytes and a journal"
                );
                Err(failure(&place, what, Errno::INVAL))
            }
            (Some(bytes), _) => self.size_fits(bytes, &place),
            (None, Some(room)) => self.size_fits(room.min(most), &place),
            (None, None) => {
                let what = "needs a size: only a block device has one to be filled";
                Err(failure(&place, what, Errno::INVAL))
            }
        }
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
            // The last group was short, and is in use: its last step may be.
            let step = self.medium.step_bytes().min(self.geometry().group_bytes());
            let step_end = end.next_multiple_of(step).min(new_end);
            self.medium.back(Addr::new(SegmentId(0), end), step_end - end)?;
        }
        let gate = self.medium.enter()?;
        if broken(SafetyRule::GroupsLeaveUseBeforeTheEnd) {
            self.found.set_size(&self.medium, geometry)?;
        }
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
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use eyrie_medium::{CrashImage, CrashPoints, Plan, Recorder};

    use super::*;
    use crate::object::pointer::Extent;
    use crate::volume::{MediumChoice, Options, segment_path};
    use crate::{Error, Time};

    const GROUP: u64 = 1 << 18;
    /// Not a whole number of groups.
    const OLD: u64 = (2 << 20) + 8192;

    /// What a volume is on.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum On {
        Directory(MediumChoice),
        /// A file that stands for one.
        Device,
    }

    struct Case {
        on: On,
        path: PathBuf,
        kept: Extent,
        _parent: tempfile::TempDir,
    }

    /// A volume that fills a device, which got larger since.
    fn create_on_device(path: &Path, options: &Options) -> Volume {
        let file = File::options().read(true).write(true).create_new(true).open(path).expect("a file");
        file.set_len(Medium::paged_bytes(OLD)).expect("room");
        let new = device::NewVolume::measure(&file, options, "here").expect("room");
        new.clear(&file).expect("room");
        let medium = new.format(file.try_clone().expect("a file"), options).expect("room");
        let taken = device::taken(&medium);
        let volume = Volume::create_in(medium, options, taken, "here").expect("created");
        file.set_len(16 << 20).expect("room");
        Volume { hold: Some(Hold::Device(file)), ..volume }
    }

    fn open_device(path: &Path) -> (Volume, Opened) {
        let file = File::options().read(true).write(true).open(path).expect("a file");
        let medium = device::mount(&file, PagedOptions::for_host(), "here").expect("a volume");
        Volume::open_in(medium, Some(Hold::Device(file)), "here").expect("a volume")
    }

    impl Case {
        /// A volume that is used up to its last, short group.
        fn new(on: On) -> Case {
            let parent = tempfile::tempdir().expect("a directory");
            let path = parent.path().join("v");
            let random = Options::random(Time::new(0, 0)).expect("random bytes");
            let options = Options { group_bytes: GROUP, ..random };
            let volume = match on {
                On::Directory(medium) => {
                    Volume::create(&path, Some(OLD), &Options { medium, ..options }).expect("created")
                }
                On::Device => create_on_device(&path, &options),
            };
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
            Case { on, path, kept, _parent: parent }
        }

        fn open(&self) -> Volume {
            let (mut volume, opened) = match self.on {
                On::Directory(_) => Volume::open(&self.path, PagedOptions::for_host()).expect("a volume"),
                On::Device => open_device(&self.path),
            };
            if opened == Opened::Crashed {
                let marks = volume.marks();
                marks.mark_extent(self.kept).expect("within");
                volume.adopt(&marks);
            }
            volume
        }

        /// Resizes, stopping after so many steps; whether it was stopped.
        fn resize(&self, bytes: u64, mut steps: usize) -> bool {
            let done =
                self.open().resize_by_steps(&self.path, Some(bytes), PagedOptions::for_host(), &mut || {
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

        fn assert_takes_no_more_than(&self, bytes: u64) {
            let file = std::fs::metadata(segment_path(&self.path));
            let length = |file: std::io::Result<std::fs::Metadata>| file.expect("there").len();
            match self.on {
                On::Directory(MediumChoice::Dram) => assert_eq!(length(file), bytes),
                On::Directory(_) => assert_eq!(length(file), Medium::paged_bytes(bytes)),
                On::Device => {
                    assert_eq!(length(std::fs::metadata(&self.path)), 16 << 20);
                    assert_eq!(device::taken(self.open().medium()), Medium::paged_bytes(bytes));
                }
            }
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
        for on in [On::Directory(MediumChoice::Dram), On::Directory(MediumChoice::Paged), On::Device] {
            for new in [8 << 20, OLD + 4096, OLD - 4096, 1 << 20] {
                let mut stops = 0;
                for steps in 0.. {
                    let case = Case::new(on);
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
                    case.assert_takes_no_more_than(new);
                }
                assert!(stops >= if on == On::Device { 5 } else { 3 }, "{on:?} {new}: {stops}");
            }
        }
    }

    /// Makes a volume that is used to its end and emptied `new` bytes large, with this plan, while power may fail
    /// anywhere; whether each crash leaves one of the two sizes, and the end the new one.
    fn survives_every_crash(new: u64, plan: &Plan) -> bool {
        let options =
            Options { group_bytes: GROUP, ..Options::random(Time::new(0, 0)).expect("random bytes") };
        let volume = Volume::create_on(Medium::memory(OLD).expect("memory"), &options).expect("created");
        let pages: Vec<_> = std::iter::from_fn(|| volume.space().allocate(4096).ok()).collect();
        pages.into_iter().for_each(|page| volume.space().release(page));
        let mut base = volume.medium().snapshot();
        base.resize(new.max(OLD) as usize, 0);

        let recorder = Recorder::of(plan.clone());
        let medium = Medium::traced_from(&base, recorder.clone()).expect("memory");
        let (mut volume, opened) = Volume::open_on(medium).expect("a volume");
        assert_eq!(opened, Opened::Crashed);
        let geometry = volume.geometry().resized(new).expect("a size");
        volume.switch(geometry, &mut || Ok(())).expect("memory does not fail");
        let events = recorder.take();
        let mut points = CrashPoints::new(&base, &events).expect("memory");
        let mut is_sound = true;
        while let Some(point) = points.next() {
            let mut next = Some(Vec::new());
            while let Some(picks) = next {
                let image = CrashImage::new(point.pending.clone(), picks).with(plan.clone());
                let medium = Medium::image(points.base(), image.clone()).expect("memory");
                let size = Volume::open_on(medium).map(|(volume, _)| volume.geometry().volume_bytes());
                is_sound &= size.is_ok_and(|size| size == new || size == OLD && point.after < events.len());
                next = CrashImage::next_script(&image.choices());
            }
        }
        is_sound
    }

    #[test]
    fn every_missing_point_of_a_resize_is_noticed() {
        let mut met = BTreeSet::new();
        for new in [1 << 20, OLD - 4096, OLD + 4096, 4 << 20] {
            let plan = Plan::default();
            assert!(survives_every_crash(new, &plan), "{new}");
            met.extend(plan.points().into_keys());
        }
        met.retain(|site| site.file.ends_with("resize.rs"));
        assert_eq!(met.len(), 2, "{met:?}");
        for site in met {
            assert!(!survives_every_crash(1 << 20, &Plan::without(Some(site))), "nobody misses {site}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        let case = Case::new(On::Directory(MediumChoice::Dram));
        let refusal = |bytes| {
            let done = case.open().resize(&case.path, Some(bytes), PagedOptions::for_host());
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
