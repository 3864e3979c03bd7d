//! One side of the comparison: its files and keys, and the operations on them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use eyrie::{File, HostStore, OpenFlags, Posix, PosixExt, RenameMode, Result, Store};

use super::measure::{Amounts, BATCH, BLOCK_BYTES, Operation, Row, Scale};

/// Bytes of one write while the large file is made.
const FILL_BYTES: usize = 4 << 20;

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

    /// Removes the key.
    ///
    /// # Errors
    /// As the store's.
    fn erase(&self, key: &[u8]) -> Result<bool>;

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
    fn erase(&self, key: &[u8]) -> Result<bool> {
        Store::erase(self, key)
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
    fn erase(&self, key: &[u8]) -> Result<bool> {
        HostStore::erase(self, key)
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

    /// A path of three components.
    fn of(scale: Scale, base: &str) -> Name {
        let dir = if scale == Scale::Few { "few" } else { "many" };
        Name::new(&format!("/bench/{dir}/{base}"))
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

    /// Where one of the blocks of a file of `bytes` begins.
    #[inline]
    fn offset(&mut self, bytes: u64) -> u64 {
        u64::from(self.below((bytes / BLOCK_BYTES as u64) as u32)) * BLOCK_BYTES as u64
    }
}

/// One side: files, keys, and what was prepared there.
pub struct Subject<'a, P: Posix, K> {
    fs: &'a P,
    /// Of few keys, and of many.
    stores: [&'a K; 2],
    amounts: Amounts,
    large: File<'a, P>,
    growing: File<'a, P>,
    block: Vec<u8>,
    value: Vec<u8>,
    /// Sums up what is read, so that reading cannot be left out.
    seen: usize,
}

impl<'a, P: Posix, K: Keys> Subject<'a, P, K> {
    /// Makes the files and keys to measure with, under the directory `/bench`, which must not exist; the stores are
    /// empty.
    ///
    /// # Errors
    /// As the calls.
    pub fn new(fs: &'a P, stores: [&'a K; 2], amounts: Amounts) -> Result<Subject<'a, P, K>> {
        for dir in ["/bench", "/bench/few", "/bench/many"] {
            fs.create_dir(dir)?;
        }
        let block: Vec<u8> = (0..BLOCK_BYTES).map(|index| (index * 7) as u8).collect();
        let mut key = Name::new("key-");
        for scale in [Scale::Few, Scale::Many] {
            let mut file = Name::of(scale, "file-");
            let content = if scale == Scale::Few { &block[..] } else { &[] };
            for number in 0..amounts.files(scale) {
                fs.write(file.path(number), content)?;
            }
            for number in 0..amounts.keys(scale) {
                stores[scale as usize].put(key.number(number), &block)?;
            }
            let mut renamed = Name::of(scale, "one-");
            for number in 0..BATCH {
                fs.write(renamed.path(number), content)?;
            }
        }
        let open = |path: &str| fs.options().read(true).write(true).create(true).open(path);
        let large = open("/bench/few/large")?;
        let filling = vec![1; FILL_BYTES];
        for offset in (0..amounts.large_bytes).step_by(FILL_BYTES) {
            large.write_all_at(&filling, offset)?;
        }
        let growing = open("/bench/few/growing")?;
        let value = Vec::with_capacity(2 * BLOCK_BYTES);
        Ok(Subject { fs, stores, amounts, large, growing, block, value, seen: 0 })
    }

    /// Makes what a batch needs; whether the side has such an operation.
    fn prepare(&self, row: Row) -> Result<bool> {
        let store = self.stores[row.scale as usize];
        let mut key = Name::new("gone-");
        match row.operation {
            Operation::Append => self.growing.set_len(0)?,
            Operation::GetInPlace => return Ok(store.look(key.number(0)).is_some()),
            Operation::Erase => {
                for number in 0..BATCH {
                    store.put(key.number(number), &self.block)?;
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// The time of one batch; `None` where the side has no such operation.
    ///
    /// # Errors
    /// As the calls.
    pub fn batch(&mut self, row: Row, round: u32) -> Result<Option<Duration>> {
        if !self.prepare(row)? {
            return Ok(None);
        }
        let Row { operation, scale } = row;
        let (fs, store) = (self.fs, self.stores[scale as usize]);
        let (files, keys) = (self.amounts.files(scale), self.amounts.keys(scale));
        let large_bytes = self.amounts.large_bytes;
        let mut choices = Choices(0x9e37_79b9_7f4a_7c15 ^ u64::from(round + 1));
        let mut file = Name::of(scale, "file-");
        let mut new = Name::of(scale, "new-");
        let (mut from, mut to) = (Name::of(scale, "one-"), Name::of(scale, "two-"));
        if round % 2 == 1 {
            std::mem::swap(&mut from, &mut to);
        }
        let (mut key, mut gone) = (Name::new("key-"), Name::new("gone-"));
        let first = choices.offset(large_bytes - u64::from(BATCH) * BLOCK_BYTES as u64);
        let mut buffer = [0; BLOCK_BYTES];
        let start = Instant::now();
        for number in 0..BATCH {
            match operation {
                Operation::Open => {
                    let handle = fs.open(file.path(choices.below(files)), OpenFlags::READ, 0)?;
                    fs.close(handle)?;
                }
                Operation::Stat => self.seen += fs.stat(file.path(choices.below(files)))?.size as usize,
                Operation::Read => {
                    self.seen += fs.read_at(self.large.handle(), &mut buffer, choices.offset(large_bytes))?;
                }
                Operation::ReadOn => {
                    let offset = first + u64::from(number) * BLOCK_BYTES as u64;
                    self.seen += fs.read_at(self.large.handle(), &mut buffer, offset)?;
                }
                Operation::Overwrite => {
                    self.seen +=
                        fs.write_at(self.large.handle(), &self.block, choices.offset(large_bytes))?;
                }
                Operation::Sync => {
                    self.seen +=
                        fs.write_at(self.large.handle(), &self.block, choices.offset(large_bytes))?;
                    fs.fsync(self.large.handle())?;
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
                    store.get(key.number(choices.below(keys)), &mut self.value)?;
                    self.seen += self.value.len();
                }
                Operation::GetInPlace => {
                    if let Some(seen) = store.look(key.number(choices.below(keys))) {
                        let (length, first) = seen?;
                        self.seen += length + usize::from(first);
                    }
                }
                Operation::Put => store.put(key.number(choices.below(keys)), &self.block)?,
                Operation::Erase => self.seen += usize::from(store.erase(gone.number(number))?),
            }
        }
        Ok(Some(start.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_in_place() {
        let mut name = Name::of(Scale::Many, "file-");
        assert_eq!(name.path(42), Path::new("/bench/many/file-000042"));
        assert_eq!(name.path(123_456), Path::new("/bench/many/file-123456"));
    }

    #[test]
    fn choices_stay_below_their_end() {
        let mut choices = Choices(1);
        assert!((0..1000).all(|_| choices.below(7) < 7 && choices.offset(1 << 20) < 1 << 20));
    }
}
