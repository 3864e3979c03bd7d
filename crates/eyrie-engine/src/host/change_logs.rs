//! The table of the change logs of a service, and the files of the logs.
//!
//! The file `sessions` in the directory of the volume has a slot for each place of a session on the board. A
//! slot has the key of the session, the position up to which the service has found entries, the position up
//! to which it has applied them, its user, its grant, the generations for its new objects, and the storage
//! that its entries may need. The key is stored last and cleared first, so a slot with a key is whole. After
//! the slots, the file has the key of the session that holds the grant of each part, as the board has. So the
//! next owner checks entries as the service does. The last page has the version of the table and of the logs.
//! The service maps the table, and gives no client access to it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use eyrie_medium::shared::{SharedAccess, SharedMemory};
use eyrie_medium::{Fault, host};
use rustix::fs::{AtFlags, Mode, OFlags};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::place::HostPlace;
use crate::access::Credentials;
use crate::board::{MOST_SESSIONS, PARTS, SessionKey};
use crate::change_log::{CLOSED_WORD, FAILED_WORD, FINAL_WORD, LOG_FILE_BYTES, TAIL_WORD};
use crate::op::encode;
use crate::{Errno, Error, Result};

/// Name of the table in the directory of its volume.
const TABLE: &str = "sessions";
const SLOT_BYTES: usize = 4096;
const SLOT_WORDS: usize = SLOT_BYTES / 8;
const KEY: usize = 0;
const APPLIED: usize = 1;
/// The storage that the entries of the log may need that are not applied yet, in bytes. An owner that applies
/// a left log stores this word and [`APPLIED`] by one call.
const BUDGET: usize = 2;
const GROUPS: usize = 3;
/// The [`LogGrant`] of the session. A log without a grant has no entry to apply.
const GRANTED: usize = 4;
/// The next number that the log may give to a new object, and the end of these numbers.
const GENERATION: usize = 5;
const GENERATIONS_END: usize = 6;
const IDS: usize = 7;
const FIRST_GROUP: usize = 8;
/// The position after the last entry that the service has found. The service may have applied entries up to
/// this position, although [`APPLIED`] and the log itself do not say so.
const SEEN: usize = SLOT_WORDS - 1;
/// Largest number of supplementary groups of a user who can have a log.
const GROUPS_MAX: usize = SEEN - FIRST_GROUP;
/// First of the words with the sessions that hold the grants of the parts.
const HOLDERS: usize = MOST_SESSIONS * SLOT_WORDS;
/// The word with [`VERSION`], in a page of its own. It is stored before the first key.
const VERSION_WORD: usize = HOLDERS + PARTS;
/// The version of the encoding of Ops in the lowest 16 bits, the version of the table and of the logs in the
/// next 16 bits, and "LOGS". An owner of another version would apply other changes, or drop them.
const VERSION: u64 = encode::VERSION as u64 | 1 << 16 | (u32::from_le_bytes(*b"LOGS") as u64) << 32;
const TABLE_BYTES: usize = (VERSION_WORD + SLOT_WORDS) * 8;

/// A slot of the table.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Slot([u64; SLOT_WORDS]);

fn io_fault(what: &str, source: io::Error) -> Error {
    Error::Fault(Fault::Io { what: what.to_owned(), source })
}

/// Returns the name of the log of the session at a place of the board.
fn log_name(place: usize) -> String {
    format!("log-{place:03}")
}

/// Returns the path of the log of the session at a place of the board.
fn log_path(directory: &Path, place: usize) -> PathBuf {
    directory.join(log_name(place))
}

/// Makes a file in a directory, without following a symbolic link. Only the owner of the file can use it.
#[track_caller]
fn make_file(directory: &File, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR);
    let made = host::call(|| rustix::io::retry_on_intr(open));
    made.map(File::from).map_err(|errno: rustix::io::Errno| errno.into())
}

/// Removes a file of a directory. A failure is ignored: see the callers.
#[track_caller]
fn remove_file(directory: &File, name: &str) {
    let _ = host::call(|| rustix::fs::unlinkat(directory, name, AtFlags::empty()));
}

/// Returns the options that open an existing file without following a symbolic link.
fn options_of_left(to_change: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(to_change).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options
}

