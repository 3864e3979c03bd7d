//! Makes a volume larger or smaller at its end. No object is moved.
//!
//! Safe when power fails: the volume has the size that its superblock records, and a resize commits when it
//! writes the new size there. The host's file is extended before this write and truncated after it. Groups
//! beyond the new end are taken out of use before this write. An interrupted resize leaves a volume of the
//! old or the new size. Its file may be too long, which the next resize corrects. On a device, the place of
//! the journal moves instead of the end of a file, as `host::resize` describes.

use std::path::Path;
use std::sync::Arc;

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Ordered, PAGE_SIZE, PagedOptions, SegmentId};

use super::open::{Opened, Volume};
use crate::host::{Hold, ResizedSegment};
use crate::tables::geometry::{page_addr, page_of};
use crate::tables::layout::GROUPS_IN_USE;
use crate::tables::{Geometry, MIN_HOST_BYTES};
use crate::{Errno, Error, Result};

impl Volume {
    /// Returns the smallest size that [`Volume::resize`] accepts, in bytes: the end of the last page in use,
    /// but at least [`MIN_HOST_BYTES`], and at least one page more than the tables.
    pub(crate) fn least_bytes(&self) -> u64 {
        let used_end = self
            .space
            .free_map()
            .pages
            .end_of_last_absent(page_of(self.space.context().end_of_used_groups()));
        page_addr(used_end).offset().max(self.geometry().data_start() + PAGE_SIZE).max(MIN_HOST_BYTES)
    }

    /// Resizes this volume, which is at `path`, and opens it again. Without `bytes`, a volume on a device
    /// gets the largest size for which both the device and the tables of the volume have room. A volume that
    /// is not on a device needs `bytes`. Callers have recovered the volume and use no object of it.
    ///
    /// # Errors
    /// [`Error::Volume`](crate::Error::Volume) names the limits of the size.
    /// [`Error::Fault`](crate::Error::Fault) when the medium fails, for example because the host is full.
    /// After an error the volume has the old or the new size.
    pub fn resize(self, path: &Path, bytes: Option<u64>, paged: PagedOptions) -> Result<(Volume, Opened)> {
        self.resize_by_steps(path, bytes, paged, &mut || Ok(()))
    }

    /// Resizes a volume without a file on the host, up to the size of its segment. Callers have recovered the
    /// volume.
    ///
    /// # Errors
    /// As [`Volume::resize`].
    pub(crate) fn resize_on_medium(&mut self, bytes: u64) -> Result<()> {
        let geometry = self.size_fits(bytes, "volume")?;
        self.switch(geometry, &mut || Ok(()))
    }

