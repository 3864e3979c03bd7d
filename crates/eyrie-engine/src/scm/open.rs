//! Creating, opening, resizing, checking and closing a volume with this engine.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use eyrie_medium::sync::Mutex;
use eyrie_medium::{Fault, Medium, PagedOptions};

use super::Scm;
use super::locks::Locks;
use super::opens::Opens;
use super::quotas::Quotas;
use super::summaries::Summaries;
use crate::advisory::LockTable;
use crate::engine::next_instance;
use crate::host::{HostPlace, has_left_logs};
use crate::object::collection;
use crate::object::header::{Header, NewObject};
use crate::transaction::Transaction;
use crate::volume::{Opened, Options, Volume};
use crate::{Kind, ObjectId, Owner, Result, Time, check, recovery};

impl Scm {
    /// Creates a volume of `bytes` at `path`. A volume on a device fills the device, and `bytes` must be
    /// `None`. Without `bytes`, a volume in a directory gets the default size. The root directory of the
    /// volume belongs to `owner`.
    ///
    /// # Errors
    /// `Volume` if the volume cannot be created there. `Fault`. After an error, no new volume remains.
    pub fn create(
        path: &Path,
        bytes: Option<u64>,
        options: &Options,
        owner: Owner,
        time: Time,
    ) -> Result<Scm> {
        Scm::create_at(HostPlace::of(path), bytes, options, owner, time)
    }

    /// Creates a volume as [`Scm::create`] does, but takes a [`HostPlace`] instead of a path.
    pub(crate) fn create_at(
        place: HostPlace<'_>,
        bytes: Option<u64>,
        options: &Options,
        owner: Owner,
        time: Time,
    ) -> Result<Scm> {
        Volume::create_with(place, bytes, options, |volume| Scm::format(volume, owner, time))
    }

    /// Creates a volume on a medium that has no path.
    ///
    /// # Errors
    /// The errors of [`Scm::create`].
    pub fn create_on(medium: Medium, options: &Options, owner: Owner, time: Time) -> Result<Scm> {
        Scm::format(Volume::create_on(medium, options)?, owner, time)
    }

    /// Opens the volume at `path`, and recovers it if it was not closed. `paged` has options that apply only
    /// to a volume on a disk.
    ///
    /// # Errors
    /// `Volume` if the volume cannot be opened, for example because there is none, because it is in use, or
    /// because it has another format. `Corrupt`, `Fault`.
    pub fn open(path: &Path, paged: PagedOptions) -> Result<Scm> {
        Scm::open_at(HostPlace::of(path), paged)
    }

    /// Opens the volume at `path` as [`Scm::open`] does, so that other processes can read it meanwhile (see
    /// [`VolumeView::of_owner`](crate::volume::VolumeView::of_owner)).
    ///
    /// # Errors
    /// The errors of [`Scm::open`].
    pub fn open_shared(path: &Path, mut paged: PagedOptions) -> Result<Scm> {
        paged.is_shared = true;
        let (volume, opened) = Volume::open(path, paged)?;
        let engine = Scm::start_shared(volume, opened)?;
        engine.replay_logs(HostPlace::of(path), true)?;
        Ok(engine)
    }

    /// Opens the volume on a medium as [`Scm::open_shared`] does, but applies no change logs, because a
    /// medium has no directory with logs. Tests and the crash explorer use this call for a medium that they
    /// observe.
    ///
    /// # Errors
    /// The errors of [`Scm::open_shared`].
    pub fn open_shared_on(medium: Medium) -> Result<Scm> {
        let (volume, opened) = Volume::open_on(medium)?;
        Scm::start_shared(volume, opened)
    }

    fn start_shared(mut volume: Volume, opened: Opened) -> Result<Scm> {
        volume.share()?;
        let engine = Scm::start(volume, opened)?;
        // A free header may still hold the object of an earlier use. A client could reach this object by its
        // id.
        engine.reset_free_headers()?;
        Ok(engine)
    }

