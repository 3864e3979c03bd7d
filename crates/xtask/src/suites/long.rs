//! Suites that take minutes to hours. They run only with `--long`, or if `--only` names them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Context;
use super::loads::{has_failure, run_dbench, run_postmark, stress_operations};
use super::mounted::{Mounted, SuiteMedium};
use super::posix::fsx_seed;
use super::tool::{Ended, assert_same, command, run, succeed};
use super::trees::{compare_attributes, count_entries, rsync_copy, source_tree, tar_copy};
use crate::run::Result;

/// Time limit of one program, in seconds.
const LIMIT_S: u64 = 1800;
/// Number of seconds of each stressor of stress-ng.
const STRESS_S: &str = "5";
/// Packages of Python that are installed, and a program that uses them.
const PYTHON: ([&str; 4], &str) = (
    ["django", "numpy", "pytest", "requests"],
    "import django, numpy, pytest, requests; print(numpy.arange(5).sum())",
);
/// Packages of Node.js that are installed. They depend on hundreds of other packages.
const NODE: [&str; 4] = ["eslint", "jest", "typescript", "webpack"];
/// Number of files that are looked up, number of files of one directory, and number of rounds.
const LOOKUPS: (u64, u64, u64) = (100_000, 1000, 100);
/// Maximum growth of the memory of a server from its first round of look-ups to the last, in MiB.
const GROWTH_MIB: f64 = 16.0;

/// Runs each stressor of stress-ng's class of file systems. A stressor may fail or be skipped only if it does
/// the same on tmpfs.
pub fn stress_ng(context: &Context) -> Result<String> {
    let mounted = Mounted::new(context, "stress-ng-long", "rw")?;
    let tmpfs = mounted.beside();
    let classes = run(command("stress-ng").args(["--class", "filesystem?"]), LIMIT_S)?;
    let stressors = stressors(&classes.text).ok_or_else(|| classes.failure("no list of stressors"))?;
    let stress = |name: &str, path: &Path| -> Result<(Outcome, Ended)> {
        let mut stress = command("stress-ng");
        stress.args(["--verify", "--metrics", "--timeout", STRESS_S, &format!("--{name}"), "1"]);
        // Some stressors make files in their working directory.
        let ended = run(stress.current_dir(mounted.beside()).arg("--temp-path").arg(path), LIMIT_S)?;
        Ok((Outcome::of(name, &ended), ended))
    };
    let (mut done, mut alike, mut differences) = (0, Vec::new(), Vec::new());
    for name in &stressors {
        let (ours, ended) = stress(name, &mounted.point())?;
        if ours == Outcome::Done {
            done += 1;
        } else if stress(name, &tmpfs)?.0 == ours {
            alike.push(*name);
        } else {
            differences.push(ended.failure(&format!("{name}: {ours:?}, unlike on tmpfs")));
        }
    }
    if !differences.is_empty() {
        return Err(differences.join("\n").into());
    }
    mounted.finish()?;
    Ok(format!("{done} stressors; not possible on tmpfs either: {}", alike.join(", ")))
}

/// The outcome of a stressor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done,
    Skipped,
    Failed,
}

impl Outcome {
    fn of(name: &str, ended: &Ended) -> Outcome {
        if has_failure(&ended.text) || ended.status.code().is_none_or(|code| code == 1 || code == 2) {
            Outcome::Failed
        } else if stress_operations(&ended.text).get(name).is_some_and(|&count| count > 0) {
            Outcome::Done
        } else {
            Outcome::Skipped
        }
    }
}

/// Reads the answer to `--class filesystem?`.
fn stressors(text: &str) -> Option<Vec<&str>> {
    let line = text.lines().find(|line| line.starts_with("class 'filesystem' stressors:"))?;
    Some(line.split_once(": ")?.1.split_whitespace().collect())
}

/// Runs bonnie++, which writes, reads, seeks, creates and removes.
pub fn bonnie(context: &Context) -> Result<String> {
    let mounted = Mounted::new(context, "bonnie", "rw")?;
    let mut bonnie = command("bonnie++");
    bonnie.args(["-q", "-u", "root", "-s", "256", "-r", "128", "-d"]).arg(mounted.point());
    succeed(&mut bonnie, LIMIT_S)?;
    mounted.finish()?;
    Ok("256 MiB".into())
}

