//! Ctrl-C: long work looks here, stops between two steps, and leaves everything sound.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, Result};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Exit status after an interrupt.
pub const STATUS: u8 = 130;

/// From now on a first Ctrl-C (or SIGTERM) only sets [`requested`]; a second one ends the process.
pub fn watch() {
    let stop = || {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(STATUS));
        }
    };
    // Without the handler Ctrl-C ends the process, which volumes survive as well.
    let _ = ctrlc::set_handler(stop);
}

/// Whether to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Fails once [`requested`].
///
/// # Errors
/// With exit status 130.
pub fn check(what: &str) -> Result<()> {
    if requested() {
        return Err(Failure::new("interrupted", what, "what is done is kept").with_status(STATUS));
    }
    Ok(())
}
