//! Applies the entries of change logs: those of a live client in its service, and those that a dead service
//! has left, at the next open.

use std::cell::Cell;
use std::ops::Range;
use std::time::SystemTime;

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Fault};

use super::Scm;
use crate::access::{AccessRules, Credentials, Requester, may_exceed_limits};
use crate::change_log::{
    EntryHead, GENERATIONS, LogError, LogReader, NO_DETAIL, RING_BYTES, storage_of_entry,
};
use crate::host::{HostPlace, left_logs, remove_left};
use crate::op::encode::decode_unsummed;
use crate::{AttributeChange, Engine, Error, ObjectId, Op, RenameMode, Result, Time};

const NOT_LOGGED: Error = Error::Invalid("an Op that is not logged");

/// An entry of a change log.
#[derive(Clone, Copy, Debug)]
pub struct LoggedEntry<'a> {
    /// The user of the log.
    pub who: &'a Credentials,
    /// The start of the entry.
    pub head: &'a EntryHead,
    /// The encoded Op.
    pub op: &'a [u8],
    /// The time of the change.
    pub now: Time,
    /// True if a dead service has left the log. This entry may then be applied already, if it is the first
    /// one.
    pub is_left: bool,
}

/// True for a change of attributes that sets nothing but times.
pub fn sets_only_times(change: &AttributeChange) -> bool {
    let &AttributeChange { accessed, modified, .. } = change;
    *change == AttributeChange { accessed, modified, ..AttributeChange::default() }
}

/// True for an Op that changes an object, and no name.
fn is_of_object(op: &Op<'_>) -> bool {
    matches!(op, Op::Write { .. } | Op::SetSize { .. } | Op::SetAttributes { .. })
}

impl Scm {
    /// Applies an entry of a change log. Only Ops that a client may log are applied. `may_use` tells if the
    /// client may give this id and this generation to a new object. Returns the id of the new object, if
    /// there is one.
    ///
    /// # Errors
    /// `NoSpace` if readers hold back the storage that is free. `Invalid` for an entry that no client writes
    /// that keeps the protocol, and the errors of the Op. No client that keeps the protocol logs an Op that
    /// fails.
    pub fn apply_logged(
        &self,
        entry: &LoggedEntry<'_>,
        may_use: impl FnOnce(ObjectId, u64) -> bool,
    ) -> Result<Option<ObjectId>> {
        let &LoggedEntry { who, head, op, now, is_left } = entry;
        let (decoded, length) =
            decode_unsummed(op).map_err(|_| Error::Invalid("a damaged entry of a log"))?;
        if length != op.len() {
            return Err(Error::Invalid("bytes after the Op of an entry"));
        }
        let requester = Requester { engine: self, who, rules: AccessRules::default(), now };
        let op = match requester.authorize(&decoded.op()) {
            // An object that is gone has no name and is not open, so nobody misses the change.
            Err(Error::Stale) if is_of_object(&decoded.op()) => return Ok(None),
            authorized => authorized?,
        };
        let new = match op {
            Op::Write { id, .. } => {
                // A file that an earlier attempt has made longer has its new size already.
                if head.detail != NO_DETAIL && !is_left && self.attributes(id)?.size != head.detail {
                    return Err(Error::Invalid("a log with another size of the file"));
                }
                None
            }
            Op::SetSize { .. } => None,
            Op::SetAttributes { change, .. } if sets_only_times(&change) => None,
            Op::Put { dir, name, id, .. } => self.lookup(dir, name)?.is_none().then_some(id),
            Op::Create { id, .. } if id.is_directory() => return Err(NOT_LOGGED),
            Op::Create { dir, name, id, .. } => {
                if is_left && self.lookup(dir, name)? == Some(id) {
                    return Ok(None);
                }
                Some(id)
            }
            Op::Unlink { dir, name, .. }
            | Op::Erase { dir, name, .. }
            | Op::Rename {
                from_dir: dir,
                from_name: name,
                mode: RenameMode::Replace | RenameMode::NoReplace,
                ..
            } => {
                // The service trusts its own look-ups: this comparison finds mistakes of the protocol.
                if (is_left || cfg!(debug_assertions))
                    && self.lookup(dir, name)?.map(ObjectId::raw) != Some(head.detail)
                {
                    return if is_left { Ok(None) } else { Err(Error::Invalid("a log with another name")) };
                }
                None
            }
            _ => return Err(NOT_LOGGED),
        };
        if let Some(id) = new
            && !may_use(id, head.detail)
        {
            return Err(Error::NotReserved);
        }
        let generation = new.map(|_| head.detail);
        let apply = || self.apply_with(&op, generation);
        let apply = || if may_exceed_limits(who) { self.above_limits(apply) } else { apply() };
        let made = match apply() {
            Err(Error::NoSpace) if self.reclaim() => apply(),
            made => made,
        };
        match (made, new) {
            (Ok(_), new) => Ok(new),
            (Err(Error::Stale), None) if is_of_object(&op) => Ok(None),
            (Err(error), None) => Err(error),
            (Err(error), Some(id)) => {
                // The failed Op may have written the header.
                self.reset_reserved(id);
                Err(error)
            }
        }
    }

