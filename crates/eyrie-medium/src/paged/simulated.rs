//! A disk that forgets: what was written and not flushed is lost, reordered and torn by a power failure.

use std::collections::BTreeSet;
use std::io;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::blocks::{self, Blocks};
use crate::addr::PAGE_SIZE;
use crate::plan::{Plan, SiteKind};

/// What a write tears into, in bytes.
const SECTOR: usize = blocks::SECTOR as usize;

#[derive(Clone, Default)]
struct State {
    /// What the disk shows.
    seen: Vec<u8>,
    /// What survives.
    durable: Vec<u8>,
    /// Sectors written since the last flush, in order: number and bytes.
    pending: Vec<(usize, Vec<u8>)>,
    /// Writes and flushes so far.
    calls: u64,
    /// The call that fails, and whether all after it do, too.
    fails: Option<(u64, bool)>,
    /// Pages that cannot be read.
    bad: BTreeSet<u64>,
    /// Where room ends, in bytes.
    room: Option<u64>,
    flushes: u64,
    written: u64,
    pages_read: u64,
}

/// A simulated disk; clones share it.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    plan: Plan,
}

impl SimulatedDisk {
    /// A disk of `bytes` zeros.
    pub fn new(bytes: usize) -> SimulatedDisk {
        SimulatedDisk::holding(vec![0; bytes])
    }

    /// A disk with these bytes, all durable.
    pub fn holding(bytes: Vec<u8>) -> SimulatedDisk {
        let state = State { seen: bytes.clone(), durable: bytes, ..State::default() };
        SimulatedDisk { state: Arc::new(Mutex::new(state)), plan: Plan::default() }
    }

    /// The same disk, for a run with this plan.
    #[must_use]
    pub fn with(self, plan: Plan) -> SimulatedDisk {
        SimulatedDisk { plan, ..self }
    }

    /// What is left out or fails, and what was met; also of disks that this one is after a power failure.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk after a power failure: of the sectors written since the last flush, those that `survives` names, asked in
    /// order, have been stored. (Which subset and order the disk chose: of several writes to one sector any may be the one
    /// that is left.)
    pub fn power_failure(&self, mut survives: impl FnMut() -> bool) -> SimulatedDisk {
        let state = self.state();
        let mut bytes = state.durable.clone();
        for (sector, data) in &state.pending {
            if survives() {
                bytes[sector * SECTOR..][..data.len()].copy_from_slice(data);
            }
        }
        SimulatedDisk::holding(bytes).with(self.plan.clone())
    }

    /// A copy of the disk as the next process finds it when this one dies: every write can be read, and no more of them than before
    /// survive a power failure. No call of the copy fails.
    pub fn killed(&self) -> SimulatedDisk {
        let state = State { fails: None, ..self.state().clone() };
        SimulatedDisk { state: Arc::new(Mutex::new(state)), plan: self.plan.clone() }
    }

    /// Makes the `call`-th write or flush from now on (1 is the next) fail; all after it too, if `forever`.
    pub fn fail_at(&self, call: u64, forever: bool) {
        let mut state = self.state();
        state.fails = Some((state.calls + call, forever));
    }

    /// Makes reads that touch this page fail, or no longer.
    pub fn make_bad(&self, page: u64, bad: bool) {
        let mut state = self.state();
        if bad {
            state.bad.insert(page)
        } else {
            state.bad.remove(&page)
        };
    }

    /// Has no room past the first `bytes`; `None` for as much as is asked for.
    pub fn limit_room(&self, bytes: Option<u64>) {
        self.state().room = bytes;
    }

    /// Writes and flushes so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Flushes so far.
    pub fn flushes(&self) -> u64 {
        self.state().flushes
    }

    /// Pages that were asked for so far, with those that could not be read.
    pub fn pages_read(&self) -> u64 {
        self.state().pages_read
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.state().written
    }
}

impl State {
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        match self.fails {
            Some((at, forever)) if self.calls == at || forever && self.calls > at => {
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
            _ => Ok(()),
        }
    }
}

impl Blocks for SimulatedDisk {
    fn announce(&self, kind: SiteKind, location: &'static Location<'static>) -> io::Result<bool> {
        if kind != SiteKind::Checksum
            && let Some(failure) = self.plan.call(kind, location)
        {
            return Err(failure.into());
        }
        let is_point = matches!(kind, SiteKind::Write | SiteKind::Flush | SiteKind::Checksum);
        Ok(!is_point || self.plan.point(kind, location))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.state().seen.len() as u64)
    }

    fn sector(&self) -> u64 {
        SECTOR as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        state.pages_read += (out.len() as u64).div_ceil(PAGE_SIZE);
        let end = (offset + out.len() as u64).div_ceil(PAGE_SIZE);
        if state.bad.range(offset / PAGE_SIZE..end).next().is_some() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let from = state.seen.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        assert!(
            (offset as usize).is_multiple_of(SECTOR) && data.len().is_multiple_of(SECTOR),
            "whole sectors"
        );
        state.call()?;
        state.written += data.len() as u64;
        let first = offset as usize / SECTOR;
        for (index, sector) in data.chunks(SECTOR).enumerate() {
            state.pending.push((first + index, sector.to_vec()));
        }
        state.seen[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        state.flushes += 1;
        let pending = std::mem::take(&mut state.pending);
        for (sector, data) in pending {
            state.durable[sector * SECTOR..][..data.len()].copy_from_slice(&data);
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.state().room {
            Some(room) if offset + len > room => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => Ok(()),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.state();
        let (start, end) = (offset as usize, (offset + len) as usize);
        // Whoever still reads it sees that something is wrong.
        state.seen[start..end].fill(0xdd);
        state.durable[start..end].fill(0xdd);
        state.pending.retain(|(sector, _)| !(start..end).contains(&(sector * SECTOR)));
        Ok(())
    }
}