    /// Works like [`Volume::resize`], but calls `step` after each part of the work, and stops when `step`
    /// fails.
    fn resize_by_steps(
        mut self,
        path: &Path,
        bytes: Option<u64>,
        paged: PagedOptions,
        step: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(Volume, Opened)> {
        let hold = self.hold.as_ref().ok_or(Error::Invalid("a resize of a volume without a place"))?;
        let segment = ResizedSegment::of(path, hold, paged, self.medium().has_checksums())?;
        let geometry = self.new_geometry(&segment, bytes).inspect_err(|_| {
            // A failed save is ignored, because the caller needs the first error.
            let _ = self.save();
        })?;
        let (bytes, old) = (geometry.volume_bytes(), self.geometry().volume_bytes());
        // When a volume shrinks, its size changes before the length of the file. When a volume grows, its
        // size changes after the length of the file. So the file is never shorter than the size in the
        // superblock.
        if bytes < old || broken(SafetyRule::FileIsLongEnoughBeforeItsSize) {
            self.switch(geometry, step)?;
        }
        self.medium().checkpoint()?;
        step()?;
        let (kind, mapped) = (self.medium().kind(), self.medium().segment_sizes().next());
        let hold = self.hold.take();
        drop(self);
        if mapped != Some(bytes) {
            segment.resize(kind, bytes, step)?;
        }
        let (mut volume, opened) = reopen(&segment, hold)?;
        if bytes <= old {
            return Ok((volume, opened));
        }
        volume.switch(geometry, step)?;
        volume.medium().checkpoint()?;
        step()?;
        let hold = volume.hold.take();
        drop(volume);
        reopen(&segment, hold)
    }

    /// Returns the geometry of this volume with a size of `bytes`. Without `bytes`, the size is the largest
    /// for which both the device and the tables of the volume have room. A volume that is not on a device
    /// needs `bytes`.
    fn new_geometry(&self, segment: &ResizedSegment<'_>, bytes: Option<u64>) -> Result<Geometry> {
        let (place, room) = (segment.place(), segment.device_room()?);
        let most = self.geometry().most_bytes();
        match (bytes, room) {
            (Some(bytes), Some(room)) if bytes > room => {
                let what = format!(
                    "cannot be made as large as {bytes} bytes: \
                     its device has room for {room} bytes and a journal"
                );
                Err(Error::volume(&place, what, Errno::INVAL))
            }
            (Some(bytes), _) => self.size_fits(bytes, &place),
            (None, Some(room)) => self.size_fits(room.min(most), &place),
            (None, None) => {
                let what = "needs a size: only a volume on a block device has a default";
                Err(Error::volume(&place, what, Errno::INVAL))
            }
        }
    }

    /// Returns the geometry of this volume with another size. Returns an error if the volume cannot have that
    /// size.
    fn size_fits(&self, bytes: u64, place: &str) -> Result<Geometry> {
        let refuse = |what: String| Err(Error::volume(place, what, Errno::INVAL));
        let (least, most) = (self.least_bytes(), self.geometry().most_bytes());
        if bytes < least {
            return refuse(format!(
                "cannot be made as small as {bytes} bytes: \
                 its smallest size is {least} bytes, because nothing is moved"
            ));
        }
        if bytes > most {
            return refuse(format!(
                "cannot be made as large as {bytes} bytes: \
                 its tables have room for {most} bytes; copy it to a new volume"
            ));
        }
        self.geometry().resized(bytes).or_else(|what| refuse(what.to_string()))
    }

    /// Takes the groups beyond the new end out of use, and then writes `geometry` to the superblock, which
    /// commits the new size. Callers have made the host's file long enough.
    fn switch(&mut self, geometry: Geometry, step: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let (now, end) = (self.space.central().groups(), self.space.context().end_of_used_groups());
        let groups = now.min(geometry.groups());
        let new_end = geometry.end_of_groups(groups);
        if new_end > end {
            // The old end may lie inside a step. If this step is in use, the host has provided its memory
            // only up to the old end.
            let step_bytes = self.medium().step_bytes().min(self.geometry().group_bytes());
            let step_end = end.next_multiple_of(step_bytes).min(new_end);
            // If the old end is the end of a step, the host has provided all memory of the last step. The
            // range is then empty, and the host refuses an empty range.
            if step_end > end {
                self.medium().provision(Addr::new(SegmentId(0), end), step_end - end)?;
            }
        }
        let medium = Arc::clone(self.shared_medium());
        let gate = medium.enter()?;
        if broken(SafetyRule::GroupsLeaveUseBeforeTheEnd) {
            self.view.set_size(geometry)?;
        }
        if groups < now {
            let published = self.medium().publish(GROUPS_IN_USE, groups, Ordered::nothing())?;
            self.medium().settle(published);
        }
        drop(gate);
        step()?;
        let medium = Arc::clone(self.shared_medium());
        let _gate = medium.enter()?;
        self.view.set_size(geometry)
    }
}

/// Opens the volume on a resized segment.
fn reopen(segment: &ResizedSegment<'_>, hold: Option<Hold>) -> Result<(Volume, Opened)> {
    Volume::open_in(segment.map()?, hold, &segment.place())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::File;
    use std::path::PathBuf;

    use eyrie_faults::{CrashImage, CrashPoints, FaultPlan, Recorder, crash_medium, traced_from};
    use eyrie_medium::Medium;

    use super::*;
    use crate::Time;
    use crate::extent::Extent;
    use crate::host::device;
    use crate::volume::{MediumChoice, Options, segment_path};

    const GROUP: u64 = 1 << 18;
    /// The old size. It is not a whole number of groups, so the last group is short.
    const OLD: u64 = (2 << 20) + 8192;

    /// The place of a volume.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum On {
        Directory(MediumChoice),
        /// A file that stands for a block device.
        Device,
    }

    struct Case {
        on: On,
        path: PathBuf,
        kept: Extent,
        _parent: tempfile::TempDir,
    }

