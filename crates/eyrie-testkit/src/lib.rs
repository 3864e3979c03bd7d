//! Tests of engines: random Ops, comparison with the reference model and the kernel, crashes, damage,
//! threads.
//!
//! - [`ops`] makes Ops from a seed, and [`acls`] makes access control lists for them. [`oracle`] runs an
//!   engine beside the model and compares them after every step.
//! - [`crash`] explores crashes in Ops, in open and close, and in the creation of a volume. [`power`]
//!   simulates power failures of a disk. [`planted`] leaves out points of the code, such as fences and
//!   flushes, one at a time. The runs of `crash` and `power` must notice each missing point. [`mutants`]
//!   breaks the rules of crash safety one after another, and tests must notice each broken rule.
//! - [`linear`] finds an order of concurrent calls that explains their answers.
//! - [`posix`] compares the POSIX calls with those of the kernel.
//! - [`hostile`] damages volumes and then uses them.
//! - [`script`] makes steps for programs that are killed. [`kills`] kills these programs.
//! - [`services`] serves new volumes. [`persistent`] serves volumes on persistent memory, on a host that has
//!   none.
//! - [`tree_fixture`] makes directory trees with every attribute, and compares trees.
//!
//! Most programs in `src/bin` run some of these tests for longer. `dax_guest` makes steps of `script` in a
//! virtual machine with persistent memory. `hot_calls` makes the calls whose instructions `cargo xtask
//! instructions` counts.
//!
//! Invariant: all random draws come from one seed, so a seed replays a failure that does not depend on the
//! order of threads or on the moment of a kill.

#![forbid(unsafe_code)]

pub mod acls;
pub mod crash;
pub mod hostile;
pub mod kills;
pub mod linear;
pub mod mutants;
pub mod ops;
pub mod oracle;
pub mod persistent;
pub mod planted;
pub mod posix;
pub mod power;
pub mod script;
pub mod services;
pub mod tree_fixture;
