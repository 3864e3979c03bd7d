//! Hands a volume over from one service to the next. The next owner finds out which request was being
//! applied, and if its change was made.
//!
//! A service applies one request at a time. The service records each request on the medium, applies and
//! answers it, and then forgets the record. If the service is killed meanwhile, the next owner finds the
//! record. Before that owner applies any Op, it looks at the objects of the request, and keeps the result for
//! the client. So a client learns if its change was made, and makes the change again only if it was not.
//!
//! The evidence is the change time. A service gives each change a time of its own, later than the times of
//! all its earlier changes. The superuser may give a change an earlier time. The result of such a change is
//! unknown. Writes have no evidence: they count as not made, and are made again.
//!
//! On memory that the process shares with the host, the record survives the death of the process. The record
//! need not survive a power failure, because a power failure ends the clients, too. On a disk, the next owner
//! finds the volume as it was at a moment between two Ops. The record of that moment is whole, and the record
//! and the objects agree. A request that was made after that moment has no record, and its change is lost, so
//! the request counts as not made.

use eyrie_medium::epoch::pin;
use zerocopy::FromZeros;

use super::Scm;
use crate::board::SessionKey;
use crate::op::Op;
use crate::tables::layout::{OUTCOMES, OutcomeRecord, RequestRecord};
use crate::{Attributes, Engine, Kind, ObjectId, Result, Time};

/// The result of a request whose service ended before it answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestOutcome {
    /// The change was not made. The client may make the request again.
    NotMade,
    /// The change was made.
    Made {
        /// Offset of the bytes that the change appended, or generation of the object that it created. For any
        /// other change, this number means nothing.
        number: u64,
        /// True if the change created an object.
        created: bool,
    },
    /// No evidence shows if the change was made.
    Unknown,
}

/// Value of `nanoseconds` if an earlier change may have the same time.
const NO_EVIDENCE: u32 = u32::MAX;
/// Values of [`OutcomeRecord::made`].
const NOT_MADE: u64 = 0;
const MADE: u64 = 1;
const CREATED: u64 = 2;
const UNKNOWN: u64 = 3;

fn time_of(record: &RequestRecord) -> Time {
    Time { seconds: record.seconds.get(), nanoseconds: record.nanoseconds.get() }
}

/// Returns the record of a request with this Op. `number` is the number of the request in the session `key`.
fn record_of(key: SessionKey, number: u64, op: &Op<'_>) -> RequestRecord {
    let mut record = RequestRecord::new_zeroed();
    record.key.set(key.raw());
    record.number.set(number);
    let (object, new, name, time): (Option<ObjectId>, Option<ObjectId>, &[u8], Time) = match *op {
        // A file without a name does not outlive its service, so a `CreateUnnamed` always counts as not made.
        Op::Create { id, time, .. } | Op::CreateUnnamed { id, time, .. } => (None, Some(id), b"", time),
        Op::Link { dir, time, .. }
        | Op::Unlink { dir, time, .. }
        | Op::RemoveDirectory { dir, time, .. }
        | Op::Erase { dir, time, .. } => (Some(dir), None, b"", time),
        Op::Rename { from_dir, whiteout, time, .. } => {
            (Some(from_dir), whiteout.map(|new| new.id), b"", time)
        }
        // A write in place stores the time of the file before the bytes, so the time proves nothing. To make
        // the write again is harmless: it stores the same bytes at the same place. A change of the access
        // time does not set the change time, and is as harmless to make again.
        Op::Write { time, .. } | Op::MarkAccess { time, .. } => (None, None, b"", time),
        Op::SetSize { id, time, .. }
        | Op::Fallocate { id, time, .. }
        | Op::CloneRange { id, time, .. }
        | Op::SetAttributes { id, time, .. }
        | Op::SetXattr { id, time, .. }
        | Op::SetAcl { id, time, .. }
        | Op::RemoveXattr { id, time, .. } => (Some(id), None, b"", time),
        Op::Append { id, data, time, .. } => {
            record.appended.set(data.len() as u64);
            (Some(id), None, b"", time)
        }
        Op::Put { dir, name, id, time, .. } => (Some(dir), Some(id), name, time),
        // A batch is made as a whole, so if one of its changes was made, all were made.
        Op::Batch { dir, ops, time } => {
            let put = ops.iter().find_map(|op| match *op {
                Op::Put { name, id, .. } => Some((name, id)),
                _ => None,
            });
            match put {
                Some((name, id)) => (Some(dir), Some(id), name, time),
                None => (Some(dir), None, b"", time),
            }
        }
        Op::Expect { .. } => (None, None, b"", Time::default()),
    };
    record.object.set(object.map_or(0, ObjectId::raw));
    record.new.set(new.map_or(0, ObjectId::raw));
    record.seconds.set(time.seconds);
    record.nanoseconds.set(time.nanoseconds);
    // Longer names are refused by the Op itself.
    let name = &name[..name.len().min(record.name.len())];
    record.name_bytes.set(name.len() as u32);
    record.name[..name.len()].copy_from_slice(name);
    record
}