    /// Opens the volume at `path` to read it. Several processes may have a volume open in this way. A volume
    /// that was not closed is recovered in memory. No call changes the volume or the files of the host, and
    /// every Op fails with [`Error::OpenedReadOnly`](crate::Error::OpenedReadOnly).
    ///
    /// # Errors
    /// The errors of [`Scm::open`].
    pub fn open_read_only(path: &Path, paged: PagedOptions) -> Result<Scm> {
        let (volume, opened) = Volume::open_copy(path, paged)?;
        let mut engine = Scm::start_uncounted(volume, opened)?;
        engine.replay_logs(HostPlace::of(path), false)?;
        engine.read_only = true;
        Ok(engine)
    }

    /// Opens a volume as [`Scm::open`] does, but takes a [`HostPlace`] instead of a path.
    pub(crate) fn open_at(place: HostPlace<'_>, paged: PagedOptions) -> Result<Scm> {
        let (volume, opened) = Volume::open_at(place, paged)?;
        let engine = Scm::start(volume, opened)?;
        engine.replay_logs(place, true)?;
        Ok(engine)
    }

    /// Opens the volume on a medium, and recovers it if it was not closed.
    ///
    /// # Errors
    /// The errors of [`Scm::open`].
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
            generation: volume.next_generation()?,
            owner,
            root: collection::create(&mut transaction)?,
            size: 0,
            parent_or_device: root.raw(),
            time,
        };
        Header::of(root).write_new(&mut transaction, &new)?;
        transaction.commit()?;
        // The function `set_root` enters the gate itself, so this passage through the gate must end first.
        drop(gate);
        // The commit has settled the header of the root. Therefore no crash leaves a superblock that names an
        // unwritten header.
        volume.set_root(root)?;
        // On a disk, this makes the new volume durable.
        volume.medium().drain()?;
        Ok(Scm::over(volume, root, false))
    }

    /// Resizes the volume at `path`, which no process has open. Without `bytes`, a volume on a device gets
    /// the largest size for which the device and the tables have room, and any other volume is refused.
    ///
    /// # Errors
    /// `Volume` if the size is outside its limits. The error names these limits. `Fault` if the host is full.
    /// All errors of [`Scm::open`]. After an error, the volume has either the old or the new size.
    pub fn resize(path: &Path, bytes: Option<u64>, paged: PagedOptions) -> Result<()> {
        Scm::resize_at(HostPlace::of(path), bytes, paged)
    }

    /// Resizes a volume as [`Scm::resize`] does, but takes a [`HostPlace`] instead of a path.
    pub(crate) fn resize_at(place: HostPlace<'_>, bytes: Option<u64>, paged: PagedOptions) -> Result<()> {
        if has_left_logs(place) {
            // The logs are applied before the resize, because the volume of the old size has the storage that
            // was promised to their entries.
            Scm::open_at(place, paged)?.close()?;
        }
        let (mut volume, opened) = Volume::open_at(place, paged)?;
        recovery::recover(&mut volume, opened)?;
        let (volume, opened) = volume.resize(place.path(), bytes, paged)?;
        Scm::start(volume, opened)?.close()
    }

    /// Resizes the volume on a medium that has no path. The new size is at most the size of the medium's
    /// segment. No engine has the volume open. This call does not close the volume, so the next open recovers
    /// it.
    ///
    /// # Errors
    /// The errors of [`Scm::resize`].
    pub fn resize_on(medium: Medium, bytes: u64) -> Result<()> {
        let (mut volume, opened) = Volume::open_on(medium)?;
        recovery::recover(&mut volume, opened)?;
        volume.resize_on_medium(bytes)
    }

    fn start(volume: Volume, opened: Opened) -> Result<Scm> {
        let engine = Scm::start_uncounted(volume, opened)?;
        match engine.load_quotas() {
            Ok(()) => Ok(engine),
            Err(error) => {
                // The open has cleared the clean mark, and the recovery of a damaged volume may fail. Without
                // this close, the next open would need a recovery, even an open that only reads. If the close
                // fails, too, the first error is the one to report.
                let _ = engine.close();
                Err(error)
            }
        }
    }

    /// Begins to use a volume without counting usage for quotas. In a volume opened read-only, usage is
    /// counted only for a report, because no Op is applied.
    fn start_uncounted(mut volume: Volume, opened: Opened) -> Result<Scm> {
        let root = recovery::recover(&mut volume, opened)?;
        let engine = Scm::over(volume, root, opened == Opened::Crashed);
        engine.keep_outcome_of_request()?;
        Ok(engine)
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
            notices: Arc::default(),
            advisory: LockTable::default(),
            quotas: Quotas::default(),
            // The field needs one random number. The keys of a `RandomState` are random, so the hash of an
            // empty value with these keys is random, too.
            open_number: RandomState::new().hash_one(()),
            instance: next_instance(),
            recovered,
            read_only: false,
            close_on_drop: false,
        }
    }

    /// Checks the whole volume, and reports the contradictions in it. No Op may change the volume meanwhile.
    ///
    /// # Errors
    /// `Fault`. Damage of the volume is not an error, but part of the report.
    pub fn check(&self) -> Result<check::Report> {
        let mut report = check::check(&self.volume, self.root, &self.opens.orphans())?;
        // In a damaged volume, `compare_usages` could fail, and the report would be lost.
        if report.is_clean() {
            report.findings = self.compare_usages()?;
        }
        Ok(report)
    }

    /// Checks a copy of the volume at `path`, or reports the corruption that prevents an open. As the next
    /// open would do, this call first recovers the copy, and applies the change logs that a dead service has
    /// left.
    ///
    /// # Errors
    /// `Volume` if no volume can be opened. `Fault`.
    pub fn inspect(path: &Path, paged: PagedOptions) -> Result<check::Report> {
        let opened = || {
            let (volume, opened) = Volume::open_copy(path, paged)?;
            let engine = Scm::start(volume, opened)?;
            engine.replay_logs(HostPlace::of(path), false)?;
            Ok(engine)
        };
        opened().map_or_else(check::Report::of_error, |engine| engine.check())
    }

    /// Frees the unlinked objects that are still open, saves the allocator, and marks the volume clean. In
    /// the cases that [`Volume::save`] names, the volume is not marked, and the next open recovers it.
    /// Changes nothing if the volume was opened read-only.
    ///
    /// # Errors
    /// `Fault`. The volume is then as after a crash, and the next open recovers it.
    pub fn close(mut self) -> Result<()> {
        self.close_on_drop = false;
        self.save()
    }

    /// Works as [`Scm::close`], but keeps the volume open after an error. The caller may then try again, or
    /// continue to use the volume. Handles of unlinked objects are stale from then on. A drop tries again if
    /// the engine is [closed on drop](Scm::closed_on_drop). After a success only a drop may follow.
    ///
    /// # Errors
    /// As [`Scm::close`].
    pub fn try_close(&mut self) -> Result<()> {
        self.save()?;
        self.close_on_drop = false;
        Ok(())
    }

    /// Frees the unlinked objects that are still open, stores the grace times of quotas, and saves the
    /// volume. Without the first step, the storage of these objects would be saved as used. It would be
    /// leaked until the next recovery, because no entry leads to it.
    pub(super) fn save(&self) -> Result<()> {
        if self.read_only {
            return Ok(self.medium().check()?);
        }
        self.free_open_orphans();
        self.store_deadlines();
        self.volume.save()
    }

    /// Gives memory back to the host: the memory of groups that are free as a whole or were never in use, and
    /// memory that was provided ahead of need or for a reserve. Returns the number of bytes.
    ///
    /// # Errors
    /// `OpenedReadOnly`, `Fault`.
    pub fn trim(&self) -> Result<u64> {
        self.check_change()?;
        self.volume.trim()
    }

    /// Returns the same engine, but with a drop that closes the volume. Without this call, a drop leaves the
    /// volume as the death of the process does.
    #[must_use]
    pub fn closed_on_drop(mut self) -> Scm {
        self.close_on_drop = true;
        self
    }
}

impl Drop for Scm {
    fn drop(&mut self) {
        // In a forked child, the holder of a lock may be a thread that exists only in the parent. A save
        // could then wait without end.
        if !self.close_on_drop || matches!(self.medium().check(), Err(Fault::Forked)) {
            return;
        }
        if let Err(error) = self.save() {
            // A drop cannot return the error. The next open recovers the volume.
            tracing::error!(%error, "a dropped volume could not be saved; its next open recovers it");
        }
    }
}
