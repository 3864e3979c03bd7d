//! `mkfs`, `resize`, `trim`, `info`, `stat` and `df`.

use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use eyrie::{Errno, Information, Kind, Posix, PosixExt, Stat, Time, Volume};
use serde_json::{Value, json};

use super::{paged, refused, with_files, with_volume};
use crate::arguments::{Df, Mkfs, PlacesJson, Resize, VolumeJson};
use crate::failure::{Doing, Failure, Result};
use crate::output::{Output, json_name, table};
use crate::text;

fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_block_device())
}

/// Makes a volume.
pub fn mkfs(arguments: &Mkfs, output: &mut Output) -> Result<()> {
    let place = text::path(&arguments.volume);
    let is_device = is_device(&arguments.volume);
    if !is_device && arguments.volume.symlink_metadata().is_ok() {
        let why = "something is there already: choose another name, or remove it first";
        return Err(Failure::new("cannot make a volume", place, why));
    }
    if !is_device && arguments.size.is_none() {
        return Err(Failure::usage(
            "cannot make a volume",
            place,
            "it needs a size, such as --size 4G: see `eyrie mkfs --help`",
        ));
    }
    let mut options =
        Volume::options().medium(arguments.medium.into()).overwrite(arguments.force).paged(paged());
    if let Some(bytes) = arguments.size {
        options = options.size(bytes);
    }
    if let Some(bytes) = arguments.group_size {
        options = options.group_size(bytes);
    }
    let volume = options.create(&arguments.volume).map_err(|error| {
        refused_device(refused("cannot make a volume", &arguments.volume, &error), &error)
    })?;
    let Information { id, medium, size_bytes, .. } = volume.information();
    volume.close().doing("close the volume", &place)?;
    writeln!(output, "made volume {place}: {} on {medium}, id {id}", text::size(size_bytes))?;
    Ok(())
}

/// What is on a device may be given up.
fn refused_device(failure: Failure, error: &eyrie::Error) -> Failure {
    match error.errno() {
        Errno::EXIST => failure.with_note(": --force overwrites it"),
        _ => failure,
    }
}

/// Makes a volume larger or smaller.
pub fn resize(arguments: &Resize, output: &mut Output) -> Result<()> {
    let place = text::path(&arguments.volume);
    if arguments.size.is_none() && !is_device(&arguments.volume) {
        return Err(Failure::usage(
            "cannot resize the volume",
            place,
            "it needs a size, such as 4G: see `eyrie resize --help`",
        ));
    }
    Volume::resize_with(&arguments.volume, arguments.size, paged())
        .map_err(|error| refused("cannot resize the volume", &arguments.volume, &error))?;
    let bytes = match arguments.size {
        Some(bytes) => bytes,
        None => with_volume(&arguments.volume, |volume| Ok(volume.information().size_bytes))?,
    };
    writeln!(output, "resized volume {place}: {}", text::size(bytes))?;
    Ok(())
}

/// Gives back to the host what a volume does not need.
pub fn trim(arguments: &VolumeJson, output: &mut Output) -> Result<()> {
    let bytes = with_volume(&arguments.volume, |volume| {
        volume.trim().map_err(|error| refused("cannot trim the volume", &arguments.volume, &error))
    })?;
    if arguments.json {
        return output.json(&json!({ "trimmed_bytes": bytes }));
    }
    writeln!(output, "{}: {} given back", text::path(&arguments.volume), text::size(bytes))?;
    Ok(())
}

/// Tells what a volume is.
pub fn info(arguments: &VolumeJson, output: &mut Output) -> Result<()> {
    let information = with_volume(&arguments.volume, |volume| Ok(volume.information()))?;
    if arguments.json {
        let segments: Vec<Value> = information
            .segments
            .iter()
            .map(|(path, bytes)| json!({ "path": path.to_string_lossy(), "bytes": bytes }))
            .collect();
        return output.json(&json!({
            "id": information.id,
            "format": information.format,
            "medium": information.medium,
            "promise": information.promise,
            "size_bytes": information.size_bytes,
            "most_bytes": information.most_bytes,
            "group_bytes": information.group_bytes,
            "used_bytes": information.used_bytes,
            "free_bytes": information.free_bytes,
            "journal_bytes": information.journal_bytes,
            "objects": information.objects,
            "segments": segments,
            "recovered": information.recovered,
        }));
    }
    output.heading(&format!("Volume {}", text::path(&arguments.volume)))?;
    let opened = if information.recovered { "after a crash: recovered" } else { "clean" };
    for (name, value) in [
        ("id", information.id.clone()),
        ("format", information.format.to_string()),
        ("medium", format!("{}, {}", information.medium, information.promise)),
        ("size", text::size(information.size_bytes)),
        ("at most", text::size(information.most_bytes)),
        ("groups of", text::size(information.group_bytes)),
        ("used", text::size(information.used_bytes)),
        ("free", text::size(information.free_bytes)),
        ("objects", text::count(information.objects)),
        ("opened", opened.to_owned()),
    ] {
        writeln!(output, "  {name:<10} {value}")?;
    }
    for (path, bytes) in &information.segments {
        let journal =
            information.journal_bytes.map(|bytes| format!(" with a journal of {}", text::size(bytes)));
        let journal = journal.unwrap_or_default();
        writeln!(output, "  {:<10} {}, {}{journal}", "segment", text::path(path), text::size(*bytes))?;
    }
    Ok(())
}

