//! The calls on the blocks of large files.

use eyrie::Posix;

use super::MicroWorker;
use crate::error::Result;
use crate::method::Stopwatch;
use crate::values::{Chooser, Pattern};
use crate::workload::files::{BLOCK_BYTES, MIB, read_whole, write_all};

/// Number of calls that are timed together. Their bytes stay in memory. Reads and appends compare them after
/// the calls, and `prove_blocks` compares overwrites at the end.
pub(super) const TIMED_CALLS: usize = 16;
/// Number of blocks in 1 MiB.
const MIB_BLOCKS: u64 = (MIB / BLOCK_BYTES) as u64;

/// The numbers of the blocks of the three files begin at different values, so no two files have equal blocks.
const LARGE: u64 = 1 << 40;
const SCATTERED: u64 = 2 << 40;
const GROWING: u64 = 3 << 40;

fn offset(block: u64) -> u64 {
    block * BLOCK_BYTES as u64
}

impl<P: Posix + Clone> MicroWorker<P> {
    /// Returns the first block of this thread in the large file.
    fn base(&self) -> u64 {
        if self.part.shared { self.part.thread * self.share.blocks } else { 0 }
    }

    fn large_content(&self, block: u64) -> Pattern {
        Pattern::new(LARGE + (self.part.thread << 32) + block, self.versions[block as usize])
    }

    fn content(&self, first: u64, block: u64, version: u32) -> Pattern {
        Pattern::new(first + (self.part.thread << 32) + block, version)
    }

    /// Writes the large file with 1 MiB in each call. Also makes the scattered file, whose blocks are then
    /// overwritten in random order.
    pub(super) fn fill(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let mut buffer = vec![0; MIB];
        let base = self.base();
        for first in (0..self.share.blocks).step_by(MIB_BLOCKS as usize) {
            let count = MIB_BLOCKS.min(self.share.blocks - first);
            for (at, block) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(first..first + count) {
                self.large_content(block).fill(at, 0);
            }
            let data = &buffer[..(count * BLOCK_BYTES as u64) as usize];
            watch.time(1, |_| write_all(&self.fs, self.large.handle(), data, offset(base + first)))?;
            watch.touch(first / MIB_BLOCKS);
        }
        let mut order: Vec<u64> = (0..self.share.scattered).collect();
        for version in 0..2 {
            for &block in &order {
                if block % 256 == 0 {
                    watch.check()?;
                }
                self.content(SCATTERED, block, version).fill(&mut self.buffers[0], 0);
                write_all(&self.fs, self.scattered.handle(), &self.buffers[0], offset(block))?;
            }
            let mut chooser = Chooser::new(self.part.thread);
            for at in (1..order.len()).rev() {
                order.swap(at, chooser.below(at as u64 + 1) as usize);
            }
        }
        Ok(())
    }

    /// Reads blocks with calls that are timed together, and compares them.
    fn read_blocks(&mut self, blocks: &[u64], watch: &mut Stopwatch) -> Result<()> {
        let base = self.base();
        let mut counts = [0; TIMED_CALLS];
        watch.time(blocks.len(), |at| {
            let buffer = &mut self.buffers[at];
            counts[at] = self.fs.read_at(self.large.handle(), buffer, offset(base + blocks[at]))?;
            Ok(())
        })?;
        for ((found, count), &block) in self.buffers.iter().zip(counts).zip(blocks) {
            watch.touch(block);
            let right = count == BLOCK_BYTES && self.large_content(block).matches(found, 0);
            watch.require(right, || format!("block {block} is wrong"))?;
        }
        Ok(())
    }

    /// Overwrites blocks with calls that are timed together.
    fn overwrite_blocks(&mut self, blocks: &[u64], sync: bool, watch: &mut Stopwatch) -> Result<()> {
        let base = self.base();
        for (at, &block) in blocks.iter().enumerate() {
            self.versions[block as usize] += 1;
            self.large_content(block).fill(&mut self.buffers[at], 0);
            watch.touch(block);
        }
        watch.time(blocks.len(), |at| {
            write_all(&self.fs, self.large.handle(), &self.buffers[at], offset(base + blocks[at]))?;
            if sync {
                self.fs.fsync(self.large.handle())?;
            }
            Ok(())
        })
    }

    fn random_blocks(&mut self) -> [u64; TIMED_CALLS] {
        std::array::from_fn(|_| self.chooser.below(self.share.blocks))
    }

    /// Returns the next blocks of a sequence through `all` blocks. `sequence` is an index in `next`. After
    /// its last block a sequence begins again.
    fn next_blocks(&mut self, sequence: usize, all: u64) -> [u64; TIMED_CALLS] {
        let first = self.next[sequence];
        self.next[sequence] = (first + TIMED_CALLS as u64) % all;
        std::array::from_fn(|at| (first + at as u64) % all)
    }

    pub(super) fn read_random(&mut self, watch: &mut Stopwatch) -> Result<()> {
        for _ in 0..self.share.round_blocks.div_ceil(TIMED_CALLS as u64) {
            let blocks = self.random_blocks();
            self.read_blocks(&blocks, watch)?;
        }
        Ok(())
    }

    pub(super) fn read_sequential(&mut self, watch: &mut Stopwatch) -> Result<()> {
        for _ in 0..self.share.sequential.div_ceil(TIMED_CALLS as u64) {
            let blocks = self.next_blocks(0, self.share.blocks);
            self.read_blocks(&blocks, watch)?;
        }
        Ok(())
    }

