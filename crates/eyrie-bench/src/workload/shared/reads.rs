//! The calls that change nothing.

use std::time::Duration;

use eyrie::{OpenFlags, Posix, PosixExt};

use super::{ReadCall, SMALL_BYTES, SharedWorker};
use crate::error::Result;
use crate::method::Stopwatch;
use crate::values::{NumberedName, Pattern};
use crate::workload::files::{BLOCK_BYTES, MIB, count_names, make_file, write_all};

/// Number of calls that are timed together.
const TIMED_CALLS: usize = 16;
/// Time after which the grants of a client without changes have ended.
const REST: Duration = Duration::from_millis(200);
/// Numbers of the contents ([`Pattern::new`]) of the first block, the first file and the first value that are
/// read. The contents of later ones have the numbers that follow.
const BLOCKS: u64 = 1 << 40;
const FILES: u64 = 2 << 40;
const VALUES: u64 = 3 << 40;

impl<P: Posix + Clone> SharedWorker<P> {
    pub(super) fn fill_reads(&mut self) -> Result<()> {
        let mut buffer = vec![0; MIB];
        let blocks = self.amounts.read_blocks;
        for first in (0..blocks).step_by(MIB / BLOCK_BYTES) {
            let last = (first + (MIB / BLOCK_BYTES) as u64).min(blocks);
            let data = &mut buffer[..(last - first) as usize * BLOCK_BYTES];
            for (block, number) in data.chunks_exact_mut(BLOCK_BYTES).zip(first..) {
                Pattern::new(BLOCKS + number, 0).fill(block, 0);
            }
            write_all(&self.fs, self.read_file.handle(), data, first * BLOCK_BYTES as u64)?;
        }
        let (mut names, mut keys) = (self.read_names(), NumberedName::new("key-"));
        for number in 0..self.amounts.names {
            let content = Pattern::new(FILES + number, 0);
            make_file(&self.fs, names.path(number), content, SMALL_BYTES, &mut buffer)?;
            Pattern::new(VALUES + number, 0).fill(&mut buffer[..SMALL_BYTES], 0);
            self.read_store.put(keys.key(number), &buffer[..SMALL_BYTES])?;
        }
        let mut names = NumberedName::new(&format!("{}/small/file-", self.directory));
        for number in 0..self.amounts.few {
            self.fs.write(names.path(number), [])?;
        }
        Ok(())
    }

    fn read_names(&self) -> NumberedName {
        NumberedName::new(&format!("{}/read/file-", self.directory))
    }

    pub(super) fn read(&mut self, call: ReadCall, watch: &mut Stopwatch) -> Result<()> {
        if !std::mem::replace(&mut self.is_rested, true) {
            std::thread::sleep(REST);
        }
        if call == ReadCall::List {
            return self.list(watch);
        }
        for _ in 0..self.amounts.reads.div_ceil(TIMED_CALLS as u64) {
            match call {
                ReadCall::Open => self.open(watch)?,
                ReadCall::Stat => self.stat(watch)?,
                ReadCall::StatDirectory => self.stat_directory(watch)?,
                ReadCall::Read => self.read_blocks(watch)?,
                ReadCall::Get => self.get(watch)?,
                ReadCall::List | ReadCall::Sync => self.sync(watch)?,
            }
        }
        Ok(())
    }

    fn choose(&mut self, among: u64) -> [u64; TIMED_CALLS] {
        std::array::from_fn(|_| self.chooser.below(among))
    }

    fn open(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let (numbers, mut names) = (self.choose(self.amounts.names), self.read_names());
        watch.time(TIMED_CALLS, |at| {
            let handle = self.fs.open(names.path(numbers[at]).into(), OpenFlags::READ, 0)?;
            Ok(self.fs.close(handle)?)
        })?;
        numbers.into_iter().for_each(|number| watch.touch(number));
        Ok(())
    }

