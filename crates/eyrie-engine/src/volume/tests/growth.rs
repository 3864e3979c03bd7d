//! Tests of volumes that grow: by steps that allocations provision, by reserves, and by memory that a thread
//! provisions ahead of need. A *reserve* is memory for a large extent. An announcement of the extent
//! provisions the next step of the reserve, until all of the extent has memory.

use crate::board::Board;
use std::path::Path;

use eyrie_faults::{Failing, FailureKind, FaultPlan, Recorder, Site, in_forked_child, traced};
use eyrie_medium::{Fault, Medium, PagedOptions, SiteKind};

use super::{GROUP, Held, memory, options};
use crate::Error;
use crate::extent::Extent;
use crate::tables::layout;
use crate::volume::{MediumChoice, Opened, Options, Volume, VolumeView, segment_path};

/// Returns a volume of 160 MiB in groups of 64 MiB, in a file of the host that is mapped as shared memory.
fn on_file(path: &Path) -> Volume {
    let options = Options { group_bytes: 64 << 20, medium: MediumChoice::Dram, ..options() };
    Volume::create(path, Some(160 << 20), &options).expect("created")
}

/// Returns the number of bytes that the host has provided for the volume at `path`.
fn provided(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(segment_path(path)).expect("a file").blocks() * 512
}

#[test]
fn growing_volume_provisions_in_small_steps() {
    let parent = directory();
    let path = parent.path().join("v");
    let volume = on_file(&path);
    let mut taken = volume.space().allocate(4096).expect("empty").bytes();
    assert!(provided(&path) <= 1 << 20, "{}", provided(&path));
    while let Ok(extent) = volume.space().allocate(64 << 10) {
        taken += extent.bytes();
        let now = provided(&path);
        assert!(now >= taken, "nothing is given out before there is memory");
        assert!(now - taken <= 13 << 20, "{} bytes more than were needed", now - taken);
    }
    assert!(taken > 159 << 20, "{taken}");
}

#[test]
fn recovery_trusts_no_step_without_memory() {
    let parent = directory();
    let path = parent.path().join("v");
    let volume = on_file(&path);
    let kept = volume.space().allocate(4096).expect("empty");
    let used = provided(&path);
    // A drop leaves the same state as a killed process.
    drop(volume);
    let volume = recovered(&path, kept);
    let mut taken = 0;
    while taken < 100 << 20 {
        taken += volume.space().allocate(64 << 10).expect("room").bytes();
        assert!(provided(&path) >= taken, "{taken} given out, {} provided, {used} before", provided(&path));
    }
}

#[test]
fn large_extents_find_consecutive_steps() {
    let options = Options { group_bytes: 16 << 20, ..options() };
    let volume = Volume::create_on(Medium::memory(70 << 20).expect("memory"), &options).expect("a volume");
    let space = volume.space();
    let empty = space.usage().free;
    let mut held = Held::default();
    for bytes in [4096, 5 << 20, 16 << 20, 2 << 20, 8 << 20, (2 << 20) + 4096, 16 << 20, 4096] {
        held.hold(space.allocate(bytes).expect("room"));
    }
    assert_eq!(space.compare(&held.marks(&volume)), []);
    held.extents.drain(..).for_each(|extent| space.release(extent));
    // In the first round some steps of the free groups have memory. In the second round no step of these
    // groups has memory, because of the trim.
    for _ in 0..2 {
        let whole: Vec<_> = std::iter::from_fn(|| space.allocate(16 << 20).ok()).collect();
        // The first of the five groups has the tables, and the last group has 6 MiB.
        assert_eq!(whole.len(), 3);
        whole.into_iter().for_each(|extent| space.release(extent));
        space.trim(false).expect("sound");
    }
    assert_eq!(space.compare(&volume.marks()), []);
    assert_eq!((space.usage().free, space.refused_frees()), (empty, 0));
}

/// Size of a step of the medium `dram`, in bytes.
const STEP: u64 = 256 << 10;

/// Returns a volume of 70 MiB in groups of 16 MiB, without a file and without a background thread.
fn in_memory() -> Volume {
    let options = Options { group_bytes: 16 << 20, ..options() };
    Volume::create_on(Medium::memory(70 << 20).expect("memory"), &options).expect("a volume")
}

