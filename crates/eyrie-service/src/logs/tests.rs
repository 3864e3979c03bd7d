//! Tests of one log, whose client is the test, and of hosts that fail while the service applies the log.

use std::os::unix::fs::FileExt;
use std::rc::Rc;

use eyrie::{MediumChoice, PagedOptions, Volume};
use eyrie_client::protocol::{LOG_TAIL, LogWord, MEMORY_BYTES};
use eyrie_engine::change_log::{ENTRY_HEAD_BYTES, EntryHead, HEAD_BYTES, NO_DETAIL};
use eyrie_engine::op::encode::encode_unsummed;
use eyrie_engine::{Content, Engine, Kind, Owner, SetIds, Time};
use eyrie_medium::host::{self, HostObserver};
use eyrie_medium::{Caller, SiteKind};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::*;

const OWNER: Owner = Owner { mode: 0o600, uid: 0, gid: 0 };
const TIME: Time = Time::new(1, 0);
const SESSION: u64 = 2;

/// The log of the only session of a volume, and a file that its entries change.
struct OneLog {
    logs: Logs,
    clock: Clock,
    engine: Scm,
    lanes: Arc<SharedMemory>,
    log: File,
    file: ObjectId,
    place: tempfile::TempDir,
}

impl OneLog {
    fn new() -> OneLog {
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("room");
        let path = place.path().join("v");
        let options = Volume::options().size(64 << 20).medium(MediumChoice::Dram);
        options.create(&path).expect("room").close().expect("sound");
        let engine = Scm::open_shared(&path, PagedOptions::for_host()).expect("sound");
        let (dir, id, content) = (engine.root(), engine.reserve(Kind::File).expect("room"), Content::Empty);
        let make = Op::Create { dir, name: b"file", id, owner: OWNER, content, time: TIME };
        engine.apply(&make).expect("room");
        let mut logs = Logs::default();
        logs.begin(&path, false).expect("room");
        let lanes = Arc::new(SharedMemory::create(MEMORY_BYTES).expect("room"));
        let (key, memory) = (SessionKey::new(1, 1, 3), (&lanes, &ReservedIds::default()));
        let log = logs.join(SESSION, key, &Credentials::root(), memory).expect("few groups");
        let log = log.try_clone().expect("few descriptors");
        OneLog { logs, clock: Clock::default(), engine, lanes, log, file: id, place }
    }

    /// Returns a log whose session holds the grant of the volume.
    fn with_grant() -> OneLog {
        let mut one = OneLog::new();
        one.logs.grant_whole(&one.engine, SESSION);
        one.logs.reopen(SESSION);
        assert!(!one.word().is_sealed(), "the session has the grant");
        one
    }

    fn word(&self) -> LogWord {
        LogWord::from_raw(self.lanes.word(LOG_TAIL).load(Ordering::SeqCst))
    }

    fn append_bytes(&self, head: EntryHead, op: &[u8]) {
        let word = self.word();
        assert!(!word.is_sealed() && word.position() + u64::from(head.bytes) <= RING_BYTES);
        let bytes = [head.as_bytes(), op].concat();
        self.log.write_all_at(&bytes, HEAD_BYTES as u64 + word.position()).expect("room");
        let after = word.with_position(word.position() + u64::from(head.bytes));
        self.lanes.word_to_store(LOG_TAIL).store(after.raw(), Ordering::SeqCst);
    }

    /// Logs the overwrite of some pages, each of them with its number.
    fn write_pages(&self, pages: std::ops::Range<u8>) {
        for page in pages {
            let (id, offset, data) = (self.file, u64::from(page) << 12, &[page; 4096]);
            self.append(&Op::Write { id, offset, data, set_ids: SetIds::Keep, time: TIME }, NO_DETAIL);
        }
    }

    fn append(&self, op: &Op<'_>, detail: u64) {
        let mut record = Vec::new();
        encode_unsummed(op, &mut record);
        let bytes = (ENTRY_HEAD_BYTES + record.len()).next_multiple_of(16) as u32;
        let head = EntryHead { bytes, op_bytes: record.len() as u32, detail };
        self.append_bytes(head, &record);
    }

    /// Logs an entry that cannot be applied.
    fn append_damage(&self) {
        self.append_bytes(EntryHead { bytes: 32, op_bytes: 16, detail: NO_DETAIL }, &[0x55; 16]);
    }

    /// Takes all storage for which the host has provided memory.
    fn fill_memory(&self) {
        let (id, set_ids) = (self.file, SetIds::Keep);
        let fill = |offset| Op::Write { id, offset, data: &[1; 4096], set_ids, time: TIME };
        let mut offsets = (1 << 20..64 << 20).step_by(4096);
        let error = offsets.find_map(|offset| self.engine.apply(&fill(offset)).err());
        assert!(error.is_some_and(|error| error.is_full()));
    }

    fn sweep(&mut self) -> Swept {
        self.logs.sweep(&self.engine, &mut self.clock)
    }

    fn has_failed(&self) -> bool {
        self.lanes.word(LOG_FAILED).load(Ordering::SeqCst) != 0
    }
}

