//! `eyrie xattr`: shows and changes extended attributes.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::{Args, Subcommand};
use eyrie::{Errno, Files, Posix, PosixExt, XattrMode};
use serde_json::{Value, json};

use crate::failure::{Doing, Failure, Result, reason};
use crate::output::{Output, json_name};
use crate::place::{self, Inside, Place};
use crate::volumes::Purpose;
use crate::{input, text, volumes};

/// Maximum size of a value, in bytes.
const VALUE_MAX_BYTES: usize = 64 << 10;

/// Show and change the extended attributes of files
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie xattr set vol:/photo user.author Ada
  eyrie xattr get vol:/photo user.author
  eyrie xattr list vol:/photo
  eyrie xattr rm vol:/photo user.author

A name is user.NAME (only on files and directories), trusted.NAME or security.NAME (both set only by root), \
or that of an ACL: system.posix_acl_access or system.posix_acl_default.")]
pub struct XattrArgs {
    /// The action.
    #[command(subcommand)]
    command: XattrCommand,
}

/// The file whose extended attributes are shown or changed.
#[derive(Debug, Args)]
struct XattrFile {
    /// File with the extended attributes
    #[arg(value_name = "VOLUME:/path", value_parser = Place::parser())]
    place: Place,
    /// Use a symbolic link itself instead of its target
    #[arg(long, short = 'P')]
    no_dereference: bool,
}

/// An action on extended attributes.
#[derive(Debug, Subcommand)]
enum XattrCommand {
    /// Write the value of an extended attribute to standard output
    #[command(after_help = "Examples:\n  eyrie xattr get vol:/photo user.author")]
    Get {
        #[command(flatten)]
        file: XattrFile,
        /// Name with its namespace, such as user.author
        name: OsString,
    },
    /// Set the value of an extended attribute
    #[command(after_help = "\
Examples:
  eyrie xattr set vol:/photo user.author Ada
  eyrie xattr set --create vol:/photo user.preview - < small.jpg")]
    Set {
        #[command(flatten)]
        file: XattrFile,
        /// Name with its namespace, such as user.author
        name: OsString,
        /// Value of at most 64 KiB [default: -, which reads standard input]
        value: Option<OsString>,
        /// Fail if the attribute exists
        #[arg(long, conflicts_with = "replace")]
        create: bool,
        /// Fail if the attribute does not exist
        #[arg(long)]
        replace: bool,
    },
    /// List the names of extended attributes
    #[command(after_help = "Examples:\n  eyrie xattr list vol:/photo\n  eyrie xattr list --json vol:/photo")]
    List {
        #[command(flatten)]
        file: XattrFile,
        /// Print a JSON array of names and the sizes of their values, in bytes
        #[arg(long)]
        json: bool,
    },
    /// Remove an extended attribute
    #[command(after_help = "Examples:\n  eyrie xattr rm vol:/photo user.author")]
    Rm {
        #[command(flatten)]
        file: XattrFile,
        /// Name with its namespace, such as user.author
        name: OsString,
    },
}

pub fn run(arguments: XattrArgs, output: &mut Output) -> Result<()> {
    match arguments.command {
        XattrCommand::Get { file, name } => {
            let value = with_file(file, Purpose::Read, |files, inside, follow| {
                let name = name.as_bytes();
                value(files, inside, follow, name).map_err(|error| failure("get", inside, name, &error))
            })?;
            output.write_all(&value)?;
            Ok(())
        }
        XattrCommand::Set { file, name, value, create, replace } => {
            let value = input::value(value, VALUE_MAX_BYTES)?;
            let mode = match (create, replace) {
                (true, _) => XattrMode::Create,
                (_, true) => XattrMode::Replace,
                _ => XattrMode::Set,
            };
            with_file(file, Purpose::Change, |files, inside, follow| {
                let (target, name) = (place::target(&inside.path, follow), name.as_bytes());
                let set = files.setxattr(target, name, &value, mode);
                set.map_err(|error| failure("set", inside, name, &error))
            })
        }
        XattrCommand::List { file, json } => list(file, json, output),
        XattrCommand::Rm { file, name } => with_file(file, Purpose::Change, |files, inside, follow| {
            let (target, name) = (place::target(&inside.path, follow), name.as_bytes());
            let removed = files.removexattr(target, name);
            removed.map_err(|error| failure("remove", inside, name, &error))
        }),
    }
}

/// Calls `work` with the files of a volume, a place in this volume, and true if symbolic links are followed.
fn with_file<T>(
    file: XattrFile,
    purpose: Purpose,
    work: impl FnOnce(&Files, &Inside, bool) -> Result<T>,
) -> Result<T> {
    let inside = file.place.inside()?;
    volumes::with_files(&inside.volume, purpose, |files| work(files, &inside, !file.no_dereference))
}

fn value(files: &Files, inside: &Inside, follow: bool, name: &[u8]) -> eyrie::Result<Vec<u8>> {
    if follow { files.xattr(&inside.path, name) } else { files.symlink_xattr(&inside.path, name) }
}

/// Makes the failure of a call on one extended attribute, with advice.
fn failure(what: &str, inside: &Inside, name: &[u8], error: &eyrie::Error) -> Failure {
    let why = match error.errno() {
        Errno::NODATA => format!("there is none: `eyrie xattr list {inside}` lists the attributes"),
        Errno::RANGE => "a name must have 1 to 255 bytes".to_owned(),
        Errno::TOOBIG => "a value must have at most 64 KiB".to_owned(),
        Errno::EXIST => "it exists already: without --create it is replaced".to_owned(),
        _ => reason(error),
    };
    let place = format!("{} of {inside}", text::escaped(name));
    // The exit status 3 belongs to `ENOENT`, but the errno of a missing attribute is `ENODATA`.
    let errno = if error.errno() == Errno::NODATA { Errno::NOENT } else { error.errno() };
    Failure::of_errno(errno, format_args!("cannot {what} the extended attribute"), place, why)
}

fn list(file: XattrFile, as_json: bool, output: &mut Output) -> Result<()> {
    with_file(file, Purpose::Read, |files, inside, follow| {
        let path = &inside.path;
        let names = if follow { files.xattr_names(path) } else { files.symlink_xattr_names(path) };
        let mut values = Vec::new();
        for name in names.doing("list the extended attributes of", inside)? {
            if as_json {
                let value = value(files, inside, follow, &name);
                let value = value.map_err(|error| failure("get", inside, &name, &error))?;
                let mut entry = json!({ "bytes": value.len() });
                json_name(&mut entry, "name", &name);
                values.push(entry);
            } else {
                output.name(&name)?;
                writeln!(output)?;
            }
        }
        if as_json { output.json(&Value::Array(values)) } else { Ok(()) }
    })
}
