//! The engine for byte-addressable storage: Aerie's objects with BPFS's updates.
//!
//! Readers take no lock: they read between two looks at a version. Writers lock the objects they change
//! (`locks`), prepare a [`Transaction`] and commit it.
//!
//! Invariants:
//! - An Op that fails changed nothing (but may have split a bucket, which nobody can see).
//! - Until an Op lasts, it holds the locks of the objects that it changes, and of those that it makes: who changes them next
//!   builds on nothing that a crash could take back.
//! - An object is given back only when it has no name, nobody has it open, and a grace period has passed.
//!
//! Safe when power fails: every Op is one commit of one transaction; what follows it (giving back storage) is volatile.

mod attributes;
mod counts;
mod create;
mod keys;
mod locks;
mod opens;
mod read;
mod remove;
mod rename;
mod summaries;
mod write;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::epoch::{Guard, pin};
use eyrie_medium::sync::Mutex;
use eyrie_medium::{Addr, Medium, PagedOptions};

use crate::object::collection::{self, Collection};
use crate::object::header::{Header, Hot, NewObject};
use crate::object::xattr;
use crate::transaction::Transaction;
use crate::volume::{Opened, Options, Volume};
use crate::{
    Applied, Attributes, Birth, Engine, Entry, Error, Kind, ObjectId, Op, Owner, Result, SpaceUsage, Time,
    check, recovery, redo,
};
use locks::Locks;
use opens::Opens;
use summaries::Summaries;
use write::Touch;

const NAME_MAX: usize = 255;

/// The engine: one volume, held by this process alone.
pub struct Scm {
    volume: Volume,
    root: ObjectId,
    locks: Locks,
    opens: Opens,
    summaries: Summaries,
    /// Held by Ops that move directories between parents, which keeps cycles out.
    moves: Mutex<()>,
    changes: Changes,
    recovered: bool,
    close_on_drop: bool,
}

/// Counts what makes remembered paths wrong: begun and ended, so that nothing is remembered in between.
#[derive(Default)]
struct Changes {
    begun: AtomicU64,
    ended: AtomicU64,
    unique: AtomicU64,
}

impl Changes {
    #[inline]
    fn current(&self) -> u64 {
        let ended = self.ended.load(Ordering::Acquire);
        if ended == self.begun.load(Ordering::Acquire) {
            return ended;
        }
        // In the middle of one: a number that is never seen again.
        1 << 63 | self.unique.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs a change of directories.
    fn during<T>(&self, change: impl FnOnce() -> T) -> T {
        self.begun.fetch_add(1, Ordering::AcqRel);
        let result = change();
        self.ended.fetch_add(1, Ordering::AcqRel);
        result
    }
}

impl Scm {
    /// A new volume of `bytes` at `path`, whose root belongs to `owner`.
    ///
    /// # Errors
    /// `Volume` when it cannot be made there; `Fault`. Nothing is left behind.
    pub fn create(
        path: &Path,
        bytes: Option<u64>,
        options: &Options,
        owner: Owner,
        time: Time,
    ) -> Result<Scm> {
        Volume::create_with(path, bytes, options, |volume| Scm::format(volume, owner, time))
    }

    /// A new volume on a medium of its own.
    ///
    /// # Errors
    /// As [`Scm::create`].
    pub fn create_on(medium: Medium, options: &Options, owner: Owner, time: Time) -> Result<Scm> {
        Scm::format(Volume::create_on(medium, options)?, owner, time)
    }

    /// The volume at `path`; recovered, if it was not closed. `paged` counts if it is on a disk.
    ///
    /// # Errors
    /// `Volume` when it is none, in use, or of another format; `Corrupt`; `Fault`.
    pub fn open(path: &Path, paged: PagedOptions) -> Result<Scm> {
        let (volume, opened) = Volume::open(path, paged)?;
        Scm::start(volume, opened)
    }

    /// The volume on a medium; recovered, if it was not closed.
    ///
    /// # Errors
    /// As [`Scm::open`].
    pub fn open_on(medium: Medium) -> Result<Scm> {
        let (volume, opened) = Volume::open_on(medium)?;
        Scm::start(volume, opened)
    }

