//! Measures commands on one large directory: `eyrie ls`, `find`, `du` and `rm -r` in a volume, and the GNU
//! commands of the same names on a tmpfs, in alternation.
//!
//! Each time is that of a whole process, which for Eyrie includes opening and closing the volume. Both sides
//! write their output to files on the tmpfs. After each command but `rm -r`, which prints nothing, the output
//! proves that the command has visited every entry.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use eyrie::{Credentials, Host, Posix, PosixExt, Volume};

use super::figure::{Figure, Measured, median};
use super::in_scratch;
use crate::run::{Result, eyrie_command};

/// Number of entries of the directory, and number of rounds.
const NORMAL: (u32, usize) = (100_000, 9);
/// The same for a long measurement. There are few rounds, because each one fills the directories again.
const LONG: (u32, usize) = (1_000_000, 5);
/// Size of each file, in bytes.
const FILE_BYTES: usize = 100;
/// Minimum number of KiB that `du` must count for each file, because every file takes at least this much.
const LEAST_KIB: f64 = 64.0 / 1024.0;
const VOLUME_BYTES: u64 = 4 << 30;
/// Maximum time of a command of Eyrie, divided by that of the GNU command.
const RATIO: f64 = 1.0;

/// A command. Eyrie's command and the GNU command have the same name and the same options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DirectoryCommand {
    Ls,
    LsLong,
    Find,
    Du,
    DuAll,
    Rm,
}

impl DirectoryCommand {
    /// All commands. The last one removes the directory.
    const ALL: [DirectoryCommand; 6] = [
        DirectoryCommand::Ls,
        DirectoryCommand::LsLong,
        DirectoryCommand::Find,
        DirectoryCommand::Du,
        DirectoryCommand::DuAll,
        DirectoryCommand::Rm,
    ];

    fn words(self) -> &'static [&'static str] {
        match self {
            DirectoryCommand::Ls => &["ls"],
            DirectoryCommand::LsLong => &["ls", "-l"],
            DirectoryCommand::Find => &["find"],
            DirectoryCommand::Du => &["du"],
            DirectoryCommand::DuAll => &["du", "-a"],
            DirectoryCommand::Rm => &["rm", "-r"],
        }
    }

    /// Fails if the output does not show that the command has visited `count` files.
    fn check(self, output: &str, count: u32) -> Result<()> {
        // `ls -l` of GNU prints the sum of all blocks first.
        let lines = output.lines().filter(|line| !line.starts_with("total ")).count();
        let expected = match self {
            DirectoryCommand::Ls | DirectoryCommand::LsLong => count as usize,
            DirectoryCommand::Find | DirectoryCommand::DuAll => count as usize + 1,
            DirectoryCommand::Du => 1,
            DirectoryCommand::Rm => 0,
        };
        let name = self.words().join(" ");
        if lines != expected {
            return Err(format!("{name} printed {lines} lines, not {expected}").into());
        }
        if self == DirectoryCommand::Du || self == DirectoryCommand::DuAll {
            let last = output.lines().last().and_then(|line| line.split_once('\t'));
            let sum = last.and_then(|(sum, _)| sum.parse::<f64>().ok()).unwrap_or(0.0);
            if sum < f64::from(count) * LEAST_KIB {
                return Err(format!("{name} counted only {sum} KiB of {count} files").into());
            }
        }
        Ok(())
    }
}

/// One side: Eyrie or the host.
struct Side {
    /// The program before the words of a command, if there is one.
    program: Option<PathBuf>,
    /// The directory, as the commands name it.
    place: String,
    output: PathBuf,
}

