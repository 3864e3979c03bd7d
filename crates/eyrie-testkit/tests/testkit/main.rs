//! Engines beside the model, beside the kernel, under threads, through power failures and on damaged volumes.
//!
//! Tests that must not share their process are in binaries of their own, and say why: `alone`, `hostile` and
//! `tidy`.

mod kernel;
mod posix;
mod power;
mod salvage;
mod scm;
mod threads;
