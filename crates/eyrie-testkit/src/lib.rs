//! Tests of engines: random Ops, comparison with the reference model and the kernel, crashes, damage,
//! threads.
//!
//! - [`ops`] makes Ops from a seed; [`oracle`] runs an engine beside the model and compares after every step.
//! - [`crash`] lets power fail everywhere in single Ops; [`power`] fails the power of a disk; [`planted`]
//!   leaves out points of the code that such runs must miss.
//! - [`linear`] finds an order that explains the answers that threads got.
//! - [`posix`] compares the POSIX calls with the kernel's.
//! - [`hostile`] damages volumes and uses them.
//! - [`script`] makes steps for programs that are killed; [`kills`] kills them.
//! - [`tree_fixture`] makes directory trees with every attribute, and compares trees.
//!
//! The programs in `src/bin` run some of these for as long as somebody wants, or in another machine.
//!
//! Invariant: all randomness comes from one seed, so a seed replays a failure.

#![forbid(unsafe_code)]

pub mod crash;
pub mod hostile;
pub mod kills;
pub mod linear;
pub mod ops;
pub mod oracle;
pub mod planted;
pub mod posix;
pub mod power;
pub mod script;
pub mod tree_fixture;
