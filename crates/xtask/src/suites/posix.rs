//! Suites of single calls: `pjdfstest` and `fsx`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::Context;
use super::mounted::Mounted;
use super::tool::{Ended, command, run, succeed};
use crate::run::Result;

/// The configuration of pjdfstest. The tests need two users, each with its main group. Every Debian system
/// has the two users of `entries`. `naptime` (in seconds) is longer than the tick of the clock from which
/// tmpfs takes its times. No test remounts the volume, because mount(8) would start another server.
const PJDFSTEST_TOML: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;
/// Time limit of one run of pjdfstest, in seconds.
const PJDFSTEST_LIMIT_S: u64 = 180;

/// The configuration of fsx, with the relative frequency of each call. No call has 0 bytes, because
/// posix_fallocate(3) refuses an empty range.
const FSX_TOML: &str = "
[opsize]
min = 1
[weights]
close_open = 1
copy_file_range = 5
fdatasync = 1
fsync = 1
invalidate = 1
mapread = 10
mapwrite = 10
posix_fadvise = 1
posix_fallocate = 3
punch_hole = 5
read = 10
sendfile = 5
truncate = 5
write = 10
";
/// Number of calls with one seed.
const FSX_CALLS: &str = "20000";
/// Time limit of one run of fsx, in seconds.
const FSX_LIMIT_S: u64 = 600;

/// The results of a run of pjdfstest.
#[derive(PartialEq, Eq, Debug)]
struct Verdicts {
    passed: u32,
    failed: u32,
    skipped: BTreeSet<String>,
}

impl Verdicts {
    /// Reads the output of pjdfstest. Returns `None` if the output has no summary.
    fn parse(text: &str) -> Option<Verdicts> {
        let summary = text.lines().find_map(|line| line.strip_prefix("Summary: "))?;
        let count = |word: &str| {
            let parts = summary.split(", ").filter_map(|part| part.split_once(' '));
            parts.into_iter().find(|(_, name)| *name == word)?.0.parse().ok()
        };
        let skipped = text.lines().filter_map(|line| line.strip_suffix(" skipped"));
        Some(Verdicts {
            passed: count("passed")?,
            failed: count("failed")?,
            skipped: skipped.map(|name| name.trim_end().to_owned()).collect(),
        })
    }
}

/// Runs pjdfstest on a mount, and in a directory of the tmpfs on which the volume lies. Each of the two is
/// the second file system of the other run. On the mount no test may fail, no test that runs on tmpfs may be
/// skipped, and at least as many tests must pass as on tmpfs.
pub fn pjdfstest(context: &Context) -> Result<String> {
    // The tests act as several users, and make set-id files and devices.
    let mounted = Mounted::new(context, "pjdfstest", "allow_other,suid,dev")?;
    let (point, tmpfs) = (mounted.point(), mounted.beside().join("tmpfs"));
    fs::create_dir(&tmpfs)?;
    let configuration = mounted.beside().join("pjdfstest.toml");
    fs::write(&configuration, PJDFSTEST_TOML)?;
    let verdicts = |path: &Path, second: &Path| -> Result<(Ended, Verdicts)> {
        let mut pjdfstest = command(context.tool("pjdfstest"));
        pjdfstest.env("RUST_BACKTRACE", "0").arg("-c").arg(&configuration);
        let ended = run(pjdfstest.arg("-p").arg(path).arg("-s").arg(second), PJDFSTEST_LIMIT_S)?;
        let verdicts = Verdicts::parse(&ended.text).ok_or_else(|| ended.failure("no summary"))?;
        Ok((ended, verdicts))
    };
    let (ended, ours) = verdicts(&point, &tmpfs)?;
    if ours.failed > 0 || !ended.status.success() {
        let failed: Vec<&str> = ended.text.lines().filter(|line| line.ends_with(" FAILED")).collect();
        return Err(ended.failure(&failed.join("\n")).into());
    }
    let (_, theirs) = verdicts(&tmpfs, &point)?;
    let only_here: Vec<String> = ours.skipped.difference(&theirs.skipped).cloned().collect();
    if ours.passed == 0 || ours.passed < theirs.passed {
        return Err(format!("{} tests passed on the mount, {} on tmpfs", ours.passed, theirs.passed).into());
    }
    if !only_here.is_empty() {
        return Err(format!("skipped on the mount, but not on tmpfs: {}", only_here.join(", ")).into());
    }
    mounted.finish()?;
    let (skipped, on_tmpfs) = (ours.skipped.len(), theirs.skipped.len());
    Ok(format!("{} passed, 0 failed, {skipped} skipped (tmpfs skips {on_tmpfs})", ours.passed))
}

/// Runs fsx with the seeds from 1 to `seeds`, two at a time.
pub fn fsx(context: &Context, seeds: u32) -> Result<String> {
    let mounted = Mounted::new(context, "fsx", "rw")?;
    let run = |seed: u32| fsx_seed(context, &mounted, seed).map_err(|error| error.to_string());
    let half = |first: u32| (first..=seeds).step_by(2).try_for_each(run);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half(2));
        half(1).and(other.join().unwrap_or_else(|_| Err("a thread has panicked".into())))
    })?;
    mounted.finish()?;
    Ok(format!("{seeds} seeds of {FSX_CALLS} calls"))
}

/// Runs fsx with one seed, on a file of its own.
pub fn fsx_seed(context: &Context, mounted: &Mounted, seed: u32) -> Result<()> {
    let file = mounted.point().join(format!("fsx-{seed}"));
    let configuration = mounted.beside().join(format!("fsx-{seed}.toml"));
    fs::write(&configuration, FSX_TOML)?;
    let mut fsx = command(context.tool("fsx"));
    fsx.args(["-N", FSX_CALLS, "-S", &seed.to_string(), "-f"]).arg(&configuration);
    let text = succeed(fsx.arg("-P").arg(mounted.beside()).arg(&file), FSX_LIMIT_S)
        .map_err(|error| format!("seed {seed}: {error}"))?;
    if !is_whole(&text) {
        return Err(format!("seed {seed}: fsx ended too early: {text}").into());
    }
    fs::remove_file(configuration)?;
    Ok(fs::remove_file(file)?)
}

/// True if fsx says that it has made all calls.
fn is_whole(text: &str) -> bool {
    text.lines().any(|line| line == "All operations completed A-OK!")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_pjdfstest_is_read() {
        let text = "chmod::a        ok\nlink::max       skipped\n\tno limit\nopen::b     FAILED\n\n\
                    Summary: 1 failed, 1 skipped, 382 passed, 0 expected failures, 384 total\nError: Some\n";
        let skipped = BTreeSet::from(["link::max".to_owned()]);
        assert_eq!(Verdicts::parse(text), Some(Verdicts { passed: 382, failed: 1, skipped }));
        assert_eq!(Verdicts::parse("chmod::a        ok\n"), None);
        assert_eq!(Verdicts::parse("Summary: 1 skipped, 382 passed\n"), None);
    }

    #[test]
    fn fsx_must_say_that_it_is_done() {
        assert!(is_whole("Using seed 1\nAll operations completed A-OK!\n"));
        assert!(!is_whole("Using seed 1\nmiscompare: offset= 0x1\n"));
    }
}
