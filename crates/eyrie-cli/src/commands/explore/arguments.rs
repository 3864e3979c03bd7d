//! The arguments of `eyrie explore`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use eyrie_sim::explore::{CrashRule, ProcessEnd, RecoveryCrash, RunMedium};

use crate::text;

/// The end of the help text.
const HELP: &str = "\
Examples:
  eyrie explore --script calls.txt
  eyrie explore --script calls.txt --close --json > report.json
  eyrie explore --time 60s
  eyrie explore --faults --script calls.txt
  eyrie explore --exhaustive --json > report.json
  eyrie explore --medium paged --script calls.txt
  eyrie explore --script calls.txt --beside others.txt --seed 7
  eyrie explore --medium paged --script calls.txt --kills 20

The script runs on an empty volume in memory. docs/scripts.md describes scripts. A power failure is \
simulated before every fence of every call. The images that recovery can tell apart are opened, up to the \
limits --images and --samples. Each image must be sound and usable, and hold the state before or after the \
call (or only the new times of a write), or on a disk a state since the last sync. Without --script, \
built-in scripts are explored: each call by itself (also in a full volume), growth, batches, reuse of \
storage, full journals, two threads, sequences of two and three calls, and random calls.

The process is also killed at some moments of the script (--kills). The next process reads all visible \
stores, durable or not, and continues the script. It may be killed in turn, even in its recovery. At the \
end the power fails.

With --faults, accesses to the host fail instead: the first, the second or the last access of a source \
line, alone or with all later accesses of the line. The call must succeed, or fail with the error of the \
access. A call that fails must change nothing, unless the access came after its change. The volume must \
stay usable. With --medium paged the disk fails, in a call or in the next sync. A failed sync makes the \
volume read-only, so later calls fail with EROFS. The results are listed by the source line of the access.

Exit status: 0 no error was found, 1 an error was found, 2 wrong arguments or not a script, 3 a file does \
not exist, 130 interrupted. For an error, the command that repeats it is printed, and a shorter script that \
also fails, if there is one.";

