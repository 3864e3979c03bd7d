//! Makes host calls fail while a volume is created, opened, resized, trimmed or closed. Each call site gets
//! every kind of failure that its calls may have. Afterwards a failed creation has left no files behind. In
//! all other cases the volume is sound and unlocked, and has all its data. One exception: a failed close of a
//! volume on a disk may lose the changes since the last sync.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use eyrie_faults::{Failing, FailureKind, FaultPlan, Site};
use eyrie_medium::{Medium, PagedOptions, SiteKind};

use crate::host::HostPlace;
use crate::scm::Scm;
use crate::volume::{MediumChoice, Options, Volume, create_from};
use crate::{Content, Engine, Errno, Error, Kind, Op, Owner, Result, SetIds, Time};

/// A size that is not a whole number of groups.
const BYTES: u64 = (3 << 20) + 8192;
const LARGER: u64 = 4 << 20;
const SMALLER: u64 = 2 << 20;
const KEPT: &[u8] = &[7; 100_000];
const LATE: &[u8] = b"what was changed last";
const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const TIME: Time = Time::new(1, 0);
/// The long interval keeps the background thread from draining during a test.
const PAGED: PagedOptions = PagedOptions::new(8 << 20, Duration::from_secs(3600));

/// The place of a volume.
#[derive(Clone, Copy, PartialEq, Debug)]
enum On {
    Directory(MediumChoice),
    /// A file that takes the place of a device.
    Device,
}

const EVERYWHERE: [On; 3] =
    [On::Directory(MediumChoice::Dram), On::Directory(MediumChoice::Paged), On::Device];

/// The operation during which host calls fail.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Act {
    /// Creates a volume at a free path, or on a device of zeros.
    Create,
    /// Creates a volume in an existing directory.
    CreateInside,
    /// Creates a volume from the bytes of its segment.
    CreateFrom,
    /// Opens a volume that was closed.
    Open,
    /// Opens a volume that was not closed.
    Recover,
    /// Opens a copy of a volume.
    OpenCopy,
    Resize(u64),
    Trim,
    /// Closes a volume. A volume that cannot be closed is left as it is.
    Close,
    /// Closes a volume. A volume that cannot be closed is changed and closed again.
    CloseAgain,
}

impl Act {
    /// Returns true if the operation creates a volume.
    fn creates(self) -> bool {
        matches!(self, Act::Create | Act::CreateInside | Act::CreateFrom)
    }

    /// Returns true if the operation closes a volume.
    fn closes(self) -> bool {
        matches!(self, Act::Close | Act::CloseAgain)
    }
}

/// The present or future place of a volume.
struct Place {
    on: On,
    path: PathBuf,
    _parent: tempfile::TempDir,
}

/// The bytes of a closed volume, and of a volume that was not closed.
struct Base {
    closed: Vec<u8>,
    crashed: Vec<u8>,
}

fn create_file(engine: &Scm, name: &[u8], bytes: &[u8]) -> Result<()> {
    let (dir, id) = (engine.root(), engine.reserve(Kind::File)?);
    let content = Content::Bytes(bytes);
    engine.apply(&Op::Create { dir, name, id, owner: OWNER, content, time: TIME }).map(drop)
}

/// Fills the volume with one file, and removes the file.
fn use_all(engine: &Scm) {
    create_file(engine, b"large", b"").expect("room");
    let (dir, name) = (engine.root(), b"large");
    let id = engine.lookup(dir, name).expect("sound").expect("it is there");
    while engine.apply(&Op::Append { id, data: KEPT, set_ids: SetIds::Keep, time: TIME }).is_ok() {}
    engine.apply(&Op::Unlink { dir, name, time: TIME }).expect("it is there");
}

/// Returns the bytes of a file, or `None` if the name does not exist.
fn contents(engine: &Scm, name: &[u8]) -> Option<Vec<u8>> {
    let id = engine.lookup(engine.root(), name).expect("sound")?;
    let mut bytes = vec![0; KEPT.len() + 1];
    let read = engine.read(id, 0, &mut bytes).expect("sound");
    bytes.truncate(read);
    Some(bytes)
}

impl Place {
    /// Returns an empty place, on which a volume can be created.
    fn new(on: On) -> Place {
        let parent = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Place::inside(on, parent.expect("a directory"))
    }

    fn inside(on: On, parent: tempfile::TempDir) -> Place {
        let path = parent.path().join("v");
        if on == On::Device {
            let file = File::create_new(&path).expect("nothing is there");
            file.set_len(Medium::paged_bytes(BYTES, false)).expect("room");
        }
        Place { on, path, _parent: parent }
    }