    fn format(mut volume: Volume, owner: Owner, time: Time) -> Result<Scm> {
        let gate = volume.medium().enter()?;
        let place = volume.space().allocate_header()?;
        let root = ObjectId::new(place.raw(), Kind::Directory);
        let mut transaction = Transaction::begin(&volume);
        let new = NewObject {
            kind: Kind::Directory,
            sealed: false,
            generation: volume.generation()?,
            owner,
            root: collection::create(&mut transaction)?,
            size: 0,
            parent_or_device: root.raw(),
            time,
        };
        Header::of(root).write_new(&mut transaction, &new)?;
        transaction.commit()?;
        drop(gate);
        volume.set_root(root)?;
        volume.medium().drain()?;
        Ok(Scm::over(volume, root, false))
    }

    /// Makes the volume at `path`, which nobody has open, larger or smaller at its end; without `bytes`, as large as its
    /// device.
    ///
    /// # Errors
    /// `Volume` says how small or large it can be; as [`Scm::open`]; `Fault` when the host is full. Whatever happens, the
    /// volume has its old size or the new one.
    pub fn resize(path: &Path, bytes: Option<u64>, paged: PagedOptions) -> Result<()> {
        let (mut volume, opened) = Volume::open(path, paged)?;
        Scm::recover(&mut volume, opened)?;
        let (volume, opened) = volume.resize(path, bytes, paged)?;
        Scm::start(volume, opened)?.close()
    }

    /// Makes the volume on a medium of its own, which nobody has open, larger or smaller at its end.
    ///
    /// # Errors
    /// As [`Scm::resize`]; the segment must have room for it.
    pub fn resize_on(medium: Medium, bytes: u64) -> Result<()> {
        let (mut volume, opened) = Volume::open_on(medium)?;
        Scm::recover(&mut volume, opened)?;
        volume.resize_on_medium(bytes)
    }

    fn start(mut volume: Volume, opened: Opened) -> Result<Scm> {
        let root = Scm::recover(&mut volume, opened)?;
        Ok(Scm::over(volume, root, opened == Opened::Crashed))
    }

    /// Finds out what is free in a volume that was not closed; the root.
    fn recover(volume: &mut Volume, opened: Opened) -> Result<ObjectId> {
        let root = volume.root().ok_or_else(|| Error::corrupt(Addr::NULL, "volume without a root"))?;
        if opened == Opened::Crashed {
            let gate = volume.medium().enter()?;
            let replayed = redo::replay(volume);
            drop(gate);
            replayed?;
            let marks = recovery::mark(volume, root)?;
            volume.adopt(&marks);
        }
        Ok(root)
    }

    fn over(volume: Volume, root: ObjectId, recovered: bool) -> Scm {
        let (locks, opens) = (Locks::default(), Opens::default());
        Scm {
            volume,
            root,
            locks,
            opens,
            summaries: Summaries::default(),
            moves: Mutex::new(()),
            changes: Changes::default(),
            recovered,
            close_on_drop: false,
        }
    }

    /// The volume beneath.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Whether opening had to recover it from a crash.
    pub fn recovered(&self) -> bool {
        self.recovered
    }

    /// Compares everything in the volume with everything else in it. Nothing may be changing it meanwhile.
    ///
    /// # Errors
    /// `Fault`; what is wrong with the volume is in the report.
    pub fn check(&self) -> Result<check::Report> {
        check::check(&self.volume, self.root, &self.opens.orphans())
    }

    /// Checks a volume that was just opened, or what opening it said was wrong. What opening and checking changes in it is
    /// the caller's to keep: see [`Volume::open_copy`].
    ///
    /// # Errors
    /// `Volume` when it is none; `Fault`.
    pub fn inspect(opened: Result<(Volume, Opened)>) -> Result<check::Report> {
        match opened.and_then(|(volume, opened)| Scm::start(volume, opened)) {
            Ok(engine) => engine.check(),
            Err(error) => check::Report::of_error(error),
        }
    }

    /// Saves the allocator and marks the volume clean.
    ///
    /// # Errors
    /// `Fault`; the volume is then as after a crash, and opening it recovers.
    pub fn close(mut self) -> Result<()> {
        self.close_on_drop = false;
        self.volume.save()
    }

