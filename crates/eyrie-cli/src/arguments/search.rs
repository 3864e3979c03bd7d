//! Arguments of `find` and `du`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args};
use eyrie::Kind;
use globset::{GlobBuilder, GlobMatcher};

use super::place;
use crate::place::Place;
use crate::text;

/// See [`Command::Find`](super::Command::Find).
#[derive(Debug, Args)]
pub struct Find {
    /// Where to begin
    #[arg(value_name = "VOLUME:/path", value_parser = place())]
    pub place: Place,
    /// The name fits GLOB
    #[arg(long, value_name = "GLOB", value_parser = |glob: &str| parse_glob(glob, false))]
    pub name: Vec<GlobMatcher>,
    /// As --name, whatever the case of ASCII letters
    #[arg(long, value_name = "GLOB", value_parser = |glob: &str| parse_glob(glob, true))]
    pub iname: Vec<GlobMatcher>,
    /// The path in the volume fits GLOB
    #[arg(long, value_name = "GLOB", value_parser = |glob: &str| parse_glob(glob, false))]
    pub path: Vec<GlobMatcher>,
    /// f file, d directory, l symbolic link, p pipe, s socket, c or b device; several as f,l
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = kind(), hide_possible_values = true)]
    pub kinds: Vec<Kind>,
    /// The size in bytes, or with k, M or G in units of 1024
    #[arg(long, value_name = "[+-]N[kMG]", value_parser = Bound::parse_size, allow_hyphen_values = true)]
    pub size: Option<Bound>,
    /// Days since it was modified, whole ones
    #[arg(long, value_name = "[+-]N", value_parser = Bound::parse_days, allow_hyphen_values = true)]
    pub mtime: Option<Bound>,
    /// Modified later than this file of a volume or of the host
    #[arg(long, value_name = "PLACE", value_parser = place())]
    pub newer: Option<Place>,
    /// Files without bytes, directories without entries
    #[arg(long)]
    pub empty: bool,
    /// Levels to go down; 0 is what was named itself
    #[arg(long, value_name = "LEVELS", default_value_t = usize::MAX, hide_default_value = true)]
    pub max_depth: usize,
    /// Levels to pass over
    #[arg(long, value_name = "LEVELS", default_value_t = 0, hide_default_value = true)]
    pub min_depth: usize,
    /// End each path with a NUL byte instead of a newline
    #[arg(long, short = '0', conflicts_with = "json")]
    pub print0: bool,
    /// Print JSON, one array of entries
    #[arg(long)]
    pub json: bool,
}

/// See [`Command::Du`](super::Command::Du).
#[derive(Debug, Args)]
pub struct Du {
    /// What to look at
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = place())]
    pub places: Vec<Place>,
    /// Only a line for each that was named
    #[arg(long, short, conflicts_with_all = ["all", "max_depth"])]
    pub summarize: bool,
    /// Sizes as 1.5K or 20M
    #[arg(long, short = 'h')]
    pub human_readable: bool,
    /// Lines for files too
    #[arg(long, short)]
    pub all: bool,
    /// Levels to show; all are counted
    #[arg(long, short = 'd', value_name = "LEVELS", default_value_t = usize::MAX, hide_default_value = true)]
    pub max_depth: usize,
    /// The sizes of files, not the space that they take
    #[arg(long)]
    pub apparent_size: bool,
    /// A line with the total at the end
    #[arg(long, short = 'c')]
    pub total: bool,
    /// Print JSON, in bytes
    #[arg(long, conflicts_with = "human_readable")]
    pub json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: (),
}

/// A number that is to be met, passed or not reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// `N`.
    Exactly(u64),
    /// `+N`.
    More(u64),
    /// `-N`.
    Less(u64),
}

impl Bound {
    fn parse(argument: &str, number: impl Fn(&str) -> Result<u64, String>) -> Result<Bound, String> {
        if let Some(digits) = argument.strip_prefix('+') {
            number(digits).map(Bound::More)
        } else if let Some(digits) = argument.strip_prefix('-') {
            number(digits).map(Bound::Less)
        } else {
            number(argument).map(Bound::Exactly)
        }
    }

    fn parse_size(argument: &str) -> Result<Bound, String> {
        Bound::parse(argument, text::parse_bytes)
    }

    fn parse_days(argument: &str) -> Result<Bound, String> {
        Bound::parse(argument, |digits| {
            digits.parse().map_err(|_| "days are written like 7, +7 or -7".to_owned())
        })
    }

    /// Whether `number` is within.
    pub fn holds(self, number: i128) -> bool {
        match self {
            Bound::Exactly(bound) => number == i128::from(bound),
            Bound::More(bound) => number > i128::from(bound),
            Bound::Less(bound) => number < i128::from(bound),
        }
    }
}

fn parse_glob(glob: &str, any_case: bool) -> Result<GlobMatcher, String> {
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
    fn bounds_are_signs_and_numbers() {
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
    fn globs_are_matched_byte_by_byte() {
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
