//! The crash explorer: scripts, the images that a crash of their run may leave, and the checks of each image.
//!
//! [`explore`] simulates a power failure before every fence (on a disk, every flush) and after every call of
//! a script's run. It examines the volumes that each crash may leave, or a sample of them. [`compare`] reads
//! a volume into a value, so that the value can be compared with that of the model. [`script`] has lists of
//! calls as plain text, which run on a volume or on the host. [`canonical`] writes a directory tree as text
//! that is equal for equal contents. `docs/explorer.md` describes the explorer for users.
//!
//! Invariants:
//! - A script is checked as a whole before its first call, and the same script runs on every target.
//! - The bytes that a call writes depend only on a seed and an offset. The calls of a random script depend
//!   only on a seed and a [`CallMix`](script::CallMix). These bytes and calls are the same in every version.

#![forbid(unsafe_code)]

pub mod canonical;
pub mod compare;
pub mod explore;
pub mod script;
mod seconds;
mod word;

pub use word::Word;
