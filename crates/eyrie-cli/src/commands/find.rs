//! `eyrie find`: finds files by name, type, size or time.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use eyrie::{Files, Kind, PosixExt, Stat, Time, WalkEntry, WalkStep};
use globset::{GlobBuilder, GlobMatcher};
use serde_json::Value;

use crate::failure::{Doing, Result, Skipped, with_earlier};
use crate::opened::with_volumes;
use crate::output::{Output, json_name, json_stat};
use crate::place::{Inside, Place};
use crate::{interrupt, text};

/// Nanoseconds in a second.
const SECOND: i128 = 1_000_000_000;
/// Nanoseconds in a day.
const DAY: i128 = 86_400 * SECOND;

/// Find files by name, type, size or time
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie find vol:/ --name '*.rs'
  eyrie find vol:/share --type f --size +1M
  eyrie find vol:/ --type d --empty
  eyrie find vol:/ --path '*/doc/*' --mtime -7 --json
  eyrie find vol:/tmp --type f --mtime +30 -0 | xargs -0 eyrie rm

An entry is shown if it meets all conditions. A GLOB must match the whole name (--name) or the whole path in \
the volume (--path): * matches any bytes, ? one byte, [a-z] one byte of a range, {a,b} one of the words, and \
\\ makes the next character literal. N means exactly N, +N more than N, -N less than N.")]
pub struct FindArgs {
    /// File or directory to search
    #[arg(value_name = "VOLUME:/path", value_parser = Place::parser())]
    place: Place,
    /// Show only entries whose name matches GLOB
    #[arg(long, value_name = "GLOB", value_parser = |glob: &str| parse_glob(glob, false))]
    name: Vec<GlobMatcher>,
    /// Like --name, but ignore the case of ASCII letters
    #[arg(long, value_name = "GLOB", value_parser = |glob: &str| parse_glob(glob, true))]
    iname: Vec<GlobMatcher>,
    /// Show only entries whose path in the volume matches GLOB
    #[arg(long, value_name = "GLOB", value_parser = |glob: &str| parse_glob(glob, false))]
    path: Vec<GlobMatcher>,
    /// Show only entries of these types: f file, d directory, l symbolic link, p pipe, s socket, c character
    /// device, b block device; separate several types by commas
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = kind())]
    #[arg(hide_possible_values = true)]
    kinds: Vec<Kind>,
    /// Show only entries of this size in bytes, or with a unit: k, M or G, powers of 1024
    #[arg(long, value_name = "[+-]N[kMG]", value_parser = Bound::parse_size, allow_hyphen_values = true)]
    size: Option<Bound>,
    /// Show only entries modified this number of whole days ago
    #[arg(long, value_name = "[+-]N", value_parser = Bound::parse_days, allow_hyphen_values = true)]
    mtime: Option<Bound>,
    /// Show only entries modified later than the file PLACE of a volume or of the host
    #[arg(long, value_name = "PLACE", value_parser = Place::parser())]
    newer: Option<Place>,
    /// Show only empty files and empty directories
    #[arg(long)]
    empty: bool,
    /// Search at most this many levels below the argument, which has level 0 [default: no limit]
    #[arg(long, value_name = "LEVELS", default_value_t = usize::MAX, hide_default_value = true)]
    max_depth: usize,
    /// Show only entries at least this many levels below the argument [default: 0]
    #[arg(long, value_name = "LEVELS", default_value_t = 0, hide_default_value = true)]
    min_depth: usize,
    /// End each path with a NUL byte instead of a newline
    #[arg(long, short = '0', conflicts_with = "json")]
    print0: bool,
    /// Print a JSON array of entries
    #[arg(long)]
    json: bool,
}

/// The conditions, and the values with which they compare.
struct Conditions<'a> {
    arguments: &'a FindArgs,
    newer: Option<Time>,
    /// The time of the search, in nanoseconds since 1970.
    now: i128,
    /// True if a condition or the output needs the attributes of entries.
    need_attributes: bool,
}

/// The result of the conditions for an entry.
enum Answer {
    /// A condition does not hold.
    No,
    /// All conditions hold. The value is the attributes of the entry, if they were read.
    Yes(Option<Stat>),
}

/// The output of the entries that meet all conditions.
struct Matches<'a> {
    output: &'a mut Output,
    json: bool,
    print0: bool,
    values: Vec<Value>,
}