    /// Creates a place with a volume that has these bytes.
    fn holding(on: On, bytes: &[u8]) -> Place {
        let place = Place::new(on);
        if on != On::Device {
            fs::DirBuilder::new().mode(0o700).create(&place.path).expect("room");
        }
        fs::write(place.on_host().segment_path(), bytes).expect("room");
        place
    }

    /// Returns the place in the form that the engine takes. A file stands for a device.
    fn on_host(&self) -> HostPlace<'_> {
        if self.on == On::Device { HostPlace::Device(&self.path) } else { HostPlace::Directory(&self.path) }
    }

    fn create(&self) -> Result<Scm> {
        let (medium, bytes) = match self.on {
            On::Directory(medium) => (medium, Some(BYTES)),
            On::Device => (MediumChoice::Auto, None),
        };
        let options = Options {
            group_bytes: 1 << 18,
            hash_seed: 7,
            volume_id: [9; 16],
            created: TIME,
            medium,
            overwrite: false,
            checksums: false,
            paged: PAGED,
        };
        Scm::create_at(self.on_host(), bytes, &options, OWNER, TIME)
    }

    fn open(&self) -> Scm {
        Scm::open_at(self.on_host(), PAGED).expect("a sound volume that nobody has open")
    }

    fn file(&self) -> Vec<u8> {
        fs::read(self.on_host().segment_path()).expect("there")
    }

    /// Returns the paths and modes of all files and directories at the place.
    fn listing(&self) -> Vec<(PathBuf, u32)> {
        let parent = self.path.parent().expect("it has one");
        let mut pending = vec![parent.to_owned()];
        let mut found = Vec::new();
        while let Some(path) = pending.pop() {
            for entry in fs::read_dir(&path).expect("there").map(|entry| entry.expect("there").path()) {
                let metadata = fs::metadata(&entry).expect("there");
                if metadata.is_dir() {
                    pending.push(entry.clone());
                }
                found.push((entry, metadata.permissions().mode()));
            }
        }
        found.sort();
        found
    }

    /// Opens the volume, asserts that it is sound, makes a change, and closes it. `kept` is true if the
    /// volume must have the file "kept", and false if it must not. `late` says the same about the file
    /// "late", and is `None` if both results are right. Returns the size of the volume.
    fn assert_sound(&self, kept: bool, late: Option<bool>) -> u64 {
        let engine = self.open();
        let report = engine.check().expect("sound");
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert!(contents(&engine, b"kept") == kept.then(|| KEPT.to_vec()), "the kept file");
        let found = contents(&engine, b"late");
        assert!(found.as_deref().is_none_or(|bytes| bytes == LATE), "only a part of the last change");
        assert!(late.is_none_or(|late| found.is_some() == late), "the last change: {late:?}");
        let change = if contents(&engine, b"new").is_none() { b"new" } else { b"two" };
        create_file(&engine, change, LATE).expect("it can be changed");
        let bytes = engine.volume().geometry().volume_bytes();
        engine.close().expect("sound");
        bytes
    }
}

impl Base {
    /// Creates a volume with the file "kept", and closes it. All free space of the volume was in use once
    /// before the close. Returns the bytes of the closed volume, and its bytes after an open that added the
    /// files "late" and "large" without a close.
    fn new(on: On) -> Base {
        let place = Place::new(on);
        let engine = place.create().expect("room");
        create_file(&engine, b"kept", KEPT).expect("room");
        use_all(&engine);
        engine.close().expect("sound");
        if on == On::Device {
            let file = File::options().write(true).open(&place.path).expect("there");
            file.set_len(Medium::paged_bytes(LARGER, false)).expect("room");
        }
        let closed = place.file();
        let engine = place.open();
        create_file(&engine, b"late", LATE).expect("room");
        // The file is so large that a disk stores its pages outside the journal.
        create_file(&engine, b"large", KEPT).expect("room");
        engine.sync().expect("sound");
        drop(engine);
        Base { closed, crashed: place.file() }
    }
}

/// The result of a trial.
struct Shown {
    plan: FaultPlan,
    /// Number of calls that failed.
    failed: u64,
    /// True if the operation returned an error to its caller.
    is_told: bool,
}

