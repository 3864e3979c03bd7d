//! `xattr`: extended attributes.

use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use eyrie::{Errno, Files, Posix, PosixExt, XattrMode};
use serde_json::{Value, json};

use super::with_files;
use crate::arguments::{XattrCommand, XattrOwner};
use crate::failure::{Doing, Failure, Result, reason};
use crate::output::{Output, json_name};
use crate::place::Inside;
use crate::text;

/// Does what the command says.
pub fn run(command: XattrCommand, output: &mut Output) -> Result<()> {
    match command {
        XattrCommand::Get { owner, name } => {
            let value = of(owner, |files, inside, follow| {
                let name = name.as_bytes();
                value(files, inside, follow, name).map_err(|error| failure("get", inside, name, &error))
            })?;
            output.write_all(&value)?;
            Ok(())
        }
        XattrCommand::Set { owner, name, value, create, replace } => {
            let value = match value {
                Some(value) if value != "-" => value.into_vec(),
                _ => {
                    let mut value = Vec::new();
                    std::io::stdin().lock().read_to_end(&mut value).doing("read", "standard input")?;
                    value
                }
            };
            let mode = match (create, replace) {
                (true, _) => XattrMode::Create,
                (_, true) => XattrMode::Replace,
                _ => XattrMode::Set,
            };
            of(owner, |files, inside, follow| {
                let (path, name) = (&inside.path, name.as_bytes());
                let set = if follow {
                    files.setxattr(path, name, &value, mode)
                } else {
                    files.lsetxattr(path, name, &value, mode)
                };
                set.map_err(|error| failure("set", inside, name, &error))
            })
        }
        XattrCommand::List { owner, json } => list(owner, json, output),
        XattrCommand::Rm { owner, name } => of(owner, |files, inside, follow| {
            let (path, name) = (&inside.path, name.as_bytes());
            let removed = if follow { files.removexattr(path, name) } else { files.lremovexattr(path, name) };
            removed.map_err(|error| failure("remove", inside, name, &error))
        }),
    }
}

/// Works on the files of a volume: a place there, and whether a symbolic link is followed.
fn of<T>(owner: XattrOwner, work: impl FnOnce(&Files, &Inside, bool) -> Result<T>) -> Result<T> {
    let inside = owner.place.inside()?;
    with_files(&inside.volume, |files| work(files, &inside, !owner.no_dereference))
}

fn value(files: &Files, inside: &Inside, follow: bool, name: &[u8]) -> eyrie::Result<Vec<u8>> {
    if follow { files.xattr(&inside.path, name) } else { files.symlink_xattr(&inside.path, name) }
}

/// What could not be done, and what to do.
fn failure(what: &str, inside: &Inside, name: &[u8], error: &eyrie::Error) -> Failure {
    let why = match error.errno() {
        Errno::NODATA => format!("there is none: `eyrie xattr list {inside}` lists those that there are"),
        Errno::RANGE => "its name has 1 to 255 bytes".to_owned(),
        Errno::TOOBIG => "its value has at most 64 KiB".to_owned(),
        Errno::EXIST => "it exists already: without --create it is replaced".to_owned(),
        _ => reason(error),
    };
    let place = format!("{} of {inside}", text::escaped(name));
    Failure::new(format_args!("cannot {what} the extended attribute"), place, why)
}

fn list(owner: XattrOwner, as_json: bool, output: &mut Output) -> Result<()> {
    of(owner, |files, inside, follow| {
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
