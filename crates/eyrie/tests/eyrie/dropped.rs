//! Tests of volumes that are dropped without a close.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use eyrie::{Credentials, Errno, MediumChoice, PagedOptions, PosixExt, Volume};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::bad_input::full_host::Mount;
use crate::side_by_side;

/// Counts events of the level `ERROR`.
struct ErrorCount(Arc<AtomicU32>);

impl Subscriber for ErrorCount {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Returns the number of error events that `run` reports.
fn errors_of(run: impl FnOnce()) -> u32 {
    let count = Arc::new(AtomicU32::new(0));
    tracing::subscriber::with_default(ErrorCount(Arc::clone(&count)), run);
    count.load(Ordering::Relaxed)
}

#[test]
fn volume_dropped_by_a_panic_is_saved() {
    let _side_by_side = side_by_side();
    for medium in [MediumChoice::Dram, MediumChoice::Paged] {
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("v");
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let volume = Volume::options().size(64 << 20).medium(medium).create(&path).unwrap();
            let files = volume.files(Credentials::root());
            files.write("/file", "written before the panic").unwrap();
            resume_unwind(Box::new("a panic of the program"));
        }));
        assert!(unwound.is_err());
        let volume = Volume::open(&path).unwrap();
        assert!(!volume.information().recovered, "{medium:?}: the drop left no clean mark");
        let files = volume.files(Credentials::root());
        assert_eq!(files.read("/file").unwrap(), b"written before the panic", "{medium:?}");
    }
}

#[test]
fn drop_that_cannot_save_reports_an_event() {
    let _side_by_side = side_by_side();
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("v");
    let create = || Volume::options().size(64 << 20).medium(MediumChoice::Dram).create(&path).unwrap();
    assert_eq!(errors_of(|| drop(create())), 0);
    let segment = Volume::open(&path).unwrap().information().segments[0].0.clone();
    let volume = Volume::open(&path).unwrap();
    std::fs::File::options().write(true).open(segment).unwrap().set_len(4096).unwrap();
    let written = volume.files(Credentials::root()).write("/file", "x");
    assert_eq!(written.map_err(|error| error.errno()), Err(Errno::IO));
    assert_eq!(errors_of(|| drop(volume)), 1);
}

#[test]
fn drop_that_cannot_drain_reports_an_event() {
    let _side_by_side = side_by_side();
    let host = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::new(host.path().join("small"), 16) else {
        eprintln!("skipped: only root can mount a small file system");
        return;
    };
    let path = mount.0.join("v");
    // No drain runs in the background before the drop.
    let paged = PagedOptions::new(64 << 20, Duration::from_secs(3600));
    let options = Volume::options().size(8 << 20).medium(MediumChoice::Paged).paged(paged);
    let volume = options.create(&path).unwrap();
    volume.files(Credentials::root()).write("/file", "in memory only").unwrap();
    // The disk of the host loses the volume, and then has no room for the changes.
    let segment = volume.information().segments[0].0.clone();
    std::fs::File::options().write(true).open(segment).unwrap().set_len(0).unwrap();
    assert!(std::fs::write(mount.0.join("greedy"), vec![1; 32 << 20]).is_err());
    assert_eq!(errors_of(|| drop(volume)), 1);
}
