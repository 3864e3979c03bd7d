//! The clock of grace periods: readers whose pins begin while threads advance it.

use std::sync::atomic::AtomicBool;

use super::*;

/// A reader pins, finds a place, and uses it. The main thread names another place meanwhile, and reuses the
/// first place after its grace period. A third thread also advances the clock.
///
/// At the start of an epoch the clock notes the counts of all pins, and then waits for these pins. The test
/// fails if the clock notes the counts before the epoch begins. A pin that begins between these two moments
/// belongs to the epoch before, and the clock would not wait for it.
#[test]
fn clock_waits_for_pins_that_begin_while_it_advances() {
    let _alone = alone();
    let reused = Arc::new(AtomicUsize::new(0));
    let reuses = Arc::clone(&reused);
    run(Bursts::new(1, 20_000), move || {
        let (place, is_reused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let reader = shuttle::thread::spawn({
            let (place, is_reused) = (Arc::clone(&place), Arc::clone(&is_reused));
            move || {
                let _pin = epoch::pin();
                let found = place.load(Ordering::SeqCst);
                for _ in 0..8 {
                    shuttle::thread::yield_now();
                    assert!(found != 0 || !is_reused.load(Ordering::SeqCst), "reused under a pin");
                }
            }
        });
        let advancing = shuttle::thread::spawn(|| {
            for _ in 0..2 {
                epoch::advance();
            }
        });
        shuttle::thread::yield_now();
        place.store(1, Ordering::SeqCst);
        let retired = epoch::now();
        for _ in 0..20 {
            if retired.is_over(epoch::advance()) {
                is_reused.store(true, Ordering::SeqCst);
                reuses.fetch_add(1, Ordering::Relaxed);
                break;
            }
            shuttle::thread::yield_now();
        }
        reader.join().expect("no panic");
        advancing.join().expect("no panic");
    });
    assert!(reused.load(Ordering::Relaxed) > 10_000, "the place is reused in most runs");
}
