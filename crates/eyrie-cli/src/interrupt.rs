//! Interrupts (Ctrl-C, SIGTERM or SIGHUP): a long command that has called [`install`] checks for an interrupt
//! between two steps. After an interrupt the command stops and leaves the volume sound.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, INTERRUPTED, Result};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Exit status after an interrupt.
pub const STATUS: u8 = INTERRUPTED;

/// Installs the handler. The first interrupt then only makes [`requested`] return true. The second ends the
/// process.
pub fn install() {
    install_with(|| {});
}

/// Installs the handler as [`install`] does. The first interrupt also calls `stop`, on a thread of its own.
pub fn install_with(mut stop: impl FnMut() + Send + 'static) {
    let stop = move || {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(STATUS));
        }
        stop();
    };
    // If the handler cannot be installed, Ctrl-C ends the process immediately. The volume stays sound then,
    // too.
    let _ = ctrlc::set_handler(stop);
}

/// Returns true after an interrupt.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Fails after an interrupt.
///
/// # Errors
/// The failure has exit status 130.
pub fn check(what: &str) -> Result<()> {
    if requested() {
        let failure = Failure::new("interrupted", what, "finished work is kept");
        return Err(failure.with_status(STATUS).ending());
    }
    Ok(())
}