/// Gives a file of a service to the owner of the volume's directory, who may open the volume next. This
/// matters if root runs the service.
fn give_to_owner(file: &File, directory: &File) {
    use std::os::unix::fs::{MetadataExt, fchown};
    // A failure is ignored: a service that may not change the owner of a file owns the directory itself.
    let _ = host::metadata_of(directory)
        .and_then(|found| host::call(|| fchown(file, Some(found.uid()), Some(found.gid()))));
}

/// Makes the host provide the memory of a log, so that no store of its client fails.
///
/// # Errors
/// `Fault` if the host is full.
pub fn provision_log(log: &File) -> Result<()> {
    let mode = rustix::fs::FallocateFlags::empty();
    host::call(|| rustix::fs::fallocate(log, mode, 0, LOG_FILE_BYTES as u64))
        .map_err(|errno: rustix::io::Errno| io_fault("providing memory for a change log", errno.into()))
}

/// The grant of a session that logs changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogGrant {
    /// The session logs nothing.
    Nothing = 0,
    /// Grants of parts of the volume.
    Parts = 1,
    /// The grant of the whole volume.
    Whole = 2,
}

/// The table of the logs of a service.
#[derive(Debug)]
pub struct LogTable {
    slots: SharedMemory,
    /// The directory of the volume. Somebody may move the directory and put another volume at its path, so
    /// the files of the logs are found by this descriptor.
    directory: File,
}

impl LogTable {
    /// Makes the table in the directory of a volume whose logs are all applied.
    ///
    /// # Errors
    /// `Fault`.
    pub fn create(directory: &Path) -> Result<LogTable> {
        let failed = |source| io_fault("making the table of the change logs", source);
        let directory = host::call(|| File::open(directory)).map_err(failed)?;
        let file = make_file(&directory, TABLE, OFlags::TRUNC).map_err(failed)?;
        let mode = rustix::fs::FallocateFlags::empty();
        host::call(|| rustix::fs::fallocate(&file, mode, 0, TABLE_BYTES as u64))
            .map_err(|errno: rustix::io::Errno| failed(errno.into()))?;
        give_to_owner(&file, &directory);
        let slots = SharedMemory::map_own(file.into(), TABLE_BYTES, SharedAccess::ReadWrite)?;
        slots.word_to_store(VERSION_WORD).store(VERSION, Ordering::Release);
        Ok(LogTable { slots, directory })
    }

    fn store(&self, place: usize, word: usize, value: u64) {
        self.slots.word_to_store(place * SLOT_WORDS + word).store(value, Ordering::Release);
    }

    /// Makes the empty log of a session. Returns `None` for a user with too many groups.
    ///
    /// # Errors
    /// `Fault`.
    pub fn begin(&self, key: SessionKey, who: &Credentials) -> Result<Option<File>> {
        let (place, groups) = (key.place(), who.groups());
        if groups.len() > GROUPS_MAX {
            return Ok(None);
        }
        let failed = |source| io_fault("making a change log", source);
        // A file of this name is left if an earlier call of `end` could not remove it.
        let name = log_name(place);
        remove_file(&self.directory, &name);
        let file = make_file(&self.directory, &name, OFlags::EXCL).map_err(failed)?;
        give_to_owner(&file, &self.directory);
        host::set_len(&file, LOG_FILE_BYTES as u64).map_err(failed)?;
        self.store(place, APPLIED, 0);
        self.store(place, SEEN, 0);
        self.store(place, GRANTED, 0);
        self.store(place, GENERATION, 0);
        self.store(place, GENERATIONS_END, 0);
        self.store(place, BUDGET, 0);
        self.store(place, IDS, u64::from(who.uid()) | u64::from(who.gid()) << 32);
        self.store(place, GROUPS, groups.len() as u64);
        for (number, &group) in groups.iter().enumerate() {
            self.store(place, FIRST_GROUP + number, group.into());
        }
        self.store(place, KEY, key.raw());
        Ok(Some(file))
    }

    /// Notes the position after the last entry in the log of a session. Callers note it before they apply an
    /// entry. If they are killed then, the next owner applies the entry again, and the client learns that its
    /// change is made, even if the client was stopped before it could store the position in its log.
    #[inline]
    pub fn set_seen(&self, key: SessionKey, position: u64) {
        self.store(key.place(), SEEN, position);
    }

