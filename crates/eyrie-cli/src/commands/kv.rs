//! `eyrie kv`: reads and writes the keys and values in a directory.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::{Args, Subcommand};
use eyrie::{Condition, Credentials, Errno, KeyRange, Order, Outcome, Store, VALUE_MAX};
use serde_json::json;

use crate::failure::{Doing, Failure, Result, reason};
use crate::output::{JsonArray, Output, json_name};
use crate::place::{Inside, Place};
use crate::volumes::Purpose;
use crate::{input, text, volumes};

/// Read and write the keys and values in a directory
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie kv put vol:/store colour green
  eyrie kv get vol:/store colour
  eyrie kv scan vol:/store col")]
pub struct KvArgs {
    /// The action.
    #[command(subcommand)]
    command: KvCommand,
}

/// An action on the keys of a directory.
#[derive(Debug, Subcommand)]
enum KvCommand {
    /// Write the value of a key to standard output
    #[command(after_help = "Examples:\n  eyrie kv get vol:/store colour")]
    Get {
        /// Directory with the keys
        #[arg(value_name = "VOLUME:/dir", value_parser = Place::parser())]
        store: Place,
        /// Key of 1 to 255 bytes
        key: OsString,
    },
    /// Set the value of a key
    #[command(after_help = "\
Examples:
  eyrie kv put vol:/store colour green
  eyrie kv put vol:/store photo - < photo.jpg
  eyrie kv put --if-absent vol:/store owner ada")]
    Put {
        /// Directory with the keys
        #[arg(value_name = "VOLUME:/dir", value_parser = Place::parser())]
        store: Place,
        /// Key of 1 to 255 bytes
        key: OsString,
        /// Value to set [default: -, which reads standard input]
        value: Option<OsString>,
        /// Fail if the key exists
        #[arg(long, conflicts_with = "if_present")]
        if_absent: bool,
        /// Fail if the key does not exist
        #[arg(long)]
        if_present: bool,
    },
    /// Remove a key and its value
    #[command(after_help = "Examples:\n  eyrie kv erase vol:/store colour")]
    Erase {
        /// Directory with the keys
        #[arg(value_name = "VOLUME:/dir", value_parser = Place::parser())]
        store: Place,
        /// Key of 1 to 255 bytes
        key: OsString,
    },
    /// List the keys in byte order
    #[command(after_help = "Examples:\n  eyrie kv scan vol:/store\n  eyrie kv scan --json vol:/store user:")]
    Scan {
        /// Directory with the keys
        #[arg(value_name = "VOLUME:/dir", value_parser = Place::parser())]
        store: Place,
        /// List only keys that begin with PREFIX; an empty PREFIX lists all keys
        #[arg(default_value = "")]
        prefix: OsString,
        /// Print a JSON array of keys and the sizes of their values, in bytes
        #[arg(long)]
        json: bool,
    },
}

pub fn run(arguments: KvArgs, output: &mut Output) -> Result<()> {
    match arguments.command {
        KvCommand::Get { store, key } => {
            let value = with_store(store, Purpose::Read, |store, inside| {
                store.get(key.as_bytes()).doing("get", shown(inside, key.as_bytes()))?.ok_or_else(|| {
                    let why = "no such key: `eyrie kv scan` lists them";
                    Failure::not_found("cannot get", shown(inside, key.as_bytes()), why)
                })
            })?;
            output.write_all(&value)?;
            Ok(())
        }
        KvCommand::Put { store, key, value, if_absent, if_present } => {
            let value = input::value(value, VALUE_MAX)?;
            let condition = match (if_absent, if_present) {
                (true, _) => Some(Condition::Absent),
                (_, true) => Some(Condition::Present),
                _ => None,
            };
            with_store(store, Purpose::Change, |store, inside| {
                put(store, inside, key.as_bytes(), &value, condition)
            })
        }
        KvCommand::Erase { store, key } => with_store(store, Purpose::Change, |store, inside| {
            if store.erase(key.as_bytes()).doing("erase", shown(inside, key.as_bytes()))? {
                return Ok(());
            }
            Err(Failure::not_found("cannot erase", shown(inside, key.as_bytes()), "no such key"))
        }),
        KvCommand::Scan { store, prefix, json } => scan(store, prefix.as_bytes(), json, output),
    }
}

fn put(store: &Store, inside: &Inside, key: &[u8], value: &[u8], condition: Option<Condition>) -> Result<()> {
    let shown = || shown(inside, key);
    let Some(condition) = condition else { return store.put(key, value).doing("put", shown()).map(drop) };
    match (store.put_if(key, value, condition).doing("put", shown())?, condition) {
        (Outcome::Done, _) => Ok(()),
        (_, Condition::Absent) => {
            let why = "it exists already: without --if-absent it is replaced";
            Err(Failure::new("cannot put", shown(), why))
        }
        _ => Err(Failure::not_found("cannot put", shown(), "no such key: without --if-present it is made")),
    }
}

fn shown(inside: &Inside, key: &[u8]) -> String {
    format!("key {} of {inside}", text::escaped(key))
}

fn with_store<T>(
    place: Place,
    purpose: Purpose,
    work: impl FnOnce(&Store, &Inside) -> Result<T>,
) -> Result<T> {
    let inside = place.inside()?;
    volumes::with_volume(&inside.volume, purpose, |volume| {
        let store = volume.store(&inside.path, Credentials::of_process()).map_err(|error| {
            if error.errno() == Errno::NOENT {
                let why = format!("there is no such directory: `eyrie mkdir {inside}` makes it");
                return Failure::not_found("cannot open the store", &inside, why);
            }
            Failure::new("cannot open the store", &inside, reason(&error))
        })?;
        work(&store, &inside)
    })
}

fn scan(place: Place, prefix: &[u8], json: bool, output: &mut Output) -> Result<()> {
    with_store(place, Purpose::Read, |store, inside| {
        let mut array = JsonArray::default();
        for key in store.scan(KeyRange::prefix(prefix), Order::ByKey) {
            let key = key.doing("scan", inside)?;
            if !json {
                output.name(&key)?;
                writeln!(output)?;
            } else if let Some(bytes) = store.value_len(&key).doing("scan", shown(inside, &key))? {
                let mut entry = json!({ "bytes": bytes });
                json_name(&mut entry, "key", &key);
                array.add(&entry, output)?;
            }
        }
        if json { array.finish(output) } else { Ok(()) }
    })
}
