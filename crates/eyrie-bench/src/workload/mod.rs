//! The workloads, each written once: over [`Posix`](eyrie::Posix) for files, and over
//! [`KeySession`](crate::keys::KeySession) for keys and values.

mod files;
pub mod kv;
pub mod micro;
pub mod profile;
