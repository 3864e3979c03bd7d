//! Worker threads with a queue of tasks.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use super::lock::unpoisoned;

/// Number of worker threads, which copy files. One more thread walks.
const WORKERS: usize = 2;

/// Maximum number of files that wait for a worker. Each of them keeps directories open.
const QUEUE: usize = 64;

/// Calls `feed` in this thread, and `work` in worker threads for each task that `feed` sends. Each worker has
/// a buffer of its own. Returns the result of `feed` after all tasks are done.
///
/// # Panics
/// If `work` has panicked, panics with the same payload after the other workers have ended. If every worker
/// has panicked, the sender of `feed` reports an error.
pub fn with_workers<T: Send, R>(
    work: impl Fn(T, &mut Vec<u8>) + Sync,
    feed: impl FnOnce(&SyncSender<T>) -> R,
) -> R {
    let (sender, receiver) = sync_channel(QUEUE);
    std::thread::scope(|scope| {
        // Only workers have the receiver, so a send cannot wait for threads that have ended.
        let receiver = Arc::new(Mutex::new(receiver));
        let workers: Vec<_> = std::iter::repeat_n(receiver, WORKERS)
            .map(|receiver| scope.spawn(|| serve(receiver, &work)))
            .collect();
        let fed = feed(&sender);
        // The workers end when the queue is empty and has no sender.
        drop(sender);
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
        fed
    })
}

/// Does tasks until the queue ends.
fn serve<T>(tasks: Arc<Mutex<Receiver<T>>>, work: &impl Fn(T, &mut Vec<u8>)) {
    let mut buffer = Vec::new();
    loop {
        let next = unpoisoned(tasks.lock()).recv();
        let Ok(task) = next else { return };
        work(task, &mut buffer);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_tasks_are_done() {
        let sum = AtomicUsize::new(0);
        let add = |task, _: &mut Vec<u8>| {
            sum.fetch_add(task, Ordering::Relaxed);
        };
        with_workers(add, |tasks| (1..=1000).for_each(|task| tasks.send(task).unwrap()));
        assert_eq!(sum.into_inner(), 500_500);
    }

    #[test]
    fn regression_panic_of_all_workers_ends_the_feed() {
        let mut sent = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            with_workers(
                |(), _| panic!("the worker fails"),
                |tasks| {
                    while sent < 10 * QUEUE && tasks.send(()).is_ok() {
                        sent += 1;
                    }
                },
            );
        }));
        assert!(outcome.is_err() && sent <= QUEUE + WORKERS, "{sent} tasks were sent");
    }
}