    /// False if changes of this volume must not be deferred. A client cannot decide that they succeed if they
    /// count for a quota, or if a file may be immutable or append-only. A write may take a capability from
    /// its file.
    pub fn may_defer(&self) -> bool {
        let board = self.volume.board();
        !(board.has_quotas() || board.has_capabilities() || board.has_flags())
    }

    /// Sets the number of bytes that changes in the logs of clients may still need. Growth of directories
    /// leaves this storage.
    pub fn promise_storage(&self, bytes: u64) {
        self.volume.space().promise(bytes);
    }

    /// Returns [`GENERATIONS`] numbers for new objects, which this volume never assigned before.
    ///
    /// # Errors
    /// As [`Volume::generations`](crate::volume::Volume::generations).
    pub fn generations_for_log(&self) -> Result<Range<u64>> {
        let _gate = self.medium().enter()?;
        self.volume.generations(GENERATIONS)
    }

    /// Returns the storage that the next logged changes may need, in bytes: a quarter of the free storage,
    /// without the last fiftieth of the volume. `None` if changes of this volume must not be deferred.
    pub fn budget_of_deferral(&self) -> Option<u64> {
        if !self.may_defer() {
            return None;
        }
        let usage = self.space();
        Some(usage.free.checked_sub(usage.total / 50)? / 4)
    }