    /// Gives the memory of groups that are free as a whole back to the host; how many bytes those have.
    ///
    /// # Errors
    /// `Fault`.
    pub fn trim(&self) -> Result<u64> {
        self.volume.trim()
    }

    /// The same engine, closed when it is dropped. Without this, dropping it is what the death of the process is.
    #[must_use]
    pub fn closed_on_drop(mut self) -> Scm {
        self.close_on_drop = true;
        self
    }

    /// Holds the locks of these objects, as an Op that changes them does while it runs: for tests of readers.
    #[cfg(feature = "shuttle")]
    pub fn hold_for_test(&self, ids: &[ObjectId]) -> impl Sized + '_ {
        (self.locks.hold(ids), eyrie_medium::sync::lock(&self.moves))
    }

    fn medium(&self) -> &Medium {
        self.volume.medium()
    }

    fn apply_one(&self, op: &Op<'_>) -> Result<Applied> {
        match *op {
            Op::Create { dir, name, id, owner, content, time } => {
                self.create_object(dir, name, id, owner, content, time)
            }
            Op::Link { dir, name, id, time } => self.link(dir, name, id, time),
            Op::Unlink { dir, name, time } => self.unlink(dir, name, time, remove::What::Name),
            Op::Erase { dir, name, time } => self.unlink(dir, name, time, remove::What::Key),
            Op::RemoveDirectory { dir, name, time } => self.remove_directory(dir, name, time),
            Op::Rename { from_dir, from_name, to_dir, to_name, mode, time } => {
                self.rename(rename::Move { from_dir, from_name, to_dir, to_name, mode, time })
            }
            Op::Write { id, offset, data, set_ids, time } => {
                self.write_data(id, Some(offset), data, Touch { set_ids, time })
            }
            Op::Append { id, data, set_ids, time } => {
                self.write_data(id, None, data, Touch { set_ids, time })
            }
            Op::SetSize { id, size, set_ids, time } => self.set_size(id, size, Touch { set_ids, time }),
            Op::Fallocate { id, mode, offset, length, set_ids, time } => {
                self.fallocate(id, mode, offset, length, Touch { set_ids, time })
            }
            Op::SetAttributes { id, change, time } => self.set_attributes(id, &change, time),
            Op::SetXattr { id, name, value, mode, time } => {
                self.change_xattrs(id, time, |transaction, root| {
                    xattr::set(transaction, root, name, value, mode)
                })
            }
            Op::RemoveXattr { id, name, time } => {
                self.change_xattrs(id, time, |transaction, root| xattr::remove(transaction, root, name))
            }
            Op::Put { dir, name, id, owner, data, time } => self.put(dir, name, id, owner, data, time),
            Op::Batch { dir, ops, time } => self.batch(dir, ops, time),
        }
    }

    /// What was read or done, unless the medium has failed: then it, and also an error found in it, means nothing.
    #[inline(always)]
    fn sound<T>(&self, result: Result<T>) -> Result<T> {
        self.medium().check()?;
        result
    }

    /// The header of an id that came from outside.
    #[inline(always)]
    fn header(&self, id: ObjectId) -> Result<Header> {
        if self.volume.is_header(Addr::from_raw(id.place())) { Ok(Header::of(id)) } else { Err(Error::Stale) }
    }

    /// The header of a directory, and its state.
    #[inline(always)]
    fn directory(&self, id: ObjectId) -> Result<(Header, Hot)> {
        if !id.is_directory() {
            return Err(Error::NotDirectory);
        }
        let header = self.header(id)?;
        let hot = header.hot(self.medium())?;
        Ok((header, hot))
    }

    /// Looks `name` up in a directory whose lock is held, or whose root is checked afterwards.
    #[inline(always)]
    fn find(&self, hot: &Hot, name: &[u8]) -> Result<Option<collection::Found>> {
        Collection::new(&self.volume, hot.root).lookup(name)
    }
}

impl Drop for Scm {
    fn drop(&mut self) {
        // In a forked child the locks may be held by threads that are not there.
        if self.close_on_drop && !std::thread::panicking() && self.medium().check().is_ok() {
            // There is nobody to tell; a volume that was not closed is recovered when it is opened.
            let _ = self.volume.save();
        }
    }
}

