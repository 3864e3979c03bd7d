//! Arguments of `kv`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::place;
use crate::place::Place;

/// See [`Command::Kv`](super::Command::Kv).
#[derive(Debug, Args)]
pub struct Kv {
    /// What to do with a key.
    #[command(subcommand)]
    pub command: KvCommand,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum KvCommand {
    /// Write the value of a key to standard output
    #[command(after_help = "Examples:\n  eyrie kv get vol:/store colour")]
    Get {
        /// The directory
        #[arg(value_name = "VOLUME:/dir", value_parser = place())]
        store: Place,
        /// The key, 1 to 255 bytes
        key: OsString,
    },
    /// Set the value of a key
    #[command(
        after_help = "Examples:\n  eyrie kv put vol:/store colour green\n  eyrie kv put vol:/store photo - < photo.jpg"
    )]
    Put {
        /// The directory
        #[arg(value_name = "VOLUME:/dir", value_parser = place())]
        store: Place,
        /// The key, 1 to 255 bytes
        key: OsString,
        /// The value; - or nothing reads it from standard input
        value: Option<OsString>,
    },
    /// Remove a key and its value
    #[command(after_help = "Examples:\n  eyrie kv erase vol:/store colour")]
    Erase {
        /// The directory
        #[arg(value_name = "VOLUME:/dir", value_parser = place())]
        store: Place,
        /// The key, 1 to 255 bytes
        key: OsString,
    },
    /// List the keys, in byte order
    #[command(after_help = "Examples:\n  eyrie kv scan vol:/store\n  eyrie kv scan --json vol:/store user:")]
    Scan {
        /// The directory
        #[arg(value_name = "VOLUME:/dir", value_parser = place())]
        store: Place,
        /// Only keys that begin so
        #[arg(default_value = "")]
        prefix: OsString,
        /// Print JSON, one array with the sizes of the values
        #[arg(long)]
        json: bool,
    },
}