/// Runs an operation, and checks the state after it. The calls that `failing` names fail during the
/// operation.
fn trial(on: On, act: Act, base: &Base, failing: Option<Failing>) -> Shown {
    let plan = FaultPlan::default();
    let place = match act {
        Act::Create | Act::CreateInside | Act::CreateFrom => Place::new(on),
        Act::Recover => Place::holding(on, &base.crashed),
        _ => Place::holding(on, &base.closed),
    };
    if act == Act::CreateInside {
        fs::DirBuilder::new().mode(0o750).create(&place.path).expect("room");
    }
    let before = place.listing();
    let mut engine = (act == Act::Trim || act.closes()).then(|| {
        let engine = place.open();
        create_file(&engine, b"late", LATE).expect("room");
        if act == Act::Trim {
            engine.sync().expect("sound");
        } else {
            use_all(&engine);
        }
        engine
    });
    let again = || match act {
        Act::Create | Act::CreateInside => place.create()?.close(),
        Act::CreateFrom => create_from(&place.path, &base.closed),
        Act::Resize(bytes) => Scm::resize_at(place.on_host(), Some(bytes), PAGED),
        _ => Ok(()),
    };
    plan.fail(failing);
    let done = plan.on_this_thread(|| match act {
        Act::Create | Act::CreateInside => place.create().map(drop),
        Act::Open | Act::Recover => Scm::open_at(place.on_host(), PAGED).map(drop),
        Act::OpenCopy => {
            let (volume, _) = Volume::open_copy_at(place.on_host(), PAGED)?;
            assert_eq!(volume.geometry().volume_bytes(), BYTES);
            Ok(())
        }
        Act::Trim => engine.as_ref().expect("open").trim().map(drop),
        Act::Close | Act::CloseAgain => engine.as_mut().expect("open").try_close(),
        Act::CreateFrom | Act::Resize(_) => again(),
    });
    let failed = plan.failed();
    if let (Act::CloseAgain, Err(_)) = (act, &done) {
        close_again(engine.as_mut().expect("open"), on);
    }
    drop(engine);
    // Every operation must report a failed flush. An operation that makes or resizes the volume must also
    // report failed writes, and failed calls of the kind `Host`. Other failures may be hidden: for example, a
    // failed read or allocation is repeated with a smaller size.
    let must_tell = failing.is_some_and(|failing| match failing.site.kind {
        SiteKind::Flush => true,
        SiteKind::Host | SiteKind::Write => act.creates() || matches!(act, Act::Resize(_)),
        _ => false,
    });
    assert!(!must_tell || done.is_err() || failed == 0, "nobody is told that {failed} calls failed");
    if let Err(error) = &done {
        assert_told(failing.expect("nothing fails without a reason"), error);
        if act.creates() {
            assert_eq!(place.listing(), before, "something was left behind");
            again().expect("nothing is in the way");
        }
    }
    let late = match act {
        Act::Recover | Act::Trim => Some(true),
        act if act.closes() && (on == On::Directory(MediumChoice::Dram) || done.is_ok()) => Some(true),
        // The host refused a call that reads and writes no byte of the disk.
        act if act.closes() && failing.is_some_and(|failing| failing.site.kind == SiteKind::Host) => {
            Some(true)
        }
        // Changes that were not durable may be lost when the disk fails, so both results are right.
        Act::Close | Act::CloseAgain => None,
        _ => Some(false),
    };
    let has_kept = !matches!(act, Act::Create | Act::CreateInside);
    let is = place.assert_sound(has_kept, late);
    if let Act::Resize(new) = act {
        assert!(is == new || is == BYTES && done.is_err(), "{is} bytes");
        again().expect("nothing is in the way");
        assert_eq!(place.assert_sound(has_kept, late), new);
    } else {
        assert_eq!(is, BYTES);
    }
    Shown { plan, failed, is_told: done.is_err() }
}

/// Changes a volume after a close that failed, and closes it. Both the change and the close succeed, unless
/// the failure has made the disk of the volume read-only.
fn close_again(engine: &mut Scm, on: On) {
    let changed = create_file(engine, b"after", LATE).and_then(|_| engine.try_close());
    let refused = changed.as_ref().is_err_and(|error| error.errno() == Errno::ROFS);
    let is_disk = on != On::Directory(MediumChoice::Dram);
    assert!(changed.is_ok() || is_disk && refused, "a close cannot be tried again: {changed:?}");
}

/// Asserts that the error has the errno of the failure, or the errno of a disk that refuses changes after a
/// failure.
fn assert_told(failing: Failing, error: &Error) {
    let planned = Errno::from_io_error(&failing.kind.into());
    assert!([planned, Some(Errno::ROFS)].contains(&Some(error.errno())), "{error:?}");
}