impl Side {
    /// Runs a command on the directory of `count` files. Returns the time in seconds.
    fn time(&self, command: DirectoryCommand, count: u32) -> Result<f64> {
        let words = command.words();
        let mut process = match &self.program {
            Some(program) => Command::new(program),
            None => Command::new(words[0]),
        };
        process.args(if self.program.is_some() { words } else { &words[1..] }).arg(&self.place);
        // The GNU commands are fastest with the names and messages of this locale.
        process.env("LC_ALL", "C").stdin(Stdio::null()).stdout(File::create(&self.output)?);
        let started = Instant::now();
        let status = process.status().map_err(|error| format!("{process:?}: {error}"))?;
        let took = started.elapsed().as_secs_f64();
        if !status.success() {
            return Err(format!("{process:?}: {status}").into());
        }
        command.check(&std::fs::read_to_string(&self.output)?, count)?;
        Ok(took)
    }
}

/// Makes the directory `/dir` with `count` files. `/dir` must not exist.
fn fill(fs: &impl Posix, count: u32) -> Result<()> {
    fs.create_dir("/dir")?;
    for number in 0..count {
        fs.write(format!("/dir/file-{number:07}"), [7; FILE_BYTES])?;
    }
    Ok(())
}

/// Measures both sides below `memory`, a directory of a tmpfs. With `long`, also measures a directory of a
/// million entries.
pub fn measure(memory: &Path, long: bool) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    println!("ms a command, Eyrie / GNU on tmpfs");
    for size in [NORMAL].into_iter().chain(long.then_some(LONG)) {
        figures.extend(in_scratch(memory, "commands", |path| compare(path, size))?);
    }
    Ok(figures)
}

/// Measures all commands on a directory of `count` files, and prints the times.
fn compare(path: &Path, (count, rounds): (u32, usize)) -> Result<Vec<Figure>> {
    let (volume_path, host_path) = (path.join("volume"), path.join("host"));
    std::fs::create_dir_all(&host_path)?;
    Volume::create(&volume_path, VOLUME_BYTES)?.close()?;
    let host = Host::new(&host_path)?;
    let ours = Side {
        program: Some(eyrie_command()?),
        place: format!("{}:/dir", volume_path.display()),
        output: path.join("output-eyrie"),
    };
    let theirs = Side {
        program: None,
        place: host_path.join("dir").display().to_string(),
        output: path.join("output-gnu"),
    };
    let mut times = DirectoryCommand::ALL.map(|_| (Vec::new(), Vec::new()));
    for _ in 0..rounds {
        let volume = Volume::open(&volume_path)?;
        fill(&volume.files(Credentials::of_process()), count)?;
        volume.close()?;
        fill(&host, count)?;
        for (command, (on_ours, on_theirs)) in DirectoryCommand::ALL.into_iter().zip(&mut times) {
            on_ours.push(ours.time(command, count)?);
            on_theirs.push(theirs.time(command, count)?);
        }
        // Filling the directories again would fail if `rm -r` had left one of them.
    }
    let mut figures = Vec::new();
    for (command, (on_ours, on_theirs)) in DirectoryCommand::ALL.into_iter().zip(times) {
        let (ours, theirs) = (median(&on_ours), median(&on_theirs));
        let name = format!("{}, of {count}", command.words().join(" "));
        println!("{name:24}{:>18}", format!("{:.1} / {:.1}", ours * 1e3, theirs * 1e3));
        figures.push(Figure::at_most(name, RATIO, Measured::of_ratios(&on_ours, &on_theirs), " × GNU"));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_with_too_few_entries_is_noticed() {
        let three = "0\ta\n1\tb\n2\tc\n";
        assert!(DirectoryCommand::Ls.check(three, 3).is_ok());
        assert!(DirectoryCommand::Ls.check(three, 4).is_err());
        assert!(DirectoryCommand::LsLong.check("total 3\nx\n", 1).is_ok());
        assert!(DirectoryCommand::Find.check(three, 3).is_err());
        assert!(DirectoryCommand::DuAll.check(three, 2).is_ok());
        assert!(DirectoryCommand::Du.check("7\tdir\n", 100).is_ok());
        assert!(DirectoryCommand::Du.check("6\tdir\n", 100).is_err());
        assert!(DirectoryCommand::Rm.check("left\n", 0).is_err());
    }
}
