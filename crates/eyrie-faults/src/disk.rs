//! The simulated disk. Depending on its kind, a simulated disk loses unflushed writes, records its writes, or
//! shows the state after a crash.
//!
//! A power failure may lose unflushed writes, reorder them, and tear them between sectors.
//! [`SimulatedDisk::power_failure`] returns a disk as one power failure leaves it. A
//! [recorded](SimulatedDisk::recorded) disk passes every write and flush to the crash explorer, which later
//! tries the possible outcomes, or a sample of them. A disk that is the [image](SimulatedDisk::image) of a
//! crash decides the bytes of each sector at its first read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use eyrie_medium::sync::unpoisoned;
use eyrie_medium::{Addr, Blocks, Caller, Fault, Medium, PAGE_SIZE, SECTOR, SegmentId, SiteKind};
use rustix::io::Errno;

use crate::base::ImageBase;
use crate::image::{CrashImage, crash_medium};
use crate::plan::{Countdown, FaultPlan};
use crate::record::Recorder;
use crate::rule::CrashRule;

/// The byte that reads of a discarded range find. Tests of discards write no such byte, so they notice a read
/// of discarded data.
const DISCARDED: u8 = 0xdd;

/// The writes since the last flush.
#[derive(Clone, Default)]
struct Unflushed {
    /// For each sector that was written since the last flush, its number and its durable bytes.
    durable: BTreeMap<u64, Vec<u8>>,
    /// Number and bytes of each written sector, in the order of the writes.
    writes: Vec<(u64, Vec<u8>)>,
}

/// The place where the disk keeps its writes.
enum WriteRecord {
    /// The disk keeps its unflushed writes itself, and [`SimulatedDisk::power_failure`] may lose them.
    Own(Unflushed),
    Recorder(Recorder),
    /// The disk is the image of a crash. A sector that is written before its first read needs no decision.
    Image(CrashImage),
}

struct DiskState {
    /// The bytes that reads of the disk find.
    seen: Medium,
    record: WriteRecord,
    /// The writes and flushes that fail.
    fails: Option<Countdown>,
    /// Pages that cannot be read.
    bad: BTreeSet<u64>,
    /// End of the range that can be allocated, in bytes. `None` means the end of the disk.
    room: Option<u64>,
    /// Number of writes and flushes so far.
    calls: u64,
    flushes: u64,
    written: u64,
    pages_read: u64,
}

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<DiskState>>,
    plan: FaultPlan,
}

/// Returns the address in segment 0 of an offset on the disk.
fn place(offset: u64) -> Addr {
    Addr::new(SegmentId(0), offset)
}

impl SimulatedDisk {
    fn over(seen: Medium, record: WriteRecord, plan: FaultPlan) -> SimulatedDisk {
        let (bad, counts) = (BTreeSet::new(), [0; 4]);
        let [calls, flushes, written, pages_read] = counts;
        let state =
            DiskState { seen, record, fails: None, bad, room: None, calls, flushes, written, pages_read };
        SimulatedDisk { state: Arc::new(Mutex::new(state)), plan }
    }

