//! The crash explorer, and what it is asked and answers in.
//!
//! [`explore`] lets power fail everywhere in the run of a script and looks at what is left; [`compare`] turns a volume into
//! a value that can be compared with the model's. [`script`] has lists of POSIX calls as plain text, which run on a volume and on the host alike. [`canonical`] tells a
//! directory tree in text that is the same for the same contents. `docs/crash-model.md` describes both for users.
//!
//! Invariants:
//! - A script is checked as a whole before its first call, and means the same wherever it runs.
//! - Bytes that scripts write, and scripts that are drawn at random, follow from their seeds alone, in every version.

#![forbid(unsafe_code)]

pub mod canonical;
pub mod compare;
pub mod explore;
pub mod script;
mod seconds;
mod word;

pub use word::Word;
