//! What a crash explorer is asked and answers in: scripts and canonical trees.
//!
//! [`script`] has lists of POSIX calls as plain text, which run on a volume and on the host alike. [`canonical`] tells a
//! directory tree in text that is the same for the same contents. `docs/crash-model.md` describes both for users.
//!
//! Invariants:
//! - A script is checked as a whole before its first call, and means the same wherever it runs.
//! - Bytes that scripts write, and scripts that are drawn at random, follow from their seeds alone, in every version.

#![forbid(unsafe_code)]

pub mod canonical;
pub mod script;
mod seconds;
mod word;

pub use word::Word;