fn assert_has_pages(engine: &Scm, file: ObjectId, pages: std::ops::Range<u8>) {
    let mut bytes = vec![0; usize::from(pages.end) << 12];
    assert_eq!(engine.read(file, 0, &mut bytes).expect("sound"), bytes.len());
    for page in pages {
        assert!(bytes[usize::from(page) << 12..][..4096].iter().all(|&byte| byte == page), "{page}");
    }
}

/// A host that reads logs this number of times, and then fails.
struct FailingReads(Cell<u32>);

impl HostObserver for FailingReads {
    fn before_call(&self, _: SiteKind, caller: Caller) -> std::result::Result<(), Errno> {
        if !caller.file().ends_with("change_log/read.rs") {
            return Ok(());
        }
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        if left == 0 { Err(Errno::IO) } else { Ok(()) }
    }
}

/// An entry fails, and then the host cannot read the rest of the log for a moment.
#[test]
fn entries_after_a_failed_one_wait_for_the_host() {
    let mut one = OneLog::with_grant();
    one.append_damage();
    // The service reads these entries by several calls.
    one.write_pages(0..200);
    let swept = host::observed_by(Rc::new(FailingReads(Cell::new(1))), || one.sweep());
    assert_eq!((swept, one.has_failed()), (Swept::Full, true));
    assert!(one.word().is_sealed());
    assert_eq!(one.sweep(), Swept::Some);
    assert_has_pages(&one.engine, one.file, 0..200);
    assert!(one.logs.open.is_empty(), "the session logs nothing more");
}

/// A host that is full.
struct FullHost;

impl HostObserver for FullHost {
    fn before_call(&self, kind: SiteKind, _: Caller) -> std::result::Result<(), Errno> {
        if kind == SiteKind::Provision { Err(Errno::NOSPC) } else { Ok(()) }
    }
}

#[test]
fn entries_wait_for_a_full_host() {
    let mut one = OneLog::with_grant();
    host::observed_by(Rc::new(FullHost), || {
        one.fill_memory();
        one.write_pages(0..25);
        assert_eq!(one.sweep(), Swept::Full);
    });
    assert!(!one.has_failed());
    assert_eq!(one.sweep(), Swept::Some);
    assert_has_pages(&one.engine, one.file, 0..25);
    assert!(!one.has_failed());
}

/// The host stays full for so long that the service gives the entry up.
#[test]
fn entry_that_finds_no_storage_keeps_its_id_reserved() {
    let mut one = OneLog::with_grant();
    let (dir, id) = (one.engine.root(), one.engine.reserve(Kind::File).expect("room"));
    let (log, start) = (one.logs.logs.get_mut(&SESSION).expect("joined"), Instant::now());
    (0..100).for_each(|tenth| log.wait.note_attempt(true, false, start + tenth * Duration::from_millis(100)));
    let (reserved, generation) = (Arc::clone(&log.reserved), log.generations.start);
    lock(&reserved).insert(id);
    host::observed_by(Rc::new(FullHost), || {
        one.fill_memory();
        let data = &[1; 32 << 10];
        one.append(&Op::Put { dir, name: b"key", id, owner: OWNER, data, time: TIME }, generation);
        one.sweep();
    });
    assert!(one.has_failed());
    assert_eq!(one.engine.lookup(dir, b"key").expect("sound"), None);
    // The end of the session gives the id back.
    assert!(lock(&reserved).contains(&id));
}

/// A service is stopped while the host is full.
#[test]
fn log_stays_for_the_next_owner() {
    let mut one = OneLog::with_grant();
    host::observed_by(Rc::new(FullHost), || {
        one.fill_memory();
        one.write_pages(0..25);
        one.logs.leave_to_next_owner(&one.engine, &mut one.clock);
    });
    assert!(!one.has_failed() && one.word().is_sealed());
    let OneLog { logs, engine, file, place, .. } = one;
    drop(logs);
    engine.close().expect("the host has room again");
    let engine = Scm::open(&place.path().join("v"), PagedOptions::for_host()).expect("sound");
    assert_has_pages(&engine, file, 0..25);
}

/// A request that waits is tried again with each sweep.
#[test]
fn attempts_of_a_waiting_request_bring_no_grant() {
    let mut one = OneLog::new();
    let try_request = |one: &mut OneLog| {
        let (requester, objects) = ((SESSION, 0), RequestedObjects::All);
        assert_eq!(
            one.logs.before_request(&one.engine, &mut one.clock, requester, objects),
            Readiness::Ready
        );
    };
    let answer = |one: &mut OneLog| {
        try_request(one);
        one.logs.count_request(SESSION);
        one.logs.changed(&one.engine, &mut one.clock, SESSION);
    };
    (0..2 * REQUESTS_BEFORE_GRANT).for_each(|_| try_request(&mut one));
    answer(&mut one);
    assert_eq!(one.logs.whole, None);
    (0..REQUESTS_BEFORE_GRANT).for_each(|_| answer(&mut one));
    assert_eq!(one.logs.whole, Some(SESSION));
}
