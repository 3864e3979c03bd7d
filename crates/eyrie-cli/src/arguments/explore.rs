//! Arguments of `explore`, `trace` and `replay`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use eyrie_sim::explore::trace::Loss;
use eyrie_sim::explore::{Again, Ground, Link, Rule};

use crate::text;

/// What the help of `explore` ends with.
pub const EXPLORE_HELP: &str = "\
Examples:
  eyrie explore --script calls.txt
  eyrie explore --script calls.txt --close --json > report.json
  eyrie explore --time 60s
  eyrie explore --faults --script calls.txt
  eyrie explore --exhaustive --json > report.json
  eyrie explore --medium paged --script calls.txt
  eyrie explore --script calls.txt --beside others.txt --seed 7
  eyrie explore --medium paged --script calls.txt --kills 20

The script runs on an empty volume in memory; docs/crash-model.md has its calls. Power fails before every fence of every \
call, and every image that recovery can tell apart is opened: each must be sound, usable, and hold what it held before the call \
or after it; on a disk, what it held since the last sync. Without a script, built-in ones are explored: each call by itself, also in a \
full volume, what grows and shrinks, batches, tight volumes whose storage is used again, journals that start over, two threads, \
two calls, three calls, and random ones.

Processes are killed, too, at some moments of the script (--kills): the next process reads what was visible, durable or not, and \
goes on with the script. It may be killed in turn, while it recovers or later. Then power fails.

With --faults the host fails instead of the power, at each place where a call asks it for something: the call must then fail \
whole with ENOSPC or EIO, or succeed, and the volume go on. With --medium paged it is the disk that fails, in a call or in the \
sync after it; what it could not make durable makes the volume read-only. Failures and what the calls gave are listed by place.

Exit status: 0 nothing was lost, 1 something was: the image can be replayed with what is printed, and a shorter script that \
fails is printed, too, if there is one. 2 wrong arguments, or not a script.";

/// See [`super::Command::Explore`].
#[derive(Debug, Args)]
pub struct Explore {
    /// The script whose crashes to explore; - reads it from standard input
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// A script that makes what the volume has before
    #[arg(long, value_name = "FILE", requires = "script")]
    pub start: Option<PathBuf>,
    /// A script that a second thread runs at the same time
    #[arg(long, value_name = "FILE", requires = "script", conflicts_with_all = ["close", "exhaustive", "faults", "fault"])]
    pub beside: Option<PathBuf>,
    /// Which of the two threads goes on when, as a number
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "beside")]
    pub seed: u64,
    /// Stop after this long, such as 60s, 5m or 2h [default: 60s without a script, else no end]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub time: Option<Duration>,
    /// Every call, every two calls, and a thousand each of three calls, random calls and two threads, however long it takes
    #[arg(long, conflicts_with_all = ["script", "time"])]
    pub exhaustive: bool,
    /// Explore only this part of the built-in scripts, such as 2/4: the second of four parts. Several processes, or several
    /// runs, then explore different scripts
    #[arg(long, value_name = "PART/PARTS", value_parser = part, conflicts_with_all = ["script", "faults"])]
    pub part: Option<Part>,
    /// Size of the volume in memory
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = text::parse_size)]
    pub size: u64,
    /// What the volume is on: persistent memory, which loses lines of 64 bytes, or a page cache over a disk, which loses sectors
    /// of 512
    #[arg(long, value_enum, default_value_t = ExploredMedium::Pmem)]
    pub medium: ExploredMedium,
    /// Size of the journal of a disk [default: what the volume's size says]
    #[arg(long, value_name = "SIZE", value_parser = text::parse_size, requires = "script")]
    pub journal: Option<u64>,
    /// Images of one crash that are opened one after the other, at most [default: 200000, of a disk 64]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub images: Option<u64>,
    /// Images that are opened besides, at random, where there are more
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub samples: u64,
    /// Images of one crash whose recovery is crashed, too
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub recoveries: u64,
    /// Moments of each process at which it is killed. The next process opens what is visible and goes on. Up to three are killed
    /// in a row, then power fails
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    pub kills: u64,
    /// Close the volume after the last call, and explore the crashes of that, too
    #[arg(long)]
    pub close: bool,
    /// Leave out the fence, publish or checksum at this place of the sources, such as src/redo.rs:106: something should then
    /// be lost
    #[arg(long, value_name = "FILE:LINE")]
    pub without: Option<String>,
    /// Let each call meet, one at a time, every failure that its host may have: no room, or an error of input and output
    #[arg(long, conflicts_with_all = ["without", "exhaustive", "replay", "close"])]
    pub faults: bool,
    /// Only this failure, as one that something is wrong after is told
    #[arg(long, value_name = "ERRNO KIND FILE:LINE COUNT", requires = "script", conflicts_with_all = ["without", "replay", "close"])]
    pub fault: Option<String>,
    /// Only this image, as a failure tells it: events before the crash, and picks; the same of a crash in its recovery; before them
    /// the ends of earlier processes, such as k12 for one that was killed after 12 events
    #[arg(long, value_name = "[kEVENTS/...]EVENTS:PICKS[/EVENTS:PICKS]", requires = "script", value_parser = image)]
    pub replay: Option<Image>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Break each rule of docs/rules.md in turn, in a process of its own: some built-in run must notice
    #[cfg(feature = "mutants")]
    #[arg(long, conflicts_with_all = ["script", "faults", "without", "exhaustive", "size", "medium", "images"])]
    pub mutants: bool,
    /// Break only this rule
    #[cfg(feature = "mutants")]
    #[arg(long, value_name = "RULE", requires = "mutants")]
    pub only: Vec<String>,
    /// Break this rule in this process, and tell what became of it
    #[cfg(feature = "mutants")]
    #[arg(long, value_name = "RULE", hide = true, conflicts_with = "mutants")]
    pub mutant: Option<String>,
}