impl Scm {
    /// Records the request that the service is about to apply. `number` is the number of the request in the
    /// session `key`. The result of the request can be found out only if the Op has the time `own_time`,
    /// which no earlier change has.
    ///
    /// # Errors
    /// `Fault`.
    pub fn record_request(&self, key: SessionKey, number: u64, op: &Op<'_>, own_time: Time) -> Result<()> {
        let mut record = record_of(key, number, op);
        if time_of(&record) != own_time {
            record.nanoseconds.set(NO_EVIDENCE);
        }
        self.volume.record_request(&record)
    }

    /// Forgets the recorded request. The service has answered it.
    ///
    /// # Errors
    /// `Fault`.
    pub fn forget_request(&self) -> Result<()> {
        self.volume.forget_request()
    }

    /// Returns the result of a request whose service ended before it answered.
    ///
    /// # Errors
    /// `Fault`.
    pub fn request_outcome(&self, key: SessionKey, number: u64) -> Result<RequestOutcome> {
        let _pin = pin();
        let owner = self.volume.owner_number()?;
        if key.is_of_owner(owner) {
            // This process is the service of the session. It ends a session only between two requests, so it
            // has not begun this request.
            return Ok(RequestOutcome::NotMade);
        }
        if let Some(record) = self.volume.kept_outcome(key.raw(), number)? {
            let number = record.result.get();
            return Ok(match record.made.get() {
                NOT_MADE => RequestOutcome::NotMade,
                MADE => RequestOutcome::Made { number, created: false },
                CREATED => RequestOutcome::Made { number, created: true },
                _ => RequestOutcome::Unknown,
            });
        }
        // No result is kept. If a later owner found a record of the request, it kept the result in one of
        // `OUTCOMES` places. The number of that owner selects the place, so the next `OUTCOMES - 1` owners do
        // not overwrite the result. Therefore, if one of the previous `OUTCOMES - 1` owners was the service
        // of the session, no owner has found a record, and the change was not made.
        let is_recent = (1..OUTCOMES as u64).any(|age| key.is_of_owner(owner.wrapping_sub(age)));
        Ok(if is_recent { RequestOutcome::NotMade } else { RequestOutcome::Unknown })
    }

    /// Finds out if the previous service made the change of its recorded request, and keeps the result. No Op
    /// has changed the volume since that service ended.
    pub(super) fn keep_outcome_of_request(&self) -> Result<()> {
        let _pin = pin();
        let Some(record) = self.volume.recorded_request()? else { return Ok(()) };
        // A free header may hold the object that the request was about to create. This object must not look
        // as if the change was made.
        self.reset_free_headers()?;
        let mut outcome = OutcomeRecord::new_zeroed();
        (outcome.key, outcome.number) = (record.key, record.number);
        let time = time_of(&record);
        let changed_then = |id: ObjectId| -> Option<Attributes> {
            self.attributes(id).ok().filter(|attributes| attributes.changed == time)
        };
        let object = ObjectId::from_raw(record.object.get());
        let name = record.name.get(..record.name_bytes.get() as usize).unwrap_or_default();
        let existing = match object {
            Some(dir) if !name.is_empty() => self.lookup(dir, name).ok().flatten(),
            object => object,
        };
        let new = ObjectId::from_raw(record.new.get());
        if time.nanoseconds == NO_EVIDENCE {
            outcome.made.set(UNKNOWN);
        } else if let Some(new) = new.filter(|&new| changed_then(new).is_some()) {
            outcome.made.set(CREATED);
            outcome.result.set(self.birth(new)?.generation);
        } else if let Some(attributes) = existing.and_then(changed_then) {
            outcome.made.set(MADE);
            outcome.result.set(attributes.size.saturating_sub(record.appended.get()));
        }
        self.volume.keep_outcome(&outcome)
    }