    /// Makes a disk of `bytes` zeros.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn new(bytes: usize) -> SimulatedDisk {
        let seen = Medium::memory(bytes as u64).expect("memory");
        SimulatedDisk::over(seen, WriteRecord::Own(Unflushed::default()), FaultPlan::default())
    }

    /// Makes a disk with these bytes, all of which are durable.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn holding(bytes: &[u8]) -> SimulatedDisk {
        let seen = Medium::memory_holding(bytes).expect("memory");
        SimulatedDisk::over(seen, WriteRecord::Own(Unflushed::default()), FaultPlan::default())
    }

    /// Makes a disk with these bytes (whole pages). `recorder` records its writes and flushes.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn recorded(bytes: &[u8], recorder: Recorder) -> Result<SimulatedDisk, Fault> {
        let (plan, recorder) = (recorder.plan().clone(), recorder.by(CrashRule::Sectors));
        Ok(SimulatedDisk::over(Medium::memory_holding(bytes)?, WriteRecord::Recorder(recorder), plan))
    }

    /// Makes a disk as a crash left it.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn image(base: &ImageBase, image: CrashImage) -> Result<SimulatedDisk, Fault> {
        // The disk announces its calls to its own plan, so the image must not announce them to the plan a
        // second time.
        let (plan, image) = (image.plan().clone(), image.with(FaultPlan::default()));
        Ok(SimulatedDisk::over(crash_medium(base, image.clone())?, WriteRecord::Image(image), plan))
    }

    /// Returns the same disk for a run with this plan.
    #[must_use]
    pub fn with(self, plan: FaultPlan) -> SimulatedDisk {
        SimulatedDisk { plan, ..self }
    }

    /// Returns the plan of the run. A disk after a power failure has the same plan.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        unpoisoned(self.state.lock())
    }

    /// Returns all bytes of the disk, as reads find them.
    pub fn snapshot(&self) -> Vec<u8> {
        self.state().seen.snapshot()
    }

    /// Returns the disk after a power failure. Splits each write since the last flush into sectors, and calls
    /// `survives` for each of these sector writes, in order. A sector write survives if that call returns
    /// true. (So every state of a real disk is possible: of several writes to one sector, any may be the last
    /// that survives.) The new disk has no bad page and no limit of room.
    ///
    /// # Panics
    /// If the disk does not keep its writes itself.
    pub fn power_failure(&self, mut survives: impl FnMut() -> bool) -> SimulatedDisk {
        let state = self.state();
        let mut bytes = state.seen.snapshot();
        let mut store = |sector: u64, data: &[u8]| {
            bytes[(sector * SECTOR) as usize..][..data.len()].copy_from_slice(data);
        };
        let unflushed = state.record.own();
        // First restores the state of the last flush, and then applies the writes that survive.
        unflushed.durable.iter().for_each(|(&sector, data)| store(sector, data));
        for (sector, data) in &unflushed.writes {
            if survives() {
                store(*sector, data);
            }
        }
        SimulatedDisk::holding(&bytes).with(self.plan.clone())
    }

    /// Returns a copy of the disk as the next process finds it after this process is killed. Reads find every
    /// write, but unflushed writes may still be lost in a power failure. Failures that
    /// [`SimulatedDisk::fail_at`] planned do not happen on the copy.
    ///
    /// # Panics
    /// If the disk does not keep its writes itself.
    pub fn killed(&self) -> SimulatedDisk {
        let state = self.state();
        let copy = SimulatedDisk::holding(&state.seen.snapshot()).with(self.plan.clone());
        {
            let mut next = copy.state();
            next.record = WriteRecord::Own(state.record.own().clone());
            next.bad.clone_from(&state.bad);
            next.room = state.room;
        }
        copy
    }

    /// Makes write or flush number `call` fail. The next write or flush is number 1. If `forever` is true,
    /// all later writes and flushes fail, too.
    pub fn fail_at(&self, call: u64, forever: bool) {
        self.state().fails = Some(Countdown::new(call, forever));
    }

    /// Makes reads that touch this page fail if `bad` is true, and succeed again if it is false.
    pub fn make_bad(&self, page: u64, bad: bool) {
        let mut state = self.state();
        if bad {
            state.bad.insert(page)
        } else {
            state.bad.remove(&page)
        };
    }

    /// Limits allocation to the first `bytes`. `None` permits the whole disk.
    pub fn limit_room(&self, bytes: Option<u64>) {
        self.state().room = bytes;
    }

    /// Returns the number of writes and flushes so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Returns the number of flushes so far.
    pub fn flushes(&self) -> u64 {
        self.state().flushes
    }

    /// Returns the number of pages that reads requested so far, including unreadable pages.
    pub fn pages_read(&self) -> u64 {
        self.state().pages_read
    }

    /// Returns the number of bytes written so far.
    pub fn written(&self) -> u64 {
        self.state().written
    }
}

impl WriteRecord {
    /// Returns the unflushed writes that the disk keeps itself.
    fn own(&self) -> &Unflushed {
        match self {
            WriteRecord::Own(unflushed) => unflushed,
            WriteRecord::Recorder(_) | WriteRecord::Image(_) => {
                panic!("the disk does not keep its writes itself")
            }
        }
    }
}