/// What the volume of an exploration is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExploredMedium {
    /// Persistent memory
    Pmem,
    /// A page cache over a disk
    Paged,
}

impl ExploredMedium {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ExploredMedium::Pmem => "pmem",
            ExploredMedium::Paged => "paged",
        }
    }

    /// What a failure of power leaves of it.
    pub fn rule(self) -> Rule {
        match self {
            ExploredMedium::Pmem => Rule::Lines,
            ExploredMedium::Paged => Rule::Sectors,
        }
    }
}

impl Explore {
    /// The ground of the volume.
    pub fn ground(&self) -> Ground {
        Ground { rule: self.medium.rule(), bytes: self.size, journal_bytes: self.journal }
    }
}

/// One of several equal parts of the built-in scripts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The number of this part, from 0.
    pub index: usize,
    /// The number of parts (a count).
    pub count: usize,
}

/// An image of a crash.
#[derive(Clone, Debug)]
pub struct Image {
    /// Processes before the one that power failed in, where the first was killed.
    pub links: Vec<Link>,
    /// Events before the crash (a count).
    pub after: usize,
    /// Which of its contents each line had that was looked at.
    pub picks: Vec<usize>,
    /// A crash in its recovery.
    pub again: Option<Again>,
}

/// See [`super::Command::Trace`].
#[derive(Debug, Args)]
pub struct Trace {
    /// The script; - reads it from standard input
    #[arg(value_name = "SCRIPT")]
    pub script: PathBuf,
    /// Where to write the trace; without it, to standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Size of the volume in memory
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = text::parse_size)]
    pub size: u64,
}

/// See [`super::Command::Replay`].
#[derive(Debug, Args)]
pub struct Replay {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Events that came before the crash (a count)
    #[arg(long, value_name = "EVENTS")]
    pub until: usize,
    /// Lines of which the crash loses what was not fenced; with :KEPT, all but so many stores
    #[arg(long, value_name = "OFFSET[:KEPT]", value_delimiter = ',', value_parser = loss)]
    pub drop: Vec<Loss>,
    /// The volume to make; there must be none
    #[arg(long, short, value_name = "VOLUME")]
    pub output: PathBuf,
}

