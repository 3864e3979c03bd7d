//! Tests of engines: comparisons with the model and with the kernel, threads, power failures and damaged
//! volumes.
//!
//! Tests that must not share their process are in the binaries `alone`, `hostile` and `tidy`, each of which
//! says why.

mod kernel;
mod posix;
mod power;
mod salvage;
mod scm;
mod threads;
