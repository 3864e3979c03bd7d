//! Tests of the replay of change logs, with owners that are killed and hosts that fail.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use eyrie_medium::host::{self, HostObserver};
use eyrie_medium::{Caller, PagedOptions, SiteKind};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::*;
use crate::access::Credentials;
use crate::board::{MOST_SESSIONS, PARTS, SessionKey, part_of};
use crate::change_log::{
    ENTRY_HEAD_BYTES, EntryHead, FAILED_WORD, FINAL_WORD, HEAD_BYTES, LOG_FILE_BYTES, NO_DETAIL, TAIL_WORD,
};
use crate::host::{LogGrant, LogTable};
use crate::op::encode::encode_unsummed;
use crate::volume::{MediumChoice, Options};
use crate::{Content, Kind, ObjectId, Op, Owner, RenameMode, SetIds, Time};

const OWNER: Owner = Owner { mode: 0o600, uid: 0, gid: 0 };
const TIME: Time = Time::new(5, 0);
/// Size of the slot of a session in the table of the logs, and offsets in the slot.
const SLOT_BYTES: usize = 4096;
const TABLE_BYTES: usize = (MOST_SESSIONS + 1) * SLOT_BYTES + PARTS * 8;
const APPLIED: usize = 8;
const BUDGET: usize = 16;
const SEEN: usize = 4088;

/// A volume whose service was killed, with the logs of two sessions.
struct Killed {
    place: tempfile::TempDir,
    log: File,
    file: ObjectId,
    /// The directory of the session's names: the root, or `nest` for the other session.
    dir: ObjectId,
    /// Ids that a client had reserved, and the first generation that it may use.
    reserved: [ObjectId; 2],
    generation: u64,
    /// Position after the last entry.
    tail: u64,
    /// The log of the other session, the position after its last entry, and its directory.
    other: (File, u64, ObjectId),
}

/// The key of the session with this place on the board.
fn key(place: usize) -> SessionKey {
    SessionKey::new(1, 1, place)
}

impl Killed {
    fn new(who: &Credentials) -> Killed {
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("room");
        let options =
            Options { medium: MediumChoice::Dram, ..Options::random(TIME).expect("random numbers") };
        let path = place.path().join("v");
        let engine = Scm::create(&path, Some(8 << 20), &options, OWNER, TIME).expect("a volume");
        let root = engine.root();
        let make = |dir, name, kind| {
            let (id, content) = (engine.reserve(kind).expect("room"), Content::Empty);
            engine.apply(&Op::Create { dir, name, id, owner: OWNER, content, time: TIME }).expect("room");
            id
        };
        let [file, value] = [b"file", &b"key"[..]].map(|name| make(root, name, Kind::File));
        let nest = make(root, b"nest", Kind::Directory);
        let [other, guest] =
            [(nest, &b"other"[..]), (root, b"guest")].map(|(dir, name)| make(dir, name, Kind::File));
        let reserved = [(); 2].map(|()| engine.reserve(Kind::File).expect("room"));
        reserved.iter().for_each(|&id| engine.unreserve(id));
        let generation = engine.generations_for_log().expect("few are used").start;
        let table = LogTable::create(&path).expect("room");
        let begin = |place, generations, objects: &[ObjectId]| {
            let key = key(place);
            let log = table.begin(key, who).expect("room").expect("few groups");
            table.set_granted(key, LogGrant::Parts);
            table.set_generations(key, &generations);
            table.set_budget(key, 16 << 20);
            objects.iter().for_each(|&id| table.set_holder(part_of(id), Some(key)));
            log
        };
        let held = [root, file, value, reserved[0], reserved[1]];
        let log = begin(3, generation..generation + 2, &held);
        let other = (begin(4, generation + 2..generation + 3, &[nest, other, guest]), 0, nest);
        Killed { place, log, file, dir: root, reserved, generation, tail: 0, other }
    }

    /// Returns a word of the table of the logs.
    fn table_word(&self, offset: usize) -> u64 {
        word_of(&File::open(self.path().join("sessions")).expect("a table"), offset)
    }

    /// Returns a word of the head of the log.
    fn log_word(&self, index: usize) -> u64 {
        word_of(&self.log, index * 8)
    }

