//! `find`.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use eyrie::{Files, Found, Kind, Posix, PosixExt, Stat, Step, Time, Walk};
use serde_json::Value;

use super::inspect::json_stat;
use super::transfer::host;
use super::{complete, with_files};
use crate::arguments::Find;
use crate::failure::{Doing, Result, reason};
use crate::output::{Output, json_name};
use crate::place::Place;
use crate::{interrupt, tell};

/// Seconds of a day.
const DAY: i128 = 86_400;

/// The conditions, with what they compare with.
struct Conditions {
    arguments: Find,
    newer: Option<Time>,
    now: i128,
}

/// Finds.
pub fn find(arguments: Find, output: &mut Output) -> Result<()> {
    interrupt::watch();
    let inside = arguments.place.clone().inside_or_root();
    let newer = arguments.newer.clone().map(modified).transpose()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i128::from(since.as_secs()));
    let conditions = Conditions { arguments, newer, now };
    let mut left_out = 0;
    let mut values = Vec::new();
    with_files(&inside.volume, |files| {
        let mut walk = Walk::new(files, &inside.path).doing("find", &inside)?;
        while let Some(step) = walk.next() {
            interrupt::check("find")?;
            let (place, result) = match step {
                Step::Left(_) => continue,
                Step::Failed(relative, error) => (inside.join(relative), Err(error)),
                Step::Found(found) => {
                    if found.depth >= conditions.arguments.max_depth {
                        walk.prune();
                    }
                    let place = inside.join(&found.relative);
                    let result = conditions.hold(&place.path, &found);
                    if result.is_err() {
                        // It cannot be read below either, which is told once.
                        walk.prune();
                    }
                    (place, result)
                }
            };
            match result {
                Ok(None) => {}
                Ok(Some(stat)) if conditions.arguments.json => {
                    let mut value = json_stat(&stat);
                    json_name(&mut value, "path", place.path.as_os_str().as_bytes());
                    values.push(value);
                }
                Ok(Some(_)) => {
                    output.place(&place)?;
                    output.write_all(if conditions.arguments.print0 { b"\0" } else { b"\n" })?;
                }
                Err(error) => {
                    left_out += 1;
                    tell(&format!("cannot read: {place}: {}", reason(&error)));
                }
            }
        }
        Ok(())
    })?;
    if conditions.arguments.json {
        output.json(&Value::Array(values))?;
    }
    complete("not everything was read", inside, left_out)
}

/// When something was modified that others are compared with.
fn modified(place: Place) -> Result<Time> {
    let stat = match &place {
        Place::Host(path) => {
            let (host, path) = host(path)?;
            host.stat(path).doing("stat", &place)?
        }
        Place::Inside(inside) => {
            with_files(&inside.volume, |files| files.stat(&inside.path).doing("stat", &place))?
        }
    };
    Ok(stat.modified)
}

impl Conditions {
    /// The attributes of what was found at `path`, if all of them hold for it.
    fn hold(&self, path: &Path, found: &Found<'_, Files>) -> eyrie::Result<Option<Stat>> {
        let Find { name, iname, path: paths, kinds, size, mtime, empty, min_depth, .. } = &self.arguments;
        let stat = found.stat()?;
        // The root has no name of its own.
        let base = path.file_name().unwrap_or(OsStr::new("/"));
        let age = self.now - i128::from(stat.modified.seconds);
        let holds = found.depth >= *min_depth
            && (kinds.is_empty() || kinds.contains(&stat.kind))
            && name.iter().chain(iname).all(|glob| glob.is_match(base))
            && paths.iter().all(|glob| glob.is_match(path))
            && size.is_none_or(|bound| bound.holds(stat.size.into()))
            && mtime.is_none_or(|bound| bound.holds(age.div_euclid(DAY)))
            && self.newer.is_none_or(|time| stat.modified > time);
        Ok((holds && (!empty || is_empty(found, &stat)?)).then_some(stat))
    }
}

/// Whether it is a file without bytes or a directory without entries.
fn is_empty(found: &Found<'_, Files>, stat: &Stat) -> eyrie::Result<bool> {
    match stat.kind {
        Kind::File => Ok(stat.size == 0),
        Kind::Directory => Ok(found.base().read_dir(found.name())?.next().transpose()?.is_none()),
        _ => Ok(false),
    }
}
