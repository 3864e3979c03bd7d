//! `du`.

use std::collections::HashSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use eyrie::{Files, Step, Walk};
use serde_json::{Value, json};

use super::{complete, with_files};
use crate::arguments::Du;
use crate::failure::{Doing, Result, reason};
use crate::output::{Output, json_name};
use crate::place::Inside;
use crate::{interrupt, tell, text};

/// What was counted so far, and how to show it.
struct Usage<'a> {
    arguments: Du,
    output: &'a mut Output,
    /// Volume and inode of what may come again: directories, what has several names, and what was named.
    seen: HashSet<(usize, u64)>,
    total: u64,
    left_out: u64,
    values: Vec<Value>,
}

/// Shows the space that files take.
pub fn du(mut arguments: Du, output: &mut Output) -> Result<()> {
    interrupt::watch();
    if arguments.summarize {
        arguments.max_depth = 0;
    }
    let places = std::mem::take(&mut arguments.places);
    let mut usage =
        Usage { arguments, output, seen: HashSet::new(), total: 0, left_out: 0, values: Vec::new() };
    let mut volumes: Vec<PathBuf> = Vec::new();
    for place in places {
        let inside = place.inside_or_root();
        let real = inside.volume.canonicalize().unwrap_or_else(|_| inside.volume.clone());
        let volume = volumes.iter().position(|known| *known == real).unwrap_or(volumes.len());
        if volume == volumes.len() {
            volumes.push(real);
        }
        with_files(&inside.volume, |files| usage.count(files, &inside, volume))?;
    }
    usage.finish()
}

impl Usage<'_> {
    /// Counts what is at one place, and shows it from the bottom up.
    fn count(&mut self, files: &Files, inside: &Inside, volume: usize) -> Result<()> {
        let mut walk = Walk::new(files, &inside.path).doing("count", inside)?;
        // The directories around, and before them all there is.
        let mut sums = vec![0];
        while let Some(step) = walk.next() {
            interrupt::check("du")?;
            match step {
                Step::Found(found) => {
                    let depth = found.depth;
                    let stat = match found.stat() {
                        Ok(stat) => stat,
                        Err(error) => {
                            walk.prune();
                            self.leave_out(&inside.join(&found.relative), &error);
                            continue;
                        }
                    };
                    let may_repeat = stat.is_dir() || stat.links > 1 || depth == 0;
                    if may_repeat && !self.seen.insert((volume, stat.inode)) {
                        walk.prune();
                        continue;
                    }
                    let bytes = if self.arguments.apparent_size { stat.size } else { stat.allocated };
                    sums.push(bytes);
                    if !stat.is_dir() {
                        let shown = depth == 0 || self.arguments.all && depth <= self.arguments.max_depth;
                        self.close(&mut sums, inside, &found.relative, shown)?;
                    }
                }
                Step::Left(dir) => {
                    self.close(&mut sums, inside, &dir.relative, dir.depth <= self.arguments.max_depth)?;
                }
                Step::Failed(relative, error) => self.leave_out(&inside.join(relative), &error),
            }
        }
        self.total = self.total.saturating_add(sums[0]);
        Ok(())
    }

    fn leave_out(&mut self, place: &Inside, error: &eyrie::Error) {
        self.left_out += 1;
        tell(&format!("cannot read: {place}: {}", reason(error)));
    }

    /// Adds the last of `sums` to the one before, and shows it if wanted.
    fn close(&mut self, sums: &mut Vec<u64>, inside: &Inside, relative: &Path, shown: bool) -> Result<()> {
        let bytes = sums.pop().unwrap_or(0);
        if let Some(around) = sums.last_mut() {
            // Holes may add up to more than there are numbers.
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
        if self.arguments.json {
            self.output.json(&json!({ "entries": self.values, "total_bytes": self.total }))?;
        } else if self.arguments.total {
            writeln!(self.output, "{}\ttotal", self.size(self.total))?;
        }
        complete("not everything was counted", "du", self.left_out)
    }
}