/// Runs random reads and writes of sysbench, which validates its blocks.
pub fn sysbench(context: &Context) -> Result<String> {
    let mounted = Mounted::new(context, "sysbench", "rw")?;
    for step in ["prepare", "run", "cleanup"] {
        let mut sysbench = command("sysbench");
        sysbench.args(["fileio", "--file-total-size=512M", "--file-num=64", "--file-test-mode=rndrw"]);
        sysbench.args(["--validate=on", "--threads=4", "--time=60", step]);
        let text = succeed(sysbench.current_dir(mounted.point()), LIMIT_S)?;
        if let Some(line) =
            text.lines().find(|line| line.contains("FATAL") || line.contains("alidation fail"))
        {
            return Err(line.to_owned().into());
        }
    }
    mounted.finish()?;
    Ok("512 MiB, 60 s".into())
}

/// Installs packages of Python in a virtual environment on the mount, and uses them.
pub fn pip(context: &Context) -> Result<String> {
    let mut mounted = Mounted::new(context, "pip", "rw")?;
    let environment = mounted.point().join("environment");
    succeed(command("python3").args(["-m", "venv"]).arg(&environment), LIMIT_S)?;
    let python = environment.join("bin/python");
    let pip = ["-m", "pip", "--disable-pip-version-check", "--no-cache-dir"];
    succeed(command(&python).args(pip).args(["install", "--quiet"]).args(PYTHON.0), LIMIT_S)?;
    mounted.remount()?;
    succeed(command(&python).args(pip).arg("check"), LIMIT_S)?;
    assert_same("python", &succeed(command(&python).args(["-c", PYTHON.1]), LIMIT_S)?, "10\n")?;
    let count = count_entries(&environment)?;
    mounted.finish()?;
    Ok(format!("{}: {count} entries", PYTHON.0.join(", ")))
}

/// Installs packages of Node.js on the mount, and uses one.
pub fn npm(context: &Context) -> Result<String> {
    let mut mounted = Mounted::new(context, "npm", "rw")?;
    let package = mounted.point().join("package");
    fs::create_dir(&package)?;
    fs::write(package.join("package.json"), "{\"name\": \"package\", \"version\": \"1.0.0\"}\n")?;
    fs::write(package.join("index.js"), "console.log([1, 2, 3].map((n) => n * 2).join());\n")?;
    let npm = |arguments: &[&str]| {
        let mut npm = command("npm");
        npm.current_dir(&package).env("npm_config_cache", mounted.beside().join("cache"));
        succeed(npm.args(["--no-audit", "--no-fund", "--no-update-notifier"]).args(arguments), LIMIT_S)
    };
    npm(&[&["install"][..], &NODE].concat())?;
    npm(&["ls", "--all"])?;
    mounted.remount()?;
    let script = "require('webpack')({mode: 'production', entry: './index.js'}, (error, stats) => \
                  process.exit(error || stats.hasErrors() ? 1 : 0))";
    succeed(command("node").args(["-e", script]).current_dir(&package), LIMIT_S)?;
    let printed = succeed(command("node").arg("dist/main.js").current_dir(&package), LIMIT_S)?;
    assert_same("the packed program", &printed, "2,4,6\n")?;
    let count = count_entries(&package)?;
    mounted.finish()?;
    Ok(format!("{}: {count} entries", NODE.join(", ")))
}

/// Unpacks a Debian system on the mount, compares it, and runs programs of it.
pub fn system(context: &Context) -> Result<String> {
    let source = context.scratch(SuiteMedium::Disk).join("debian");
    let mut debootstrap = command("debootstrap");
    succeed(debootstrap.args(["--variant=minbase", "stable"]).arg(&source), LIMIT_S)?;
    let mut mounted = Mounted::new(context, "system", "suid,dev")?;
    let system = mounted.point().join("system");
    fs::create_dir(&system)?;
    tar_copy(&source, &system, &mounted.beside().join("archive"))?;
    mounted.remount()?;
    compare_attributes(&source, &system)?;
    // dpkg compares all files with their checksums, and prints the differences.
    let verified = succeed(command("chroot").arg(&system).args(["dpkg", "--verify"]), LIMIT_S)?;
    assert_same("dpkg --verify", &verified, "")?;
    let count = count_entries(&system)?;
    mounted.finish()?;
    fs::remove_dir_all(source)?;
    Ok(format!("{count} entries"))
}