    /// Changes the table of the logs.
    fn change_table(&self, offset: usize, value: u64) {
        let table = File::options().write(true).open(self.path().join("sessions")).expect("a table");
        table.write_all_at(&value.to_le_bytes(), offset as u64).expect("room");
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("v")
    }

    /// Makes the following calls append to the log of the other session.
    fn swap_logs(&mut self) {
        std::mem::swap(&mut self.log, &mut self.other.0);
        std::mem::swap(&mut self.tail, &mut self.other.1);
        std::mem::swap(&mut self.dir, &mut self.other.2);
    }

    fn append_bytes(&mut self, entry: EntryHead, op: &[u8]) {
        let bytes = [entry.as_bytes(), op].concat();
        self.log.write_all_at(&bytes, HEAD_BYTES as u64 + self.tail % RING_BYTES).expect("room");
        self.tail += u64::from(entry.bytes);
        self.log.write_all_at(&self.tail.to_le_bytes(), TAIL_WORD as u64 * 8).expect("room");
    }

    fn append(&mut self, op: &Op<'_>) {
        self.append_with(op, NO_DETAIL);
    }

    fn append_with(&mut self, op: &Op<'_>, detail: u64) {
        let mut record = Vec::new();
        encode_unsummed(op, &mut record);
        let bytes = (ENTRY_HEAD_BYTES + record.len()).next_multiple_of(16) as u32;
        let entry = EntryHead { bytes, op_bytes: record.len() as u32, detail };
        self.append_bytes(entry, &record);
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.append(&Op::Write { id: self.file, offset, data, set_ids: SetIds::Keep, time: TIME });
    }

    fn put(&mut self, name: &[u8], data: &[u8]) {
        let id = ObjectId::new(1 << 20, Kind::File);
        self.append(&Op::Put { dir: self.dir, name, id, owner: OWNER, data, time: TIME });
    }

    /// Logs the creation of a file with one of the reserved ids.
    fn create(&mut self, name: &[u8], number: usize) {
        self.create_with(name, number, self.generation + number as u64);
    }

    fn create_with(&mut self, name: &[u8], number: usize, generation: u64) {
        let (dir, id, content) = (self.dir, self.reserved[number], Content::Bytes(name));
        self.append_with(&Op::Create { dir, name, id, owner: OWNER, content, time: TIME }, generation);
    }

    fn unlink(&mut self, name: &[u8], id: ObjectId) {
        self.append_with(&Op::Unlink { dir: self.dir, name, time: TIME }, id.raw());
    }

    fn rename(&mut self, from_name: &[u8], to_name: &[u8], id: ObjectId) {
        let (from_dir, to_dir, mode, whiteout) = (self.dir, self.dir, RenameMode::Replace, None);
        let op = Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time: TIME };
        self.append_with(&op, id.raw());
    }

    /// Opens the volume as the service that left the log did.
    fn open_without_logs(&self) -> Scm {
        let [table, hidden] = ["sessions", "hidden"].map(|name| self.path().join(name));
        std::fs::rename(&table, &hidden).expect("a table");
        let engine = self.open().expect("sound");
        std::fs::rename(hidden, table).expect("a table");
        engine
    }

    fn open(&self) -> Result<Scm> {
        Scm::open(&self.path(), PagedOptions::for_host())
    }
}

fn word_of(file: &File, offset: usize) -> u64 {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, offset as u64).expect("a word");
    u64::from_le_bytes(word)
}

fn bytes_of(engine: &Scm, path: &[u8]) -> Vec<u8> {
    let find = |dir, name: &[u8]| engine.lookup(dir, name).expect("sound").expect("there");
    let id = path.split(|&byte| byte == b'/').fold(engine.root(), find);
    let mut bytes = vec![0; 100];
    let count = engine.read(id, 0, &mut bytes).expect("sound");
    bytes.truncate(count);
    bytes
}

