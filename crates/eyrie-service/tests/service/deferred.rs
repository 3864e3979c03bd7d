//! Deferred changes: a client logs them and goes on.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eyrie::{Errno, OpenFlags, Posix, PosixExt};
use eyrie_client::protocol::{
    LOG_APPLIED, LOG_BUDGET, LOG_FAILED, LOG_GENERATION, LOG_TAIL, LaneRequest, LogWord, ServiceCall,
};
use eyrie_engine::board::GRANTED_IN_PARTS;
use eyrie_engine::change_log::{EntryHead, FAILED_WORD, HEAD_BYTES, NO_DETAIL, RING_BYTES, TAIL_WORD};
use eyrie_engine::op::encode::encode_unsummed;
use eyrie_engine::{Content, Kind, ObjectId, Op, Owner, SetIds, Time};
use eyrie_medium::sync::sleep::can_spin;
use zerocopy::IntoBytes;

use crate::Served;
use crate::disk::{alone_with_the_clock, with_a_long_pin};
use crate::hostile::RawSession;

const OWNER: Owner = Owner { mode: 0o600, uid: 0, gid: 0 };
const TIME: Time = Time::new(1, 0);

/// Offset of the word with the grant of the volume, in the file of the board.
const GRANT_AT: u64 = 320;

/// A session that holds the grant of the volume, and its file, which has one byte: 5.
struct RawHolder {
    session: RawSession,
    file: ObjectId,
}

impl RawHolder {
    fn new(served: &Served, name: &[u8]) -> RawHolder {
        let session = RawSession::open(served);
        let (dir, id, content) = (session.root, session.reserve(Kind::File), Content::Empty);
        assert_eq!(session.apply(&Op::Create { dir, name, id, owner: OWNER, content, time: TIME }), 0);
        let holder = RawHolder { session, file: id };
        holder.get_grant();
        holder
    }

    /// Makes changes until the session holds the grant of the volume. Other sessions have to be quiet for a
    /// while.
    fn get_grant(&self) {
        while self.word().is_sealed() || [0, GRANTED_IN_PARTS].contains(&self.granted_to()) {
            assert_eq!(self.session.apply(&self.write(&[5])), 0);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the word of the board with the grant of the volume.
    fn granted_to(&self) -> u64 {
        let mut word = [0; 8];
        self.session.files[1].read_exact_at(&mut word, GRANT_AT).unwrap();
        u64::from_le_bytes(word)
    }

    fn write<'a>(&self, data: &'a [u8]) -> Op<'a> {
        Op::Write { id: self.file, offset: 0, data, set_ids: SetIds::Keep, time: TIME }
    }

    fn word(&self) -> LogWord {
        LogWord::from_raw(self.session.lanes.words()[LOG_TAIL].load(Ordering::SeqCst))
    }

    /// Moves the end of the log. Returns false if the log is sealed, or if the service changes the word at
    /// the same moment.
    fn move_tail(&self, to: u64) -> bool {
        let (word, before) = (&self.session.lanes.words()[LOG_TAIL], self.word());
        let after = before.with_position(to).raw();
        let change = || word.compare_exchange(before.raw(), after, Ordering::SeqCst, Ordering::SeqCst);
        !before.is_sealed() && change().is_ok()
    }

    /// Gets the grant and calls `forge`, which changes the log and moves its end. Calls it again while it
    /// returns false: on a busy machine the service may take the grant back first, because the session has
    /// logged nothing for a while.
    fn forge(&self, forge: impl Fn(&RawHolder) -> bool) {
        self.get_grant();
        while !forge(self) {
            self.get_grant();
        }
    }

    fn has_failed(&self) -> bool {
        self.session.lanes.words()[LOG_FAILED].load(Ordering::SeqCst) != 0
    }

    /// Writes bytes at the start of the ring.
    fn store(&self, bytes: &[u8]) {
        self.session.files[3].write_all_at(bytes, HEAD_BYTES as u64).unwrap();
    }