/// Returns the kinds of failures of the calls from this site.
fn kinds(site: &Site) -> &'static [FailureKind] {
    match site.kind {
        SiteKind::Provision | SiteKind::Write | SiteKind::Host => &[FailureKind::Io, FailureKind::Full],
        _ => &[FailureKind::Io],
    }
}

/// The operation and the failure of a trial. They are printed when the test panics.
struct TrialName(On, Act, Option<Failing>);

impl fmt::Display for TrialName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on {:?}", self.1, self.0)?;
        match self.2 {
            None => Ok(()),
            Some(Failing { site, kind, first, is_persistent }) => {
                write!(
                    f,
                    ", {kind:?} from {site}, call {first}{}",
                    if is_persistent { " and all after it" } else { "" }
                )
            }
        }
    }
}

impl Drop for TrialName {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("in {self}");
        }
    }
}

/// Tries the failures of `Site::failures` at each call site of an operation, one failure in each trial.
/// Returns the call sites.
fn fail_everywhere(on: On, act: Act) -> BTreeSet<Site> {
    let base = Base::new(on);
    let trial = |failing| {
        let _name = TrialName(on, act, failing);
        trial(on, act, &base, failing)
    };
    let met = trial(None).plan.calls();
    println!("{}: {} call sites", TrialName(on, act, None), met.len());
    for (site, calls) in &met {
        for &kind in kinds(site) {
            let shown: Vec<_> = site.failures(kind, *calls).map(|failing| trial(Some(failing))).collect();
            let failed: u64 = shown.iter().map(|shown| shown.failed).sum();
            let told = shown.iter().filter(|shown| shown.is_told).count();
            println!(
                "  {kind:?} {site}: {calls} calls, {failed} failures, an error in {told} of {} trials",
                shown.len()
            );
            assert!(failed > 0, "{site} never failed");
        }
    }
    met.into_keys().collect()
}

/// Runs [`fail_everywhere`] for several operations. Returns the number of different call sites.
fn fail_in(acts: impl IntoIterator<Item = (On, Act)>) -> usize {
    let met: BTreeSet<Site> = acts.into_iter().flat_map(|(on, act)| fail_everywhere(on, act)).collect();
    println!("{} call sites", met.len());
    met.len()
}

fn everywhere(acts: &[Act]) -> impl Iterator<Item = (On, Act)> {
    EVERYWHERE.into_iter().flat_map(|on| acts.iter().map(move |act| (on, *act)))
}

#[test]
fn create_survives_any_host_failure() {
    let inside = everywhere(&[Act::CreateInside, Act::CreateFrom]).filter(|(on, _)| *on != On::Device);
    let anywhere = everywhere(&[Act::Create]).chain([(On::Directory(MediumChoice::Auto), Act::Create)]);
    assert!(fail_in(anywhere.chain(inside)) >= 50);
}

#[test]
fn open_survives_any_host_failure() {
    assert!(fail_in(everywhere(&[Act::Open, Act::Recover, Act::OpenCopy])) >= 32);
}

#[test]
fn resize_survives_any_host_failure() {
    assert!(fail_in(everywhere(&[Act::Resize(LARGER), Act::Resize(SMALLER)])) >= 50);
}

#[test]
fn trim_and_close_survive_any_host_failure() {
    assert!(fail_in(everywhere(&[Act::Trim, Act::Close, Act::CloseAgain])) >= 9);
}

/// The device in this test is a file in the temporary directory. If this directory is on a disk, direct
/// transfers must be from aligned memory. There the test also notices a clean-up that writes from unaligned
/// memory.
#[test]
fn device_can_be_used_after_a_failed_creation() {
    let create = |failing| {
        let place = Place::inside(On::Device, tempfile::tempdir().expect("a directory"));
        let plan = FaultPlan::default();
        plan.fail(failing);
        let done = plan.on_this_thread(|| place.create().map(drop));
        (place, plan, done)
    };
    let mut flushes = create(None).1.calls();
    flushes.retain(|site, _| site.kind == SiteKind::Flush);
    assert!(flushes.len() >= 3, "{flushes:?}");
    for site in flushes.into_keys() {
        let failing = Failing { site, kind: FailureKind::Io, first: 1, is_persistent: false };
        let (place, _, done) = create(Some(failing));
        assert_told(failing, &done.expect_err("the disk failed"));
        place.create().and_then(Scm::close).expect("nothing is in the way");
    }
}
