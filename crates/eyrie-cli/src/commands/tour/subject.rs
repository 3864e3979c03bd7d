//! One side of the comparison: files and keys of Eyrie or of the host, and the operations on them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use eyrie::{File, KeyValueStore, OpenFlags, Posix, PosixExt, RenameMode, Result, Store};

use super::operation::{Amounts, BLOCK_BYTES, Operation, Row, Scale};

/// Bytes of each write that fills the large file.
const FILL_BYTES: usize = 4 << 20;

/// Reads the length and the first byte of a value in place. Both are 0 if the key does not exist.
fn look(store: &Store, key: &[u8]) -> Result<(usize, u8)> {
    let pin = store.pin();
    let value = store.get_in_place(key, &pin)?;
    Ok(value.map_or((0, 0), |value| (value.len(), value.first().copied().unwrap_or(0))))
}

/// A name whose last six characters are a number.
struct NumberedName {
    bytes: Vec<u8>,
    end: usize,
}

impl NumberedName {
    fn new(base: &str) -> NumberedName {
        NumberedName { bytes: format!("{base}000000").into_bytes(), end: base.len() + 6 }
    }

    /// Makes a path of three components.
    fn of(scale: Scale, base: &str) -> NumberedName {
        let dir = if scale == Scale::Few { "few" } else { "many" };
        NumberedName::new(&format!("/bench/{dir}/{base}"))
    }