    /// Returns the first generation that entries may give to new objects.
    fn generation(&self) -> u64 {
        self.session.lanes.words()[LOG_GENERATION].load(Ordering::SeqCst)
    }

    fn create(&self, id: ObjectId) -> Op<'static> {
        let (dir, content) = (self.session.root, Content::Empty);
        Op::Create { dir, name: b"forged", id, owner: OWNER, content, time: TIME }
    }

    /// Logs an Op as the next entry. Returns false as [`RawHolder::move_tail`] does.
    fn log(&self, op: &Op<'_>, detail: u64) -> bool {
        let mut entry = RawHolder::entry(op);
        entry[8..16].copy_from_slice(&detail.to_le_bytes());
        let tail = self.word().position();
        self.session.files[3].write_all_at(&entry, HEAD_BYTES as u64 + tail % RING_BYTES).unwrap();
        self.move_tail(tail + entry.len() as u64)
    }

    /// Returns the entry of an Op.
    fn entry(op: &Op<'_>) -> Vec<u8> {
        let mut record = Vec::new();
        encode_unsummed(op, &mut record);
        let bytes = (16 + record.len()).next_multiple_of(16);
        let head = EntryHead { bytes: bytes as u32, op_bytes: record.len() as u32, detail: u64::MAX };
        let mut entry = [head.as_bytes(), &record].concat();
        entry.resize(bytes, 0);
        entry
    }
}

/// Each damage of a log ends the grant of its session. Others read what was written before, and the session
/// makes requests from then on.
#[test]
fn damaged_logs_end_only_their_grant() {
    let (mut served, [files, other]) = Served::with_clients(256 << 20);
    let damages: [&dyn Fn(&RawHolder) -> bool; 9] = [
        &|holder| holder.move_tail(RING_BYTES + 16),
        &|holder| holder.move_tail(LogWord::POSITION_MAX),
        &|holder| {
            holder.store(&[0x55; 64]);
            holder.move_tail(64)
        },
        &|holder| {
            holder.session.files[3].set_len(HEAD_BYTES as u64).unwrap();
            holder.move_tail(64)
        },
        &|holder| {
            // A part of an entry.
            holder.store(&RawHolder::entry(&holder.write(&[6; 100])));
            holder.move_tail(32)
        },
        &|holder| {
            // An Op that no client logs.
            let dir = holder.session.root;
            holder.log(&Op::Link { dir, name: b"link", id: holder.file, time: TIME }, u64::MAX)
        },
        // New objects with the id of a file, with a generation of another client, and with an id that the
        // session has not reserved.
        &|holder| holder.log(&holder.create(holder.file), holder.generation()),
        &|holder| holder.log(&holder.create(holder.session.reserve(Kind::File)), holder.generation() - 1),
        &|holder| {
            let reserved = holder.session.reserve(Kind::File);
            let next = ObjectId::new(reserved.place() + 256 * 64, Kind::File);
            holder.log(&holder.create(next), holder.generation())
        },
    ];
    files.write("/keep", "blue").unwrap();
    for (number, damage) in damages.iter().enumerate() {
        let name = format!("/egg-{number}");
        let holder = RawHolder::new(&served, &name.as_bytes()[1..]);
        holder.forge(damage);
        assert_eq!(other.read(&name).unwrap(), [5], "damage {number}");
        assert!(holder.has_failed(), "damage {number}");
        assert_eq!(holder.session.apply(&holder.write(&[7])), 0);
        assert_eq!(other.read(&name).unwrap(), [7]);
        // This session gets no further grant.
        for _ in 0..100 {
            assert_eq!(holder.session.apply(&holder.write(&[8])), 0);
        }
        assert!(holder.word().is_sealed(), "damage {number}");
        assert_eq!(other.read("/keep").unwrap(), b"blue");
        assert_eq!(other.metadata("/forged").unwrap_err().errno(), Errno::NOENT);
    }
    drop((files, other));
    served.stop();
}

