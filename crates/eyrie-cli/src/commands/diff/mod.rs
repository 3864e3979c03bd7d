//! `eyrie diff`: compares two trees of volumes or of the host.

mod compare;

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use self::compare::{Compare, Difference, Found};
use crate::endpoint::{between, with_both};
use crate::failure::{Failure, Result};
use crate::output::{Output, json_name};
use crate::place::{self, Place};

/// Exit status if the trees differ.
const DIFFERENT: u8 = 1;
/// Exit status if the trees cannot be compared.
const TROUBLE: u8 = 2;

/// Compare two trees
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  eyrie diff vol:/doc ./doc
  eyrie diff --contents vol:/doc ./doc
  eyrie diff -q one:/ two:/ && echo equal

Each path at which the trees differ is printed, with the differences: type, mode, owner, size, contents, \
target, device or xattrs. A path that only one tree has is printed, too. Nothing is compared below such a \
path, or below a path with two types. Times are not compared. Of the extended attributes, only ACLs and \
those of the namespaces user and trusted are compared, except the quota limits of a volume \
(trusted.eyrie.quota). A hole equals zeros.

{}

Exit status, as of diff(1): 0 equal, 1 different, 2 trouble. 3 if a place does not exist.", place::HELP))]
pub struct DiffArgs {
    /// File or directory to compare
    #[arg(value_name = "PLACE", value_parser = Place::parser())]
    left: Place,
    /// File or directory to compare with the first one
    #[arg(value_name = "PLACE", value_parser = Place::parser())]
    right: Place,
    /// Compare only types, contents, targets and devices, as `diff -r --no-dereference` does
    #[arg(long)]
    contents: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    /// Print nothing, and stop at the first difference; the exit status tells the result
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

/// Compares two trees. The status [`DIFFERENT`] is only for trees that differ, so a failure with this status
/// gets the status [`TROUBLE`] instead. If the reader closes standard output early, the comparison ends, and
/// the status tells the result so far.
pub fn run(arguments: &DiffArgs, output: &mut Output) -> Result<()> {
    let mut status = 0;
    match compare(arguments, output, &mut status) {
        Err(failure) if failure.status() == DIFFERENT => Err(failure.with_status(TROUBLE)),
        Err(failure) if failure.status() != 0 => Err(failure),
        _ if status == 0 => Ok(()),
        _ => Err(Failure::silent(status)),
    }
}

/// Compares two trees, prints the differences, and sets the exit status, even if the call fails.
fn compare(arguments: &DiffArgs, output: &mut Output, status: &mut u8) -> Result<()> {
    let DiffArgs { left, right, contents, json, quiet } = arguments;
    let (mut count, mut troubles, mut values) = (0_u64, 0, Vec::new());
    let mut report = |found: &Found<'_>| {
        count += 1;
        match (json, quiet) {
            (true, _) => values.push(json_of(found)),
            (_, true) => return Ok(false),
            _ => print(left, right, found, output)?,
        }
        Ok(true)
    };
    let compared = with_both(left, right, |from, to| {
        let mut compare = Compare::new([left, right], [&from.path, &to.path], *contents, &mut report);
        let compared = between(from, to, &mut compare);
        troubles = compare.troubles;
        compared
    });
    *status = match (troubles, count) {
        (0, 0) => 0,
        (0, _) => DIFFERENT,
        _ => TROUBLE,
    };
    compared?;
    if *json {
        output.json(&Value::Array(values))?;
    }
    // The output is flushed here, so that `run` turns an error of standard output into the status `TROUBLE`.
    Ok(output.flush()?)
}

/// Prints a difference in the words of diff(1).
fn print(left: &Place, right: &Place, found: &Found<'_>, output: &mut Output) -> Result<()> {
    let only = |place: &Place, path: &Path, output: &mut Output| {
        write!(output, "Only in ")?;
        name(&place.join(path.parent().unwrap_or(path)), output)?;
        write!(output, ": ")?;
        output.name(path.file_name().unwrap_or_default().as_bytes())?;
        writeln!(output)
    };
    match &found.difference {
        Difference::OnlyLeft => only(left, found.path, output)?,
        Difference::OnlyRight => only(right, found.path, output)?,
        Difference::Both(what) => {
            name(&left.join(found.path), output)?;
            write!(output, " and ")?;
            name(&right.join(found.path), output)?;
            writeln!(output, " differ: {}", what.join(", "))?;
        }
    }
    Ok(())
}

fn name(place: &Place, output: &mut Output) -> std::io::Result<()> {
    match place {
        Place::Host(path) => output.name(path.as_os_str().as_bytes()),
        Place::Inside(inside) => output.place(inside),
    }
}

fn json_of(found: &Found<'_>) -> Value {
    let mut value = match &found.difference {
        Difference::OnlyLeft => json!({ "only_in": "first" }),
        Difference::OnlyRight => json!({ "only_in": "second" }),
        Difference::Both(what) => json!({ "differ": what }),
    };
    json_name(&mut value, "path", found.path.as_os_str().as_bytes());
    value
}
