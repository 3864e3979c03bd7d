//! The task `mount-suites` runs public test suites and programs on volumes that are mounted with
//! `eyrie mount`.
//!
//! Each suite has a new volume, and a verdict of its own. After each suite `eyrie umount` must save the
//! volume, and `eyrie fsck` must find it sound. No suite is skipped: a suite whose programs are missing
//! fails.

mod content;
mod fio;
mod kills;
mod loads;
mod long;
mod mounted;
mod posix;
mod programs;
mod shared;
mod tool;
mod trees;
mod user;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::ValueEnum;

use self::mounted::SuiteMedium;
use crate::packages::{self, Packaged};
use crate::run::{Result, directory, eyrie_command, output};

/// A suite.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Suite {
    /// The calls of POSIX and their errors, compared with tmpfs
    Pjdfstest,
    /// Random calls on one file, with 10 seeds
    Fsx,
    /// A clone with thousands of files, `git fsck` and `git gc`
    Git,
    /// A tree copied with `tar`, there and back
    Tar,
    /// A tree copied with `rsync -aHAX`, there and back
    Rsync,
    /// Databases of `sqlite3` in the modes DELETE and WAL
    Sqlite,
    /// A program built with `cargo build`
    Cargo,
    /// Writes of `fio` with checksums, with the engines psync, mmap, libaio and io_uring
    Fio,
    /// The calls of a file server, by `dbench`
    Dbench,
    /// Many small files, by `postmark`
    Postmark,
    /// Fourteen stressors of `stress-ng` that check their results
    StressNg,
    /// A mount of a user without privileges, by `fusermount3`
    User,
    /// A server killed under transactions of `sqlite3`
    KillSqlite,
    /// A server killed under synchronous writes of `fio`
    KillFio,
    /// A server killed under creates, renames and removals
    KillWriter,
    /// `git` and `make` in two mounts of a served volume, beside a reader, while the service is replaced and
    /// at last killed; on both media
    Shared,
    /// Long: random calls on one file, with 500 seeds
    LongFsx,
    /// Long: all stressors of `stress-ng` for file systems, compared with tmpfs
    LongStressNg,
    /// Long: `bonnie++`
    Bonnie,
    /// Long: random reads and writes of `sysbench`
    Sysbench,
    /// Long: `pip install` in a virtual environment; needs the network
    Pip,
    /// Long: `npm install` with hundreds of packages; needs the network
    Npm,
    /// Long: a Debian system, unpacked and run; needs the network
    System,
    /// Long: ten million look-ups, in which the memory of the server must not grow
    LookUps,
    /// Long: several loads at the same time, for an hour
    Mixed,
}

