//! `eyrie info`: describes a volume.

use std::path::{Path, PathBuf};

use clap::Args;
use eyrie::Information;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::output::Output;
use crate::volumes::Purpose;
use crate::{text, volumes};

/// Spaces before the continuation of a value.
const INDENT: usize = 13;

/// Show the properties of a volume
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie info /dev/shm/vol\n  eyrie info --json /dev/shm/vol")]
pub struct InfoArgs {
    /// Volume to describe
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// Print JSON, with sizes in bytes
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &InfoArgs, output: &mut Output) -> Result<()> {
    let information =
        volumes::with_volume(&arguments.volume, Purpose::Read, |volume| Ok(volume.information()))?;
    if arguments.json {
        output.json(&json_information(&information))
    } else {
        print(&arguments.volume, &information, output)
    }
}

fn json_information(information: &Information) -> Value {
    let segments: Vec<Value> = information
        .segments
        .iter()
        .map(|(path, bytes)| json!({ "path": path.to_string_lossy(), "bytes": bytes }))
        .collect();
    json!({
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
        "checksums": information.checksums,
        "objects": information.objects,
        "segments": segments,
        "recovered": information.recovered,
    })
}

fn print(volume: &Path, information: &Information, output: &mut Output) -> Result<()> {
    output.heading(&format!("Volume {}", text::path(volume)))?;
    let opened = if information.recovered { "after a crash: recovered" } else { "clean" };
    for (name, value) in [
        ("id", information.id.clone()),
        ("format", information.format.to_string()),
        ("medium", format!("{}, {}", information.medium, information.promise)),
        ("size", text::size(information.size_bytes)),
        ("max size", text::size(information.most_bytes)),
        ("group size", text::size(information.group_bytes)),
        ("used", text::size(information.used_bytes)),
        ("free", text::size(information.free_bytes)),
        ("objects", text::count(information.objects)),
        ("opened", opened.to_owned()),
    ] {
        output.wrapped(&format!("  {name:<10} {value}"), INDENT)?;
    }
    for (path, bytes) in &information.segments {
        let journal =
            information.journal_bytes.map(|bytes| format!(" with a journal of {}", text::size(bytes)));
        let journal = journal.unwrap_or_default();
        let checksums = if information.checksums { " and checksums of its pages" } else { "" };
        let (path, size) = (text::path(path), text::size(*bytes));
        output.wrapped(&format!("  {:<10} {path}, {size}{journal}{checksums}", "segment"), INDENT)?;
    }
    Ok(())
}