    /// Clears all free headers. After a crash, a free header may still hold the object of its last use. The
    /// engine itself never uses the id of a free header.
    pub(super) fn reset_free_headers(&self) -> Result<()> {
        for header in self.volume.space().free_headers() {
            self.reset_reserved(ObjectId::new(header.raw(), Kind::File));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use eyrie_medium::{Addr, Caller, Fault, Mapped, Medium, Observer, PagedOptions};

    use super::*;
    use crate::ListedEntry;
    use crate::op::{
        AttributeChange, Content, FallocateMode, Owner, RenameMode, SetIds, Whiteout, XattrMode,
    };
    use crate::tables::layout::REQUEST;
    use crate::volume::{MediumChoice, Options};

    const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
    /// A session of the first owner.
    const KEY: SessionKey = SessionKey::new(1, 1, 0);

    /// Returns the volume as the next process finds it after this one was killed.
    fn after_kill(engine: &Scm) -> Scm {
        Scm::open_on(Medium::memory_holding(&engine.medium().snapshot()).expect("memory")).expect("sound")
    }

    fn start() -> Scm {
        start_on(Medium::memory(4 << 20).expect("memory"))
    }

    fn start_on(medium: Medium) -> Scm {
        let options = Options {
            group_bytes: 1 << 19,
            hash_seed: 7,
            volume_id: [1; 16],
            created: Time::new(1, 0),
            medium: MediumChoice::Auto,
            overwrite: false,
            checksums: false,
            paged: PagedOptions::for_host(),
        };
        let engine = Scm::create_on(medium, &options, OWNER, Time::new(1, 0)).expect("a new volume");
        let (dir, time) = (engine.root(), Time::new(2, 0));
        for (name, kind) in [(&b"file"[..], Kind::File), (b"dir", Kind::Directory)] {
            let id = engine.reserve(kind).expect("room");
            let create = Op::Create { dir, name, id, owner: OWNER, content: Content::Empty, time };
            engine.apply(&create).expect("room");
        }
        let id = engine.lookup(dir, b"file").expect("sound").expect("there");
        engine.apply(&Op::Append { id, data: b"four", set_ids: SetIds::Keep, time }).expect("room");
        let (name, value, mode) = (&b"user.a"[..], &b"value"[..], XattrMode::Set);
        engine.apply(&Op::SetXattr { id, name, value, mode, time }).expect("room");
        engine
    }

    /// Runs a check with each Op of [`with_op`], and with the answer that a service gives to it.
    fn each_op(mut check: impl FnMut(&Scm, &Op<'_>, (u64, bool))) {
        (0..OPS).for_each(|number| with_op(start(), number, &mut check));
    }

    /// Makes an open file without a name.
    fn make_unnamed(engine: &Scm, id: ObjectId) {
        let (dir, time) = (engine.root(), Time::new(3, 0));
        engine.apply(&Op::CreateUnnamed { dir, id, owner: OWNER, linkable: true, time }).expect("room");
        engine.open(id).expect("just made");
        engine.apply(&Op::Append { id, data: b"bytes", set_ids: SetIds::Keep, time }).expect("room");
    }

    /// A file without a name does not outlive its service, so the client makes it again.
    #[test]
    fn unnamed_file_counts_as_not_made() {
        let engine = start();
        let (dir, id) = (engine.root(), engine.reserve(Kind::File).expect("room"));
        let time = Time::new(100, 0);
        let op = Op::CreateUnnamed { dir, id, owner: OWNER, linkable: true, time };
        engine.record_request(KEY, 5, &op, time).expect("in bounds");
        engine.apply(&op).expect("room");
        let next = after_kill(&engine);
        assert_eq!(next.request_outcome(KEY, 5).expect("sound"), RequestOutcome::NotMade);
        assert!(next.check().expect("sound").is_clean());
    }

    /// Number of Ops that [`with_op`] can make.
    const OPS: u32 = 21;

    /// Runs a check with an Op, and with the answer that a service gives to it.
    fn with_op<T>(engine: Scm, number: u32, check: impl FnOnce(&Scm, &Op<'_>, (u64, bool)) -> T) -> T {
        let (dir, time, set_ids) = (engine.root(), Time::new(100, number), SetIds::Keep);
        let id = engine.lookup(dir, b"file").expect("sound").expect("there");
        let new = engine.reserve(Kind::File).expect("room");
        let put = |name| Op::Put { dir, name, id: new, owner: OWNER, data: b"value", time };
        let (from_dir, from_name, to_dir, to_name) = (dir, b"file", dir, b"other");
        let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
        let mut made = (0, false);
        let batches = [[put(b"new")], [put(b"file")], [Op::Erase { dir, name: b"file", time }]];
        let engine = &engine;
        let op = match number {
            0 => Op::Create { dir, name: b"new", id: new, owner: OWNER, content: Content::Empty, time },
            1 => Op::Link { dir, name: b"new", id, time },
            2 => Op::Unlink { dir, name: b"file", time },
            3 => Op::RemoveDirectory { dir, name: b"dir", time },
            4 => {
                let mode = RenameMode::Replace;
                Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout: None, time }
            }
            5 => Op::Write { id, offset: 2, data: b"bytes", set_ids, time },
            6 => Op::Append { id, data: b"bytes", set_ids, time },
            7 => Op::SetSize { id, size: 9, set_ids, time },
            8 => {
                let mode = FallocateMode::Allocate;
                Op::Fallocate { id, mode, offset: 0, length: 9000, set_ids, time }
            }
            9 => Op::SetAttributes { id, change, time },
            10 => Op::SetXattr { id, name: b"user.b", value: b"v", mode: XattrMode::Set, time },
            11 => Op::RemoveXattr { id, name: b"user.a", time },
            12 => put(b"new"),
            13 => put(b"file"),
            14..=16 => Op::Batch { dir, ops: &batches[number as usize - 14], time },
            17 => Op::Write { id, offset: 0, data: b"five", set_ids, time },
            19 => {
                let mode = RenameMode::Whiteout;
                let id = engine.reserve(Kind::CharDevice).expect("room");
                let whiteout = Some(Whiteout { id, owner: OWNER });
                Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time }
            }
            18 => {
                make_unnamed(engine, new);
                Op::Link { dir, name: b"new", id: new, time }
            }
            20 => Op::MarkAccess { id, time },
            _ => unreachable!("there are {OPS} Ops"),
        };
        made.0 = if number == 6 { 4 } else { made.0 };
        made.1 = [0, 12, 14, 19].contains(&number);
        check(engine, &op, made)
    }

    fn time_of_op(op: &Op<'_>) -> Time {
        time_of(&record_of(KEY, 0, op))
    }

    #[test]
    fn next_owner_finds_out_if_a_change_was_made() {
        each_op(|engine, op, (offset, created)| {
            engine.record_request(KEY, 5, op, time_of_op(op)).expect("in bounds");
            let not_made = after_kill(engine);
            assert_eq!(not_made.request_outcome(KEY, 5).expect("sound"), RequestOutcome::NotMade, "{op:?}");
            engine.apply(op).expect("room");
            let mut next = after_kill(engine);
            for _ in 0..3 {
                let found = next.request_outcome(KEY, 5).expect("sound");
                if matches!(op, Op::Write { .. } | Op::MarkAccess { .. }) {
                    assert_eq!(found, RequestOutcome::NotMade, "{op:?} is made again");
                    continue;
                }
                let RequestOutcome::Made { number: found_at, created: has_created } = found else {
                    panic!("{op:?} was made: {found:?}");
                };
                let number = match op {
                    _ if !created => offset,
                    _ => next.birth(op.new_ids()[0]).expect("it is there").generation,
                };
                let has_number = created || offset != 0;
                assert!(has_created == created && (!has_number || found_at == number), "{op:?}: {found:?}");
                assert_eq!(next.request_outcome(KEY, 6).expect("sound"), RequestOutcome::NotMade);
                // The result outlives later owners.
                next = after_kill(&next);
            }
            engine.forget_request().expect("in bounds");
            let answered = after_kill(engine);
            assert_eq!(answered.request_outcome(KEY, 5).expect("sound"), RequestOutcome::NotMade);
        });
    }

    #[test]
    fn change_whose_time_may_be_that_of_another_has_no_outcome() {
        each_op(|engine, op, _| {
            engine.record_request(KEY, 5, op, Time::new(999, 0)).expect("in bounds");
            engine.apply(op).expect("room");
            let next = after_kill(engine);
            assert_eq!(next.request_outcome(KEY, 5).expect("sound"), RequestOutcome::Unknown);
        });
    }

    #[test]
    fn outcome_is_unknown_after_many_owners() {
        let engine = start();
        let key = SessionKey::new(engine.volume().owner_number().expect("in bounds"), 1, 0);
        assert_eq!(engine.request_outcome(key, 1).expect("sound"), RequestOutcome::NotMade);
        let mut next = after_kill(&engine);
        for _ in 1..OUTCOMES {
            assert_eq!(next.request_outcome(key, 1).expect("sound"), RequestOutcome::NotMade);
            next = after_kill(&next);
        }
        assert_eq!(next.request_outcome(key, 1).expect("sound"), RequestOutcome::Unknown);
    }

    #[test]
    fn damaged_record_gives_some_outcome() {
        let engine = start();
        let mut bytes = engine.medium().snapshot();
        for fill in [1, 0x7f, 0xff] {
            let at = REQUEST.offset() as usize;
            bytes[at..at + size_of::<RequestRecord>()].fill(fill);
            let next = Scm::open_on(Medium::memory_holding(&bytes).expect("memory")).expect("sound");
            let key = SessionKey::from_raw(u64::from_ne_bytes([fill; 8]));
            next.request_outcome(key, key.raw()).expect("no panic and no error");
            assert!(next.check().expect("sound").is_clean());
        }
    }
    /// Lets some stores and commits pass, and fails all later ones. The memory is then as after a kill.
    struct KillAfter(AtomicI64);

    impl KillAfter {
        fn pass(&self) -> std::result::Result<(), Fault> {
            if self.0.fetch_sub(1, Ordering::Relaxed) > 0 { Ok(()) } else { Err(Fault::Failed) }
        }
    }

    impl Observer for KillAfter {
        fn before_store(&self, _: Mapped<'_>, _: Addr, _: u64, _: Caller) -> std::result::Result<(), Fault> {
            self.pass()
        }

        fn before_publish(
            &self,
            _: Mapped<'_>,
            _: Addr,
            _: u64,
            _: Caller,
        ) -> std::result::Result<bool, Fault> {
            self.pass().map(|()| true)
        }
    }

    /// Returns everything in the root directory that a change can affect, without the times of change and
    /// modification.
    fn contents(engine: &Scm) -> Vec<String> {
        let mut found = Vec::new();
        let mut visit = |entry: ListedEntry<'_>| {
            found.push((entry.name.to_vec(), entry.id));
            true
        };
        engine.list(engine.root(), 0, &mut visit).expect("sound");
        found.sort();
        let describe = |(name, id): (Vec<u8>, ObjectId)| {
            let Attributes { mode, links, size, accessed, .. } = engine.attributes(id).expect("sound");
            let (mut data, mut xattrs) = (vec![0; 64], Vec::new());
            if id.kind() == Kind::File {
                let length = engine.read(id, 0, &mut data).expect("sound");
                data.truncate(length);
            }
            engine.xattr_names(id, &mut |name| xattrs.push(name.to_vec())).expect("sound");
            let name = name.escape_ascii();
            format!("{name} {id:?} {mode:o} {links} {size} {accessed:?} {data:?} {xattrs:?}")
        };
        found.into_iter().map(describe).collect()
    }

    /// Returns a file with these bytes.
    fn file_of(bytes: &[u8]) -> File {
        let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).expect("room");
        file.write_all_at(bytes, 0).expect("room");
        file
    }