    fn stat(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let (numbers, mut names) = (self.choose(self.amounts.names), self.read_names());
        let mut sizes = [0; TIMED_CALLS];
        watch.time(TIMED_CALLS, |at| {
            sizes[at] = self.fs.stat(names.path(numbers[at]).into())?.size;
            Ok(())
        })?;
        for (number, size) in numbers.into_iter().zip(sizes) {
            watch.touch(number);
            watch.require(size == SMALL_BYTES as u64, || format!("file {number} has {size} bytes"))?;
        }
        Ok(())
    }

    fn stat_directory(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let path = format!("{}/small", self.directory);
        let mut found = [None; TIMED_CALLS];
        watch.time(TIMED_CALLS, |at| {
            found[at] = Some(self.fs.stat((&path).into())?);
            Ok(())
        })?;
        watch.touch(0);
        let right = found.iter().flatten().all(|found| found.kind == eyrie::Kind::Directory);
        watch.require(right, || format!("{path} is no directory"))
    }

    fn read_blocks(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let blocks = self.choose(self.amounts.read_blocks);
        let mut counts = [0; TIMED_CALLS];
        watch.time(TIMED_CALLS, |at| {
            let offset = blocks[at] * BLOCK_BYTES as u64;
            counts[at] = self.fs.read_at(self.read_file.handle(), &mut self.pool[at], offset)?;
            Ok(())
        })?;
        for ((found, count), block) in self.pool.iter().zip(counts).zip(blocks) {
            watch.touch(block);
            let right = count == BLOCK_BYTES && Pattern::new(BLOCKS + block, 0).matches(found, 0);
            watch.require(right, || format!("block {block} is wrong"))?;
        }
        Ok(())
    }

    fn get(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let (numbers, mut keys) = (self.choose(self.amounts.names), NumberedName::new("key-"));
        let mut found: [Vec<u8>; TIMED_CALLS] = std::array::from_fn(|_| Vec::with_capacity(2 * SMALL_BYTES));
        watch.time(TIMED_CALLS, |at| {
            self.read_store.get(keys.key(numbers[at]), &mut found[at])?;
            Ok(())
        })?;
        for (number, found) in numbers.into_iter().zip(&found) {
            watch.touch(number);
            let right = found.len() == SMALL_BYTES && Pattern::new(VALUES + number, 0).matches(found, 0);
            watch.require(right, || format!("key {number} has a wrong value"))?;
        }
        Ok(())
    }

    fn list(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let (path, names) = (format!("{}/read", self.directory), self.amounts.names);
        let mut found = 0;
        watch.time_whole(names, || {
            found = count_names(&self.fs, &path)?;
            Ok(())
        })?;
        (0..found).for_each(|file| watch.touch(file));
        watch.require(found == names, || format!("{found} names instead of {names}"))
    }

    fn sync(&mut self, watch: &mut Stopwatch) -> Result<()> {
        watch.time(TIMED_CALLS, |_| Ok(self.fs.fsync(self.read_file.handle())?))?;
        watch.touch(0);
        Ok(())
    }

    /// Compares all blocks, files and values that were read.
    pub(super) fn prove_reads(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let mut found = vec![0; BLOCK_BYTES];
        for block in 0..self.amounts.read_blocks {
            self.read_file.read_exact_at(&mut found, block * BLOCK_BYTES as u64)?;
            let right = Pattern::new(BLOCKS + block, 0).matches(&found, 0);
            watch.require(right, || format!("block {block} is wrong"))?;
        }
        let (mut names, mut keys) = (self.read_names(), NumberedName::new("key-"));
        let is_right = |found: &[u8], first, number| {
            found.len() == SMALL_BYTES && Pattern::new(first + number, 0).matches(found, 0)
        };
        for number in 0..self.amounts.names {
            let bytes = self.fs.read(names.path(number))?;
            watch.require(is_right(&bytes, FILES, number), || format!("file {number} is wrong"))?;
            self.read_store.get(keys.key(number), &mut found)?;
            watch.require(is_right(&found, VALUES, number), || format!("key {number} has a wrong value"))?;
        }
        Ok(())
    }
}