pub fn run(arguments: FindArgs, output: &mut Output) -> Result<()> {
    interrupt::install();
    let inside = arguments.place.clone().inside_or_root();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
    let mut matches = Matches { output, json: arguments.json, print0: arguments.print0, values: Vec::new() };
    let FindArgs { size, mtime, newer, empty, json, .. } = &arguments;
    let need_attributes = size.is_some() || mtime.is_some() || newer.is_some() || *empty || *json;
    let mut skipped = Skipped::default();
    let searched = with_volumes([], |volumes| {
        let newer = newer.as_ref().map(|place| volumes.stat(place)).transpose()?.map(|stat| stat.modified);
        let conditions = Conditions { arguments: &arguments, newer, now, need_attributes };
        search(&volumes.files(&inside.volume)?, &inside, &conditions, &mut matches, &mut skipped)
    });
    let printed = searched.and_then(|()| matches.finish());
    with_earlier(printed, skipped.finish("not everything was read", inside))
}

fn search(
    files: &Files,
    inside: &Inside,
    conditions: &Conditions<'_>,
    matches: &mut Matches<'_>,
    skipped: &mut Skipped,
) -> Result<()> {
    let mut walk = files.walk(&inside.path).doing("find", inside)?;
    let mut place = inside.clone();
    while let Some(step) = walk.next() {
        interrupt::check("find")?;
        match step {
            WalkStep::Left(_) => {}
            WalkStep::Failed(relative, error) => skipped.add(inside.join(relative), &error),
            WalkStep::Entry(entry) => {
                if entry.depth >= conditions.arguments.max_depth {
                    walk.prune();
                }
                place.move_to(inside, &entry.relative);
                match conditions.check(&place.path, &entry) {
                    Ok(Answer::No) => {}
                    Ok(Answer::Yes(stat)) => matches.add(&place, stat)?,
                    Err(error) => {
                        // The entries below this one cannot be read, either. One report is enough.
                        walk.prune();
                        skipped.add(&place, &error);
                    }
                }
            }
        }
    }
    Ok(())
}

impl Matches<'_> {
    fn add(&mut self, place: &Inside, stat: Option<Stat>) -> Result<()> {
        if let Some(stat) = stat.filter(|_| self.json) {
            let mut value = json_stat(&stat);
            json_name(&mut value, "path", place.path.as_os_str().as_bytes());
            self.values.push(value);
            return Ok(());
        }
        self.output.place(place)?;
        Ok(self.output.write_all(if self.print0 { b"\0" } else { b"\n" })?)
    }

    fn finish(self) -> Result<()> {
        if self.json { self.output.json(&Value::Array(self.values)) } else { Ok(()) }
    }
}

impl Conditions<'_> {
    /// Checks the conditions for the entry at `path`.
    fn check(&self, path: &Path, entry: &WalkEntry<Files>) -> eyrie::Result<Answer> {
        let is_named = self.hold_for_name(path, entry);
        // The attributes of an entry cost more than its name. So, except for directories, they are read only
        // if a condition or the output needs them. The attributes of a directory are always read, because a
        // damaged directory must be reported before the walk enters it.
        if entry.kind != Kind::Directory && !(is_named && self.need_attributes) {
            return Ok(if is_named { Answer::Yes(None) } else { Answer::No });
        }
        let stat = entry.stat()?;
        let holds = is_named && self.hold_for_attributes(&stat) && self.hold_for_content(entry, &stat)?;
        Ok(if holds { Answer::Yes(Some(stat)) } else { Answer::No })
    }

    /// Returns true if the conditions on level, type, name and path hold. These conditions need no attributes
    /// of the entry.
    fn hold_for_name(&self, path: &Path, entry: &WalkEntry<Files>) -> bool {
        let FindArgs { name, iname, path: paths, kinds, min_depth, .. } = self.arguments;
        // The root has no name of its own.
        let base = || path.file_name().unwrap_or(OsStr::new("/"));
        entry.depth >= *min_depth
            && (kinds.is_empty() || kinds.contains(&entry.kind))
            && name.iter().chain(iname).all(|glob| glob.is_match(base()))
            && paths.iter().all(|glob| glob.is_match(path))
    }

    fn hold_for_attributes(&self, stat: &Stat) -> bool {
        let FindArgs { size, mtime, .. } = self.arguments;
        size.is_none_or(|bound| bound.holds(stat.size.into()))
            && mtime.is_none_or(|bound| bound.holds(days_since(stat.modified, self.now)))
            && self.newer.is_none_or(|time| stat.modified > time)
    }

    fn hold_for_content(&self, entry: &WalkEntry<Files>, stat: &Stat) -> eyrie::Result<bool> {
        Ok(!self.arguments.empty || is_empty(entry, stat)?)
    }
}

/// Returns the number of whole days from `time` to `now`, which is in nanoseconds since 1970.
fn days_since(time: Time, now: i128) -> i128 {
    let time = i128::from(time.seconds) * SECOND + i128::from(time.nanoseconds);
    (now - time).div_euclid(DAY)
}