    fn bytes_of(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
        file.read_exact_at(&mut bytes, 0).expect("a file");
        bytes
    }

    /// Maps a file, under an observer that lets this number of stores and commits pass.
    fn observed(file: &File, stores: i64) -> (Medium, Arc<KillAfter>) {
        let observer = Arc::new(KillAfter(AtomicI64::new(stores)));
        let length = file.metadata().expect("a file").len();
        let medium = Medium::dram(vec![(file.try_clone().expect("room"), length)]).expect("memory");
        (medium.observed_by(observer.clone()), observer)
    }

    /// Makes a request of another session with the same number, as a service does. The end of the request
    /// clears only the key of its record. The other fields stay, and the object that they name shows that
    /// this change was made. If a service stored the key of its next record before the other fields, a kill
    /// between the two stores would leave a record that claims that the next change was made.
    fn make_earlier_request(engine: &Scm) {
        let id = engine.lookup(engine.root(), b"dir").expect("sound").expect("there");
        let change = AttributeChange { mode: Some(0o700), ..AttributeChange::default() };
        let op = Op::SetAttributes { id, change, time: Time::new(99, 0) };
        engine.record_request(SessionKey::new(1, 2, 1), 5, &op, time_of_op(&op)).expect("in bounds");
        engine.apply(&op).expect("room");
        engine.forget_request().expect("in bounds");
    }

