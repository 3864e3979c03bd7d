//! Ctrl-C: long work asks here between two steps, stops, and leaves the volume sound.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, Result};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Exit status after an interrupt.
pub const STATUS: u8 = 130;

/// Installs the handler. A first Ctrl-C (or SIGTERM) then only sets [`requested`]. A second one ends the
/// process.
pub fn install() {
    let stop = || {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(STATUS));
        }
    };
    // Without the handler Ctrl-C ends the process, which volumes survive, too.
    let _ = ctrlc::set_handler(stop);
}

/// Returns true once the user has asked to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Fails once [`requested`].
///
/// # Errors
/// With exit status 130.
pub fn check(what: &str) -> Result<()> {
    if requested() {
        return Err(Failure::new("interrupted", what, "finished work is kept").with_status(STATUS));
    }
    Ok(())
}