    /// Creates a volume that fills its device, and then makes the device larger. Returns the volume.
    fn create_on_device(path: &Path, options: &Options) -> Volume {
        let file = File::options().read(true).write(true).create_new(true).open(path).expect("a file");
        file.set_len(Medium::paged_bytes(OLD, false)).expect("room");
        let new = device::NewVolume::measure(&file, options, "here").expect("room");
        new.clear(&file).expect("room");
        let medium = new.format(file.try_clone().expect("a file"), options).expect("room");
        let taken = medium.disk_bytes().expect("a disk");
        let volume = Volume::create_in(medium, options, taken, "here").expect("created");
        file.set_len(16 << 20).expect("room");
        Volume { hold: Some(Hold::Device(file)), ..volume }
    }

    fn open_device(path: &Path) -> (Volume, Opened) {
        let file = File::options().read(true).write(true).open(path).expect("a file");
        let medium = device::open_volume(&file, PagedOptions::for_host(), "here").expect("a volume");
        Volume::open_in(medium, Some(Hold::Device(file)), "here").expect("a volume")
    }

    impl Case {
        /// Creates a volume that has used all its space, so that its last, short group is in use too.
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

        /// Resizes the volume, but stops after `steps` steps. Returns true if the resize was stopped.
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
                On::Directory(_) => assert_eq!(length(file), Medium::paged_bytes(bytes, false)),
                On::Device => {
                    assert_eq!(length(std::fs::metadata(&self.path)), 16 << 20);
                    assert_eq!(self.open().medium().disk_bytes(), Some(Medium::paged_bytes(bytes, false)));
                }
            }
        }

        /// Asserts that the stored bytes are unchanged, and that all other pages can be allocated.
        fn assert_sound(&self, volume: &Volume) {
            let gate = volume.medium().enter_with(|| u64::MAX).expect("sound");
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
    fn interrupted_resize_leaves_either_size() {
        for on in [On::Directory(MediumChoice::Dram), On::Directory(MediumChoice::Paged), On::Device] {
            // The new sizes are many groups more than the old size, one page more, one page less, and the
            // smallest size.
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

    /// Resizes a volume to `new` bytes under this plan, and simulates a crash at every crash point. All pages
    /// of the volume were used and freed before. Returns true if each crash leaves the old or the new size,
    /// and the state after the last event has the new size.
    fn survives_every_crash(new: u64, plan: &FaultPlan) -> bool {
        let options =
            Options { group_bytes: GROUP, ..Options::random(Time::new(0, 0)).expect("random bytes") };
        let volume = Volume::create_on(Medium::memory(OLD).expect("memory"), &options).expect("created");
        let pages: Vec<_> = std::iter::from_fn(|| volume.space().allocate(4096).ok()).collect();
        pages.into_iter().for_each(|page| volume.space().release(page));
        let mut base = volume.medium().snapshot();
        base.resize(new.max(OLD) as usize, 0);

        let recorder = Recorder::of(plan.clone());
        let medium = traced_from(&base, recorder.clone()).expect("memory");
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
                let medium = crash_medium(points.base(), image.clone()).expect("memory");
                let size = Volume::open_on(medium).map(|(volume, _)| volume.geometry().volume_bytes());
                is_sound &= size.is_ok_and(|size| size == new || size == OLD && point.after < events.len());
                next = CrashImage::next_script(&image.choices());
            }
        }
        is_sound
    }

    #[test]
    fn missing_resize_points_are_noticed() {
        let mut met = BTreeSet::new();
        for new in [1 << 20, OLD - 4096, OLD + 4096, 4 << 20] {
            let plan = FaultPlan::default();
            assert!(survives_every_crash(new, &plan), "{new}");
            met.extend(plan.points().into_keys());
        }
        met.retain(|site| site.file.ends_with("resize.rs"));
        assert_eq!(met.len(), 2, "{met:?}");
        for site in met {
            assert!(!survives_every_crash(1 << 20, &FaultPlan::without(Some(site))), "unnoticed: {site}");
        }
    }

    #[test]
    fn impossible_resize_is_refused_with_a_reason() {
        let case = Case::new(On::Directory(MediumChoice::Dram));
        let refusal = |bytes| {
            let done = case.open().resize(&case.path, Some(bytes), PagedOptions::for_host());
            done.err().expect("refused").to_string()
        };
        let least = case.open().least_bytes();
        assert_eq!(least, 1 << 20);
        let what = refusal(least - 4096);
        assert!(what.contains(&least.to_string()) && what.contains("nothing is moved"), "{what}");
        // The limit is 2 GiB: 16 times the first size, rounded up to a whole page of the header-chunk bitmap.
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