/// Clients change the words of their logs while the service gives them grants. The logs end, and no part of
/// the volume stays with a session.
#[test]
fn closed_logs_hold_no_parts() {
    let (mut served, [files, _other]) = Served::with_clients(256 << 20);
    // About half of such sessions change the word between the two steps of the service that matter.
    let sessions = [(); 8].map(|()| RawSession::open(&served));
    for (number, session) in (b'0'..).zip(&sessions) {
        let (dir, name, id) = (session.root, &[number], session.reserve(Kind::File));
        let content = Content::Empty;
        assert_eq!(session.apply(&Op::Create { dir, name, id, owner: OWNER, content, time: TIME }), 0);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let word = &session.lanes.words()[LOG_TAIL];
                while !is_done.load(Ordering::SeqCst) {
                    word.store(4, Ordering::SeqCst);
                }
            });
            let _end = SetOnDrop(&is_done);
            let has_failed = || session.lanes.words()[LOG_FAILED].load(Ordering::SeqCst) != 0;
            let started = Instant::now();
            // On a busy machine the thread may change the word only later.
            for round in 0.. {
                if round >= 200 && has_failed() {
                    break;
                }
                assert!(started.elapsed() < Duration::from_secs(20), "the log never ends");
                // The requests of another client keep the grant of the volume away.
                files.statvfs("/".into()).unwrap();
                let write = Op::Write { id, offset: 0, data: &[5], set_ids: SetIds::Keep, time: TIME };
                assert_eq!(session.apply(&write), 0);
            }
        });
    }
    // The parts are the last words of the board.
    let (board, mut parts) = (&sessions[0].files[1], vec![0; 8 << 16]);
    let start = board.metadata().unwrap().len() - parts.len() as u64;
    board.read_exact_at(&mut parts, start).unwrap();
    assert!(parts.iter().all(|&byte| byte == 0));
    drop((files, sessions));
    served.stop();
}

/// A client logs more changes than its budget allows. The storage may be promised to other users, so only the
/// changes within the budget are made.
#[test]
fn entries_beyond_the_budget_change_nothing() {
    #[cfg(feature = "mutants")]
    eyrie_medium::rules::break_rule_of_environment();
    let (mut served, [files, other]) = Served::with_clients(64 << 20);
    let holder = RawHolder::new(&served, b"egg");
    let number = |number: u64| number.to_le_bytes();
    let count = Cell::new(0);
    holder.forge(|holder| {
        let budget = holder.session.lanes.words()[LOG_BUDGET].load(Ordering::SeqCst);
        // The service adds 36 KiB for each of these entries, and renews a budget only after a sweep.
        count.set(budget / (36 << 10) + 2);
        let entries = (1..=count.get()).flat_map(|entry| RawHolder::entry(&holder.write(&number(entry))));
        let entries: Vec<u8> = entries.collect();
        holder.store(&entries);
        holder.move_tail(entries.len() as u64)
    });
    let count = count.get();
    let found = files.read("/egg").unwrap();
    assert!((1..count).any(|entry| number(entry)[..] == found), "{found:?} of {count}");
    assert!(holder.has_failed());
    drop((files, other));
    served.stop();
}

/// If the service is killed while it applies an entry, the next owner knows the entry, even if the client has
/// stored the position after the entry only in the memory of its lanes.
#[test]
fn service_notes_the_entries_that_it_finds() {
    #[cfg(feature = "mutants")]
    eyrie_medium::rules::break_rule_of_environment();
    let (mut served, [files, _other]) = Served::with_clients(256 << 20);
    let holder = RawHolder::new(&served, b"egg");
    let end = Cell::new(0);
    holder.forge(|holder| {
        end.set(holder.word().position() + RawHolder::entry(&holder.write(&[6])).len() as u64);
        holder.log(&holder.write(&[6]), NO_DETAIL)
    });
    assert_eq!(files.read("/egg").unwrap(), [6]);
    // The last word of the slot of each session has this position (`SEEN` of `host/change_logs.rs`).
    let table = std::fs::read(served.path.join("sessions")).unwrap();
    let slots = table[..256 * 4096].chunks(4096);
    let seen = slots.map(|slot| u64::from_le_bytes(slot[4088..].try_into().unwrap()));
    assert_eq!(seen.max(), Some(end.get()));
    drop(files);
    served.stop();
}

