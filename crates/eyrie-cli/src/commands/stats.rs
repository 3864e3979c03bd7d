//! `eyrie stats`: shows numbers about a volume.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use eyrie::{Information, Report};
use serde_json::{Map, Value};

use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::volumes::Purpose;
use crate::{text, volumes};

/// Show numbers about the space and the objects of a volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie stats /dev/shm/vol
  eyrie stats --json vol

The command visits every object and counts it by kind, so a large volume takes some time. `eyrie df` and \
`eyrie info` show only the total, at once.")]
pub struct StatsArgs {
    /// Volume to describe
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// Print JSON, with sizes in bytes
    #[arg(long)]
    json: bool,
}

/// A number, or a size in bytes.
enum Figure {
    Bytes(u64),
    Count(u64),
}

/// The numbers of a volume: for each the heading under which it is printed, its name in JSON, and its value.
type Figures = Vec<(&'static str, &'static str, Figure)>;

pub fn run(arguments: &StatsArgs, output: &mut Output) -> Result<()> {
    let path = &arguments.volume;
    let (information, report) = volumes::with_volume(path, Purpose::Read, |volume| {
        Ok((volume.information(), volume.check().doing("read", text::path(path))?))
    })?;
    if !report.is_clean() {
        let why = format!("it is damaged: `eyrie fsck {}` shows the damage", text::path(path));
        return Err(Failure::new("cannot count the objects", text::path(path), why));
    }
    let figures = figures(&information, &report);
    if arguments.json {
        let number = |figure| match figure {
            Figure::Bytes(number) | Figure::Count(number) => Value::from(number),
        };
        let all: Map<String, Value> =
            figures.into_iter().map(|(_, name, figure)| (name.to_owned(), number(figure))).collect();
        return output.json(&Value::Object(all));
    }
    output.heading(&format!("Volume {}", text::path(path)))?;
    for (heading, _, figure) in figures {
        let value = match figure {
            Figure::Bytes(bytes) => text::size(bytes),
            Figure::Count(count) => text::count(count),
        };
        writeln!(output, "  {heading:<16} {value}")?;
    }
    Ok(())
}

fn figures(information: &Information, report: &Report) -> Figures {
    let Information { size_bytes, used_bytes, free_bytes, group_bytes, .. } = *information;
    let mut figures = vec![
        ("size", "size_bytes", Figure::Bytes(size_bytes)),
        ("tables", "table_bytes", Figure::Bytes(size_bytes.saturating_sub(used_bytes + free_bytes))),
        ("used", "used_bytes", Figure::Bytes(used_bytes)),
        ("free", "free_bytes", Figure::Bytes(free_bytes)),
    ];
    if let Some(bytes) = information.journal_bytes {
        figures.push(("journal", "journal_bytes", Figure::Bytes(bytes)));
    }
    figures.extend([
        ("groups", "groups", Figure::Count(size_bytes.div_ceil(group_bytes))),
        ("group size", "group_bytes", Figure::Bytes(group_bytes)),
        ("directories", "directories", Figure::Count(report.directories)),
        ("files", "files", Figure::Count(report.files)),
        ("other objects", "others", Figure::Count(report.others)),
        ("bytes of files", "file_bytes", Figure::Bytes(report.bytes)),
        ("saved by sharing", "saved_by_sharing_bytes", Figure::Bytes(report.saved_by_sharing)),
    ]);
    figures
}
