//! Arguments of `xattr`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::place;
use crate::place::Place;

/// See [`Command::Xattr`](super::Command::Xattr).
#[derive(Debug, Args)]
pub struct Xattr {
    /// What to do with an extended attribute.
    #[command(subcommand)]
    pub command: XattrCommand,
}

/// What has extended attributes.
#[derive(Debug, Args)]
pub struct Owner {
    /// The file
    #[arg(value_name = "VOLUME:/path", value_parser = place())]
    pub place: Place,
    /// Of a symbolic link itself
    #[arg(long, short = 'P')]
    pub no_dereference: bool,
}

/// What to do with extended attributes.
#[derive(Debug, Subcommand)]
pub enum XattrCommand {
    /// Write the value of an extended attribute to standard output
    #[command(after_help = "Examples:\n  eyrie xattr get vol:/photo user.author")]
    Get {
        #[command(flatten)]
        owner: Owner,
        /// The attribute, with its namespace
        name: OsString,
    },
    /// Set the value of an extended attribute
    #[command(
        after_help = "Examples:\n  eyrie xattr set vol:/photo user.author Ada\n  eyrie xattr set --create vol:/photo user.preview - < small.jpg"
    )]
    Set {
        #[command(flatten)]
        owner: Owner,
        /// The attribute, with its namespace
        name: OsString,
        /// The value, up to 64 KiB; - or nothing reads it from standard input
        value: Option<OsString>,
        /// Fail if there is one
        #[arg(long, conflicts_with = "replace")]
        create: bool,
        /// Fail if there is none
        #[arg(long)]
        replace: bool,
    },
    /// List the names of extended attributes
    #[command(after_help = "Examples:\n  eyrie xattr list vol:/photo\n  eyrie xattr list --json vol:/photo")]
    List {
        #[command(flatten)]
        owner: Owner,
        /// Print JSON, one array with the sizes of the values
        #[arg(long)]
        json: bool,
    },
    /// Remove an extended attribute
    #[command(after_help = "Examples:\n  eyrie xattr rm vol:/photo user.author")]
    Rm {
        #[command(flatten)]
        owner: Owner,
        /// The attribute, with its namespace
        name: OsString,
    },
}
