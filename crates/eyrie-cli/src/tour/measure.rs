//! Measures the same operations on Eyrie and on the host, in alternation.
//!
//! A *batch* is [`BATCH`] operations, timed as a whole on one thread; a *round* is one batch on Eyrie and then the same
//! batch on the host, with the same names, offsets and bytes. The result of an operation is the median over the rounds
//! of the time per operation. The first [`WARM_UP`] rounds, which fault memory in, do not count. What a batch needs or
//! leaves behind is made and cleaned up between batches.
//!
//! Every operation moves [`BLOCK_BYTES`], paths have three components, and names are built anew for every operation.
//! Both sides go through the same calls of [`Posix`] and the same methods of [`Keys`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use eyrie::{File, HostStore, OpenFlags, Posix, PosixExt, RenameMode, Result, Store};

use crate::interrupt;

/// Operations timed at once.
const BATCH: u32 = 200;
/// Rounds that are measured at least.
const FEWEST_ROUNDS: usize = 40;
/// Rounds that are measured at most.
const MOST_ROUNDS: usize = 2000;
/// Rounds before those that count.
const WARM_UP: u32 = 3;
/// Bytes that an operation moves.
const BLOCK_BYTES: usize = 4096;
/// Files, and keys, to choose from.
const POPULATION: u32 = 2000;
/// Bytes of the file that is read and overwritten at random.
pub const LARGE_BYTES: u64 = 128 << 20;
/// Bytes of one write while that file is made.
const FILL_BYTES: usize = 4 << 20;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Open an existing file by its path, and close it.
    Open,
    /// The attributes of an existing file by its path.
    Stat,
    /// Read one aligned block at random from an open file of [`LARGE_BYTES`].
    Read,
    /// Overwrite one aligned block at random in that file.
    Overwrite,
    /// Append one block to an open file, which begins each batch empty.
    Append,
    /// Create a file, write one block, close it.
    Create,
    /// Remove a file that `Create` made.
    Unlink,
    /// Rename an existing file within its directory.
    Rename,
    /// Copy out the value of an existing key. On the host: open, read, close.
    Get,
    /// Use the value of an existing key where it lies.
    GetInPlace,
    /// Replace the value of an existing key. On the host: create, write, close, rename.
    Put,
}

/// Operations that are measured together, because one makes what the next needs.
const GROUPS: [&[Operation]; 10] = [
    &[Operation::Open],
    &[Operation::Stat],
    &[Operation::Read],
    &[Operation::Overwrite],
    &[Operation::Append],
    &[Operation::Create, Operation::Unlink],
    &[Operation::Rename],
    &[Operation::Get],
    &[Operation::GetInPlace],
    &[Operation::Put],
];

impl Operation {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Open => "open + close",
            Operation::Stat => "stat",
            Operation::Read => "read 4 KiB",
            Operation::Overwrite => "overwrite 4 KiB",
            Operation::Append => "append 4 KiB",
            Operation::Create => "create + write 4 KiB",
            Operation::Unlink => "unlink",
            Operation::Rename => "rename",
            Operation::Get => "get 4 KiB",
            Operation::GetInPlace => "get in place",
            Operation::Put => "put 4 KiB",
        }
    }
}

/// The result of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Which.
    pub operation: Operation,
    /// Median time on Eyrie, in µs.
    pub eyrie_us: f64,
    /// Median time on the host, in µs, where the host has the operation.
    pub host_us: Option<f64>,
    /// Rounds that counted.
    pub rounds: usize,
}

impl Measurement {
    /// How many times as fast Eyrie is.
    pub fn ratio(&self) -> Option<f64> {
        self.host_us.map(|host| host / self.eyrie_us)
    }
}

/// The calls of a store that are measured.
pub trait Keys {
    /// Replaces `out` by the value.
    ///
    /// # Errors
    /// As the store's.
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool>;

    /// Sets the value.
    ///
    /// # Errors
    /// As the store's.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Looks at the value where it lies, if the store can do that: its length and first byte.
    ///
    /// # Errors
    /// As the store's.
    fn look(&self, key: &[u8]) -> Option<Result<(usize, u8)>>;
}

