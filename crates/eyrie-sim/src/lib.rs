//! The crash explorer: scripts, the images that a crash of their run may leave, and the checks of each image.
//!
//! [`explore`] lets power fail at every point of a script's run and examines each volume that a crash may
//! leave. [`compare`] reads a volume into a value, so that it can be compared with the model's. [`script`]
//! holds lists of POSIX calls as plain text, which run on a volume and on the host alike. [`canonical`]
//! writes a directory tree as text that is equal for equal contents. `docs/explorer.md` describes the
//! explorer for users.
//!
//! Invariants:
//! - A script is checked as a whole before its first call, and means the same on every target.
//! - The bytes that a script writes, and the calls of a random script, follow from seeds alone, in every
//!   version.

#![forbid(unsafe_code)]

pub mod canonical;
pub mod compare;
pub mod explore;
pub mod script;
mod seconds;
mod word;

pub use word::Word;