    /// Kills a service after some stores of an Op. Returns the volume that the service leaves, the Op as a
    /// text, and true if the Op needed more stores.
    fn killed_after(stores: i64, number: u32) -> (Vec<u8>, String, bool) {
        let file = file_of(&vec![0; 1 << 20]);
        let (medium, observer) = observed(&file, i64::MAX);
        let engine = start_on(medium);
        make_earlier_request(&engine);
        with_op(engine, number, |engine, op, _| {
            observer.0.store(stores, Ordering::Relaxed);
            let applied =
                engine.record_request(KEY, 5, op, time_of_op(op)).and_then(|()| engine.apply(op).map(drop));
            (bytes_of(&file), format!("{op:?} after {stores} stores"), applied.is_err())
        })
    }

    /// Opens a volume as the next owner. Compares the result that this owner keeps with the contents.
    fn check_outcome(bytes: &[u8], [before, after]: [&[String]; 2], what: &str) {
        let next = Scm::open_on(Medium::memory_holding(bytes).expect("memory")).expect("sound");
        let (found, outcome) = (contents(&next), next.request_outcome(KEY, 5).expect("sound"));
        match outcome {
            RequestOutcome::Made { .. } => assert_eq!(found, after, "{what}"),
            // A write or a change of an access time does no harm when it is made again.
            RequestOutcome::NotMade if what.starts_with("Write") || what.starts_with("MarkAccess") => {}
            _ => assert_eq!((outcome, &found[..]), (RequestOutcome::NotMade, before), "{what}"),
        }
        assert!(next.check().expect("sound").is_clean(), "{what}");
    }

