//! The engine for byte-addressable storage (storage-class memory, hence `scm`). It uses the storage objects
//! of Aerie and the atomic updates of BPFS.
//!
//! Readers compare a version before and after a read, and retry if the version changed. They never wait for a
//! lock, with two exceptions: `Scm::read_version`, and a read of the attributes of a directory, after many
//! attempts that failed because Ops committed meanwhile (`counts`). Writers lock the objects that they change
//! (`locks`), prepare a [`Transaction`](crate::transaction), and commit it.
//!
//! Invariants:
//! - Unless the medium has failed, a failed Op changes nothing that a call can observe. A failed Op may have
//!   split a bucket, and later work may have merged buckets, but no call can observe this.
//! - An Op holds the locks of the objects that it changes or creates until its commit has settled. Therefore
//!   no crash undoes an Op and keeps a later Op on the same objects.
//! - The storage of an object is reused only when three conditions hold: it has no name, no handle keeps it
//!   open, and a grace period has passed.
//!
//! Safe when power fails: every Op is one commit of one transaction. The following changes are stored before
//! this commit and do no harm without it: a prelude, the growth of a directory, a new feature in the
//! superblock, a lease of generations, a group or a header chunk that the allocator takes into use, and the
//! shared bits in the source of a clone. The work after the commit frees storage. It changes only volatile
//! state, headers to which no entry leads, and directories that shrink (`shrink`).

mod acl;
mod advisory;
mod arguments;
mod attributes;
mod clone;
mod counts;
mod create;
mod engine;
mod features;
mod handover;
mod keys;
mod locks;
mod logged;
mod open;
mod opens;
mod quotas;
mod read;
mod remove;
mod rename;
mod replay;
mod shrink;
mod summaries;
mod version;
mod view;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use eyrie_medium::Medium;
use eyrie_medium::sync::Mutex;

use crate::advisory::LockTable;
use crate::notices::Notices;
use crate::object::collection::FoundEntry;
use crate::object::header::{Header, Hot};
pub use crate::tables::layout::HEADER_BYTES;
use crate::volume::{Volume, VolumeView};
use crate::{Error, ObjectId, Result};
pub use handover::RequestOutcome;
use locks::Locks;
pub use logged::{BEYOND_BUDGET, LoggedEntry, sets_only_times};
use opens::Opens;
use quotas::Quotas;
use summaries::Summaries;

/// The engine: one volume, which this process holds alone.
pub struct Scm {
    volume: Volume,
    root: ObjectId,
    locks: Locks,
    opens: Opens,
    summaries: Summaries,
    /// Held by Ops that move directories between parents, so that only one such Op runs at a time. Two such
    /// moves at the same time could make a cycle of directories.
    moves: Mutex<()>,
    notices: Arc<Notices>,
    advisory: LockTable,
    quotas: Quotas,
    /// A random number that distinguishes the versions of this open from those of all other opens. A crash
    /// may lose changes whose versions a program has seen. Without this number, later changes could get the
    /// same versions.
    open_number: u64,
    /// Distinguishes the open files of this engine from those of other engines of the process.
    instance: u32,
    recovered: bool,
    /// True if `volume` is a copy of the volume on the host. Every Op then fails.
    read_only: bool,
    close_on_drop: bool,
}

impl Scm {
    /// Returns the volume of this engine.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// True if the open found the volume unclosed and had to recover it.
    pub fn recovered(&self) -> bool {
        self.recovered
    }

    /// Holds the locks of these objects, and the lock of moves, as a running Op does. Tests of readers use
    /// this call.
    #[cfg(feature = "shuttle")]
    pub fn hold_for_test(&self, ids: &[ObjectId]) -> impl Sized + '_ {
        (self.locks.hold(ids), eyrie_medium::sync::lock(&self.moves))
    }

    /// Returns the number of buckets of a directory, and the bucket of a name. Tests of shards use this call.
    #[cfg(feature = "shuttle")]
    pub fn bucket_for_test(&self, dir: ObjectId, name: &[u8]) -> Result<(u64, u64)> {
        let _pin = eyrie_medium::epoch::pin();
        let (_, hot) = self.volume.directory(dir)?;
        crate::object::collection::Collection::new(&self.volume, hot.root).bucket(name)
    }

    fn medium(&self) -> &Medium {
        self.volume.medium()
    }

    /// Checks that the medium is sound and that the volume is open for changes.
    #[inline]
    fn check_change(&self) -> Result<()> {
        self.medium().check()?;
        if self.read_only { Err(Error::OpenedReadOnly) } else { Ok(()) }
    }

    /// Returns the result of a call, or an error if the medium has failed. After a failure, results and
    /// errors mean nothing, because they may come from zeros in place of lost pages.
    #[inline(always)]
    fn sound<T>(&self, mut result: Result<T>) -> Result<T> {
        if let Err(fault) = self.medium().check() {
            result = Err(fault.into());
        }
        result
    }

    /// Runs a read of the volume, and then checks the medium as [`Scm::sound`] does.
    #[inline(always)]
    fn reading<'a, T>(&'a self, read: impl FnOnce(&'a VolumeView) -> Result<T>) -> Result<T> {
        self.sound(read(&self.volume))
    }

    /// Runs a read of an object, as [`Scm::reading`] does. The engine of a client has a call of the same
    /// name, which first waits for logged changes of the object. This engine need not wait, because it has
    /// applied each change that it has answered.
    #[inline(always)]
    fn reading_object<'a, T>(
        &'a self,
        _id: ObjectId,
        read: impl FnOnce(&'a VolumeView) -> Result<T>,
    ) -> Result<T> {
        self.reading(read)
    }

    /// Returns the header of an id that came from a caller, as [`VolumeView::header`] does.
    #[inline(always)]
    fn header(&self, id: ObjectId) -> Result<Header> {
        self.volume.header(id)
    }

    /// Returns the header of a directory, and its hot fields.
    #[inline(always)]
    fn directory(&self, id: ObjectId) -> Result<(Header, Hot)> {
        self.volume.directory(id)
    }

    /// Looks `name` up in a directory, as [`VolumeView::find`] does.
    #[inline(always)]
    fn find(&self, hot: &Hot, name: &[u8]) -> Result<Option<FoundEntry>> {
        self.volume.find(hot, name)
    }
}