/// Simulate crashes at every fence of a script, and check the images
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ExploreArgs {
    /// Explore this script; - reads standard input [default: built-in scripts]
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Run this script first, to fill the volume
    #[arg(long, value_name = "FILE", requires = "script")]
    pub start: Option<PathBuf>,
    /// Run this script in a second thread at the same time
    #[arg(long, value_name = "FILE", requires = "script")]
    #[arg(conflicts_with_all = ["close", "exhaustive", "faults", "fault"])]
    pub beside: Option<PathBuf>,
    /// Seed of the order in which the two threads run
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "beside")]
    pub seed: u64,
    /// Stop after this time, such as 60s, 5m or 2h [default: 60s without --script, else no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub time: Option<Duration>,
    /// Explore every call, every pair of calls, and 1000 or more scripts of each kind whose list of scripts
    /// has no end, without a time limit
    #[arg(long, conflicts_with_all = ["script", "time"])]
    pub exhaustive: bool,
    /// Explore only one part of the built-in scripts, such as 2/4 for the second of four parts
    #[arg(long, value_name = "PART/PARTS", value_parser = parse_part)]
    #[arg(conflicts_with_all = ["script", "faults"])]
    pub part: Option<Part>,
    /// Size of the volume, such as 512K or 4M
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = text::parse_size)]
    pub size: u64,
    /// Medium of the volume
    #[arg(long, value_enum, default_value_t = ExploredMedium::Pmem)]
    pub medium: ExploredMedium,
    /// Size of the journal, with --medium paged [default: chosen from the size of the volume]
    #[arg(long, value_name = "SIZE", value_parser = text::parse_size, requires = "script")]
    pub journal: Option<u64>,
    /// Give the pages of the volume checksums, with --medium paged
    #[arg(long, requires = "script")]
    pub checksums: bool,
    /// Open the first images of each crash, at most this many [default: 200000, with --medium paged 64, and
    /// fewer for some built-in scripts]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub images: Option<u64>,
    /// Open this many more images, chosen at random, of a crash that has more images than --images allows
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub samples: u64,
    /// Explore a second crash in the recovery of this many images of each crash
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub recoveries: u64,
    /// Kill each process at this many moments; up to three processes in a row are killed or lose power before
    /// the last one
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    pub kills: u64,
    /// Close the volume after the last call, and explore crashes in the close, too
    #[arg(long)]
    pub close: bool,
    /// Leave out the point (fence, publish, checksum, flush or write) at this line of the sources, such as
    /// redo.rs:106, to test the explorer
    #[arg(long, value_name = "FILE:LINE")]
    pub without: Option<String>,
    /// Make accesses to the host fail with ENOSPC or EIO: the first, the second and the last access of each
    /// source line
    #[arg(long, conflicts_with_all = ["without", "exhaustive", "replay", "close"])]
    pub faults: bool,
    /// Make only this access fail; the table and the message about a failure show the value to use. COUNT+
    /// stands for all accesses from that number on. Without COUNT, the accesses of the line fail as with
    /// --faults
    #[arg(long, value_name = "ERRNO KIND FILE:LINE [COUNT[+]]", requires = "script")]
    #[arg(conflicts_with_all = ["without", "replay", "close"])]
    pub fault: Option<String>,
    /// Open only this image; the message about a failure shows the value to use
    #[arg(long, value_name = "[kEVENTS/...]EVENTS:PICKS[/EVENTS:PICKS]", requires = "script")]
    #[arg(value_parser = parse_image)]
    pub replay: Option<ImageArg>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Break each rule of docs/rules.md except those of threads and processes, each in a process of its own,
    /// and check that a built-in script notices
    #[cfg(feature = "mutants")]
    #[arg(long)]
    #[arg(conflicts_with_all = ["script", "faults", "without", "exhaustive", "size", "medium", "images"])]
    pub mutants: bool,
    /// Break only this rule; may be given several times
    #[cfg(feature = "mutants")]
    #[arg(long, value_name = "RULE", requires = "mutants")]
    pub only: Vec<String>,
    /// Break this rule in this process, and print the result
    #[cfg(feature = "mutants")]
    #[arg(long, value_name = "RULE", hide = true, conflicts_with = "mutants")]
    pub mutant: Option<String>,
}

/// The value of `--medium`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExploredMedium {
    /// Persistent memory: a crash loses lines of 64 bytes
    Pmem,
    /// A page cache over a disk: a crash loses sectors of 512 bytes
    Paged,
}

impl ExploredMedium {
    /// Returns the value as it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ExploredMedium::Pmem => "pmem",
            ExploredMedium::Paged => "paged",
        }
    }

    /// Returns the unit in which a power failure may lose stores.
    pub fn rule(self) -> CrashRule {
        match self {
            ExploredMedium::Pmem => CrashRule::Lines,
            ExploredMedium::Paged => CrashRule::Sectors,
        }
    }
}

impl ExploreArgs {
    /// Returns the medium of the volume, and the sizes of the volume and its journal.
    pub fn medium(&self) -> RunMedium {
        RunMedium {
            rule: self.medium.rule(),
            bytes: self.size,
            journal_bytes: self.journal,
            checksums: self.checksums,
        }
    }
}

/// One of several equal parts of the built-in scripts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The number of this part, from 0.
    pub index: usize,
    /// The number of parts.
    pub count: usize,
}

/// The value of `--replay`: one image of a crash.
#[derive(Clone, Debug)]
pub struct ImageArg {
    /// The ends of the earlier processes, if the run had several.
    pub links: Vec<ProcessEnd>,
    /// Number of events before the crash.
    pub after: usize,
    /// For each line (or sector of a disk) that recovery reads, in the order of the reads: the index of its
    /// content among the contents that the crash may leave.
    pub picks: Vec<usize>,
    /// A second crash, in the recovery of this image.
    pub recovery_crash: Option<RecoveryCrash>,
}

