//! A test of threads that read, write, drain, free and allocate pages, with very little memory.

use super::*;

const PAGES: u64 = 2048;
const BYTES: u64 = PAGES * 4096;
/// Number of threads. Thread *n* changes the pages whose number modulo this constant is *n*.
const THREADS: u64 = 4;
/// First page of the pool. Threads free and allocate pages of the pool, and only the thread of a page reads
/// it.
const POOL: u64 = 1536;
const ROUNDS: u64 = 1000;

/// Returns the content of word `index` of a page: a number that depends on the position of the word, and a
/// version in the lowest 16 bits.
fn value(page: u64, index: u64, version: u64) -> u64 {
    (page * 512 + index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) << 16 | version & 0xffff
}

fn is_sound(page: u64, words: &[u8]) -> bool {
    words.chunks_exact(8).zip(0..).all(|(bytes, index)| {
        let found = bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
        found >> 16 == value(page, index, 0) >> 16
    })
}

fn page_of(page: u64, version: u64) -> Vec<u8> {
    (0..512).flat_map(|index| value(page, index, version).to_le_bytes()).collect()
}

fn store(medium: &Medium, page: u64, version: u64, lines: std::ops::Range<u64>) {
    let bytes = &page_of(page, version)[lines.start as usize * 64..lines.end as usize * 64];
    let _ = medium.barrier(medium.write(addr(page * 4096 + lines.start * 64), bytes).expect("in range"));
}

fn read(medium: &Medium, page: u64) {
    let mut bytes = [0; 4096];
    let guard = pin();
    medium.read(addr(page * 4096), &mut bytes).expect("in range");
    assert!(is_sound(page, &bytes), "page {page}: {:x?}", &bytes[..64]);
    // The same pin also protects reads of single words of pages far apart.
    for other in [page, (page + 700) % POOL, (page + 1100) % POOL] {
        let words = medium.words(addr(other * 4096), 512).expect("in range");
        let all = [0, 255, 511].map(|at| words.load(at as usize) >> 16 == value(other, at, 0) >> 16);
        assert_eq!(all, [true; 3], "page {other}");
    }
    drop(guard);
}

/// The pages of the pool that belong to a thread.
#[derive(Default)]
struct Pool {
    used: Vec<u64>,
    /// Freed pages. Each pair is the cut that must be durable before the reuse of a page, and the page.
    free: Vec<(u64, u64)>,
}

fn turn(medium: &Medium, pool: &mut Pool, choices: &mut SplitMix64, round: u64) {
    if choices.below(2) == 0 && !pool.used.is_empty() {
        let at = choices.below(pool.used.len() as u64) as usize;
        let page = pool.used.swap_remove(at);
        pool.free.push((medium.mark_freed(addr(page * 4096), 4096).unwrap_or_default(), page));
    } else if let Some(at) = pool.free.iter().position(|&(until, _)| until <= medium.durable_cut()) {
        let (_, page) = pool.free.swap_remove(at);
        let _gate = medium.enter().expect("open");
        medium.mark_allocated(addr(page * 4096), 4096).expect("in range");
        store(medium, page, round, 0..64);
        pool.used.push(page);
    }
    if !pool.used.is_empty() {
        let page = pool.used[choices.below(pool.used.len() as u64) as usize];
        let mut bytes = [0; 4096];
        let _pin = pin();
        medium.read(addr(page * 4096), &mut bytes).expect("in range");
        assert!(is_sound(page, &bytes), "page {page} of the pool");
    }
}

fn work(medium: &Medium, thread: u64) {
    let mut choices = SplitMix64(thread);
    let mut pool = Pool::default();
    pool.used.extend((POOL..PAGES).filter(|page| page % THREADS == thread));
    for round in 1..=ROUNDS {
        match choices.below(8) {
            0..3 => read(medium, choices.below(POOL)),
            3 => {
                // A sequential scan, so that pages are read ahead.
                let first = choices.below(POOL - 40);
                (first..first + 40).for_each(|page| read(medium, page));
            }
            4 | 5 => {
                let _gate = medium.enter().expect("open");
                for _ in 0..3 {
                    let page = choices.below(POOL / THREADS) * THREADS + thread;
                    let first = choices.below(64);
                    store(medium, page, round, first..first + 1 + choices.below(64 - first));
                }
            }
            6 => {
                let page = choices.below(POOL);
                let guard = pin();
                // Other threads may change these bytes, so the test loads words and does not borrow the bytes
                // in place.
                let words = medium.words(addr(page * 4096), 512).expect("in range");
                std::thread::yield_now();
                assert!((0..512).all(|at| words.load(at as usize) >> 16 == value(page, at, 0) >> 16));
                drop(guard);
            }
            _ => turn(medium, &mut pool, &mut choices, round),
        }
        match choices.below(200) {
            0 => medium.checkpoint().expect("drained"),
            1..4 => medium.drain().expect("drained"),
            _ => {}
        }
    }
}

/// If the cache dropped a page too early, or wrote a page to its place too late, a read would find wrong
/// bytes.
#[test]
fn pages_keep_their_bytes_under_threads_and_evictions() {
    [false, true].into_iter().for_each(keep_bytes);
}

fn keep_bytes(checksums: bool) {
    let disk = SimulatedDisk::new(Medium::paged_bytes(BYTES, checksums) as usize);
    Medium::format_paged(&disk, BYTES, checksums).expect("room");
    let memory = PagedOptions::new(options(256).memory_bytes, Duration::from_millis(20));
    let medium = Medium::paged(Arc::new(disk.clone()), memory).expect("sound");
    for page in 0..PAGES {
        let _gate = medium.enter().expect("open");
        medium.mark_allocated(addr(page * 4096), 4096).expect("in range");
        store(&medium, page, 0, 0..64);
    }
    medium.drain().expect("drained");
    let mut failures = Vec::new();
    std::thread::scope(|scope| {
        let workers = (0..THREADS).map(|thread| {
            scope.spawn({
                let medium = &medium;
                move || work(medium, thread)
            })
        });
        let workers: Vec<_> = workers.collect();
        let mut choices = SplitMix64(99);
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(100));
            if failures.len() < 8 {
                failures.push(disk.power_failure(|| choices.below(2) == 0));
            }
        }
    });
    assert!(!failures.is_empty());
    for failure in failures {
        let after = open(&failure);
        (0..POOL).for_each(|page| read(&after, page));
    }
    (0..POOL).for_each(|page| read(&medium, page));
    assert!(medium.resident_bytes().is_some_and(|bytes| bytes <= BYTES));
}