    pub(super) fn overwrite_random(&mut self, sync: bool, watch: &mut Stopwatch) -> Result<()> {
        for _ in 0..self.share.round_blocks.div_ceil(TIMED_CALLS as u64) {
            let blocks = self.random_blocks();
            self.overwrite_blocks(&blocks, sync, watch)?;
        }
        Ok(())
    }

    pub(super) fn overwrite_sequential(&mut self, watch: &mut Stopwatch) -> Result<()> {
        for _ in 0..self.share.sequential.div_ceil(TIMED_CALLS as u64) {
            let blocks = self.next_blocks(1, self.share.blocks);
            self.overwrite_blocks(&blocks, false, watch)?;
        }
        Ok(())
    }

    pub(super) fn read_scattered(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let all = self.share.scattered;
        for _ in 0..self.share.round_blocks.div_ceil(TIMED_CALLS as u64) {
            let blocks = self.next_blocks(2, all);
            let mut counts = [0; TIMED_CALLS];
            watch.time(TIMED_CALLS, |at| {
                let buffer = &mut self.buffers[at];
                counts[at] = self.fs.read_at(self.scattered.handle(), buffer, offset(blocks[at]))?;
                Ok(())
            })?;
            for ((found, count), block) in self.buffers.iter().zip(counts).zip(blocks) {
                watch.touch(block);
                let right = count == BLOCK_BYTES && self.content(SCATTERED, block, 1).matches(found, 0);
                watch.require(right, || format!("block {block} of the scattered file is wrong"))?;
            }
        }
        Ok(())
    }

    /// Makes the growing file empty, and then appends to it.
    pub(super) fn append(&mut self, watch: &mut Stopwatch) -> Result<()> {
        self.growing.set_len(0)?;
        for first in (0..self.share.round_blocks).step_by(TIMED_CALLS) {
            let count = (self.share.round_blocks - first).min(TIMED_CALLS as u64);
            for at in 0..count {
                let content = self.content(GROWING, first + at, 0);
                content.fill(&mut self.buffers[at as usize], 0);
                watch.touch(first + at);
            }
            watch.time(count as usize, |at| {
                self.fs.append(self.growing.handle(), &self.buffers[at])?;
                Ok(())
            })?;
            for at in 0..count {
                let block = first + at;
                let found = &mut self.buffers[at as usize];
                let count = self.fs.read_at(self.growing.handle(), found, offset(block))?;
                let right = count == BLOCK_BYTES
                    && self.content(GROWING, block, 0).matches(&self.buffers[at as usize], 0);
                watch.require(right, || format!("block {block} of the growing file is wrong"))?;
            }
        }
        Ok(())
    }

    /// Returns the first block of a random MiB in the part of this thread.
    fn random_mib(&mut self) -> u64 {
        self.chooser.below((self.share.blocks / MIB_BLOCKS).max(1)) * MIB_BLOCKS
    }

    pub(super) fn read_mib(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let (base, mut buffer) = (self.base(), vec![0; MIB]);
        for _ in 0..self.share.large_calls {
            let first = self.random_mib();
            // After the part of this thread, a shared file has the part of another thread.
            let bytes = MIB.min((self.share.blocks - first) as usize * BLOCK_BYTES);
            let mut count = 0;
            watch.time(1, |_| {
                count = self.fs.read_at(self.large.handle(), &mut buffer[..bytes], offset(base + first))?;
                Ok(())
            })?;
            watch.touch(first / MIB_BLOCKS);
            let mut blocks = buffer[..count].chunks(BLOCK_BYTES).zip(first..);
            let right =
                count == bytes && blocks.all(|(found, block)| self.large_content(block).matches(found, 0));
            watch.require(right, || format!("1 MiB at block {first} is wrong"))?;
        }
        Ok(())
    }

    pub(super) fn overwrite_mib(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let (base, mut buffer) = (self.base(), vec![0; MIB]);
        for _ in 0..self.share.large_calls {
            let first = self.random_mib();
            let last = (first + MIB_BLOCKS).min(self.share.blocks);
            for (data, block) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(first..last) {
                self.versions[block as usize] += 1;
                self.large_content(block).fill(data, 0);
            }
            let data = &buffer[..(last - first) as usize * BLOCK_BYTES];
            watch.time(1, |_| write_all(&self.fs, self.large.handle(), data, offset(base + first)))?;
            watch.touch(first / MIB_BLOCKS);
        }
        Ok(())
    }

    /// Compares every block of the large and of the scattered file.
    pub(super) fn prove_blocks(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let (base, mut found) = (self.base(), vec![0; MIB]);
        for first in (0..self.share.blocks).step_by(MIB_BLOCKS as usize) {
            watch.check()?;
            let last = (first + MIB_BLOCKS).min(self.share.blocks);
            let bytes = (last - first) as usize * BLOCK_BYTES;
            self.large.read_exact_at(&mut found[..bytes], offset(base + first))?;
            for (found, block) in found.chunks_exact(BLOCK_BYTES).zip(first..last) {
                let right = self.large_content(block).matches(found, 0);
                watch.require(right, || format!("block {block} is wrong"))?;
            }
        }
        let bytes = self.share.scattered as usize * BLOCK_BYTES;
        found.resize(bytes + 1, 0);
        let count = read_whole(&self.fs, self.scattered.handle(), &mut found)?;
        let mut blocks = found[..count].chunks(BLOCK_BYTES).zip(0..);
        let right = count == bytes
            && blocks.all(|(found, block)| self.content(SCATTERED, block, 1).matches(found, 0));
        watch.require(right, || "the scattered file is wrong".to_owned())
    }
}