/// Returns true for a file without bytes, and for a directory without entries.
fn is_empty(entry: &WalkEntry<Files>, stat: &Stat) -> eyrie::Result<bool> {
    match stat.kind {
        Kind::File => Ok(stat.size == 0),
        Kind::Directory => Ok(entry.dir().read_dir(entry.name())?.next().transpose()?.is_none()),
        _ => Ok(false),
    }
}

/// Result of parsing an argument, with a reason for the user.
type ParseResult<T> = std::result::Result<T, String>;

/// A condition on a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bound {
    /// `N`.
    Exactly(u64),
    /// `+N`.
    More(u64),
    /// `-N`.
    Less(u64),
}

impl Bound {
    fn parse(argument: &str, number: impl Fn(&str) -> ParseResult<u64>) -> ParseResult<Bound> {
        if let Some(digits) = argument.strip_prefix('+') {
            number(digits).map(Bound::More)
        } else if let Some(digits) = argument.strip_prefix('-') {
            number(digits).map(Bound::Less)
        } else {
            number(argument).map(Bound::Exactly)
        }
    }

    fn parse_size(argument: &str) -> ParseResult<Bound> {
        Bound::parse(argument, text::parse_bytes)
    }

    fn parse_days(argument: &str) -> ParseResult<Bound> {
        Bound::parse(argument, |digits| {
            digits.parse().map_err(|_| "days are written like 7, +7 or -7".to_owned())
        })
    }

    /// Returns true if `number` is within the bound.
    fn holds(self, number: i128) -> bool {
        match self {
            Bound::Exactly(bound) => number == i128::from(bound),
            Bound::More(bound) => number > i128::from(bound),
            Bound::Less(bound) => number < i128::from(bound),
        }
    }
}

fn parse_glob(glob: &str, any_case: bool) -> ParseResult<GlobMatcher> {
    let mut builder = GlobBuilder::new(glob);
    builder.case_insensitive(any_case).backslash_escape(true).literal_separator(false);
    builder.build().map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
}

/// Parses the letters of `--type`.
fn kind() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(["f", "d", "l", "p", "s", "c", "b"]).map(|letter| match letter.as_str() {
        "d" => Kind::Directory,
        "l" => Kind::Symlink,
        "p" => Kind::Fifo,
        "s" => Kind::Socket,
        "c" => Kind::CharDevice,
        "b" => Kind::BlockDevice,
        _ => Kind::File,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_parsed_with_signs() {
        assert_eq!(Bound::parse_size("0"), Ok(Bound::Exactly(0)));
        assert_eq!(Bound::parse_size("+1k"), Ok(Bound::More(1024)));
        assert_eq!(Bound::parse_size("-1.5M"), Ok(Bound::Less(3 << 19)));
        assert_eq!(Bound::parse_days("-7"), Ok(Bound::Less(7)));
        for wrong in ["", "+", "--1", "1X", "+-1"] {
            assert!(Bound::parse_size(wrong).is_err() && Bound::parse_days(wrong).is_err(), "{wrong}");
        }
        assert!(Bound::Less(1).holds(-1) && Bound::Less(1).holds(0) && !Bound::Less(1).holds(1));
        assert!(Bound::More(1).holds(2) && !Bound::More(1).holds(1) && Bound::Exactly(1).holds(1));
    }

    #[test]
    fn day_that_is_not_over_does_not_count() {
        let now = 100 * DAY + SECOND / 10;
        let days = |seconds, nanoseconds| days_since(Time::new(seconds, nanoseconds), now);
        // The first time is 0.1 seconds less than a day ago, although its second is a day ago.
        assert_eq!((days(99 * 86_400, 200_000_000), days(99 * 86_400, 0)), (0, 1));
        assert_eq!((days(100 * 86_400, 0), days(100 * 86_400 + 1, 0), days(-1, 0)), (0, -1, 100));
        assert!(days(i64::MIN, 0) > 0 && days(i64::MAX, 999_999_999) < 0);
    }

    #[test]
    fn globs_match_bytes() {
        use std::os::unix::ffi::OsStrExt;
        let fits = |glob: &str, any_case: bool, name: &[u8]| {
            parse_glob(glob, any_case).unwrap().is_match(std::ffi::OsStr::from_bytes(name))
        };
        assert!(fits("*.rs", false, b".hidden.rs") && !fits("*.rs", false, b"main.RS"));
        assert!(fits("*.rs", true, b"main.RS"));
        assert!(fits("*\\*", false, b"\xff\n\xfe*") && !fits("*\\*", false, b"x"));
        assert!(fits("caf?", false, b"caf\xe9") && fits("é?", false, "éx".as_bytes()));
        assert!(fits("/a/*", false, b"/a/b/c") && !fits("/a/*", false, b"/b/a/c"));
        assert!(fits("[!a-c]{x,yz}", false, b"dyz") && !fits("[!a-c]{x,yz}", false, b"ax"));
        assert!(parse_glob("[", false).is_err());
    }
}