/// Returns the site at which steps are provisioned, and the number of steps so far.
fn steps(plan: &FaultPlan) -> (Site, u64) {
    let is_step = |site: &Site| site.kind == SiteKind::Provision && site.file.ends_with("space/central.rs");
    plan.calls().into_iter().find(|(site, _)| is_step(site)).expect("the volume has grown")
}

/// Runs `test` on the volume of [`in_memory`] under a plan that counts the calls to the host.
fn with_counted_calls(test: impl FnOnce(&FaultPlan, &Volume)) {
    let plan = FaultPlan::default();
    plan.count_calls();
    plan.on_this_thread(|| test(&plan, &in_memory()));
}

/// Opens the volume at `path` after a crash. All its storage is free, except for `kept`.
fn recovered(path: &Path, kept: Extent) -> Volume {
    let (mut volume, opened) = Volume::open(path, PagedOptions::for_host()).expect("a volume");
    assert_eq!(opened, Opened::Crashed);
    let marks = volume.marks();
    marks.mark_extent(kept).expect("within");
    volume.adopt(&marks);
    volume
}

/// Announces an extent until all of it has memory.
fn reserve(volume: &Volume, bytes: u64) {
    (0..bytes / STEP).for_each(|_| volume.space().extend_reserve_for(bytes));
}

#[test]
fn announced_extent_finds_its_memory() {
    with_counted_calls(|plan, volume| {
        let space = volume.space();
        let empty = space.usage().free;
        let mut held = Held::default();
        let mut take = |bytes| held.hold(space.allocate(bytes).expect("room"));
        take(4096);
        for bytes in [4 << 20, 8 << 20, 8 << 20, 16 << 20] {
            for _ in 0..bytes / STEP {
                let before = steps(plan).1;
                space.extend_reserve_for(bytes);
                assert_eq!(steps(plan).1, before + 1, "an announcement provisions one step");
            }
            let before = steps(plan).1;
            space.extend_reserve_for(bytes);
            assert_eq!(steps(plan).1, before, "all of the extent has memory");
            (0..8).for_each(|_| take(64 << 10));
            let before = steps(plan).1;
            take(bytes);
            assert_eq!(steps(plan).1, before, "{bytes}: nothing else was allocated from its memory");
        }
        let before = steps(plan).1;
        [64 << 10, 2 << 20, 32 << 20].into_iter().for_each(|bytes| space.extend_reserve_for(bytes));
        assert_eq!(steps(plan).1, before, "an extent that is small, or larger than a group, gets no reserve");
        space.extend_reserve_for(8 << 20);
        assert_eq!(space.compare(&held.marks(volume)), []);
        held.extents.drain(..).for_each(|extent| space.release(extent));
        let before = steps(plan).1;
        space.extend_reserve_for(16 << 20);
        assert_eq!(steps(plan).1, before, "free memory serves it");
        assert_eq!(space.compare(&volume.marks()), []);
        assert_eq!((space.usage().free, space.refused_frees()), (empty, 0));
    });
}

#[test]
fn extent_announced_late_provisions_only_the_rest() {
    with_counted_calls(|plan, volume| {
        let space = volume.space();
        space.allocate(4096).expect("empty");
        (0..20).for_each(|_| space.extend_reserve_for(8 << 20));
        let before = steps(plan).1;
        space.allocate(8 << 20).expect("room");
        // The extent has 32 steps, and the 20 announcements have provisioned 20 of them.
        assert_eq!(steps(plan).1, before + 12);
    });
}

#[test]
fn reserves_are_used_before_a_volume_is_full() {
    let (volume, other) = (in_memory(), in_memory());
    reserve(&volume, 16 << 20);
    (0..3).for_each(|_| volume.space().extend_reserve_for(8 << 20));
    let small = |volume: &Volume| std::iter::from_fn(|| volume.space().allocate(4096).ok()).count();
    assert_eq!(small(&volume), small(&other));
    volume.space().extend_reserve_for(8 << 20);
}

