//! The client of a volume that a service shares.
//!
//! A [`Client`] is an [`Engine`](eyrie_engine::Engine). It maps the volume for reading, so its look-ups and
//! reads are loads, as in the process that owns the volume. It encodes each change as an Op. It sends the Op
//! to the service through memory that both map, and waits for the answer. If the client holds the grants of
//! all objects of the change, it may append the Op to its change log instead, without a wait. Aerie (EuroSys
//! 2014, section 4) has the same parts: a trusted service, and clients that read the storage directly.
//!
//! Invariants:
//! - The client stores only to its own pins, claims, lanes and change log, never to the volume or its board.
//! - A call that makes a change returns only after the service has applied or refused the change, after the
//!   change is in the log of a client that holds the grant ([`eyrie_engine::change_log`]), or after the
//!   session has ended.
//! - A client uses the result of a read only if the session that protects the read has not ended meanwhile.

#![forbid(unsafe_code)]

mod channel;
mod client;
mod deferred;
mod engine;
mod log;
pub mod packet;
pub mod protocol;
pub mod sent;
mod session;
mod shadow;
mod unsynced;
mod watch;

pub use client::{Client, SOCKET_NAME};
pub use session::absence;
