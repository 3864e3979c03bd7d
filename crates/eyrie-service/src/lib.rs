//! The service of a volume: it shares the volume with programs that it does not trust.
//!
//! A [`Service`] owns the engine of one volume. Its clients map the volume for reading, and read it without a
//! call. They send changes as encoded Ops through memory that both sides map ([`eyrie_client`]). The service
//! checks each Op with the credentials that the kernel reports for the client, and applies it. The design is
//! that of the trusted file-system service of Aerie (EuroSys 2014, section 4). Some changes need no request:
//! a client can log changes of objects that no other client uses, and go on without an answer. The service
//! applies them later ([`ServeOptions::defers_changes`]).
//!
//! Protection: every client can read every byte of the volume, because the volume is mapped as a whole. A
//! client can make only those changes that its credentials allow. Other processes of the service's own user,
//! and root, can change the files of the volume directly, so the service guards against their mistakes, not
//! against their malice.
//!
//! Invariants:
//! - The service copies a request to private memory before it looks at the request.
//! - A client can delay the reuse of storage, and can keep the service busy. It cannot block the service, and
//!   it cannot make the volume unsound.

#![forbid(unsafe_code)]

mod clock;
mod locks;
mod logs;
mod reach;
mod requests;
mod server;
mod session;
mod watchers;

pub use server::{ServeOptions, Service, Stopper};
