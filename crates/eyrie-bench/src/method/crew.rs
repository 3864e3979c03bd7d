//! The threads of a run. Each is pinned to a processor and lives as long as the crew, because a new thread
//! would have to fill its caches and magazines again.

use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use crate::machine;

type Task = Box<dyn FnOnce() + Send>;

/// Pinned threads.
pub(super) struct Crew {
    threads: Vec<Member>,
}

/// A thread and its queue, which end with the crew.
struct Member {
    queue: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Crew {
    /// Starts `count` threads on the processors of this process. With more threads than processors some
    /// threads share a processor.
    pub fn new(count: usize) -> Crew {
        let processors = machine::processors();
        let start = |number: usize| {
            let (sender, tasks) = channel::<Task>();
            // The threads get the last processors first, because most machines handle interrupts on their
            // first one.
            let processor = processors[processors.len() - 1 - number % processors.len()];
            let thread = thread::spawn(move || {
                machine::pin(processor);
                tasks.iter().for_each(|task| task());
            });
            Member { queue: Some(sender), thread: Some(thread) }
        };
        Crew { threads: (0..count).map(start).collect() }
    }

    /// Runs each task on a thread of its own at the same time, and returns the results in the order of the
    /// tasks. If there are fewer tasks than threads, the first threads run them.
    ///
    /// # Panics
    /// Panics if a task panics, or if there are more tasks than threads.
    pub fn run<T, F>(&self, tasks: Vec<F>) -> Vec<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let count = tasks.len();
        let (done, results) = channel();
        for (number, (member, task)) in self.threads.iter().zip(tasks).enumerate() {
            let done = done.clone();
            let task: Task = Box::new(move || {
                // The receiver lives until it has every result, so the send cannot fail.
                let _ = done.send((number, task()));
            });
            member.queue.as_ref().expect("a thread has its queue until the crew is dropped").send(task).ok();
        }
        drop(done);
        let mut found: Vec<(usize, T)> = results.iter().collect();
        found.sort_by_key(|(number, _)| *number);
        assert_eq!(found.len(), count, "a thread of the benchmark panicked");
        found.into_iter().map(|(_, result)| result).collect()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.threads.iter_mut().for_each(|member| drop(member.queue.take()));
        for thread in self.threads.iter_mut().filter_map(|member| member.thread.take()) {
            // An error is ignored, because `run` has reported the panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_runs_on_one_processor() {
        let processors = machine::processors();
        let count = processors.len();
        let found = Crew::new(count + 1).run((0..=count).map(|_| machine::processors).collect());
        assert!(found.iter().all(|pinned| pinned.len() == 1), "{found:?}");
        // Neighbouring threads share no processor until every processor has a thread.
        let mut first: Vec<usize> = found[..count].concat();
        assert_eq!(found[count], found[0]);
        first.sort_unstable();
        assert_eq!(first, processors);
    }

    #[test]
    fn results_have_the_order_of_the_tasks() {
        let crew = Crew::new(3);
        for round in 0..3 {
            let tasks: Vec<_> = (0..3).map(|number| move || number * 10 + round).collect();
            assert_eq!(crew.run(tasks), [round, 10 + round, 20 + round]);
        }
        assert_eq!(crew.run(vec![|| 7]), [7]);
    }
}