    /// Writes the digits without an allocation, because the time of an allocation would count as time of the
    /// call.
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

/// One side of the comparison: its files and keys.
pub struct Subject<'a, P: Posix + Clone, K> {
    fs: &'a P,
    /// The store with few keys and the store with many keys.
    stores: [&'a K; 2],
    /// The same stores, if values can be read in place.
    in_place: Option<[&'a Store; 2]>,
    large: File<P>,
    growing: File<P>,
    block: Vec<u8>,
    value: Vec<u8>,
    /// A sum over all results, so that the compiler cannot remove a read.
    seen: usize,
}

impl<'a, P: Posix + Clone, K: KeyValueStore> Subject<'a, P, K> {
    /// Makes the files and keys for the measurements. The files are in the directory `/bench`, which must not
    /// exist. The stores must be empty.
    ///
    /// # Errors
    /// As the calls that it makes.
    pub fn new(
        fs: &'a P,
        stores: [&'a K; 2],
        in_place: Option<[&'a Store; 2]>,
        amounts: Amounts,
    ) -> Result<Subject<'a, P, K>> {
        for dir in ["/bench", "/bench/few", "/bench/many"] {
            fs.create_dir(dir)?;
        }
        let block: Vec<u8> = (0..BLOCK_BYTES).map(|index| (index * 7) as u8).collect();
        let mut key = NumberedName::new("key-");
        for scale in [Scale::Few, Scale::Many] {
            let mut file = NumberedName::of(scale, "file-");
            let content = if scale == Scale::Few { &block[..] } else { &[] };
            for number in 0..amounts.files(scale) {
                fs.write(file.path(number), content)?;
            }
            for number in 0..amounts.keys(scale) {
                stores[scale as usize].put(key.number(number), &block)?;
            }
        }
        let open = |path: &str| fs.options().read(true).write(true).create(true).open(path);
        let large = open("/bench/few/large")?;
        let filling = vec![1; FILL_BYTES];
        for offset in (0..amounts.large_bytes).step_by(FILL_BYTES) {
            large.write_all_at(&filling, offset)?;
        }
        let growing = open("/bench/few/growing")?;
        // If the buffer is larger than the value, the host needs only one read: see `HostStore::get_into`.
        let value = Vec::with_capacity(2 * BLOCK_BYTES);
        Ok(Subject { fs, stores, in_place, large, growing, block, value, seen: 0 })
    }

    /// Empties the file to which a batch appends, or puts the keys that a batch erases. Returns false if this
    /// side lacks the operation.
    fn prepare(&self, row: Row, targets: &[u32]) -> Result<bool> {
        let store = self.stores[row.scale as usize];
        let mut key = NumberedName::new("gone-");
        match row.operation {
            Operation::Append => self.growing.set_len(0)?,
            Operation::GetInPlace => return Ok(self.in_place.is_some()),
            Operation::Erase => {
                for &target in targets {
                    store.put(key.number(target), &self.block)?;
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// Gives renamed files their old names again.
    fn clean_up(&self, row: Row, targets: &[u32]) -> Result<()> {
        if row.operation == Operation::Rename {
            let (mut from, mut to) =
                (NumberedName::of(row.scale, "two-"), NumberedName::of(row.scale, "file-"));
            for &target in targets {
                self.fs.rename_with(from.path(target).into(), to.path(target).into(), RenameMode::Replace)?;
            }
        }
        Ok(())
    }

    /// Runs one batch and returns its time, or `None` if this side lacks the operation.
    ///
    /// # Errors
    /// As the calls that it makes.
    pub fn batch(&mut self, row: Row, targets: &[u32]) -> Result<Option<Duration>> {
        if !self.prepare(row, targets)? {
            return Ok(None);
        }
        let time = self.run(row, targets)?;
        self.clean_up(row, targets)?;
        Ok(Some(time))
    }

    fn run(&mut self, row: Row, targets: &[u32]) -> Result<Duration> {
        let Row { operation, scale } = row;
        let (fs, store) = (self.fs, self.stores[scale as usize]);
        let mut file = NumberedName::of(scale, "file-");
        let (mut new, mut renamed) = (NumberedName::of(scale, "new-"), NumberedName::of(scale, "two-"));
        let (mut key, mut gone) = (NumberedName::new("key-"), NumberedName::new("gone-"));
        let mut buffer = [0; BLOCK_BYTES];
        let start = Instant::now();
        for &target in targets {
            let offset = u64::from(target) * BLOCK_BYTES as u64;
            match operation {
                Operation::Open => {
                    let handle = fs.open(file.path(target).into(), OpenFlags::READ, 0)?;
                    fs.close(handle)?;
                }
                Operation::Stat => self.seen += fs.stat(file.path(target).into())?.size as usize,
                Operation::Read | Operation::ReadOn => {
                    self.seen += fs.read_at(self.large.handle(), &mut buffer, offset)?;
                }
                Operation::Overwrite => {
                    self.seen += fs.write_at(self.large.handle(), &self.block, offset)?;
                }
                Operation::Sync => {
                    self.seen += fs.write_at(self.large.handle(), &self.block, offset)?;
                    fs.fsync(self.large.handle())?;
                }
                Operation::Append => self.seen += fs.append(self.growing.handle(), &self.block)?,
                Operation::Create => {
                    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
                    let handle = fs.open(new.path(target).into(), flags, 0o644)?;
                    self.seen += fs.write_at(&handle, &self.block, 0)?;
                    fs.close(handle)?;
                }
                Operation::Unlink => fs.unlink(new.path(target).into())?,
                Operation::Rename => {
                    fs.rename_with(
                        file.path(target).into(),
                        renamed.path(target).into(),
                        RenameMode::Replace,
                    )?;
                }
                Operation::Get => {
                    store.get_into(key.number(target), &mut self.value)?;
                    self.seen += self.value.len();
                }
                Operation::GetInPlace => {
                    if let Some(stores) = self.in_place {
                        let (length, first) = look(stores[scale as usize], key.number(target))?;
                        self.seen += length + usize::from(first);
                    }
                }
                Operation::Put => store.put(key.number(target), &self.block)?,
                Operation::Erase => self.seen += usize::from(store.erase(gone.number(target))?),
            }
        }
        Ok(start.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_name_changes_in_place() {
        let mut name = NumberedName::of(Scale::Many, "file-");
        assert_eq!(name.path(42), Path::new("/bench/many/file-000042"));
        assert_eq!(name.path(123_456), Path::new("/bench/many/file-123456"));
    }
}