impl DiskState {
    /// Counts a write or flush. Returns an error if the call must fail.
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        let fails = self.fails.as_mut().is_some_and(Countdown::next_fails);
        if fails { Err(Errno::IO.into()) } else { Ok(()) }
    }

    fn size(&self) -> u64 {
        self.seen.segment_sizes().sum()
    }

    /// Stores bytes where reads find them.
    fn store(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if let WriteRecord::Image(image) = &self.record {
            image.forget(place(offset), data.len() as u64);
        }
        self.seen.write(place(offset), data).map(drop).map_err(io::Error::other)
    }

    /// Records a write before its bytes are stored, if the disk keeps its writes itself.
    fn note_write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let WriteRecord::Own(unflushed) = &mut self.record else { return Ok(()) };
        for (sector, data) in (offset / SECTOR..).zip(data.chunks(SECTOR as usize)) {
            if let std::collections::btree_map::Entry::Vacant(place_of) = unflushed.durable.entry(sector) {
                let mut durable = vec![0; data.len()];
                self.seen.read(place(sector * SECTOR), &mut durable).map_err(io::Error::other)?;
                place_of.insert(durable);
            }
            unflushed.writes.push((sector, data.to_vec()));
        }
        Ok(())
    }

    /// Returns the recorder of the writes. Callers release the lock of the disk before they call the
    /// recorder, because it may let another thread run.
    fn recorder(&self) -> Option<Recorder> {
        if let WriteRecord::Recorder(recorder) = &self.record { Some(recorder.clone()) } else { None }
    }
}

impl Blocks for SimulatedDisk {
    fn announce(&self, kind: SiteKind, caller: Caller) -> io::Result<bool> {
        if kind != SiteKind::Checksum
            && let Some(failure) = self.plan.call(kind, caller)
        {
            return Err(failure.into());
        }
        let recorder = self.state().recorder();
        match (kind, recorder) {
            // A flush is recorded here and not in `flush`, because only the announcement has the call site.
            (SiteKind::Flush, Some(recorder)) => Ok(recorder.order(SiteKind::Flush, caller)),
            (SiteKind::Flush | SiteKind::Write | SiteKind::Checksum, _) => Ok(self.plan.point(kind, caller)),
            _ => Ok(true),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.state().size())
    }

    fn sector(&self) -> u64 {
        SECTOR
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        state.pages_read += (out.len() as u64).div_ceil(PAGE_SIZE);
        let end = (offset + out.len() as u64).div_ceil(PAGE_SIZE);
        if state.bad.range(offset / PAGE_SIZE..end).next().is_some() {
            return Err(Errno::IO.into());
        }
        if offset + out.len() as u64 > state.size() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        state.seen.read(place(offset), out).map_err(io::Error::other)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!((offset | data.len() as u64).is_multiple_of(SECTOR), "whole sectors");
        let mut state = self.state();
        state.call()?;
        state.written += data.len() as u64;
        state.note_write(offset, data)?;
        state.store(offset, data)?;
        let recorder = state.recorder();
        // The lock is released first, because the recorder may switch to a thread that uses the disk.
        drop(state);
        if let Some(recorder) = recorder {
            recorder.store(place(offset), data);
        }
        Ok(())
    }

    /// Makes all writes durable. A recorder does not get this flush here, because it got the announcement
    /// with the call site.
    fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        state.flushes += 1;
        if let WriteRecord::Own(unflushed) = &mut state.record {
            *unflushed = Unflushed::default();
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let state = self.state();
        let room = state.room.unwrap_or_else(|| state.size());
        if offset + len > room { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.state();
        let data = vec![DISCARDED; len as usize];
        state.store(offset, &data)?;
        if let WriteRecord::Own(unflushed) = &mut state.record {
            // A discarded sector has no older bytes that a power failure could bring back.
            let sectors = offset / SECTOR..(offset + len) / SECTOR;
            unflushed.durable.retain(|sector, _| !sectors.contains(sector));
            unflushed.writes.retain(|(sector, _)| !sectors.contains(sector));
        }
        let recorder = state.recorder();
        drop(state);
        if let Some(recorder) = recorder {
            recorder.store(place(offset), &data);
        }
        Ok(())
    }
}
