//! Traces: the stores and fences of a run, as text. From a trace this module makes the images that a crash of
//! the run may leave.
//!
//! The first line of a trace is `eyrie-trace 1 BYTES`, with the size of the volume. Lines `base OFFSET HEX`
//! follow. They have the contents of the volume at the start of the run, 64 bytes or less on each line. Bytes
//! that no line has are zeros. The other lines are the events:
//!
//! - `store THREAD OFFSET HEX`: a thread has stored bytes. [`text`] writes stores within one aligned word of
//!   eight bytes. [`Trace::parse`] also accepts longer stores within one line of 64 bytes.
//! - `fence THREAD FILE:LINE`: a thread has issued a fence, at this line of the sources.
//! - `mark COUNT LINE CALL = RESULT`: COUNT calls have returned, and the last is the call at this line of the
//!   script. `mark COUNT close` follows the close of the volume, if the run has one.
//!
//! THREAD is a number, from 0 in the order of the first events. HEX is the bytes as hexadecimal digits.
//! Offsets are from the start of the volume, hexadecimal with `0x`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use eyrie_faults::Event;

use super::Recorded;

const LINE: usize = 64;
/// Maximum size of a volume in a trace that can be parsed, in bytes.
pub const MAX_BYTES: u64 = 1 << 30;

/// The reason why a text is no trace, or why no crash can leave the requested image.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// A line of the text is malformed.
    #[error("{line}: expected {expected}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// A description of the allowed lines.
        expected: &'static str,
    },
    /// The trace has fewer events than the number after which the crash comes.
    #[error("there are only {events} events")]
    Until {
        /// Number of events of the trace.
        events: usize,
    },
    /// A crash after the requested number of events cannot lose the stores that a [`LineLoss`] names: no
    /// store to the line is pending, or all pending stores are kept.
    #[error("a crash at this moment cannot lose these stores to the line at {offset:#x}")]
    NotPending {
        /// Offset of the line, in bytes.
        offset: u64,
    },
}

/// Returns the trace of a run as text. The run must have only one thread, and its volume must be in memory.
pub fn text(recorded: &Recorded) -> String {
    let run = &recorded.run;
    let mut text = format!("eyrie-trace 1 {}\n", run.base.len());
    // Writing to a string cannot fail.
    for (line, at) in
        run.base.chunks(LINE).zip(0_usize..).filter(|(line, _)| line.iter().any(|&byte| byte != 0))
    {
        let _ = writeln!(text, "base {:#x} {}", at * LINE, hex(line));
    }
    let mut threads = HashMap::new();
    for event in &run.events {
        let _ = match event {
            Event::Store { addr, bytes, thread } => {
                let next = threads.len();
                let thread = *threads.entry(*thread).or_insert(next);
                writeln!(text, "store {thread} {:#x} {}", addr.offset(), hex(bytes))
            }
            Event::Fence { site, thread } => {
                let next = threads.len();
                writeln!(text, "fence {} {}", threads.entry(*thread).or_insert(next), site.place())
            }
            // A script runs in one process, so no event is a kill.
            Event::Kill => Ok(()),
            Event::Mark(number) => {
                writeln!(text, "mark {number} {}", recorded.calls[*number as usize - 1])
            }
        };
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An event of a parsed trace.
#[derive(Clone, PartialEq, Eq, Debug)]
enum TraceEvent {
    Store { thread: u64, offset: u64, bytes: Vec<u8> },
    Fence { thread: u64 },
    Mark,
}

/// A parsed trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    base: Vec<u8>,
    entries: Vec<TraceEvent>,
}

/// A line of 64 bytes, and the number of its pending stores that a crash keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineLoss {
    /// Offset of any byte of the line, from the start of the volume.
    pub offset: u64,
    /// Number of pending stores to the line that the crash keeps. The crash loses the later stores to the
    /// line.
    pub kept: usize,
}

/// Thread, offset and bytes of a pending store, which a crash may lose.
type Pending<'a> = (u64, u64, &'a [u8]);