#[test]
fn full_host_refuses_no_memory_that_was_announced() {
    with_counted_calls(|plan, volume| {
        let space = volume.space();
        let mut held = Held::default();
        let first = space.allocate(4096).expect("empty");
        held.hold(first);
        (0..20).for_each(|_| space.extend_reserve_for(8 << 20));
        let (site, provisioned) = steps(plan);
        for kind in [FailureKind::Io, FailureKind::Full] {
            plan.fail(Some(Failing { site, kind, first: 1, is_persistent: true }));
            space.extend_reserve_for(8 << 20);
            space.extend_reserve_for(4 << 20);
            assert_eq!(plan.failed(), 2, "an announcement reports no error");
        }
        assert!(matches!(space.allocate(8 << 20), Err(Error::Fault(Fault::HostFull))));
        while let Ok(extent) = space.allocate(64 << 10) {
            held.hold(extent);
        }
        let taken = held.total() - first.bytes();
        assert!(taken + STEP > provisioned * STEP, "{taken} of {provisioned} steps");
        assert_eq!(space.compare(&held.marks(volume)), []);
        plan.fail(None);
        reserve(volume, 8 << 20);
        space.allocate(8 << 20).expect("the host has room again");
    });
}

#[test]
fn trim_and_close_discard_reserves() {
    let parent = directory();
    let path = parent.path().join("v");
    let volume = on_file(&path);
    let kept = volume.space().allocate(4096).expect("empty");
    for bytes in [8 << 20, 16 << 20] {
        reserve(&volume, bytes);
        assert!(provided(&path) >= bytes);
        volume.trim().expect("sound");
        assert!(provided(&path) <= 1 << 20, "{}: the group is in use, the reserve is not", provided(&path));
        // The host provides the memory again.
        let extent = volume.space().allocate(bytes).expect("room");
        assert!(provided(&path) >= bytes);
        volume.space().release(extent);
        volume.space().extend_reserve_for(bytes);
        volume.trim().expect("sound");
        assert!(provided(&path) <= 1 << 20, "{}: a reserve of memory that was free", provided(&path));
    }
    reserve(&volume, 16 << 20);
    volume.space().release(kept);
    volume.close().expect("sound");
    assert!(provided(&path) <= 2 << 20, "{}", provided(&path));
}

#[test]
fn recovery_trusts_no_reserve() {
    let parent = directory();
    let path = parent.path().join("v");
    let volume = on_file(&path);
    let kept = volume.space().allocate(4096).expect("empty");
    // An extent of 16 MiB has 64 steps, and an extent of 8 MiB has 32. So no reserve here is complete.
    (0..40).for_each(|_| volume.space().extend_reserve_for(16 << 20));
    volume.trim().expect("sound");
    (0..5).for_each(|_| volume.space().extend_reserve_for(8 << 20));
    // A drop leaves the same state as a killed process.
    drop(volume);
    let volume = recovered(&path, kept);
    let mut taken = 0;
    while let Ok(extent) = volume.space().allocate(64 << 10) {
        taken += extent.bytes();
        assert!(provided(&path) >= taken, "{taken} given out, {} provided", provided(&path));
    }
    assert!(taken > 159 << 20, "{taken}");
}

/// Allocates extents of 64 KiB, `bytes` in total.
fn take(volume: &Volume, bytes: u64) -> Vec<Extent> {
    (0..bytes / (64 << 10)).map(|_| volume.space().allocate(64 << 10).expect("room")).collect()
}

/// Returns true if this process maps the file of the volume at `path`.
fn is_mapped(path: &Path) -> bool {
    let path = segment_path(path);
    let path = path.to_str().expect("plain");
    std::fs::read_to_string("/proc/self/maps").expect("this process's own").contains(path)
}

/// Returns a directory in shared memory, or on a disk if the host has no shared memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

#[test]
fn drop_on_another_thread_stops_provisioning() {
    let parent = directory();
    // A thread begins to provide memory ahead of need when the volume has grown by 4 MiB (16 steps).
    for bytes in [5 << 20, 6 << 20, 20 << 20] {
        let path = parent.path().join(bytes.to_string());
        let volume = on_file(&path);
        take(&volume, bytes);
        assert!(is_mapped(&path));
        std::thread::spawn(move || drop(volume)).join().expect("it ran");
        assert!(!is_mapped(&path), "the thread that provides has the mapping");
    }
}

