//! The trait by which a test decides which of its threads runs next.
//!
//! A thread under a [`Schedule`] reports its *steps*, and each wait for another thread. A step is a moment
//! directly before or after a change of a traced medium, a page cache or a disk, if other threads may see the
//! change. In a process that has never used a schedule, such a report is one test of a flag. Only tests and
//! the crash explorer set this flag.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Decides which thread of a test runs next. Each call may block while other threads run.
pub trait Schedule {
    /// Called at a step of the thread.
    fn step(&self);

    /// Called repeatedly while the thread waits for the progress of another thread.
    fn wait(&self);
}

/// True once any thread has begun to run under a schedule.
static USED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OF_THREAD: RefCell<Option<Rc<dyn Schedule>>> = const { RefCell::new(None) };
}

/// Runs `run` on this thread under a schedule.
pub fn scheduled_by<T>(schedule: Rc<dyn Schedule>, run: impl FnOnce() -> T) -> T {
    struct Before(Option<Rc<dyn Schedule>>);
    impl Drop for Before {
        fn drop(&mut self) {
            OF_THREAD.set(self.0.take());
        }
    }
    USED.store(true, Ordering::Relaxed);
    let _before = Before(OF_THREAD.replace(Some(schedule)));
    run()
}

/// Returns the schedule of this thread. A thread that is ending has none.
fn of_thread() -> Option<Rc<dyn Schedule>> {
    if !USED.load(Ordering::Relaxed) {
        return None;
    }
    OF_THREAD.try_with(|mine| mine.borrow().clone()).ok().flatten()
}

/// Reports a step of this thread to its schedule.
pub fn step() {
    if let Some(schedule) = of_thread() {
        schedule.step();
    }
}

/// Reports to this thread's schedule that the thread waits for another.
pub(crate) fn wait() {
    if let Some(schedule) = of_thread() {
        schedule.wait();
    }
}

/// Returns true if this thread runs under a schedule.
pub(crate) fn is_scheduled() -> bool {
    of_thread().is_some()
}