    /// Notes the position up to which the log of a session is applied.
    #[inline]
    pub fn set_applied(&self, key: SessionKey, position: u64) {
        self.store(key.place(), APPLIED, position);
    }

    /// Notes the grant of a session. Callers note a grant before the client appends its first entry, and
    /// [`LogGrant::Nothing`] after the last entry is applied.
    pub fn set_granted(&self, key: SessionKey, grant: LogGrant) {
        self.store(key.place(), GRANTED, grant as u64);
    }

    /// Notes the numbers that the log may give to new objects.
    #[inline]
    pub fn set_generations(&self, key: SessionKey, numbers: &Range<u64>) {
        self.store(key.place(), GENERATION, numbers.start);
        self.store(key.place(), GENERATIONS_END, numbers.end);
    }

    /// Notes the storage that the entries of a log may need from now on, in bytes. Callers note a larger
    /// budget before the client uses it, and a smaller one after all entries are applied.
    pub fn set_budget(&self, key: SessionKey, bytes: u64) {
        self.store(key.place(), BUDGET, bytes);
    }

    /// Notes the session that holds the grant of a part. Callers note it before the client appends an entry
    /// with an object of the part, and `None` after the entries of the holder are applied.
    pub fn set_holder(&self, part: usize, key: Option<SessionKey>) {
        let holder = key.map_or(0, SessionKey::raw);
        self.slots.word_to_store(HOLDERS + part).store(holder, Ordering::Release);
    }

    /// Removes the log of a session. The caller has applied all its entries.
    pub fn end(&self, key: SessionKey) {
        self.store(key.place(), KEY, 0);
        // If this call fails, a later [`LogTable::begin`] or the next owner removes the log.
        remove_file(&self.directory, &log_name(key.place()));
    }
}

impl Drop for LogTable {
    fn drop(&mut self) {
        // If all sessions have ended, all logs are applied, and the table is removed. A table with a key
        // stays for the next owner.
        let words = &self.slots.words()[..HOLDERS];
        if words.chunks(SLOT_WORDS).all(|slot| slot[KEY].load(Ordering::Relaxed) == 0) {
            remove_file(&self.directory, TABLE);
        }
    }
}

/// A log that a dead service has left.
pub(crate) struct LeftLog {
    /// The session of the log, if its entries need the grants of their objects. `None` if the session held
    /// the grant of the volume.
    pub(crate) holder: Option<SessionKey>,
    /// The file of the log.
    pub(crate) file: File,
    /// The user of the log.
    pub(crate) who: Credentials,
    /// Position up to which the log is applied.
    pub(crate) applied: u64,
    /// Position after the last entry that the service has found.
    seen: u64,
    /// The numbers that the log may give to new objects.
    pub(crate) generations: Range<u64>,
    /// The storage that the entries may need, in bytes.
    pub(crate) budget: u64,
    table: File,
    place: usize,
}

/// The logs that a dead service has left.
#[derive(Default)]
pub(crate) struct LeftLogs {
    pub(crate) logs: Vec<LeftLog>,
    /// The parts that sessions held.
    pub(crate) parts: Vec<(usize, SessionKey)>,
}

