//! `eyrie truncate`: sets the sizes of files.

use clap::Args;
use eyrie::{Errno, Files, PosixExt};

use crate::failure::{Doing, Failure, Result};
use crate::opened::{volumes_of, with_volumes};
use crate::place::{self, Inside, Place};
use crate::text;

/// Set the sizes of files, and make files that are missing
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie truncate -s 0 vol:/log
  eyrie truncate -s 10G vol:/disk
  eyrie truncate -c -s -1K vol:/file
  eyrie truncate -r disk.img vol:/disk
  eyrie truncate -r vol:/a -s %4K vol:/b

A file that grows gets a hole, which takes no space. SIZE may begin with + or - (relative to the size), < \
(at most), > (at least), / (round down to a multiple) or % (round up). With -r, SIZE is relative to the size \
of PLACE.")]
pub struct TruncateArgs {
    /// Files to change
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// New size, such as 4G, 512M, 0 or +1K
    #[arg(long, short, value_name = "SIZE", value_parser = NewSize::parse, allow_hyphen_values = true)]
    #[arg(required_unless_present = "reference")]
    size: Option<NewSize>,
    /// Use the size of the file PLACE of a volume or of the host
    #[arg(long, short, value_name = "PLACE", value_parser = Place::parser())]
    reference: Option<Place>,
    /// Do not make missing files
    #[arg(long, short = 'c')]
    no_create: bool,
}

/// The new size of a file.
#[derive(Clone, Copy, Debug)]
struct NewSize {
    rule: Rule,
    bytes: u64,
}

/// The relation of the new size to the old size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    Exact,
    Extend,
    Reduce,
    AtMost,
    AtLeast,
    RoundDown,
    RoundUp,
}

impl NewSize {
    fn parse(argument: &str) -> std::result::Result<NewSize, String> {
        let rules = [
            ('+', Rule::Extend),
            ('-', Rule::Reduce),
            ('<', Rule::AtMost),
            ('>', Rule::AtLeast),
            ('/', Rule::RoundDown),
            ('%', Rule::RoundUp),
        ];
        let found = rules.iter().find(|(sign, _)| argument.starts_with(*sign));
        let (rule, digits) = found.map_or((Rule::Exact, argument), |(_, rule)| (*rule, &argument[1..]));
        let bytes = text::parse_bytes(digits)?;
        match rule {
            Rule::RoundDown | Rule::RoundUp if bytes == 0 => {
                Err("a size cannot be rounded to a multiple of 0".to_owned())
            }
            _ => Ok(NewSize { rule, bytes }),
        }
    }

    /// Returns the new size of a file of `size` bytes, or `None` if the new size is too large.
    fn of(self, size: u64) -> Option<u64> {
        let bytes = self.bytes;
        match self.rule {
            Rule::Exact => Some(bytes),
            Rule::Extend => size.checked_add(bytes),
            Rule::Reduce => Some(size.saturating_sub(bytes)),
            Rule::AtMost => Some(size.min(bytes)),
            Rule::AtLeast => Some(size.max(bytes)),
            Rule::RoundDown => Some(size - size % bytes),
            Rule::RoundUp => size.checked_next_multiple_of(bytes),
        }
    }
}

pub fn run(arguments: TruncateArgs) -> Result<()> {
    let places = place::all_inside(&arguments.places)?;
    let create = !arguments.no_create;
    let NewSize { rule, bytes } = arguments.size.unwrap_or(NewSize { rule: Rule::Extend, bytes: 0 });
    with_volumes(volumes_of(&places), |volumes| {
        let size = match &arguments.reference {
            None => NewSize { rule, bytes },
            Some(place) if rule == Rule::Exact => {
                let why = "with --reference a size must begin with one of + - < > / %";
                return Err(Failure::usage("not relative", place, why));
            }
            Some(place) => {
                let bytes = NewSize { rule, bytes }.of(volumes.stat(place)?.size);
                let bytes = bytes.ok_or_else(|| too_large(place))?;
                NewSize { rule: Rule::Exact, bytes }
            }
        };
        volumes.for_each(&places, |files, inside| truncate(files, inside, size, create))
    })
}

fn too_large(place: impl std::fmt::Display) -> Failure {
    Failure::new("cannot set the size of", place, "the new size is too large")
}

fn truncate(files: &Files, inside: &Inside, size: NewSize, create: bool) -> Result<()> {
    let file = match files.options().write(true).create(create).mode(0o666).open(&inside.path) {
        Err(error) if error.errno() == Errno::NOENT && !create => return Ok(()),
        opened => opened.doing("open", inside)?,
    };
    let before = file.metadata().doing("stat", inside)?.size;
    let after = size.of(before).ok_or_else(|| too_large(inside))?;
    file.set_len(after).doing("set the size of", inside)?;
    file.close().doing("close", inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_relative_to_the_size_before() {
        for (argument, before, after) in [
            ("7", 10, Some(7)),
            ("0", 10, Some(0)),
            ("+2k", 10, Some(2058)),
            ("-4", 10, Some(6)),
            ("-40", 10, Some(0)),
            ("<4", 10, Some(4)),
            ("<40", 10, Some(10)),
            (">4", 10, Some(10)),
            (">40", 10, Some(40)),
            ("/4", 10, Some(8)),
            ("%4", 10, Some(12)),
            ("%4", 12, Some(12)),
            ("+1", u64::MAX, None),
        ] {
            assert_eq!(NewSize::parse(argument).unwrap().of(before), after, "{argument} of {before}");
        }
        for wrong in ["", "+", "x", "%0", "/0", "--1"] {
            assert!(NewSize::parse(wrong).is_err(), "{wrong}");
        }
    }
}
