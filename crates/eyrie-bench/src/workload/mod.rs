//! The workloads, each written once: over [`Posix`](eyrie::Posix) for files, and over
//! [`KeySession`](crate::keys::KeySession) for keys and values.

pub mod bpfs;
pub mod catd;
mod files;
pub mod jobs;
pub mod kv;
pub mod micro;
pub mod profile;
pub mod shared;
mod tree;