/// Returns the logs that a dead service has left in the directory of a volume. `owner` is the number of the
/// present owner. If `to_change` is false, the files are opened only for reading.
///
/// # Errors
/// `Volume` if a service of another version has left the logs, or if their table is damaged. `Fault`.
pub(crate) fn left_logs(place: HostPlace<'_>, to_change: bool, owner: u64) -> Result<LeftLogs> {
    let HostPlace::Directory(directory) = place else { return Ok(LeftLogs::default()) };
    let options = options_of_left(to_change);
    let failed = |source| io_fault("reading the change logs of the volume", source);
    let table = match host::open(&options, directory.join(TABLE)) {
        Ok(table) => table,
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(LeftLogs::default());
        }
        Err(error) => return Err(failed(error)),
    };
    if !check_version(&table, directory)? {
        return Ok(LeftLogs::default());
    }
    let mut logs = Vec::new();
    for session_place in 0..MOST_SESSIONS {
        let mut slot = Slot::new_zeroed();
        let read = host::read_exact_at(&table, slot.as_mut_bytes(), (session_place * SLOT_BYTES) as u64);
        match read {
            // A key of an owner after this one shows that the table belongs to a later state of the volume.
            Ok(()) if slot.0[KEY] != 0 && SessionKey::from_raw(slot.0[KEY]).is_after_owner(owner) => {
                tracing::error!("the change logs belong to a later state of the volume");
                return Ok(LeftLogs::default());
            }
            Ok(()) if slot.0[KEY] != 0 && slot.0[GRANTED] != LogGrant::Nothing as u64 => {}
            // A service that died while it made the table had no client yet.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Ok(()) => continue,
            Err(error) => return Err(failed(error)),
        }
        let file = match host::open(&options, log_path(directory, session_place)) {
            Ok(file) => file,
            // An earlier owner has applied and removed this log.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        let count = (slot.0[GROUPS] as usize).min(GROUPS_MAX);
        let groups: Vec<u32> = slot.0[FIRST_GROUP..][..count].iter().map(|&group| group as u32).collect();
        let who = Credentials::new(slot.0[IDS] as u32, (slot.0[IDS] >> 32) as u32, &groups);
        logs.push(LeftLog {
            holder: (slot.0[GRANTED] != LogGrant::Whole as u64).then_some(SessionKey::from_raw(slot.0[KEY])),
            file,
            who,
            applied: slot.0[APPLIED],
            seen: slot.0[SEEN],
            generations: slot.0[GENERATION]..slot.0[GENERATIONS_END],
            budget: slot.0[BUDGET],
            table: host::try_clone(&table).map_err(failed)?,
            place: session_place,
        });
    }
    let parts = if logs.iter().any(|log| log.holder.is_some()) { holders(&table)? } else { Vec::new() };
    Ok(LeftLogs { logs, parts })
}

/// Returns true for a table of this version. Returns false if a service died or failed while it made the
/// table, and so had no client yet.
///
/// # Errors
/// `Volume` for a table of another version. `Fault`.
fn check_version(table: &File, directory: &Path) -> Result<bool> {
    let failed = |source| io_fault("reading the version of the change logs", source);
    let mut version = 0_u64;
    match host::read_exact_at(table, version.as_mut_bytes(), VERSION_WORD as u64 * 8) {
        Ok(()) if version == VERSION => return Ok(true),
        Ok(()) if version == 0 => return Ok(false),
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            // A host that is full may have made a part of the table, without any key.
            let length = host::metadata_of(table).map_err(failed)?.len().min(TABLE_BYTES as u64);
            let mut bytes = vec![0_u8; length as usize];
            host::read_exact_at(table, &mut bytes, 0).map_err(failed)?;
            if bytes.iter().all(|&byte| byte == 0) {
                return Ok(false);
            }
        }
        Err(error) => return Err(failed(error)),
    }
    let what = "a killed service of another version of eyrie has left changes in its logs, or the file \
                `sessions` is damaged; open the volume with that version, or remove the file to drop the \
                changes";
    Err(Error::volume(&directory.display().to_string(), what, Errno::OPNOTSUPP))
}

/// Returns the parts of the volume that sessions held, from the table of their logs.
fn holders(table: &File) -> Result<Vec<(usize, SessionKey)>> {
    let mut keys = vec![0_u64; PARTS];
    match host::read_exact_at(table, keys.as_mut_bytes(), HOLDERS as u64 * 8) {
        Ok(()) => {}
        // The table is damaged. Without holders, no entry that needs them is applied.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Vec::new()),
        Err(source) => return Err(io_fault("reading the table of the change logs", source)),
    }
    let is_held = |&(_, key): &(usize, u64)| key != 0;
    let held = keys.into_iter().enumerate().filter(is_held);
    Ok(held.map(|(part, key)| (part, SessionKey::from_raw(key))).collect())
}

/// True if a dead service has left a table of logs in the directory of a volume.
pub(crate) fn has_left_logs(place: HostPlace<'_>) -> bool {
    matches!(place, HostPlace::Directory(directory) if directory.join(TABLE).exists())
}

/// True if a dead service has left entries that are not applied, or if its logs cannot be read.
pub fn has_unapplied_entries(volume: &Path) -> bool {
    // Every log counts, even one of a later owner.
    let logs = left_logs(HostPlace::of(volume), false, u64::MAX);
    let has_entry = |log: &LeftLog| log.tail(false).map_or(true, |tail| tail > log.applied);
    logs.map_or(true, |left| left.logs.iter().any(has_entry))
}