impl Keys for Store {
    #[inline]
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.get_into(key, out)
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Store::put(self, key, value).map(drop)
    }

    #[inline]
    fn look(&self, key: &[u8]) -> Option<Result<(usize, u8)>> {
        let pin = self.pin();
        let seen = self.get_in_place(key, &pin);
        Some(
            seen.map(|value| {
                value.map_or((0, 0), |value| (value.len(), value.first().copied().unwrap_or(0)))
            }),
        )
    }
}

impl Keys for HostStore {
    #[inline]
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.get_into(key, out)
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        HostStore::put(self, key, value)
    }

    #[inline]
    fn look(&self, _key: &[u8]) -> Option<Result<(usize, u8)>> {
        None
    }
}

/// A name whose last six characters are a number.
struct Name {
    bytes: Vec<u8>,
    end: usize,
}

impl Name {
    fn new(base: &str) -> Name {
        Name { bytes: format!("{base}000000").into_bytes(), end: base.len() + 6 }
    }

    #[inline]
    fn number(&mut self, mut number: u32) -> &[u8] {
        for digit in self.bytes[self.end - 6..].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        &self.bytes
    }

    #[inline]
    fn path(&mut self, number: u32) -> &Path {
        Path::new(OsStr::from_bytes(self.number(number)))
    }
}

/// A small generator (xorshift), so that both sides see the same choices.
struct Choices(u64);

impl Choices {
    #[inline]
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(end)) >> 32) as u32
    }

    /// Where a block of the large file begins.
    #[inline]
    fn offset(&mut self) -> u64 {
        u64::from(self.below((LARGE_BYTES / BLOCK_BYTES as u64) as u32)) * BLOCK_BYTES as u64
    }
}

/// One side: files, keys, and what was prepared there.
pub struct Subject<'a, P: Posix, K> {
    fs: &'a P,
    keys: &'a K,
    large: File<'a, P>,
    growing: File<'a, P>,
    block: Vec<u8>,
    value: Vec<u8>,
    /// Sums up what is read, so that reading cannot be left out.
    seen: usize,
}

impl<'a, P: Posix, K: Keys> Subject<'a, P, K> {
    /// Makes the files and keys to measure with, under the directory `/bench`, which must not exist; the store is
    /// empty.
    ///
    /// # Errors
    /// As the calls.
    pub fn new(fs: &'a P, keys: &'a K) -> Result<Subject<'a, P, K>> {
        for dir in ["/bench", "/bench/files", "/bench/new"] {
            fs.create_dir(dir)?;
        }
        let block: Vec<u8> = (0..BLOCK_BYTES).map(|index| (index * 7) as u8).collect();
        let mut name = Name::new("/bench/files/file-");
        let mut key = Name::new("key-");
        for number in 0..POPULATION {
            fs.write(name.path(number), &block)?;
            keys.put(key.number(number), &block)?;
        }
        let open = |path: &str| fs.options().read(true).write(true).create(true).open(path);
        let large = open("/bench/files/large")?;
        let filling = vec![1; FILL_BYTES];
        for offset in (0..LARGE_BYTES).step_by(FILL_BYTES) {
            large.write_all_at(&filling, offset)?;
        }
        let growing = open("/bench/files/growing")?;
        let mut renamed = Name::new("/bench/files/one-");
        for number in 0..BATCH {
            fs.write(renamed.path(number), &block)?;
        }
        Ok(Subject { fs, keys, large, growing, block, value: Vec::with_capacity(2 * BLOCK_BYTES), seen: 0 })
    }

    /// The time of one batch; `None` where the side has no such operation.
    fn batch(&mut self, operation: Operation, round: u32) -> Result<Option<Duration>> {
        let mut choices = Choices(0x9e37_79b9_7f4a_7c15 ^ u64::from(round + 1));
        let mut file = Name::new("/bench/files/file-");
        let mut new = Name::new("/bench/new/file-");
        let (mut from, mut to) = (Name::new("/bench/files/one-"), Name::new("/bench/files/two-"));
        if round % 2 == 1 {
            std::mem::swap(&mut from, &mut to);
        }
        let mut key = Name::new("key-");
        let mut buffer = [0; BLOCK_BYTES];
        let fs = self.fs;
        match operation {
            Operation::Append => self.growing.set_len(0)?,
            Operation::GetInPlace if self.keys.look(key.number(0)).is_none() => return Ok(None),
            _ => {}
        }
        let start = Instant::now();
        for number in 0..BATCH {
            match operation {
                Operation::Open => {
                    let handle = fs.open(file.path(choices.below(POPULATION)), OpenFlags::READ, 0)?;
                    fs.close(handle)?;
                }
                Operation::Stat => self.seen += fs.stat(file.path(choices.below(POPULATION)))?.size as usize,
                Operation::Read => {
                    self.seen += fs.read_at(self.large.handle(), &mut buffer, choices.offset())?;
                }
                Operation::Overwrite => {
                    self.seen += fs.write_at(self.large.handle(), &self.block, choices.offset())?;
                }
                Operation::Append => self.seen += fs.append(self.growing.handle(), &self.block)?,
                Operation::Create => {
                    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
                    let handle = fs.open(new.path(number), flags, 0o644)?;
                    self.seen += fs.write_at(&handle, &self.block, 0)?;
                    fs.close(handle)?;
                }
                Operation::Unlink => fs.unlink(new.path(number))?,
                Operation::Rename => {
                    fs.rename(from.path(number), to.path(number), RenameMode::Replace)?;
                }
                Operation::Get => {
                    self.keys.get(key.number(choices.below(POPULATION)), &mut self.value)?;
                    self.seen += self.value.len();
                }
                Operation::GetInPlace => {
                    if let Some(seen) = self.keys.look(key.number(choices.below(POPULATION))) {
                        let (length, first) = seen?;
                        self.seen += length + usize::from(first);
                    }
                }
                Operation::Put => self.keys.put(key.number(choices.below(POPULATION)), &self.block)?,
            }
        }
        Ok(Some(start.elapsed()))
    }
}