/// A client that goes on to append to a sealed log changes nothing.
#[test]
fn appends_to_a_sealed_log_change_nothing() {
    let (mut served, [files, _other]) = Served::with_clients(256 << 20);
    let holder = RawHolder::new(&served, b"egg");
    // The read takes the grant back.
    assert_eq!(files.read("/egg").unwrap(), [5]);
    assert!(holder.word().is_sealed());
    let entry = RawHolder::entry(&holder.write(&[6]));
    holder.store(&entry);
    holder.session.lanes.words()[LOG_TAIL].store(entry.len() as u64 / 16, Ordering::SeqCst);
    for _ in 0..100 {
        assert_eq!(files.read("/egg").unwrap(), [5]);
        assert_eq!(holder.session.apply(&holder.write(&[5])), 0);
    }
    assert_eq!(holder.session.lanes.words()[LOG_APPLIED].load(Ordering::SeqCst), 0);
    drop(files);
    served.stop();
}

/// Sets a flag at its drop, also when a test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A client writes growing numbers to a file, and another client reads them. No read finds a smaller number
/// than one whose write had returned before the read began.
#[test]
fn readers_see_every_change_that_was_answered() {
    let (mut served, [writer, reader]) = Served::with_clients(256 << 20);
    let (answered, is_done, reads) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    writer.write("/number", 0_u64.to_le_bytes()).unwrap();
    let read = |files: &eyrie::Pxfs<eyrie_client::Client>| {
        let least = answered.load(Ordering::SeqCst);
        let number = u64::from_le_bytes(files.read("/number").unwrap().try_into().unwrap());
        assert!(number >= least, "{number} after {least}");
        number
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut last = 0;
            while !is_done.load(Ordering::SeqCst) {
                let number = read(&reader);
                assert!(number >= last, "{number} after {last}");
                last = number;
                reads.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let file = writer.open("/number".into(), OpenFlags::WRITE, 0).unwrap();
        let end = SetOnDrop(&is_done);
        let mut number = 0_u64;
        // The writer goes on until the reader has had several turns, unless the reader has failed.
        while (number < 30_000 || reads.load(Ordering::SeqCst) < 20) && !other.is_finished() {
            number += 1;
            writer.write_at(&file, &number.to_le_bytes(), 0).unwrap();
            answered.store(number, Ordering::SeqCst);
            if number.is_multiple_of(1000) {
                assert_eq!(read(&writer), number);
            }
        }
        drop(end);
        other.join().unwrap();
    });
    drop((writer, reader));
    served.stop();
}

/// The id and the generation of a new object are used up by its entry.
#[test]
fn new_object_uses_up_its_id_and_its_generation() {
    let (mut served, [files, other]) = Served::with_clients(256 << 20);
    let holder = RawHolder::new(&served, b"egg");
    let id = holder.session.reserve(Kind::File);
    let generation = Cell::new(0);
    holder.forge(|holder| {
        generation.set(holder.generation());
        holder.log(&holder.create(id), generation.get())
    });
    let inode = other.metadata("/forged").unwrap().inode;
    assert!(!holder.has_failed());
    let call = ServiceCall::Unreserve as u32;
    holder.session.ask(LaneRequest { call, id: id.raw(), ..LaneRequest::default() }, &[]);
    assert_ne!(holder.session.reserve(Kind::File), id);
    assert_eq!(other.metadata("/forged").unwrap().inode, inode);
    other.remove_file("/forged").unwrap();

    holder.forge(|holder| holder.log(&holder.create(holder.session.reserve(Kind::File)), generation.get()));
    assert_eq!(other.metadata("/forged").unwrap_err().errno(), Errno::NOENT);
    assert!(holder.has_failed());
    drop((files, other));
    served.stop();
}