#[test]
fn forked_child_of_growing_volume_fails_and_ends() {
    let parent = directory();
    let path = parent.path().join("v");
    let volume = on_file(&path);
    take(&volume, 20 << 20);
    // The background thread may be provisioning memory during a fork. The test forks several times, so that
    // some fork is likely to meet this case.
    for _ in 0..20 {
        let extents = take(&volume, 10 << 20);
        let told = in_forked_child(|| {
            let is_forked = |error| matches!(error, Some(Error::Fault(Fault::Forked)));
            is_forked(volume.trim().err())
                && is_forked(volume.save().err())
                && is_forked(volume.space().allocate(8 << 20).err())
        });
        assert!(told.expect("a child"));
        extents.into_iter().for_each(|extent| volume.space().release(extent));
        volume.space().trim(false).expect("sound");
    }
    take(&volume, 20 << 20);
}

#[test]
fn volume_grows_without_provisioning_thread() {
    let parent = directory();
    let (plan, counted) = (FaultPlan::default(), FaultPlan::default());
    counted.count_calls();
    counted.on_this_thread(|| take(&on_file(&parent.path().join("counted")), 20 << 20));
    let is_start = |file: &str| file.ends_with("eyrie-medium/src/provider.rs");
    let sites = counted.calls();
    let site = sites.keys().find(|site| site.kind == SiteKind::Host && is_start(site.file));
    let site = *site.expect("it starts a thread");
    assert_eq!(sites[&site], 1, "a medium has one");
    plan.fail(Some(Failing { site, kind: FailureKind::Full, first: 1, is_persistent: true }));
    let path = parent.path().join("v");
    plan.on_this_thread(|| {
        let volume = on_file(&path);
        let mut taken = 0;
        while let Ok(extent) = volume.space().allocate(64 << 10) {
            taken += extent.bytes();
            assert!(provided(&path) <= taken + (5 << 20), "nothing is provided ahead");
        }
        assert!(taken > 159 << 20, "{taken}");
    });
    assert_eq!(plan.failed(), 1, "the host is asked once");
}

#[test]
fn trim_and_close_discard_memory_provisioned_ahead() {
    let parent = directory();
    let path = parent.path().join("v");
    let volume = on_file(&path);
    for _ in 0..3 {
        let extents = take(&volume, 40 << 20);
        assert!(provided(&path) >= 40 << 20);
        extents.into_iter().for_each(|extent| volume.space().release(extent));
        volume.trim().expect("sound");
        assert!(provided(&path) <= 1 << 20, "{}", provided(&path));
    }
    let extents = take(&volume, 40 << 20);
    extents.into_iter().for_each(|extent| volume.space().release(extent));
    volume.close().expect("sound");
    // The saved allocator takes some memory of the volume.
    assert!(provided(&path) <= 2 << 20, "{}", provided(&path));
}

#[test]
fn test_media_provision_nothing_ahead() {
    let addr = eyrie_medium::Addr::from_raw(4 << 20);
    let bytes = 16 << 20;
    let memory = Medium::memory(bytes).expect("memory");
    let traced = traced(bytes, Recorder::of(FaultPlan::default())).expect("memory");
    let file = tempfile::tempfile().expect("a file");
    file.set_len(bytes).expect("room");
    let copy = Medium::copy_of(&file, bytes).expect("a copy");
    for medium in [memory, traced, copy] {
        assert!(!medium.provide_ahead(addr));
        medium.recall_ahead();
        assert!(medium.provided_ahead().is_none());
    }
}

/// When an owner dies, a volume on a disk may lose header chunks and groups that this owner took into use.
#[test]
fn view_forgets_the_chunks_and_groups_of_a_dead_owner() {
    let volume = memory(4 << 20);
    let header = volume.space().allocate_header().expect("room");
    let extent = volume.space().allocate(GROUP / 2).expect("room");
    let board = Board::shared().expect("memory");
    let file = || board.file().expect("it is shared").try_clone().expect("a descriptor");
    let bytes = Medium::memory_holding(&volume.medium().snapshot()).expect("memory");
    let view = VolumeView::of_owner(bytes, file(), || true).expect("sound");
    assert!(view.is_header(header) && view.contains(extent));
    drop(view.medium().zero(layout::CHUNK_MAP, 4096).expect("in bounds"));
    drop(view.medium().write_word(layout::GROUPS_IN_USE, 0).expect("in bounds"));
    assert!(view.is_header(header) && view.contains(extent));
    view.replace_cache(&file(), file()).expect("memory");
    assert!(!view.is_header(header) && !view.contains(extent));
}
