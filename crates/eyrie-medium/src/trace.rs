//! The `traced` medium's record, and the x86 persistence rule over it.
//!
//! Rule (px86, as `bpfs.txt` section 4.4 needs of hardware): per cache line, what persists is a prefix of its stores in
//! program order, at least up to the last store that was flushed before a fence. Eight aligned bytes never tear.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::Mutex;

use crate::Addr;
use crate::addr::LINE_SIZE;

/// A call site in the engine: the name of an ordering point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Site {
    /// Source file.
    pub file: &'static str,
    /// Line in it.
    pub line: u32,
}

impl Site {
    pub(crate) fn of(location: &'static Location<'static>) -> Site {
        Site { file: location.file(), line: location.line() }
    }
}

/// One thing that an engine did to the medium. A store is within one cache line and is flushed at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes were stored (at most 8 when they commit something).
    Store {
        /// Where.
        addr: Addr,
        /// What.
        bytes: Vec<u8>,
    },
    /// Everything stored before persists before anything stored later.
    Fence(Site),
    /// A mark of the test's own, for example "Op 3 returned".
    Mark(u64),
}

/// Records what is done to a medium.
#[derive(Default)]
pub struct Recorder {
    state: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    events: Vec<Event>,
    sites: BTreeSet<Site>,
    dropped: Option<Site>,
}

impl Recorder {
    /// A recorder that leaves out the fences of site `dropped`: a planted bug.
    pub fn without(dropped: Option<Site>) -> Recorder {
        Recorder { state: Mutex::new(Record { dropped, ..Record::default() }) }
    }

    /// Everything recorded since the last call.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut lock_std(&self.state).events)
    }

    /// Every site that fenced so far, dropped ones included.
    pub fn sites(&self) -> BTreeSet<Site> {
        lock_std(&self.state).sites.clone()
    }

    /// Adds a mark.
    pub fn mark(&self, mark: u64) {
        lock_std(&self.state).events.push(Event::Mark(mark));
    }

    pub(crate) fn store(&self, addr: Addr, bytes: &[u8]) {
        let mut record = lock_std(&self.state);
        let mut done = 0;
        while done < bytes.len() {
            let at = addr.add(done as u64);
            let room = (LINE_SIZE - at.raw() % LINE_SIZE) as usize;
            let end = bytes.len().min(done + room);
            record.events.push(Event::Store { addr: at, bytes: bytes[done..end].to_vec() });
            done = end;
        }
    }

    pub(crate) fn fence(&self, location: &'static Location<'static>) {
        let site = Site::of(location);
        let mut record = lock_std(&self.state);
        record.sites.insert(site);
        if record.dropped != Some(site) {
            record.events.push(Event::Fence(site));
        }
    }
}

/// The recorder's own lock is never a scheduling point.
fn lock_std<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Stores to one line that a crash may keep a prefix of, oldest first: offset in the line and bytes.
pub type Pending = BTreeMap<Addr, Vec<(usize, Vec<u8>)>>;

/// A moment at which power may fail.
#[derive(Clone, Debug)]
pub struct CrashPoint {
    /// Number of events before it.
    pub after: usize,
    /// The last mark before it.
    pub mark: Option<u64>,
    /// Memory as it must be, apart from `pending`: every store up to the last fence.
    pub base: Vec<u8>,
    /// Stores since then, by line.
    pub pending: Pending,
}

/// The crash points of a trace that started from `image` (segment 0).
///
/// One before every fence and every mark, and one at the end. A crash between two stores of an epoch needs no point of
/// its own: lines persist independently, so it leaves an image that a shorter prefix at the epoch's end leaves too.
pub fn crash_points(image: Vec<u8>, events: &[Event]) -> Vec<CrashPoint> {
    let mut points = Vec::new();
    let mut base = image;
    let mut pending = Pending::new();
    let mut mark = None;
    for (after, event) in events.iter().enumerate() {
        match event {
            Event::Store { addr, bytes } => {
                let line = addr.align_down(LINE_SIZE);
                let within = (addr.raw() - line.raw()) as usize;
                pending.entry(line).or_default().push((within, bytes.clone()));
            }
            Event::Fence(_) => {
                if !pending.is_empty() {
                    points.push(CrashPoint { after, mark, base: base.clone(), pending: pending.clone() });
                }
                for (line, stores) in std::mem::take(&mut pending) {
                    for (within, bytes) in stores {
                        let at = line.offset() as usize + within;
                        base[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                }
            }
            Event::Mark(number) => {
                points.push(CrashPoint { after, mark, base: base.clone(), pending: pending.clone() });
                mark = Some(*number);
            }
        }
    }
    points.push(CrashPoint { after: events.len(), mark, base, pending });
    points
}