/// The requests of a client take storage that its logged changes may need. Each logged change whose call has
/// succeeded must be made.
#[test]
fn logged_changes_fit_beside_requests() {
    let _alone = alone_with_the_clock();
    let mut served = Served::new(32 << 20);
    let files = served.files();
    let small = |number: u32| format!("/small-{number:04}");
    for number in 0..100 {
        files.write(small(number), [1]).unwrap();
    }
    let mut large = files.options().append(true).create(true).open("/large").unwrap();
    while large.write_all(&[2; 1 << 20]).is_ok() {}
    while large.write_all(&[2; 70 << 10]).is_ok() {}
    let made: Vec<u32> =
        (100..1000).filter(|&number| files.write(small(number), [number as u8; 4000]).is_ok()).collect();
    assert!(made.len() < 900, "the volume is full");
    large.sync_all().unwrap();
    for &number in &made {
        assert_eq!(files.read(small(number)).unwrap(), [number as u8; 4000], "file {number}");
    }
    drop((large, files));
    served.stop();
}

/// Many threads that need ids at the same time leave ids for objects of other kinds.
#[test]
fn threads_leave_ids_for_other_kinds() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    for number in 0..100 {
        files.write(format!("/file-{number}"), [1]).unwrap();
    }
    let barrier = std::sync::Barrier::new(16);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (files, barrier) = (&files, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for number in 0..50 {
                    files.write(format!("/thread-{thread}-{number}"), [1]).unwrap();
                    files.create_dir(format!("/dir-{thread}-{number}")).unwrap();
                    let link = format!("/link-{thread}-{number}");
                    files.symlink("target".as_ref(), link.as_str().into()).unwrap();
                }
            });
        }
    });
    assert_eq!(files.read_dir("/").unwrap().count(), 100 + 16 * 150);
    drop(files);
    served.stop();
}

/// Appends to an append-only file are not deferred, because a logged append is a write.
#[test]
fn appends_to_an_append_only_file_are_made() {
    let (mut served, [files, other]) = Served::with_clients(64 << 20);
    files.write("/log", "").unwrap();
    let log = files.open("/log".into(), OpenFlags::WRITE | OpenFlags::APPEND, 0).unwrap();
    for _ in 0..100 {
        files.append(&log, b"line").unwrap();
    }
    files.set_inode_flags(&log, eyrie::InodeFlags::APPEND_ONLY).unwrap();
    for _ in 0..100 {
        files.append(&log, b"line").unwrap();
    }
    assert_eq!(other.read("/log").unwrap(), b"line".repeat(200));
    files.set_inode_flags(&log, eyrie::InodeFlags::empty()).unwrap();
    files.close(log).unwrap();
    drop((files, other));
    served.stop();
}

/// A client that has lost a logged change learns of the loss by its syncs. Its other calls go on.
#[test]
fn lost_change_is_an_error_of_syncs_only() {
    let mut served = Served::new(8 << 20);
    let files = served.files();
    files.write("/egg", "blue").unwrap();
    // An owner that cannot apply an entry sets this word.
    let mut entries = std::fs::read_dir(&served.path).unwrap().map(|entry| entry.unwrap().path());
    let log = entries.find(|path| path.file_name().unwrap().as_encoded_bytes().starts_with(b"log-")).unwrap();
    let log = std::fs::OpenOptions::new().write(true).open(log).unwrap();
    log.write_all_at(&1_u64.to_le_bytes(), 8 * FAILED_WORD as u64).unwrap();
    let egg = files.options().write(true).create(true).open("/egg").unwrap();
    egg.write_all_at(b"grey", 0).unwrap();
    files.rename("/egg", "/egg").unwrap();
    for _ in 0..2 {
        assert_eq!(egg.sync_all().unwrap_err().errno(), Errno::IO);
    }
    assert_eq!(files.read("/egg").unwrap(), b"grey");
    drop((egg, files));
    served.stop();
}

