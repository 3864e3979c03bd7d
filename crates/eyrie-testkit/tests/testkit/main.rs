//! Tests of engines: comparisons with the model and with the kernel, threads, power failures and damaged
//! volumes.
//!
//! The other tests of this crate are in the binaries `alone`, `hostile` and `tidy`. The header of each binary
//! says why it is separate.

mod kernel;
mod posix;
mod power;
mod salvage;
mod scm;
mod shared;
mod threads;