/// Parses `60s`, `5m` or `2h`.
fn parse_time(word: &str) -> Result<Duration, String> {
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

/// Parses `2/4`.
fn parse_part(word: &str) -> Result<Part, String> {
    let numbers =
        word.split_once('/').and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
    match numbers {
        Some((part, count)) if (1..=count).contains(&part) => Ok(Part { index: part - 1, count }),
        _ => Err("a part is written like 2/4".to_string()),
    }
}

/// Parses an image such as `123:0,1,0`. One of two additions is allowed. A `/` and a second crash, in the
/// recovery of the image, may follow the image. Or the ends of earlier processes may come before the image,
/// each with a `/` behind it. The first of these ends must be a kill, such as `k123`.
fn parse_image(word: &str) -> Result<ImageArg, String> {
    fn one(word: &str) -> Option<RecoveryCrash> {
        let (after, picks) = word.split_once(':')?;
        let picks = picks.split(',').filter(|pick| !pick.is_empty()).map(|pick| pick.parse().ok());
        Some(RecoveryCrash { after: after.parse().ok()?, picks: picks.collect::<Option<_>>()? })
    }
    fn link(word: &str) -> Option<ProcessEnd> {
        if let Some(after) = word.strip_prefix('k') {
            return Some(ProcessEnd::Kill { after: after.parse().ok()? });
        }
        one(word).map(|RecoveryCrash { after, picks }| ProcessEnd::Power { after, picks })
    }
    let parse = || {
        let words: Vec<&str> = word.split('/').collect();
        if word.starts_with('k') {
            let (last, links) = words.split_last()?;
            let RecoveryCrash { after, picks } = one(last)?;
            let links = links.iter().map(|word| link(word)).collect::<Option<_>>()?;
            return Some(ImageArg { links, after, picks, recovery_crash: None });
        }
        let (first, recovery_crash) = match words[..] {
            [first] => (first, None),
            [first, second] => (first, Some(one(second)?)),
            _ => return None,
        };
        let RecoveryCrash { after, picks } = one(first)?;
        Some(ImageArg { links: Vec::new(), after, picks, recovery_crash })
    };
    parse().ok_or_else(|| "an image is written like 123:0,1,0".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_images_are_parsed() {
        assert_eq!(parse_time("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_image("12:0,3").map(|image| (image.after, image.picks)), Ok((12, vec![0, 3])));
        assert_eq!(parse_image("12:").map(|image| image.picks), Ok(vec![]));
        let recovery_crash = parse_image("12:0/3:1,2").map(|image| image.recovery_crash);
        assert_eq!(recovery_crash, Ok(Some(RecoveryCrash { after: 3, picks: vec![1, 2] })));
        let killed = parse_image("k12/7:0,1/k3/5:2").map(|image| (image.links, image.after, image.picks));
        let kill = |after| ProcessEnd::Kill { after };
        let links = vec![kill(12), ProcessEnd::Power { after: 7, picks: vec![0, 1] }, kill(3)];
        assert_eq!(killed, Ok((links, 5, vec![2])));
        assert_eq!(parse_part("2/4"), Ok(Part { index: 1, count: 4 }));
        for bad in ["", "2", "0/4", "5/4", "1/0", "-1/2", "1/2/3"] {
            assert!(parse_part(bad).is_err(), "{bad}");
        }
        for bad in ["", "5", "m", "5d", "-1s", "99999999999999999999s", "18446744073709551615h", "5\u{e9}"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        for bad in
            ["", "12", ":1", "12:x", "-1:0", "1:0/", "1:0/2", "1:0/2:0/3:0", "k1", "k1/", "k/1:0", "k1/2/3:0"]
        {
            assert!(parse_image(bad).is_err(), "{bad}");
        }
    }
}