impl Suite {
    /// Returns the programs that the suite runs.
    fn programs(self) -> &'static [Packaged] {
        match self {
            // The header is for the build of the suite.
            Suite::Pjdfstest => &[("/usr/include/sys/acl.h", "libacl1-dev")],
            Suite::Fsx | Suite::LongFsx | Suite::Cargo | Suite::KillWriter | Suite::LookUps => &[],
            Suite::Shared => &[("git", "git"), ("diff", "diffutils"), ("make", "make")],
            Suite::Git => &[("git", "git"), ("diff", "diffutils")],
            Suite::Tar | Suite::Rsync => &[("tar", "tar"), ("rsync", "rsync"), ("diff", "diffutils")],
            Suite::Sqlite | Suite::KillSqlite => &[("sqlite3", "sqlite3")],
            Suite::Fio | Suite::KillFio => &[("fio", "fio")],
            Suite::Dbench => &[("dbench", "dbench")],
            Suite::Postmark => &[("postmark", "postmark")],
            Suite::StressNg | Suite::LongStressNg => &[("stress-ng", "stress-ng")],
            Suite::User => &[("fusermount3", "fuse3"), ("setpriv", "util-linux")],
            Suite::Bonnie => &[("bonnie++", "bonnie++")],
            Suite::Sysbench => &[("sysbench", "sysbench")],
            Suite::Pip => &[("python3", "python3"), ("/usr/share/doc/python3-venv", "python3-venv")],
            Suite::Npm => &[("npm", "npm"), ("node", "nodejs")],
            Suite::System => &[("debootstrap", "debootstrap"), ("tar", "tar"), ("rsync", "rsync")],
            Suite::Mixed => &[("dbench", "dbench"), ("postmark", "postmark"), ("rsync", "rsync")],
        }
    }

    /// True if the suite runs only on demand.
    fn is_long(self) -> bool {
        matches!(
            self,
            Suite::LongFsx
                | Suite::LongStressNg
                | Suite::Bonnie
                | Suite::Sysbench
                | Suite::Pip
                | Suite::Npm
                | Suite::System
                | Suite::LookUps
                | Suite::Mixed
        )
    }

    /// Returns the crate that the suite runs, and its version.
    fn tool(self) -> Option<(&'static str, &'static str)> {
        match self {
            Suite::Pjdfstest => Some(("pjdfstest", "0.2.2")),
            Suite::Fsx | Suite::LongFsx | Suite::Mixed => Some(("fsx", "0.3.2")),
            _ => None,
        }
    }

    /// Runs the suite. Returns a remark about its results.
    fn run(self, context: &Context) -> Result<String> {
        match self {
            Suite::Pjdfstest => posix::pjdfstest(context),
            Suite::Fsx => posix::fsx(context, 10),
            Suite::Git => trees::git(context),
            Suite::Tar => trees::tar(context),
            Suite::Rsync => trees::rsync(context),
            Suite::Sqlite => programs::sqlite(context),
            Suite::Cargo => programs::cargo(context),
            Suite::Fio => fio::engines(context),
            Suite::Dbench => loads::dbench(context),
            Suite::Postmark => loads::postmark(context),
            Suite::StressNg => loads::stress_ng(context),
            Suite::User => user::user(context),
            Suite::KillSqlite => kills::sqlite(context),
            Suite::KillFio => fio::kill(context),
            Suite::KillWriter => kills::writer(context),
            Suite::Shared => shared::shared(context),
            Suite::LongFsx => posix::fsx(context, 500),
            Suite::LongStressNg => long::stress_ng(context),
            Suite::Bonnie => long::bonnie(context),
            Suite::Sysbench => long::sysbench(context),
            Suite::Pip => long::pip(context),
            Suite::Npm => long::npm(context),
            Suite::System => long::system(context),
            Suite::LookUps => long::look_ups(context),
            Suite::Mixed => long::mixed(context),
        }
    }
}

/// See [`super::Task::MountSuites`].
#[derive(Debug, clap::Args)]
pub struct MountSuitesArgs {
    /// Run only this suite; may be given several times
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Suite>,
    /// Run the long suites instead of the others; they take hours
    #[arg(long)]
    long: bool,
    /// Seconds of the suite `mixed`
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    mixed_seconds: u64,
    /// Directory on a tmpfs, for volumes and mount points
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// Directory on a disk, for volumes of the medium paged
    #[arg(long, default_value = "target/mount-suites")]
    disk: PathBuf,
}

/// The programs and directories of a run. A drop removes the directories `memory` and `disk`.
struct Context {
    /// The command `eyrie`.
    eyrie: PathBuf,
    /// The directory of the installed tools.
    tools: PathBuf,
    memory: PathBuf,
    disk: PathBuf,
    /// Number of seconds of the suite `mixed`.
    mixed_s: u64,
}

impl Context {
    fn new(arguments: &MountSuitesArgs) -> Result<Context> {
        let name = format!("eyrie-suites-{}", std::process::id());
        let below = |path: &Path| directory(&path.join(&name));
        let tools = directory(Path::new("target/tools"))?;
        Ok(Context {
            eyrie: eyrie_command()?,
            tools,
            memory: below(&arguments.memory)?,
            disk: below(&arguments.disk)?,
            mixed_s: arguments.mixed_seconds,
        })
    }