    /// Applies the change logs that a dead service has left in the directory of the volume, and removes them.
    /// An owner that is killed meanwhile leaves the rest to the next one. A volume that is opened to be read
    /// applies them to its copy, and leaves the files.
    pub(super) fn replay_logs(&self, place: HostPlace<'_>, to_change: bool) -> Result<()> {
        let (mut reader, space) = (LogReader::default(), self.volume.space());
        let logs = left_logs(place, to_change, self.volume.owner_number()?)?;
        if !logs.is_empty() && !broken(SafetyRule::ReplayResetsFreeHeaders) {
            // The header of an object without a name is free now, and the log may name the object.
            self.reset_free_headers()?;
        }
        for log in logs {
            let tail = log.tail(to_change)?;
            // Growth of directories must leave the storage that all entries need.
            let mut promised = 0;
            let _ = reader.read(&log.file, log.applied, tail, RING_BYTES, |_, head, _| {
                promised += storage_of_entry(head.bytes.into());
                true
            });
            space.promise(promised);
            let (mut applied, mut noted, mut failed) = (log.applied, Ok(()), false);
            let read = reader.read(&log.file, log.applied, tail, RING_BYTES, |position, head, op| {
                let entry =
                    LoggedEntry { who: &log.who, head, op, now: SystemTime::now().into(), is_left: true };
                let taken = Cell::new(None);
                let made = self.apply_logged(&entry, |id, generation| {
                    let is_free = || space.allocate_header_at(Addr::from_raw(id.place()));
                    let may_use = log.generations.contains(&generation) && matches!(is_free(), Ok(true));
                    taken.set(may_use.then_some(id));
                    may_use
                });
                if let (Err(_), Some(id)) = (&made, taken.get()) {
                    self.unreserve(id);
                }
                if let Err(error) = made
                    && !std::mem::replace(&mut failed, true)
                {
                    tracing::error!(%error, "a logged change of a client could not be made");
                }
                applied = position;
                if to_change && noted.is_ok() {
                    noted = log.set_applied(position);
                }
                true
            });
            space.promise(0);
            noted?;
            match read {
                Ok(_) => {}
                Err(LogError::Damaged) => {
                    tracing::error!("a change log of a client is damaged; its rest is dropped");
                    failed = true;
                }
                // The log stays for the next open.
                Err(LogError::Host(source)) => {
                    return Err(Fault::Io { what: "reading a change log".to_owned(), source }.into());
                }
            }
            if to_change {
                log.finish(applied, failed)?;
            }
        }
        if to_change {
            remove_left(place);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;
    use std::rc::Rc;

    use eyrie_medium::host::{self, HostObserver};
    use eyrie_medium::{Caller, PagedOptions, SiteKind};
    use rustix::io::Errno;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::board::SessionKey;
    use crate::change_log::{ENTRY_HEAD_BYTES, FINAL, HEAD_BYTES, LOG_FILE_BYTES, TAIL};
    use crate::host::LogTable;
    use crate::op::encode::encode_unsummed;
    use crate::volume::{MediumChoice, Options};
    use crate::{Content, Kind, ObjectId, Owner, SetIds};

    const OWNER: Owner = Owner { mode: 0o600, uid: 0, gid: 0 };
    const TIME: Time = Time::new(5, 0);

    /// A volume whose service was killed, with a log of one session.
    struct Killed {
        place: tempfile::TempDir,
        log: File,
        file: ObjectId,
        root: ObjectId,
        /// Position after the last entry.
        tail: u64,
    }

    impl Killed {
        fn new(who: &Credentials) -> Killed {
            let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("room");
            let options =
                Options { medium: MediumChoice::Dram, ..Options::random(TIME).expect("random numbers") };
            let path = place.path().join("v");
            let engine = Scm::create(&path, Some(8 << 20), &options, OWNER, TIME).expect("a volume");
            let root = engine.root();
            let make = |name| {
                let id = engine.reserve(Kind::File).expect("room");
                let content = Content::Empty;
                let op = Op::Create { dir: root, name, id, owner: OWNER, content, time: TIME };
                engine.apply(&op).expect("room");
                id
            };
            let (file, _) = (make(b"file"), make(b"key"));
            let table = LogTable::create(&path).expect("room");
            let key = SessionKey::new(1, 1, 3);
            let log = table.begin(key, who).expect("room").expect("few groups");
            table.set_granted(key, true);
            Killed { place, log, file, root, tail: 0 }
        }

        fn path(&self) -> PathBuf {
            self.place.path().join("v")
        }

        fn append_bytes(&mut self, entry: EntryHead, op: &[u8]) {
            let bytes = [entry.as_bytes(), op].concat();
            self.log.write_all_at(&bytes, HEAD_BYTES as u64 + self.tail % RING_BYTES).expect("room");
            self.tail += u64::from(entry.bytes);
            self.log.write_all_at(&self.tail.to_le_bytes(), TAIL as u64 * 8).expect("room");
        }

        fn append(&mut self, op: &Op<'_>) {
            let mut record = Vec::new();
            encode_unsummed(op, &mut record);
            let bytes = (ENTRY_HEAD_BYTES + record.len()).next_multiple_of(16) as u32;
            let entry = EntryHead { bytes, op_bytes: record.len() as u32, detail: NO_DETAIL };
            self.append_bytes(entry, &record);
        }

        fn write(&mut self, offset: u64, data: &[u8]) {
            self.append(&Op::Write { id: self.file, offset, data, set_ids: SetIds::Keep, time: TIME });
        }

        fn put(&mut self, name: &[u8], data: &[u8]) {
            let id = ObjectId::new(1 << 20, Kind::File);
            self.append(&Op::Put { dir: self.root, name, id, owner: OWNER, data, time: TIME });
        }

        /// Opens the volume as the service did that has left the log.
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

    fn bytes_of(engine: &Scm, name: &[u8]) -> Vec<u8> {
        let id = engine.lookup(engine.root(), name).expect("sound").expect("there");
        let mut bytes = vec![0; 100];
        let count = engine.read(id, 0, &mut bytes).expect("sound");
        bytes.truncate(count);
        bytes
    }

    fn assert_is_clean(engine: &Scm) {
        let report = engine.check().expect("sound");
        assert!(report.is_clean(), "{:?}", report.findings);
    }

    /// Fails a call of the host after this number of calls.
    struct FailAtCall {
        left: Cell<u32>,
        /// True if all later calls fail, too, as a kill ends them.
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

    /// The next owner is killed before each of its calls of the host. The owner after it finds every change.
    #[test]
    fn left_log_is_applied_although_its_owners_are_killed() {
        assert!(owners_after_failures(true) > 10);
    }

    /// A call of the host that fails is no damage of the log.
    #[test]
    fn left_log_is_applied_although_calls_of_the_host_fail() {
        assert!(owners_after_failures(false) > 5);
    }

    /// Opens the volume with a failure at each call of the host, and then again. Compares the changes. Returns
    /// the number of opens that failed.
    fn owners_after_failures(is_kill: bool) -> u32 {
        let mut failed = 0;
        for calls in 0.. {
            let mut killed = Killed::new(&Credentials::root());
            for (offset, data) in [(0, &b"blue"[..]), (4, b" egg"), (0, b"grey")] {
                killed.write(offset, data);
            }
            killed.put(b"key", b"value");
            let observer = Rc::new(FailAtCall { left: Cell::new(calls), is_kill });
            let opened = host::observed_by(observer.clone(), || killed.open().map(drop));
            failed += u32::from(opened.is_err());
            let engine = killed.open().expect("sound");
            assert_eq!(
                (bytes_of(&engine, b"file"), bytes_of(&engine, b"key")),
                (b"grey egg".to_vec(), b"value".to_vec())
            );
            assert_is_clean(&engine);
            let path = killed.path();
            assert!(!path.join("sessions").exists() && !path.join("log-003").exists());
            let mut last = [0; 8];
            killed.log.read_exact_at(&mut last, FINAL as u64 * 8).expect("a log");
            assert_eq!(u64::from_le_bytes(last), killed.tail + 1, "the client learns that all is applied");
            if opened.is_ok() && (1..u32::MAX).contains(&observer.left.get()) {
                break;
            }
        }
        failed
    }

    /// The log names an object that had no name any more, and another object needs storage. The storage of
    /// the first one is free now, and the entry must not use it.
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
            // Short writes at places that exist are made in place.
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
        killed.put(b"new", b"value");
        let (dir, id, content) = (killed.root, ObjectId::new(1 << 20, Kind::File), Content::Empty);
        killed.append(&Op::Create { dir, name: b"new", id, owner: OWNER, content, time: TIME });
        killed.append(&Op::Unlink { dir, name: b"key", time: TIME });
        killed.append_bytes(EntryHead { bytes: 32, op_bytes: 16, detail: NO_DETAIL }, &[0x55; 16]);
        killed.write(0, b"blue");
        let engine = killed.open().expect("sound");
        assert_eq!(engine.lookup(engine.root(), b"new").expect("sound"), None);
        assert_eq!((bytes_of(&engine, b"file"), bytes_of(&engine, b"key")), (b"blue".to_vec(), vec![]));
        assert_is_clean(&engine);
    }

    /// Each damage ends a log. The entries before it count.
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
                killed.log.write_all_at(&tail.to_le_bytes(), TAIL as u64 * 8).expect("room");
                killed.log.set_len(length).expect("a file");
                let engine = killed.open().expect("sound");
                assert_eq!(bytes_of(&engine, b"file"), b"", "{length} {tail}");
                assert_is_clean(&engine);
            }
        }
    }

    /// A log whose entries are all applied goes on at the start of the ring.
    #[test]
    fn log_goes_on_at_the_start_of_its_ring() {
        let mut killed = Killed::new(&Credentials::root());
        let start = RING_BYTES - 48;
        killed.tail = start;
        let table = File::options().write(true).open(killed.path().join("sessions")).expect("a table");
        table.write_all_at(&start.to_le_bytes(), 3 * 4096 + 8).expect("room");
        killed.append_bytes(EntryHead { bytes: 48, op_bytes: 0, detail: 0 }, &[]);
        killed.write(0, b"blue");
        let engine = killed.open().expect("sound");
        assert_eq!(bytes_of(&engine, b"file"), b"blue");
    }
}
