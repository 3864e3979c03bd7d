//! Tests of engines: random Ops, comparison with the reference model, histories of several threads.
//!
//! [`ops`] makes Ops from a seed, [`oracle`] runs an engine
//! beside the model and compares after every step, [`crash`] lets power fail everywhere, [`linear`] finds an order that
//! explains what threads saw, and [`posix`] compares the POSIX calls with the kernel's.
//! [`hostile`] damages volumes and uses them, [`power`] lets the power of a disk fail, [`script`] has steps for programs that are killed, and
//! [`kills`] kills them.
//! [`tree_fixture`] makes directory trees with every attribute, and compares trees.
//!
//! Invariant: everything random comes from one seed, so a seed replays a failure.

#![forbid(unsafe_code)]

pub mod crash;
pub mod hostile;
pub mod kills;
pub mod linear;
pub mod ops;
pub mod oracle;
pub mod posix;
pub mod power;
pub mod script;
pub mod tree_fixture;