/// A client that holds a pin keeps all storage that is freed meanwhile. So another client, which logs
/// overwrites of one small file, fills the volume. No logged change is lost: the service ends the session
/// with the pin, and then applies the waiting changes.
#[test]
fn logged_changes_wait_for_storage() {
    let _alone = alone_with_the_clock();
    let mut served = Served::new(64 << 20);
    let files = served.files();
    files.write("/egg", [1; 4096]).unwrap();
    let (pinned, _pins) = with_a_long_pin(&served);
    let egg = files.open("/egg".into(), OpenFlags::WRITE, 0).unwrap();
    for number in 0..40_000_u32 {
        files.write_at(&egg, &[number as u8; 4096], 0).unwrap();
    }
    assert_eq!(files.read("/egg").unwrap(), [39_999_u32 as u8; 4096]);
    files.fsync(&egg).unwrap();
    files.close(egg).unwrap();
    drop((files, pinned));
    served.stop();
}

/// The number in the word of a log changes with each further grant, so an append that was begun before fails.
#[test]
fn further_grants_come_under_a_seal() {
    #[cfg(feature = "mutants")]
    eyrie_medium::rules::break_rule_of_environment();
    let (mut served, [files, _other]) = Served::with_clients(256 << 20);
    let holder = RawHolder::new(&served, b"egg");
    // The read takes the grant of the volume back. The next change gives grants of parts.
    assert_eq!(files.read("/egg").unwrap(), [5]);
    assert_eq!(holder.session.apply(&holder.write(&[6])), 0);
    let number = || {
        // The log opens only after an answer.
        while holder.word().is_sealed() {
            std::thread::sleep(Duration::from_millis(1));
        }
        holder.word().with_position(0).raw()
    };
    let before = number();
    assert_eq!(holder.granted_to(), GRANTED_IN_PARTS);
    holder.session.reserve(Kind::File);
    assert_ne!(number(), before, "the session holds the parts of the ids");
    let before = number();
    while holder.granted_to() == GRANTED_IN_PARTS {
        holder.log(&holder.write(&[7]), NO_DETAIL);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_ne!(number(), before, "the session holds the volume");
    assert_eq!(files.read("/egg").unwrap(), [7]);
    assert!(!holder.has_failed());
    drop(files);
    served.stop();
}

/// Clients that make files in the same directory keep its grant in turn, and log most of their changes. With
/// one processor, each change is a request.
#[test]
fn clients_change_one_directory_in_turns() {
    const FILES: u64 = 20_000;
    let (mut served, clients) = Served::with_clients(256 << 20);
    clients[0].create_dir("/eggs").unwrap();
    std::thread::scope(|scope| {
        for (number, files) in clients.iter().enumerate() {
            scope.spawn(move || {
                for egg in 0..FILES {
                    files.write(format!("/eggs/{number}-{egg}"), "blue").unwrap();
                }
            });
        }
    });
    let logged = ["log-000", "log-001"].map(|log| {
        let mut position = [0; 8];
        let log = std::fs::File::open(served.path.join(log)).unwrap();
        log.read_exact_at(&mut position, 8 * TAIL_WORD as u64).unwrap();
        u64::from_le_bytes(position)
    });
    // The create and the write of a file need two entries of some 88 bytes each. Without turns, almost every
    // create is a request, and only the writes are logged.
    assert!(!can_spin() || logged.iter().all(|&bytes| bytes > FILES * 130), "{logged:?}");
    let [one, other] = &clients;
    assert_eq!(one.read_dir("/eggs").unwrap().count() as u64, 2 * FILES);
    assert_eq!(other.read(format!("/eggs/0-{}", FILES - 1)).unwrap(), b"blue");
    drop(clients);
    served.stop();
}
