//! The machine of a run: its description, its processors, its clock and the cost of its memory.

use std::fs;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// Number of readings of the clock whose total time is measured.
const READINGS: u32 = 10_000;

/// The machine on which a run was made.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The model of the processor.
    pub processor: String,
    /// Number of processors that the run may use.
    pub processors: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Average load of the last minute when the run began.
    pub load: f64,
    /// Time of one reading of the clock, in ns. Each measured latency includes this time.
    pub clock_ns: f64,
    /// Time to write once to each page of memory that is new to this process, in ms for each MiB.
    pub first_touch_ms: f64,
    /// The same time, for memory that this process has just returned to the kernel. If this time is much
    /// shorter than the first one, a hypervisor had to provide the memory the first time.
    pub second_touch_ms: f64,
    /// Bytes to which the process wrote before the run, so that no measurement waits for a hypervisor.
    pub touched_bytes: u64,
    /// Rate of a plain copy of 4 KiB blocks of cold memory on one thread, in MiB/s.
    pub copy_mib_s: f64,
}

/// Returns the processors that this process may use.
pub fn processors() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Pins this thread to a processor. If the kernel refuses, the thread stays free to move.
pub fn pin(processor: usize) {
    pin_to(&[processor]);
}

/// Lets this thread, and the processes that it starts, use only these processors. If the kernel refuses,
/// nothing changes.
pub fn pin_to(processors: &[usize]) {
    let mut set = CpuSet::new();
    processors.iter().for_each(|&processor| set.set(processor));
    let _ = sched_setaffinity(None, &set);
}

/// Returns the value of a line `name: value` of a file in `/proc`.
fn line_of(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns a number of KiB from a file in `/proc`, in bytes.
fn bytes_of(path: &str, name: &str) -> u64 {
    let line = line_of(path, name).unwrap_or_default();
    line.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Returns the bytes of memory that programs can still use.
pub fn available_bytes() -> u64 {
    bytes_of("/proc/meminfo", "MemAvailable")
}

/// Returns the largest size that the memory of this process has had, in bytes. The size includes mapped
/// volumes.
pub fn peak_memory_bytes() -> u64 {
    bytes_of("/proc/self/status", "VmHWM")
}

/// Writes to each page of new memory of this size, and returns the time in ms for each MiB.
fn touch(bytes: usize) -> f64 {
    let started = Instant::now();
    let mut memory: Vec<u8> = Vec::with_capacity(bytes);
    while memory.len() + PAGE_BYTES <= bytes {
        memory.extend_from_slice(&[1; PAGE_BYTES]);
    }
    std::hint::black_box(&memory);
    started.elapsed().as_secs_f64() * 1e3 / (bytes as f64 / f64::from(1 << 20))
}

/// Returns the time of one reading of the clock, in ns.
fn clock_ns() -> f64 {
    let started = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(READINGS)
}

/// Copies blocks of 4 KiB in a scattered order from memory of `bytes` bytes, and returns the rate in MiB/s.
fn copy_rate(bytes: usize) -> f64 {
    let source = vec![1_u8; bytes.max(PAGE_BYTES)];
    let blocks = source.len() / PAGE_BYTES;
    let mut target = [0; PAGE_BYTES];
    let started = Instant::now();
    for number in 0..blocks {
        let block = number * 7919 % blocks;
        target.copy_from_slice(&source[block * PAGE_BYTES..][..PAGE_BYTES]);
        std::hint::black_box(&mut target);
    }
    blocks as f64 / 256.0 / started.elapsed().as_secs_f64()
}

impl Machine {
    /// Describes the machine, and writes to memory: to `bytes` bytes, but at most to half of the available
    /// memory, and at least to 1 MiB. The memory then returns to the kernel, so the run gets memory that a
    /// hypervisor has already provided.
    pub fn prepare(bytes: u64) -> Machine {
        let touched = bytes.min(available_bytes() / 2).max(1 << 20);
        let first_touch_ms = touch(touched as usize);
        let second_touch_ms = touch((touched as usize).min(64 << 20));
        let name = rustix::system::uname();
        let kernel = format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy());
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let processor = line_of("/proc/cpuinfo", "model name");
        Machine {
            processor: processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            processors: processors().len(),
            memory_bytes: bytes_of("/proc/meminfo", "MemTotal"),
            kernel,
            load: load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            clock_ns: clock_ns(),
            first_touch_ms,
            second_touch_ms,
            touched_bytes: touched,
            copy_mib_s: copy_rate((touched as usize).min(256 << 20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_described() {
        let machine = Machine::prepare(8 << 20);
        assert!(machine.processors > 0 && machine.memory_bytes > 0 && !machine.kernel.is_empty());
        assert!(machine.clock_ns > 0.0 && machine.first_touch_ms > 0.0 && machine.copy_mib_s > 0.0);
        assert_eq!(machine.touched_bytes, 8 << 20);
    }
}