fn number(word: Option<&str>) -> Option<u64> {
    let word = word?;
    word.strip_prefix("0x").map_or_else(|| word.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

/// Parses hexadecimal digits as the bytes at `offset`. The bytes must lie in one line of the volume.
fn piece(offset: u64, word: Option<&str>, volume: u64) -> Option<Vec<u8>> {
    let digits = word?.as_bytes();
    let digit = |digit: u8| (digit as char).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    let bytes: Vec<u8> = pairs.collect::<Option<_>>()?;
    let end = offset.checked_add(bytes.len() as u64)?;
    let fits = digits.len() % 2 == 0 && !bytes.is_empty() && end <= volume;
    (fits && offset / LINE as u64 == (end - 1) / LINE as u64).then_some(bytes)
}

impl Trace {
    /// Parses a trace.
    ///
    /// # Errors
    /// Fails at the first line that is not allowed.
    pub fn parse(text: &str) -> Result<Trace, TraceError> {
        let mut lines = text.lines().zip(1..);
        let first = lines.next().and_then(|(line, _)| line.strip_prefix("eyrie-trace 1 "));
        let bytes = number(first).filter(|&bytes| bytes <= MAX_BYTES);
        let bytes = bytes
            .ok_or(TraceError::Line { line: 1, expected: "eyrie-trace 1 and a size of at most 1 GiB" })?;
        let mut trace = Trace { base: vec![0; bytes as usize], entries: Vec::new() };
        for (line, number) in lines {
            let expected = "base, store, fence or mark with its arguments";
            trace.add(line).ok_or(TraceError::Line { line: number, expected })?;
        }
        Ok(trace)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let volume = self.base.len() as u64;
        let mut words = line.split(' ');
        match words.next()? {
            "base" => {
                let offset = number(words.next())?;
                let bytes = piece(offset, words.next(), volume)?;
                self.base[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            "store" => {
                let (thread, offset) = (number(words.next())?, number(words.next())?);
                let bytes = piece(offset, words.next(), volume)?;
                self.entries.push(TraceEvent::Store { thread, offset, bytes });
            }
            "fence" => self.entries.push(TraceEvent::Fence { thread: number(words.next())? }),
            "mark" => {
                number(words.next())?;
                self.entries.push(TraceEvent::Mark);
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns the number of events.
    pub fn events(&self) -> usize {
        self.entries.len()
    }

    /// Returns the bytes of the volume after a crash that comes after `until` events and loses only `losses`.
    ///
    /// # Errors
    /// Fails if no such crash is possible.
    pub fn image(&self, until: usize, losses: &[LineLoss]) -> Result<Vec<u8>, TraceError> {
        let events = self.entries.len();
        let entries = self.entries.get(..until).ok_or(TraceError::Until { events })?;
        let mut pending: BTreeMap<u64, Vec<Pending<'_>>> = BTreeMap::new();
        let mut image = self.base.clone();
        let store = |image: &mut [u8], offset: u64, bytes: &[u8]| {
            image[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        for entry in entries {
            match entry {
                TraceEvent::Store { thread, offset, bytes } => {
                    let line = offset - offset % LINE as u64;
                    pending.entry(line).or_default().push((*thread, *offset, bytes));
                }
                TraceEvent::Fence { thread } => pending.retain(|_, stores| {
                    // The stores to one line persist in their order. So the last store of this thread to the
                    // line makes all stores to the line before it durable, too.
                    let durable =
                        stores.iter().rposition(|store| store.0 == *thread).map_or(0, |last| last + 1);
                    stores.drain(..durable).for_each(|(_, offset, bytes)| store(&mut image, offset, bytes));
                    !stores.is_empty()
                }),
                TraceEvent::Mark => {}
            }
        }
        for loss in losses {
            let line = loss.offset - loss.offset % LINE as u64;
            let stores = pending.get_mut(&line).filter(|stores| loss.kept < stores.len());
            stores.ok_or(TraceError::NotPending { offset: loss.offset })?.truncate(loss.kept);
        }
        for (_, offset, bytes) in pending.into_values().flatten() {
            store(&mut image, offset, bytes);
        }
        Ok(image)
    }
}