fn time(word: &str) -> Result<Duration, String> {
    let (digits, unit) = word.split_at(word.len() - word.chars().last().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    let time = seconds.and_then(|seconds| digits.parse::<u64>().ok()?.checked_mul(seconds));
    time.map(Duration::from_secs).ok_or_else(|| "times are written like 60s, 5m or 2h".to_string())
}

fn part(word: &str) -> Result<Part, String> {
    let numbers =
        word.split_once('/').and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
    match numbers {
        Some((part, count)) if (1..=count).contains(&part) => Ok(Part { index: part - 1, count }),
        _ => Err("a part is written like 2/4".to_string()),
    }
}

fn image(word: &str) -> Result<Image, String> {
    fn one(word: &str) -> Option<Again> {
        let (after, picks) = word.split_once(':')?;
        let picks = picks.split(',').filter(|pick| !pick.is_empty()).map(|pick| pick.parse().ok());
        Some(Again { after: after.parse().ok()?, picks: picks.collect::<Option<_>>()? })
    }
    fn link(word: &str) -> Option<Link> {
        if let Some(after) = word.strip_prefix('k') {
            return Some(Link::Kill { after: after.parse().ok()? });
        }
        one(word).map(|Again { after, picks }| Link::Power { after, picks })
    }
    let parse = || {
        let words: Vec<&str> = word.split('/').collect();
        if word.starts_with('k') {
            let (last, links) = words.split_last()?;
            let Again { after, picks } = one(last)?;
            let links = links.iter().map(|word| link(word)).collect::<Option<_>>()?;
            return Some(Image { links, after, picks, again: None });
        }
        let (first, again) = match words[..] {
            [first] => (first, None),
            [first, again] => (first, Some(one(again)?)),
            _ => return None,
        };
        let Again { after, picks } = one(first)?;
        Some(Image { links: Vec::new(), after, picks, again })
    };
    parse().ok_or_else(|| "an image is written like 123:0,1,0".to_string())
}

fn loss(word: &str) -> Result<Loss, String> {
    let parse = || {
        let (offset, kept) = word.split_once(':').unwrap_or((word, "0"));
        let digits = offset.strip_prefix("0x");
        let offset =
            digits.map_or_else(|| offset.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())?;
        Some(Loss { offset, kept: kept.parse().ok()? })
    };
    parse().ok_or_else(|| "lines are written like 0x1140 or 0x1140:2".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_images_and_lines_are_read() {
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(image("12:0,3").map(|image| (image.after, image.picks)), Ok((12, vec![0, 3])));
        assert_eq!(image("12:").map(|image| image.picks), Ok(vec![]));
        let again = image("12:0/3:1,2").map(|image| image.again);
        assert_eq!(again, Ok(Some(Again { after: 3, picks: vec![1, 2] })));
        let killed = image("k12/7:0,1/k3/5:2").map(|image| (image.links, image.after, image.picks));
        let kill = |after| Link::Kill { after };
        let links = vec![kill(12), Link::Power { after: 7, picks: vec![0, 1] }, kill(3)];
        assert_eq!(killed, Ok((links, 5, vec![2])));
        assert_eq!(part("2/4"), Ok(Part { index: 1, count: 4 }));
        for bad in ["", "2", "0/4", "5/4", "1/0", "-1/2", "1/2/3"] {
            assert!(part(bad).is_err(), "{bad}");
        }
        assert_eq!(loss("0x40:2"), Ok(Loss { offset: 64, kept: 2 }));
        assert_eq!(loss("64"), Ok(Loss { offset: 64, kept: 0 }));
        for bad in ["", "5", "m", "5d", "-1s", "99999999999999999999s", "18446744073709551615h", "5\u{e9}"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        for bad in
            ["", "12", ":1", "12:x", "-1:0", "1:0/", "1:0/2", "1:0/2:0/3:0", "k1", "k1/", "k/1:0", "k1/2/3:0"]
        {
            assert!(image(bad).is_err(), "{bad}");
        }
        for bad in ["", "0x", "0xg", "1:x", ":1"] {
            assert!(loss(bad).is_err(), "{bad}");
        }
    }
}
