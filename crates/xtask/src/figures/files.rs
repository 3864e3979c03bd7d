//! Measures reads and writes of 4 KiB by one thread and by two threads that each have a file of their own.
//! The gain of the second thread is compared with that of plain copies of memory in the same round, because
//! the threads share the memory of the machine.

use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

use eyrie::{Credentials, File, Files, PosixExt, Volume};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::figure::{Figure, Measured, median};
use super::in_scratch;
use crate::run::Result;

const THREADS: usize = 2;
/// Size of each file, and of the memory of each thread. The caches hold only a small part of it.
const FILE_BYTES: usize = 256 << 20;
const BLOCK: usize = 4096;
const BLOCKS: usize = FILE_BYTES / BLOCK;
const VOLUME_BYTES: u64 = 2 << 30;
const ROUNDS: usize = 11;
/// Minimum gain of the second thread, divided by the gain of a second thread that copies memory.
const SHARE: f64 = 0.95;

/// The work of a thread on each of [`BLOCKS`] blocks, in a scattered order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockWork {
    CopyOut,
    Read,
    CopyIn,
    Write,
}

impl BlockWork {
    const ALL: [BlockWork; 4] = [BlockWork::CopyOut, BlockWork::Read, BlockWork::CopyIn, BlockWork::Write];

    fn name(self) -> &'static str {
        match self {
            BlockWork::CopyOut => "memcpy from memory",
            BlockWork::Read => "read 4 KiB",
            BlockWork::CopyIn => "memcpy to memory",
            BlockWork::Write => "overwrite 4 KiB",
        }
    }
}

/// The file and the memory of one thread. All of their bytes are the number of the thread plus 1.
struct Share {
    file: File<Files>,
    memory: Vec<u8>,
    expected: [u8; BLOCK],
}

impl Share {
    fn new(files: &Files, thread: usize) -> Result<Share> {
        let file = files.options().read(true).write(true).create(true).open(format!("/file-{thread}"))?;
        let byte = thread as u8 + 1;
        let share = Share { file, memory: vec![byte; FILE_BYTES], expected: [byte; BLOCK] };
        for offset in (0..FILE_BYTES).step_by(1 << 20) {
            share.file.write_all_at(&share.memory[offset..offset + (1 << 20)], offset as u64)?;
        }
        Ok(share)
    }

    /// Works on every block once, and returns the rate in blocks a second.
    fn rate(&mut self, work: BlockWork) -> Result<f64> {
        let mut block = self.expected;
        let started = Instant::now();
        for number in 0..BLOCKS {
            // The factor is odd, and the number of blocks is a power of two, so no block comes twice.
            let offset = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % BLOCKS * BLOCK;
            match work {
                BlockWork::CopyOut => block.copy_from_slice(&self.memory[offset..][..BLOCK]),
                BlockWork::Read => self.file.read_exact_at(&mut block, offset as u64)?,
                BlockWork::CopyIn => self.memory[offset..][..BLOCK].copy_from_slice(&block),
                BlockWork::Write => self.file.write_all_at(&block, offset as u64)?,
            }
            // The compiler must not leave out a copy that nothing reads.
            black_box(&mut block);
        }
        let rate = BLOCKS as f64 / started.elapsed().as_secs_f64();
        if block == self.expected { Ok(rate) } else { Err(format!("{}: a wrong block", work.name()).into()) }
    }

    /// Fails if a byte of the file or of the memory is wrong.
    fn compare(&self) -> Result<()> {
        let mut found = vec![0; FILE_BYTES];
        self.file.read_exact_at(&mut found, 0)?;
        let is_right = |bytes: &[u8]| bytes.chunks(BLOCK).all(|block| block == self.expected);
        if is_right(&found) && is_right(&self.memory) { Ok(()) } else { Err("a file has wrong bytes".into()) }
    }
}

/// Lets each share work in a thread with a processor of its own. Returns the sum of the rates.
fn rate(shares: &mut [Share], work: BlockWork) -> Result<f64> {
    let all = sched_getaffinity(None)?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
    let start = Barrier::new(shares.len());
    let run = |share: &mut Share, processor: usize| -> std::result::Result<f64, String> {
        let mut one = CpuSet::new();
        one.set(processor);
        let moved = sched_setaffinity(None, &one);
        // The other threads wait for this one, also after an error.
        start.wait();
        moved.map_err(|error| error.to_string())?;
        share.rate(work).map_err(|error| error.to_string())
    };
    std::thread::scope(|scope| {
        let run = &run;
        let places = shares.iter_mut().zip(processors.into_iter().rev().cycle());
        let threads: Vec<_> =
            places.map(|(share, processor)| scope.spawn(move || run(share, processor))).collect();
        let mut sum = 0.0;
        for thread in threads {
            sum += thread.join().map_err(|_| "a thread that copies blocks panicked")??;
        }
        Ok(sum)
    })
}

/// Measures a volume below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    in_scratch(memory, "files", |path| {
        let volume = Volume::create(path, VOLUME_BYTES)?;
        let files = volume.files(Credentials::of_process());
        let shares = (0..THREADS).map(|thread| Share::new(&files, thread)).collect::<Result<Vec<_>>>()?;
        let figures = compare(shares)?;
        drop(files);
        volume.close()?;
        Ok(figures)
    })
}

fn compare(mut shares: Vec<Share>) -> Result<Vec<Figure>> {
    let mut rates = BlockWork::ALL.map(|_| [Vec::new(), Vec::new()]);
    // The first round makes the host provide memory, so it does not count.
    for round in 0..=ROUNDS {
        for (work, rates) in BlockWork::ALL.into_iter().zip(&mut rates) {
            for (threads, rates) in [1, THREADS].into_iter().zip(rates) {
                let rate = rate(&mut shares[..threads], work)?;
                rates.extend((round > 0).then_some(rate));
            }
        }
    }
    shares.iter().try_for_each(Share::compare)?;
    println!("thousands of blocks a second, by one thread and by {THREADS}");
    let gains = rates
        .each_ref()
        .map(|[one, two]| -> Vec<f64> { two.iter().zip(one).map(|(two, one)| two / one).collect() });
    for ((work, [one, two]), gain) in BlockWork::ALL.into_iter().zip(&rates).zip(&gains) {
        let [one, two] = [one, two].map(|rates| median(rates) / 1e3);
        println!("{:24}{one:>8.0}{two:>8.0}{:>8.2}", work.name(), median(gain));
    }
    let [copy_out, read, copy_in, write] = &gains;
    let figure = |work: BlockWork, gain: &[f64], copy: &[f64]| {
        let name = format!("{} by {THREADS} threads, a file each", work.name());
        Figure::at_least(name, SHARE, Measured::of_ratios(gain, copy), " of the scaling of memcpy")
    };
    Ok(vec![figure(BlockWork::Read, read, copy_out), figure(BlockWork::Write, write, copy_in)])
}