    /// Returns the directory for volumes of a medium.
    fn scratch(&self, medium: SuiteMedium) -> &Path {
        match medium {
            SuiteMedium::Memory => &self.memory,
            SuiteMedium::Disk => &self.disk,
        }
    }

    /// Returns the path of an installed tool.
    fn tool(&self, name: &str) -> PathBuf {
        self.tools.join("bin").join(name)
    }

    /// Installs the crate of a suite, unless this version is installed.
    fn install(&self, name: &str, version: &str) -> Result<()> {
        let list = std::fs::read_to_string(self.tools.join(".crates.toml")).unwrap_or_default();
        if list.contains(&format!("\"{name} {version} ")) {
            return Ok(());
        }
        println!("installing {name} {version}");
        let mut install = Command::new(env!("CARGO"));
        install.args(["install", "--quiet", "--locked", "--root"]).arg(&self.tools);
        install.args(["--version", &format!("={version}"), name]);
        output(&mut install).map_err(|error| format!("needs the crate {name} {version}: {error}"))?;
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // The names of these directories have the process id. So a directory that stays disturbs no other
        // run.
        let _ = std::fs::remove_dir_all(&self.memory);
        let _ = std::fs::remove_dir_all(&self.disk);
    }
}

/// Runs the suites. Returns an error if a suite fails.
pub fn run(arguments: &MountSuitesArgs) -> Result<()> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.map_err(|error| format!("/dev/fuse: {error}"))?;
    if !rustix::process::geteuid().is_root() {
        return Err("mounts of several users need root".into());
    }
    let wants = |suite: &Suite| match arguments.only.is_empty() {
        true => suite.is_long() == arguments.long,
        false => arguments.only.contains(suite),
    };
    let suites: Vec<Suite> = Suite::value_variants().iter().copied().filter(wants).collect();
    let programs: Vec<Packaged> = suites.iter().flat_map(|suite| suite.programs()).copied().collect();
    if let Err(error) = packages::install(&programs) {
        // Each suite that needs a missing program fails below.
        eprintln!("xtask: {error}");
    }
    let context = Context::new(arguments)?;
    let mut failed = 0;
    for &suite in &suites {
        let ready = prepare(suite, &context);
        let start = Instant::now();
        let result = ready.and_then(|()| suite.run(&context));
        failed += usize::from(result.is_err());
        let (verdict, remark) = match result {
            Ok(remark) => ("passed", remark),
            Err(error) => ("FAILED", error.to_string()),
        };
        println!("{}", line(&name(suite), verdict, start.elapsed().as_secs(), &remark));
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} of {} suites failed", suites.len()).into()) }
}

/// Installs the crate of a suite. Returns an error that names the missing packages, if programs are missing.
fn prepare(suite: Suite, context: &Context) -> Result<()> {
    let missing = packages::missing(suite.programs());
    if !missing.is_empty() {
        return Err(format!("needs the Debian packages {}", missing.join(", ")).into());
    }
    suite.tool().map_or(Ok(()), |(name, version)| context.install(name, version))
}

/// Returns the name of a suite on the command line.
fn name(suite: Suite) -> String {
    suite.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Returns the line of a verdict. Further lines of the remark are indented.
fn line(name: &str, verdict: &str, seconds: u64, remark: &str) -> String {
    format!("{name:14}  {verdict}  {seconds:>4} s  {}", remark.trim_end().replace('\n', "\n    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_has_one_line_unless_the_remark_has_more() {
        assert_eq!(line("fsx", "passed", 41, "10 seeds\n"), "fsx             passed    41 s  10 seeds");
        assert_eq!(line("fsx", "FAILED", 2, "a\nb"), "fsx             FAILED     2 s  a\n    b");
        assert_eq!(name(Suite::KillSqlite), "kill-sqlite");
    }
}
