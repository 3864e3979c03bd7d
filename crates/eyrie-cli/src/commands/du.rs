//! `eyrie du`: shows the space that files and directories take.

use std::collections::HashSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::{ArgAction, Args};
use eyrie::{Credentials, Files, PosixExt, WalkStep};
use serde_json::{Value, json};

use crate::failure::{Doing, Failures, Result, Skipped, with_earlier};
use crate::opened::with_volumes;
use crate::output::{Output, json_name};
use crate::place::{Inside, Place};
use crate::{interrupt, text};

/// The start of the message about entries that could not be read.
const SKIPPED: &str = "not everything was counted";

/// Show the space that files and directories take
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  eyrie du -h vol:/
  eyrie du -sh vol:/share vol:/home
  eyrie du -d 1 -c one:/ two:/
  eyrie du -a --apparent-size --json vol:/share

Sizes are in KiB, rounded up. The size of a directory includes its contents. A file with several names is \
counted once."
)]
pub struct DuArgs {
    /// Files and directories to count
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// Show only one total for each argument
    #[arg(long, short, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,
    /// Show sizes with a unit, such as 1.5K or 20M
    #[arg(long, short = 'h')]
    human_readable: bool,
    /// Show files, not only directories
    #[arg(long, short)]
    all: bool,
    /// Show only this many levels below each argument; deeper levels are still counted [default: no limit]
    #[arg(long, short = 'd', value_name = "LEVELS", default_value_t = usize::MAX, hide_default_value = true)]
    max_depth: usize,
    /// Count the lengths of files instead of the space that they take
    #[arg(long)]
    apparent_size: bool,
    /// Show the total of all arguments at the end
    #[arg(long, short = 'c')]
    total: bool,
    /// Print JSON, with sizes in bytes
    #[arg(long, conflicts_with = "human_readable")]
    json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: (),
}

/// A count in progress: its arguments, its output, and its results so far.
struct Usage<'a> {
    arguments: DuArgs,
    output: &'a mut Output,
    /// Volume and inode number of each object that a walk may meet again: directories, files with several
    /// names, and the arguments themselves.
    seen: HashSet<(usize, u64)>,
    total: u64,
    skipped: Skipped,
    values: Vec<Value>,
}

pub fn run(mut arguments: DuArgs, output: &mut Output) -> Result<()> {
    interrupt::install();
    if arguments.summarize {
        arguments.max_depth = 0;
    }
    let places = std::mem::take(&mut arguments.places);
    let (seen, skipped, values) = (HashSet::new(), Skipped::default(), Vec::new());
    let mut usage = Usage { arguments, output, seen, total: 0, skipped, values };
    let counted = with_volumes([], |volumes| {
        let mut failures = Failures::default();
        for place in places {
            let inside = place.inside_or_root();
            let opened = volumes.get(&inside.volume);
            let (number, volume) = opened.map_err(|failure| failures.ended_by(failure))?;
            let files = volume.files(Credentials::of_process());
            failures.add(usage.count(&files, &inside, number))?;
        }
        failures.finish()
    });
    match counted {
        Err(failure) if failure.ends_command() => {
            with_earlier(Err(failure), usage.skipped.finish(SKIPPED, "du"))
        }
        counted => with_earlier(counted, usage.finish()),
    }
}

impl Usage<'_> {
    /// Counts the tree at one path, and prints the requested sizes from the bottom up. `volume` is a number
    /// that no other volume of this command has.
    fn count(&mut self, files: &Files, inside: &Inside, volume: usize) -> Result<()> {
        let mut walk = files.walk(&inside.path).doing("count", inside)?;
        // The first sum is that of the whole tree. The others are those of the directories from `inside` down
        // to the entry.
        let mut sums = vec![0];
        while let Some(step) = walk.next() {
            interrupt::check("du")?;
            match step {
                WalkStep::Entry(entry) => {
                    let stat = match entry.stat() {
                        Ok(stat) => stat,
                        Err(error) => {
                            walk.prune();
                            self.skipped.add(inside.join(&entry.relative), &error);
                            continue;
                        }
                    };
                    let depth = entry.depth;
                    let may_repeat = stat.is_dir() || stat.links > 1 || depth == 0;
                    if may_repeat && !self.seen.insert((volume, stat.inode)) {
                        walk.prune();
                        continue;
                    }
                    sums.push(if self.arguments.apparent_size { stat.size } else { stat.allocated });
                    if !stat.is_dir() {
                        let shown = depth == 0 || self.arguments.all && depth <= self.arguments.max_depth;
                        self.close(&mut sums, inside, &entry.relative, shown)?;
                    }
                }
                WalkStep::Left(dir) => {
                    self.close(&mut sums, inside, &dir.relative, dir.depth <= self.arguments.max_depth)?;
                }
                WalkStep::Failed(relative, error) => self.skipped.add(inside.join(relative), &error),
            }
        }
        self.total = self.total.saturating_add(sums[0]);
        Ok(())
    }

    /// Removes the last of `sums`, and adds its value to the sum before it. Prints the value if `shown`.
    fn close(&mut self, sums: &mut Vec<u64>, inside: &Inside, relative: &Path, shown: bool) -> Result<()> {
        let bytes = sums.pop().unwrap_or(0);
        if let Some(around) = sums.last_mut() {
            // The sum of the lengths of sparse files may overflow.
            *around = around.saturating_add(bytes);
        }
        if !shown {
            return Ok(());
        }
        let place = inside.join(relative);
        if self.arguments.json {
            let mut value = json!({ "bytes": bytes });
            json_name(&mut value, "volume", place.volume.as_os_str().as_bytes());
            json_name(&mut value, "path", place.path.as_os_str().as_bytes());
            self.values.push(value);
            return Ok(());
        }
        write!(self.output, "{}\t", self.size(bytes))?;
        self.output.place(&place)?;
        Ok(writeln!(self.output)?)
    }

    fn size(&self, bytes: u64) -> String {
        if self.arguments.human_readable { text::short_size(bytes) } else { bytes.div_ceil(1024).to_string() }
    }

    fn finish(self) -> Result<()> {
        let printed = if self.arguments.json {
            self.output.json(&json!({ "entries": self.values, "total_bytes": self.total }))
        } else if self.arguments.total {
            writeln!(self.output, "{}\ttotal", self.size(self.total)).map_err(Into::into)
        } else {
            Ok(())
        };
        with_earlier(printed, self.skipped.finish(SKIPPED, "du"))
    }
}