/// Looks files up in rounds. After each round the kernel forgets them. The memory of the server must not
/// grow.
pub fn look_ups(context: &Context) -> Result<String> {
    let mounted = Mounted::new(context, "look-ups", "rw")?;
    let (files, in_one, rounds) = LOOKUPS;
    let path = |number: u64| mounted.point().join(format!("dir-{}/file-{number}", number / in_one));
    for number in 0..files {
        let path = path(number);
        if number % in_one == 0 {
            fs::create_dir(path.with_file_name(""))?;
        }
        fs::write(path, [])?;
    }
    let mut first = 0.0;
    for round in 0..rounds {
        let look = |half: u64| -> std::io::Result<()> {
            for number in (half..files).step_by(2) {
                fs::symlink_metadata(path(number))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| look(1));
            look(0).and(other.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread has panicked"))))
        })?;
        // The kernel drops its dentries and inodes, and tells the server to forget their nodes.
        fs::write("/proc/sys/vm/drop_caches", "2")?;
        if round == 0 {
            first = mounted.server_mib()?;
        }
    }
    let last = mounted.server_mib()?;
    if last > first + GROWTH_MIB {
        return Err(format!("the server has grown from {first:.1} to {last:.1} MiB").into());
    }
    mounted.finish()?;
    Ok(format!(
        "{} look-ups, memory {first:.1} MiB after the first round, {last:.1} MiB at the end",
        files * rounds
    ))
}

/// A load that a thread repeats. The function gets the mount, and the number of the repetition.
type Load = fn(&Context, &Mounted, u64) -> Result<()>;

/// The loads of the mixed run.
const MIXED: [(&str, Load); 4] = [
    ("fsx", |context, mounted, number| fsx_seed(context, mounted, u32::try_from(number)? + 1000)),
    ("postmark", |_, mounted, number| {
        let directory = mounted.point().join(format!("postmark-{number}"));
        fs::create_dir(&directory)?;
        run_postmark(&directory)?;
        Ok(fs::remove_dir(directory)?)
    }),
    ("dbench", |_, mounted, number| {
        let directory = mounted.point().join(format!("dbench-{number}"));
        fs::create_dir(&directory)?;
        run_dbench(&directory)?;
        Ok(fs::remove_dir_all(directory)?)
    }),
    ("rsync", |context, mounted, number| {
        let (source, copy) = (source_tree(context)?, mounted.point().join(format!("copy-{number}")));
        fs::create_dir(&copy)?;
        rsync_copy(&source, &copy)?;
        compare_attributes(&source, &copy)?;
        Ok(fs::remove_dir_all(copy)?)
    }),
];

/// Runs several loads at the same time on one mount, each again and again.
pub fn mixed(context: &Context) -> Result<String> {
    let mounted = Mounted::new(context, "mixed", "suid")?;
    source_tree(context)?;
    let (start, limit) = (Instant::now(), Duration::from_secs(context.mixed_s));
    let counts = MIXED.map(|_| AtomicU64::new(0));
    let repeat = |(name, load): (&str, Load), count: &AtomicU64| -> std::result::Result<(), String> {
        while start.elapsed() < limit {
            let number = count.load(Ordering::Relaxed);
            load(context, &mounted, number).map_err(|error| format!("{name}, round {number}: {error}"))?;
            count.store(number + 1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| -> std::result::Result<(), String> {
        let threads: Vec<_> = MIXED
            .into_iter()
            .zip(&counts)
            .map(|(load, count)| scope.spawn(move || repeat(load, count)))
            .collect();
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|end| end.unwrap_or_else(|_| Err("a thread has panicked".into())))
    })?;
    let mib = mounted.server_mib()?;
    mounted.finish()?;
    let rounds: Vec<String> = MIXED
        .iter()
        .zip(counts)
        .map(|((name, _), count)| format!("{} × {name}", count.into_inner()))
        .collect();
    Ok(format!("{}; {mib:.1} MiB of memory at the end", rounds.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn outcome_of_a_stressor_is_read() {
        let outcome = |code: i32, text: &str| {
            let status = ExitStatus::from_raw(code << 8);
            Outcome::of("chmod", &Ended { name: "stress-ng".into(), status, text: text.into() })
        };
        let metric = "stress-ng: metrc: [7] chmod              790      2.00      0.02      0.48\n";
        assert_eq!(outcome(0, metric), Outcome::Done);
        assert_eq!(outcome(0, ""), Outcome::Skipped);
        assert_eq!(outcome(3, ""), Outcome::Skipped);
        assert_eq!(outcome(2, metric), Outcome::Failed);
        assert_eq!(
            outcome(0, &format!("stress-ng: fail:  [7] chmod: wrong mode\n{metric}")),
            Outcome::Failed
        );
    }

    #[test]
    fn class_of_stressors_is_read() {
        assert_eq!(stressors("class 'filesystem' stressors: access chmod\n"), Some(vec!["access", "chmod"]));
        assert_eq!(stressors("stress-ng: unknown option\n"), None);
    }
}