/// Measures everything for about `budget`. `None` when interrupted.
///
/// # Errors
/// As the calls that are measured.
pub fn measure<E: Posix, H: Posix>(
    eyrie: &mut Subject<'_, E, impl Keys>,
    host: &mut Subject<'_, H, impl Keys>,
    budget: Duration,
    mut progress: impl FnMut(),
) -> Result<Option<Vec<Measurement>>> {
    let mut results = Vec::new();
    let groups = u32::try_from(GROUPS.len()).unwrap_or(u32::MAX);
    for group in GROUPS {
        let started = Instant::now();
        let mut samples = vec![(Vec::new(), Vec::new()); group.len()];
        for round in 0.. {
            let rounds = samples[0].0.len();
            let over = started.elapsed() > budget / groups;
            if rounds >= MOST_ROUNDS || rounds >= FEWEST_ROUNDS && over {
                break;
            }
            if interrupt::requested() {
                return Ok(None);
            }
            for (&operation, (ours, theirs)) in group.iter().zip(&mut samples) {
                let (eyrie, host) = (eyrie.batch(operation, round)?, host.batch(operation, round)?);
                if round >= WARM_UP {
                    ours.extend(eyrie);
                    theirs.extend(host);
                }
            }
        }
        for (&operation, (ours, theirs)) in group.iter().zip(&mut samples) {
            let rounds = ours.len();
            let eyrie_us = median_us(ours).unwrap_or(f64::NAN);
            results.push(Measurement { operation, eyrie_us, host_us: median_us(theirs), rounds });
        }
        progress();
    }
    Ok(Some(results))
}

/// How often `measure` tells its progress.
pub fn steps() -> u64 {
    GROUPS.len() as u64
}

/// The median of the time per operation, in µs.
fn median_us(batches: &mut [Duration]) -> Option<f64> {
    batches.sort_unstable();
    let middle = batches.get(batches.len() / 2)?;
    Some(middle.as_secs_f64() * 1e6 / f64::from(BATCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_in_place() {
        let mut name = Name::new("/bench/files/file-");
        assert_eq!(name.path(42), Path::new("/bench/files/file-000042"));
        assert_eq!(name.path(123_456), Path::new("/bench/files/file-123456"));
    }

    #[test]
    fn choices_stay_below_their_end() {
        let mut choices = Choices(1);
        assert!((0..1000).all(|_| choices.below(7) < 7 && choices.offset() < LARGE_BYTES));
    }

    #[test]
    fn a_median_is_per_operation() {
        let mut batches =
            [Duration::from_micros(600), Duration::from_micros(200), Duration::from_micros(400)];
        assert_eq!(median_us(&mut batches), Some(2.0));
        assert_eq!(median_us(&mut []), None);
    }
}
