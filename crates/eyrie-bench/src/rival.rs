//! The kinds of sides with which Eyrie can be compared.

use std::fmt;
use std::str::FromStr;

use crate::peers::Peer;

/// A kind of side with which Eyrie can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rival {
    /// A directory beside the volume, if the file system there is a tmpfs.
    Tmpfs,
    /// A new ramfs.
    Ramfs,
    /// A new ext4 on a loop device.
    Ext4,
    /// A new xfs on a loop device.
    Xfs,
    /// A directory beside the volume, on the same file system of the host.
    Host,
    /// A second volume of Eyrie, mounted with FUSE.
    Mount,
    /// A second volume of Eyrie, through a service in a process of its own.
    Served,
    /// As `Served`, with the service on the processor of the first thread of the run.
    Confined,
    /// As `Served`, with a service that defers no change.
    Synchronous,
    /// A store of keys and values that is no file system.
    Store(Peer),
}

impl Rival {
    /// All rivals, in the order of the help.
    pub const ALL: [Rival; 13] = [
        Rival::Tmpfs,
        Rival::Ramfs,
        Rival::Ext4,
        Rival::Xfs,
        Rival::Host,
        Rival::Mount,
        Rival::Served,
        Rival::Confined,
        Rival::Synchronous,
        Rival::Store(Peer::Lmdb),
        Rival::Store(Peer::Redb),
        Rival::Store(Peer::Fjall),
        Rival::Store(Peer::Sqlite),
    ];

    /// Returns the name in arguments and tables.
    pub fn name(self) -> &'static str {
        match self {
            Rival::Tmpfs => "tmpfs",
            Rival::Ramfs => "ramfs",
            Rival::Ext4 => "ext4",
            Rival::Xfs => "xfs",
            Rival::Host => "host",
            Rival::Mount => "mount",
            Rival::Served => "served",
            Rival::Confined => "confined",
            Rival::Synchronous => "synchronous",
            Rival::Store(Peer::Lmdb) => "lmdb",
            Rival::Store(Peer::Redb) => "redb",
            Rival::Store(Peer::Fjall) => "fjall",
            Rival::Store(Peer::Sqlite) => "sqlite",
        }
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Rival {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Rival, String> {
        let found = Rival::ALL.into_iter().find(|rival| rival.name() == name);
        found.ok_or_else(|| format!("the name must be one of {}", Rival::ALL.map(Rival::name).join(", ")))
    }
}