fn json_time(time: Time) -> Value {
    json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds })
}

/// The attributes for a script.
pub fn json_stat(stat: &Stat) -> Value {
    json!({
        "kind": text::kind_name(stat.kind),
        "mode": format!("{:04o}", stat.mode),
        "inode": stat.inode,
        "links": stat.links,
        "uid": stat.uid,
        "gid": stat.gid,
        "device": stat.device,
        "size": stat.size,
        "allocated": stat.allocated,
        "accessed": json_time(stat.accessed),
        "modified": json_time(stat.modified),
        "changed": json_time(stat.changed),
    })
}

/// Shows attributes.
pub fn stat(arguments: PlacesJson, output: &mut Output) -> Result<()> {
    let mut values = Vec::new();
    for place in arguments.places {
        let inside = place.inside_or_root();
        let (stat, target, xattrs) = with_files(&inside.volume, |files| {
            let stat =
                if arguments.dereference { files.stat(&inside.path) } else { files.lstat(&inside.path) };
            let stat = stat.doing("stat", &inside)?;
            let target = match stat.kind {
                Kind::Symlink => Some(files.readlink(&inside.path).doing("read the link", &inside)?),
                _ => None,
            };
            let xattrs = if arguments.dereference {
                files.xattr_names(&inside.path)
            } else {
                files.symlink_xattr_names(&inside.path)
            };
            Ok((stat, target, xattrs.doing("list the extended attributes of", &inside)?))
        })?;
        if arguments.json {
            let mut value = json_stat(&stat);
            json_name(&mut value, "path", std::os::unix::ffi::OsStrExt::as_bytes(inside.path.as_os_str()));
            if let Some(target) = target {
                json_name(&mut value, "target", &target);
            }
            value["xattrs"] = xattrs.iter().map(|name| String::from_utf8_lossy(name)).collect();
            values.push(value);
            continue;
        }
        let arrow = target.map(|target| format!(" -> {}", text::escaped(&target))).unwrap_or_default();
        output.heading(&format!("{inside}{arrow}"))?;
        let precise = |time: Time| format!("{}.{:09} UTC", text::time(time), time.nanoseconds);
        for (name, value) in [
            ("kind", text::kind_name(stat.kind).to_owned()),
            ("mode", format!("{:04o} {}", stat.mode, text::mode(stat.kind, stat.mode))),
            ("owner", format!("user {}, group {}", stat.uid, stat.gid)),
            ("size", format!("{} B, {} B allocated", text::count(stat.size), text::count(stat.allocated))),
            ("inode", format!("{}, {}", stat.inode, text::counted(stat.links.into(), "link", "links"))),
            ("accessed", precise(stat.accessed)),
            ("modified", precise(stat.modified)),
            ("changed", precise(stat.changed)),
        ] {
            writeln!(output, "  {name:<10} {value}")?;
        }
        for (index, name) in xattrs.iter().enumerate() {
            let heading = if index == 0 { "xattrs" } else { "" };
            writeln!(output, "  {heading:<10} {}", text::escaped(name))?;
        }
    }
    if arguments.json { output.json(&Value::Array(values)) } else { Ok(()) }
}

/// Shows space.
pub fn df(arguments: &Df, output: &mut Output) -> Result<()> {
    let mut values = Vec::new();
    let mut rows = table(&["Volume", "Size", "Used", "Free", "Use", "Objects"], &[1, 2, 3, 4, 5]);
    for volume in &arguments.volumes {
        let information = with_volume(volume, |volume| Ok(volume.information()))?;
        if arguments.json {
            values.push(json!({
                "volume": volume.to_string_lossy(),
                "size_bytes": information.size_bytes,
                "used_bytes": information.used_bytes,
                "free_bytes": information.free_bytes,
                "objects": information.objects,
            }));
            continue;
        }
        let percent = information.used_bytes as f64 * 100.0 / information.size_bytes.max(1) as f64;
        rows.add_row([
            text::path(volume),
            text::size(information.size_bytes),
            text::size(information.used_bytes),
            text::size(information.free_bytes),
            format!("{percent:.0} %"),
            text::count(information.objects),
        ]);
    }
    if arguments.json { output.json(&Value::Array(values)) } else { Ok(output.table(&rows)?) }
}
