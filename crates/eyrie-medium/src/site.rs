//! Call sites: places in the sources by which a test names a point to leave out, or a call that must fail.

use std::fmt;
use std::panic::Location;

/// The place in the sources that makes a call.
pub type Caller = &'static Location<'static>;

/// The kind of work that a call site does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum SiteKind {
    /// Orders stores: a barrier, or the settling of a publish.
    Fence,
    /// Commits words.
    Publish,
    /// Compares a checksum with the bytes that it covers.
    Checksum,
    /// Makes all earlier writes of all threads durable, on a disk or on persistent memory.
    Flush,
    /// Stores bytes. On a disk, writes blocks.
    Write,
    /// Reads bytes or blocks.
    Read,
    /// Allocates storage of the volume.
    Allocate,
    /// Makes the host provide memory or blocks.
    Provision,
    /// Gives memory or blocks back to the host.
    Discard,
    /// Makes any other call to the host, for example for files, their sizes and locks, address space or
    /// threads.
    Host,
    /// Stores to memory that other processes map.
    Share,
}

impl SiteKind {
    /// Returns the name that reports print.
    pub fn name(self) -> &'static str {
        match self {
            SiteKind::Fence => "fence",
            SiteKind::Publish => "publish",
            SiteKind::Checksum => "checksum",
            SiteKind::Flush => "flush",
            SiteKind::Write => "write",
            SiteKind::Read => "read",
            SiteKind::Allocate => "allocate",
            SiteKind::Provision => "provision",
            SiteKind::Discard => "discard",
            SiteKind::Host => "host",
            SiteKind::Share => "share",
        }
    }
}

impl fmt::Display for SiteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