fn assert_is_clean(engine: &Scm) {
    let report = engine.check().expect("sound");
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// Fails a call to the host after this number of calls.
struct FailAtCall {
    left: Cell<u32>,
    /// True if all later calls fail too, as after a kill.
    is_kill: bool,
}

impl HostObserver for FailAtCall {
    fn before_call(&self, _: SiteKind, _: Caller) -> std::result::Result<(), Errno> {
        match self.left.get() {
            0 if self.is_kill => Err(Errno::IO),
            u32::MAX => Ok(()),
            left => {
                self.left.set(left.wrapping_sub(1));
                if left == 0 { Err(Errno::IO) } else { Ok(()) }
            }
        }
    }
}

/// The next owner is killed at each of its calls to the host in turn. The owner after it finds every
/// change.
#[test]
fn left_log_is_applied_although_its_owners_are_killed() {
    assert!(owners_after_failures(true) > 10);
}

/// A failed call to the host does not count as damage of the log.
#[test]
fn left_log_is_applied_although_calls_of_the_host_fail() {
    assert!(owners_after_failures(false) > 5);
}

/// A host that provides memory this number of times, and then is full.
struct FullHost(Cell<u32>);

impl HostObserver for FullHost {
    fn before_call(&self, kind: SiteKind, _: Caller) -> std::result::Result<(), Errno> {
        let left = self.0.get();
        if kind == SiteKind::Provision {
            self.0.set(left.saturating_sub(1));
        }
        if kind == SiteKind::Provision && left == 0 { Err(Errno::NOSPC) } else { Ok(()) }
    }
}

/// The host is full while an owner applies a log, so the open fails. The next owner makes every change.
#[test]
fn left_log_is_applied_after_a_full_host() {
    let mut killed = Killed::new(&Credentials::root());
    let pages = 400;
    (0..pages).for_each(|page| killed.write(page << 12, &[2; 4096]));
    let mut is_applied_in_part = false;
    for provisions in 0.. {
        let host = Rc::new(FullHost(Cell::new(provisions)));
        match host::observed_by(host, || killed.open().map(drop)) {
            Ok(()) => break,
            Err(error) => {
                assert!(error.is_full(), "{error:?}");
                is_applied_in_part |= (1..killed.tail).contains(&killed.table_word(3 * SLOT_BYTES + APPLIED));
            }
        }
    }
    assert!(is_applied_in_part);
    let engine = killed.open().expect("sound");
    let mut bytes = vec![0; pages as usize * 4096];
    assert_eq!(engine.read(killed.file, 0, &mut bytes).expect("sound"), bytes.len());
    assert!(bytes.iter().all(|&byte| byte == 2));
    assert_is_clean(&engine);
}

/// A client appends after an owner was killed that had applied a part of its log. The client gets no
/// further budget, and nothing is applied after the position that an owner has told it.
#[test]
fn killed_owner_renews_no_budget() {
    let prepare = |killed: &mut Killed| {
        // Each entry may need 36 KiB.
        killed.change_table(3 * SLOT_BYTES + BUDGET, 80 << 10);
        [b"blue", b"grey"].into_iter().for_each(|data| killed.write(0, data));
    };
    after_each_kill(prepare, |killed| {
        killed.write(0, b"lost");
        assert_eq!(bytes_of(&killed.open().expect("sound"), b"file"), b"grey");
    });
}

/// The log has an entry that cannot be applied. Its client learns of the lost change, also if an owner is
/// killed right after it has dropped the entry.
#[test]
fn killed_owner_hides_no_lost_change() {
    let prepare = |killed: &mut Killed| {
        killed.append_bytes(EntryHead { bytes: 32, op_bytes: 16, detail: NO_DETAIL }, &[0x55; 16]);
        killed.write(0, b"blue");
    };
    after_each_kill(prepare, |killed| {
        assert_eq!(bytes_of(&killed.open().expect("sound"), b"file"), b"blue");
        assert_eq!(killed.log_word(FAILED_WORD), 1);
    });
}

/// Kills an owner at each of its calls to the host in turn, and checks the volume that it leaves.
fn after_each_kill(prepare: impl Fn(&mut Killed), check: impl Fn(&mut Killed)) {
    for calls in 0.. {
        let mut killed = Killed::new(&Credentials::root());
        prepare(&mut killed);
        let observer = Rc::new(FailAtCall { left: Cell::new(calls), is_kill: true });
        if host::observed_by(observer, || killed.open().map(drop)).is_ok() {
            return assert!(calls > 10, "{calls}");
        }
        check(&mut killed);
    }
}

/// Opens the volume with a failure at each call to the host in turn, and then without a failure. Asserts
/// that all logged changes were made. Returns the number of opens that failed.
fn owners_after_failures(is_kill: bool) -> u32 {
    let mut failed = 0;
    for calls in 0.. {
        let mut killed = Killed::new(&Credentials::root());
        for (offset, data) in [(0, &b"blue"[..]), (4, b" egg"), (0, b"grey")] {
            killed.write(offset, data);
        }
        killed.put(b"key", b"value");
        let [first, second] = killed.reserved;
        killed.create(b"new", 0);
        killed.rename(b"new", b"moved", first);
        killed.create(b"new", 1);
        killed.unlink(b"moved", first);
        killed.rename(b"new", b"last", second);
        killed.swap_logs();
        for data in [b"one", b"two"] {
            killed.put(b"other", data);
        }
        let observer = Rc::new(FailAtCall { left: Cell::new(calls), is_kill });
        let opened = host::observed_by(observer.clone(), || killed.open().map(drop));
        failed += u32::from(opened.is_err());
        let engine = killed.open().expect("sound");
        assert_eq!(
            (bytes_of(&engine, b"file"), bytes_of(&engine, b"key")),
            (b"grey egg".to_vec(), b"value".to_vec())
        );
        let id_of = |name: &[u8]| engine.lookup(engine.root(), name).expect("sound");
        assert_eq!([&b"new"[..], b"moved", b"last"].map(id_of), [None, None, Some(second)]);
        assert_eq!(bytes_of(&engine, b"last"), b"new");
        assert_eq!(engine.birth(second).expect("alive").generation, killed.generation + 1);
        assert_eq!(bytes_of(&engine, b"nest/other"), b"two");
        assert_is_clean(&engine);
        let path = killed.path();
        assert!(["sessions", "log-003", "log-004"].iter().all(|name| !path.join(name).exists()));
        for _ in 0..2 {
            let last = killed.log_word(FINAL_WORD);
            assert_eq!(last, killed.tail + 1, "the client learns that all is applied");
            killed.swap_logs();
        }
        if opened.is_ok() && (1..u32::MAX).contains(&observer.left.get()) {
            break;
        }
    }
    failed
}

/// A directory grows only while it leaves the storage that logged changes may still need.
#[test]
fn growth_leaves_promised_storage() {
    let engine = Killed::new(&Credentials::root()).open_without_logs();
    let dir = engine.root();
    let promised = 4 << 20;
    engine.promise_storage(promised);
    let mut largest = 0;
    for number in 0_u32.. {
        let before = engine.space().free;
        if before < promised {
            break;
        }
        let id = engine.reserve(Kind::File).expect("room");
        let name = &number.to_le_bytes().map(|byte| byte | 128);
        let name = &[&name[..], &number.to_string().into_bytes()].concat();
        let content = Content::Empty;
        engine.apply(&Op::Create { dir, name, id, owner: OWNER, content, time: TIME }).expect("room");
        let taken = before.saturating_sub(engine.space().free);
        largest = largest.max(taken);
        assert!(taken < 128 << 10 || before - taken >= promised, "{taken} of {before} bytes");
    }
    assert!(largest > 128 << 10, "the directory has grown");
    assert_is_clean(&engine);
}

/// The log has changes of an object that had lost its name, and changes of another object, which need
/// storage. The storage of the first object is free now, so its entries must change nothing.
#[test]
fn entry_of_a_removed_object_changes_nothing() {
    for to_change in [true, false] {
        let mut killed = Killed::new(&Credentials::root());
        let engine = killed.open_without_logs();
        let root = engine.root();
        let orphan = engine.reserve(Kind::File).expect("room");
        let (name, content) = (b"tmp", Content::Empty);
        let make = Op::Create { dir: root, name, id: orphan, owner: OWNER, content, time: TIME };
        engine.apply(&make).expect("room");
        let overwrite = |page: u64, data| Op::Write {
            id: orphan,
            offset: page << 12,
            data,
            set_ids: SetIds::Keep,
            time: TIME,
        };
        engine.apply(&overwrite(0, &[1; 64 << 12])).expect("room");
        engine.open(orphan).expect("alive");
        engine.apply(&Op::Unlink { dir: root, name: b"tmp", time: TIME }).expect("there");
        drop(engine);
        (0..64).for_each(|page| killed.write(page << 12, &[2; 4096]));
        // Short writes over existing bytes are made in place.
        (0..64).for_each(|page| killed.append(&overwrite(page, &[3; 8])));
        killed.append(&overwrite(0, &[3; 64]));
        let engine = if to_change {
            killed.open().expect("sound")
        } else {
            Scm::open_read_only(&killed.path(), PagedOptions::for_host()).expect("sound")
        };
        let file = engine.lookup(engine.root(), b"file").expect("sound").expect("there");
        let mut bytes = vec![0; 64 << 12];
        assert_eq!(engine.read(file, 0, &mut bytes).expect("sound"), 64 << 12);
        assert!(bytes.iter().all(|&byte| byte == 2));
        assert_is_clean(&engine);
    }
}

#[test]
fn open_that_only_reads_sees_a_left_log() {
    let mut killed = Killed::new(&Credentials::root());
    killed.write(0, b"blue");
    for _ in 0..2 {
        let engine = Scm::open_read_only(&killed.path(), PagedOptions::for_host()).expect("sound");
        assert_eq!(bytes_of(&engine, b"file"), b"blue");
    }
    assert!(killed.path().join("log-003").exists());
}

#[test]
fn entry_without_a_right_changes_nothing() {
    let mut killed = Killed::new(&Credentials::new(7, 7, &[8]));
    killed.write(0, b"blue");
    killed.put(b"key", b"value");
    let engine = killed.open().expect("sound");
    assert_eq!((bytes_of(&engine, b"file"), bytes_of(&engine, b"key")), (vec![], vec![]));
    assert_is_clean(&engine);
}

#[test]
fn entries_that_no_client_logs_change_nothing() {
    let mut killed = Killed::new(&Credentials::root());
    // The generations are not those of the log.
    killed.create_with(b"new", 0, NO_DETAIL);
    killed.create_with(b"new", 1, killed.generation + 2);
    let dir = killed.dir;
    killed.append(&Op::Unlink { dir, name: b"key", time: TIME });
    killed.append_bytes(EntryHead { bytes: 32, op_bytes: 16, detail: NO_DETAIL }, &[0x55; 16]);
    killed.write(0, b"blue");
    let engine = killed.open().expect("sound");
    assert_eq!(engine.lookup(engine.root(), b"new").expect("sound"), None);
    assert_eq!((bytes_of(&engine, b"file"), bytes_of(&engine, b"key")), (b"blue".to_vec(), vec![]));
    assert_is_clean(&engine);
}

/// A log has entries with files, a directory and a new object that another session holds. These entries
/// change nothing, although the user of the log has all rights.
#[test]
fn entries_need_the_grants_of_their_session() {
    let mut killed = Killed::new(&Credentials::root());
    killed.write(0, b"blue");
    killed.swap_logs();
    killed.write(0, b"lost");
    killed.create_with(b"new", 0, killed.generation + 2);
    killed.put(b"other", b"one");
    killed.swap_logs();
    let (root, nest, file) = (killed.dir, killed.other.2, killed.file);
    killed.rename(b"file", b"guest", file);
    // The client gives the id of its own file as that of the name.
    killed.unlink(b"guest", file);
    killed.swap_logs();
    // This log comes second, so no entry of the other log hides this one.
    killed.dir = root;
    killed.put(b"key", b"lost");
    let engine = killed.open().expect("sound");
    assert_eq!(
        [b"file", &b"nest/other"[..], b"guest", b"key"].map(|path| bytes_of(&engine, path)),
        [&b"blue"[..], b"one", b"", b""].map(<[u8]>::to_vec)
    );
    assert_eq!(engine.lookup(nest, b"new").expect("sound"), None);
    assert_is_clean(&engine);
}

#[test]
fn entries_beyond_the_budget_change_nothing() {
    let mut killed = Killed::new(&Credentials::root());
    for data in [b"blue", b"grey", b"lost"] {
        killed.write(0, data);
    }
    killed.swap_logs();
    killed.put(b"other", b"value");
    // Each entry may need 36 KiB.
    killed.change_table(3 * SLOT_BYTES + BUDGET, 80 << 10);
    let engine = killed.open().expect("sound");
    assert_eq!(bytes_of(&engine, b"file"), b"grey");
    assert_eq!(bytes_of(&engine, b"nest/other"), b"value");
    assert_is_clean(&engine);
}

/// Each kind of damage ends a log. The entries before the damage count.
#[test]
fn damaged_log_ends_at_its_damage() {
    let head = |bytes, op_bytes| EntryHead { bytes, op_bytes, detail: NO_DETAIL };
    let heads = [head(0, 0), head(16, 0), head(15, 1), head(32, 17), head(u32::MAX, 1), head(1 << 20, 8)];
    for damage in heads {
        let mut killed = Killed::new(&Credentials::root());
        killed.write(0, b"blue");
        let after = killed.tail + 32;
        killed.append_bytes(damage, &[0; 16]);
        killed.tail = after;
        killed.write(0, b"grey");
        let engine = killed.open().expect("sound");
        assert_eq!(bytes_of(&engine, b"file"), b"blue", "{damage:?}");
    }
    for length in [0, 8, HEAD_BYTES as u64, LOG_FILE_BYTES as u64] {
        for tail in [64, RING_BYTES + 16, u64::MAX] {
            let killed = Killed::new(&Credentials::root());
            killed.log.write_all_at(&tail.to_le_bytes(), TAIL_WORD as u64 * 8).expect("room");
            killed.log.set_len(length).expect("a file");
            let engine = killed.open().expect("sound");
            assert_eq!(bytes_of(&engine, b"file"), b"", "{length} {tail}");
            assert_is_clean(&engine);
        }
    }
}

/// A service was killed while it applied an entry. The client was stopped before it could store the position
/// after this entry in its log.
#[test]
fn entry_that_the_service_has_found_counts() {
    let mut killed = Killed::new(&Credentials::root());
    killed.write(0, b"blue");
    let stored = killed.tail;
    killed.write(0, b"grey");
    killed.log.write_all_at(&stored.to_le_bytes(), TAIL_WORD as u64 * 8).expect("room");
    killed.change_table(3 * SLOT_BYTES + SEEN, killed.tail);
    let engine = killed.open().expect("sound");
    assert_eq!(bytes_of(&engine, b"file"), b"grey");
    assert_eq!(killed.log_word(FINAL_WORD), killed.tail + 1, "the client learns that the change is made");
}

/// A program of another version refuses the volume, and so drops no changes.
#[test]
fn logs_of_another_version_stay() {
    let mut killed = Killed::new(&Credentials::root());
    killed.write(0, b"blue");
    let at = MOST_SESSIONS * SLOT_BYTES + PARTS * 8;
    let version = killed.table_word(at);
    for other in [version + 1, version + (1 << 16)] {
        killed.change_table(at, other);
        for refused in [killed.open(), Scm::open_read_only(&killed.path(), PagedOptions::for_host())] {
            assert_eq!(refused.err().map(|error| error.errno()), Some(crate::Errno::OPNOTSUPP));
        }
    }
    killed.change_table(at, version);
    assert_eq!(bytes_of(&killed.open().expect("sound"), b"file"), b"blue");
}

/// A service that died while it made its table had no client yet.
#[test]
fn table_that_was_not_finished_has_no_logs() {
    let killed = Killed::new(&Credentials::root());
    for bytes in [0, SLOT_BYTES, TABLE_BYTES] {
        let table = File::create(killed.path().join("sessions")).expect("room");
        table.set_len(bytes as u64).expect("room");
        assert_is_clean(&killed.open().expect("sound"));
        assert!(!killed.path().join("sessions").exists());
    }
}

/// An entry without an Op fills the rest of the ring. The next entry is at the start of the ring.
#[test]
fn log_goes_on_at_the_start_of_its_ring() {
    let mut killed = Killed::new(&Credentials::root());
    let start = RING_BYTES - 48;
    killed.tail = start;
    killed.change_table(3 * SLOT_BYTES + APPLIED, start);
    killed.append_bytes(EntryHead { bytes: 48, op_bytes: 0, detail: 0 }, &[]);
    killed.write(0, b"blue");
    let engine = killed.open().expect("sound");
    assert_eq!(bytes_of(&engine, b"file"), b"blue");
}