    /// A service is killed at each store and commit of each Op of [`with_op`]. Then the next owner is killed
    /// at each store and commit of its open. The result that the third owner finds agrees with the contents.
    #[test]
    fn outcome_agrees_with_the_contents_after_kills_at_each_store() {
        for number in 0..OPS {
            let contents_of = |bytes: &[u8]| {
                contents(&Scm::open_on(Medium::memory_holding(bytes).expect("memory")).expect("sound"))
            };
            let (before, after) =
                (contents_of(&killed_after(0, number).0), contents_of(&killed_after(i64::MAX, number).0));
            assert_ne!(before, after, "each Op changes something");
            for stores in 0.. {
                let (left, what, is_killed) = killed_after(stores, number);
                check_outcome(&left, [&before, &after], &what);
                for further in 0.. {
                    let file = file_of(&left);
                    let opened = Scm::open_on(observed(&file, further).0);
                    let what = format!("{what}, then {further} of the next owner");
                    check_outcome(&bytes_of(&file), [&before, &after], &what);
                    if opened.is_ok() {
                        assert!(further > 0, "the next owner counts itself");
                        break;
                    }
                }
                if !is_killed {
                    assert!(stores > 1, "Op {number} was killed in the middle");
                    break;
                }
            }
        }
    }
}