/// Refuses what can be no entry: a directory that is none, a name that can be none.
#[inline]
fn check_entry(dir: ObjectId, name: &[u8]) -> Result<()> {
    if !dir.is_directory() {
        return Err(Error::NotDirectory);
    }
    match name.len() {
        0 => Err(Error::Invalid("empty name")),
        1..=NAME_MAX => Ok(()),
        _ => Err(Error::NameTooLong),
    }
}

/// Refuses modes that are none.
fn check_mode(mode: u16) -> Result<()> {
    if mode <= 0o7777 { Ok(()) } else { Err(Error::Invalid("mode of more than twelve bits")) }
}

impl Engine for Scm {
    fn root(&self) -> ObjectId {
        self.root
    }

    #[inline]
    fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        self.sound(self.read_lookup(dir, name))
    }

    #[inline]
    fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        self.sound(self.read_attributes(id))
    }

    fn birth(&self, id: ObjectId) -> Result<Birth> {
        self.sound(self.read_birth(id))
    }

    fn parent_of(&self, dir: ObjectId) -> Result<Option<ObjectId>> {
        self.sound(self.read_parent(dir))
    }

    fn is_removed(&self, id: ObjectId) -> Result<bool> {
        let _pin = pin();
        let selector = self.header(id).and_then(|header| header.selector(self.medium()));
        self.sound(selector.map(|selector| selector.unlinked()))
    }

    fn owner(&self, id: ObjectId) -> Result<Owner> {
        self.sound(self.read_owner(id))
    }

    #[inline]
    fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.sound(self.read_data(id, offset, out))
    }

    #[inline]
    fn view<'a>(&'a self, id: ObjectId, guard: &'a Guard) -> Result<Option<&'a [u8]>> {
        self.sound(self.read_view(id, guard))
    }

    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>> {
        self.sound(self.read_seek(id, offset, hole))
    }

    fn xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        self.sound(self.read_xattr(id, name, out))
    }

    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.sound(self.read_xattr_names(id, visit))
    }

    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(Entry<'_>) -> bool) -> Result<()> {
        self.sound(self.read_list(dir, cookie, visit))
    }

    #[inline]
    fn open(&self, id: ObjectId) -> Result<()> {
        self.opens.add(id);
        let _pin = pin();
        let alive = self.header(id).and_then(|header| header.selector(self.medium()));
        match alive {
            Ok(selector) if !selector.unlinked() || self.opens.is_orphan(id) => Ok(()),
            Ok(_) => {
                self.close_object(id);
                Err(Error::Stale)
            }
            Err(error) => {
                self.close_object(id);
                Err(error)
            }
        }
    }

    #[inline]
    fn close(&self, id: ObjectId) {
        self.close_object(id);
    }

    fn reserve(&self, kind: Kind) -> Result<ObjectId> {
        self.medium().check()?;
        let _gate = self.medium().enter()?;
        let place = self.volume.space().allocate_header()?;
        Ok(ObjectId::new(place.raw(), kind))
    }

    fn unreserve(&self, id: ObjectId) {
        self.volume.space().release_header(Addr::from_raw(id.place()));
    }

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        self.medium().check()?;
        let _gate = self.medium().enter()?;
        let _pin = pin();
        self.sound(self.apply_one(op))
    }

    fn reclaim(&self) -> bool {
        self.volume.space().reclaim()
    }

    #[inline]
    fn directory_changes(&self) -> u64 {
        self.changes.current()
    }

    fn wait_for(&self, id: ObjectId) -> Result<()> {
        // In a forked child the holder of a lock may be a thread that is not there.
        self.medium().check()?;
        if self.medium().lasts_from_fences() {
            drop(self.locks.hold(&[id]));
        }
        Ok(self.medium().check()?)
    }

    fn sync(&self) -> Result<()> {
        self.medium().check()?;
        self.volume.space().drain()
    }

    fn space(&self) -> SpaceUsage {
        self.volume.space().usage()
    }
}

#[cfg(test)]
mod tests;