/// Removes the table and all logs. The caller has applied all their entries.
pub(crate) fn remove_left(place: HostPlace<'_>) {
    let HostPlace::Directory(directory) = place else { return };
    if !has_left_logs(place) {
        return;
    }
    let is_gone =
        |session_place: usize| match host::call(|| fs::remove_file(log_path(directory, session_place))) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
    // The table is removed last, because the next owner finds the logs only by the table.
    if (0..MOST_SESSIONS).all(is_gone) {
        let _ = host::call(|| fs::remove_file(directory.join(TABLE)));
    }
}

impl LeftLog {
    /// Returns the position after the last entry that counts. If `to_change` is true, first closes the log,
    /// so that its client appends nothing more.
    pub(crate) fn tail(&self, to_change: bool) -> Result<u64> {
        let failed = |source| io_fault("reading a change log", source);
        if to_change {
            self.write_word(CLOSED_WORD, 1)?;
        }
        let word = |index: usize| {
            let mut word = [0; 8];
            host::read_exact_at(&self.file, &mut word, index as u64 * 8).map(|()| u64::from_le_bytes(word))
        };
        // The client first stores the position after a new entry in the memory of its lanes, from which the
        // service reads it. Then the client stores the position in `TAIL_WORD`. So the service may have found
        // more entries than `TAIL_WORD` says. But if an earlier owner has told the client a final position
        // (`FINAL_WORD`), no entry after that position is applied.
        let last = || word(TAIL_WORD).map(|tail| tail.max(self.seen));
        let tail = word(FINAL_WORD).and_then(|end| end.checked_sub(1).map_or_else(last, Ok));
        match tail {
            // The client has shortened its file.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(self.applied),
            tail => tail.map_err(failed).map(|tail| tail.max(self.applied)),
        }
    }

    /// Notes the position up to which the log is applied, and the rest of its budget, in bytes.
    pub(crate) fn set_applied(&self, position: u64, budget: u64) -> Result<()> {
        let at = (self.place * SLOT_BYTES + APPLIED * 8) as u64;
        const { assert!(BUDGET == APPLIED + 1) };
        // After a kill the next owner finds both words, or neither.
        host::write_all_at(&self.table, [position, budget].as_bytes(), at)
            .map_err(|source| io_fault("noting the state of a change log", source))
    }

    /// Tells the client that an entry could not be applied.
    pub(crate) fn note_failure(&self) -> Result<()> {
        self.write_word(FAILED_WORD, 1)
    }

    /// Tells the client up to which position the log is applied. No later owner applies more.
    pub(crate) fn finish(&self, position: u64) -> Result<()> {
        self.write_word(FINAL_WORD, position + 1)
    }

    fn write_word(&self, word: usize, value: u64) -> Result<()> {
        match host::write_all_at(&self.file, &value.to_le_bytes(), word as u64 * 8) {
            // The host has provided this page, so the client has given it back. The other logs must not wait
            // for this client.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            written => written.map_err(|source| io_fault("closing a change log", source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory whose volume is served moves, and another served volume takes its path.
    #[test]
    fn logs_move_with_the_directory_of_their_volume() {
        let parent = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("room");
        let [path, moved] = ["v", "moved"].map(|name| parent.path().join(name));
        let files = |directory: &Path| [TABLE, "log-003"].map(|name| directory.join(name).exists());
        let (key, who) = (SessionKey::new(1, 1, 3), Credentials::root());
        fs::create_dir(&path).expect("room");
        let first = LogTable::create(&path).expect("room");
        fs::rename(&path, &moved).expect("a directory");
        fs::create_dir(&path).expect("room");
        let second = LogTable::create(&path).expect("room");
        for table in [&second, &first] {
            table.begin(key, &who).expect("room").expect("few groups");
        }
        assert_eq!((files(&path), files(&moved)), ([true; 2], [true; 2]));
        first.end(key);
        drop(first);
        assert_eq!((files(&path), files(&moved)), ([true; 2], [false; 2]));
        second.end(key);
        drop(second);
        assert_eq!(files(&path), [false; 2]);
    }
}
