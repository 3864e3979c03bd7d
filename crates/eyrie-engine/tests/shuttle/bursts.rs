//! The scheduler of most of these tests.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// A scheduler that lets one task take several steps before it chooses the next task. So one task may take
/// many steps between two steps of another task. The mean number of steps between two choices is 1, 4, 16 or
/// 64, and changes with each execution.
pub struct Bursts {
    random: SmallRng,
    steps: u32,
    executions: usize,
}

impl Bursts {
    pub fn new(seed: u64, executions: usize) -> Bursts {
        Bursts { random: SmallRng::seed_from_u64(seed), steps: 1, executions }
    }
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.executions = self.executions.checked_sub(1)?;
        self.steps = [1, 4, 16, 64][self.executions % 4];
        Some(Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, _: bool) -> Option<TaskId> {
        let current = current.filter(|id| runnable.iter().any(|task| task.id() == *id));
        match current {
            Some(id) if !self.random.random_ratio(1, self.steps) => Some(id),
            _ => Some(runnable[self.random.random_range(0..runnable.len())].id()),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.random.random()
    }
}
