//! `kv`: a directory as keys and values.

use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use eyrie::Errno;
use serde_json::{Value, json};

use super::{credentials, with_volume};
use crate::arguments::KvCommand;
use crate::failure::{Doing, Failure, Result};
use crate::output::{Output, json_name};
use crate::place::{Inside, Place};
use crate::text;

/// Does what the command says.
pub fn run(command: KvCommand, output: &mut Output) -> Result<()> {
    match command {
        KvCommand::Get { store, key } => {
            let value = with_store(store, |store, inside| {
                store.get(key.as_bytes()).doing("get", shown(inside, key.as_bytes()))?.ok_or_else(|| {
                    let why = "no such key: `eyrie kv scan` lists them";
                    Failure::new("cannot get", shown(inside, key.as_bytes()), why)
                })
            })?;
            output.write_all(&value)?;
            Ok(())
        }
        KvCommand::Put { store, key, value } => {
            let value = match value {
                Some(value) if value != "-" => value.into_vec(),
                _ => {
                    let mut value = Vec::new();
                    std::io::stdin().lock().read_to_end(&mut value).doing("read", "standard input")?;
                    value
                }
            };
            with_store(store, |store, inside| {
                store.put(key.as_bytes(), &value).doing("put", shown(inside, key.as_bytes())).map(drop)
            })
        }
        KvCommand::Erase { store, key } => with_store(store, |store, inside| {
            if store.erase(key.as_bytes()).doing("erase", shown(inside, key.as_bytes()))? {
                return Ok(());
            }
            Err(Failure::new("cannot erase", shown(inside, key.as_bytes()), "no such key"))
        }),
        KvCommand::Scan { store, prefix, json } => scan(store, prefix.as_bytes(), json, output),
    }
}

fn shown(inside: &Inside, key: &[u8]) -> String {
    format!("key {} of {inside}", text::escaped(key))
}

fn with_store<T>(place: Place, work: impl FnOnce(&eyrie::Store, &Inside) -> Result<T>) -> Result<T> {
    let inside = place.inside()?;
    with_volume(&inside.volume, |volume| {
        let store = volume.store(&inside.path, credentials()).map_err(|error| {
            if error.errno() == Errno::NOENT {
                let why = format!("there is no such directory: `eyrie mkdir {inside}` makes it");
                return Failure::new("cannot open the store", &inside, why);
            }
            Failure::new("cannot open the store", &inside, crate::failure::reason(&error))
        })?;
        work(&store, &inside)
    })
}

fn scan(place: Place, prefix: &[u8], json: bool, output: &mut Output) -> Result<()> {
    with_store(place, |store, inside| {
        let mut values = Vec::new();
        let mut value = Vec::new();
        for key in store.scan(prefix, true).doing("scan", inside)? {
            let key = key.doing("scan", inside)?;
            if !json {
                output.name(&key)?;
                writeln!(output)?;
            } else if store.get_into(&key, &mut value).doing("get", shown(inside, &key))? {
                let mut entry = json!({ "bytes": value.len() });
                json_name(&mut entry, "key", &key);
                values.push(entry);
            }
        }
        if json { output.json(&Value::Array(values)) } else { Ok(()) }
    })
}
