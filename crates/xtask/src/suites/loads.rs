//! Suites with loads like those of servers: `dbench`, `postmark` and `stress-ng`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::Context;
use super::mounted::Mounted;
use super::tool::{command, run, succeed, text_file};
use crate::run::Result;

/// Number of seconds of dbench, and number of its clients.
const DBENCH: (&str, &str) = ("15", "4");
/// The answers to the prompt of postmark.
const POSTMARK: &str = "\
set number 5000
set transactions 20000
set size 500 20000
set subdirectories 20
set seed 42
run
quit
";
/// Number of seconds of stress-ng.
const STRESS_S: &str = "15";
/// Stressors that check results of their calls, and that tmpfs supports.
///
/// The stressor `xattr` is left out. It gives one file 4,096 attributes, and Eyrie rewrites all attributes of
/// a file with each change, so one operation takes half a minute.
const STRESSORS: [&str; 14] = [
    "chmod",
    "copy-file",
    "dentry",
    "dir",
    "fallocate",
    "filename",
    "fpunch",
    "hdd",
    "link",
    "rename",
    "seek",
    "symlink",
    "sync-file",
    "utime",
];
/// Limits of single stressors. Without these limits, the allocation of storage for large files would take
/// most of the time.
const STRESS_LIMITS: [&str; 3] = ["--fallocate-bytes=32M", "--hdd-bytes=64M", "--sync-file-bytes=64M"];
/// Time limit of one program, in seconds.
const LIMIT_S: u64 = 600;

/// Runs the calls of a file server.
pub fn dbench(context: &Context) -> Result<String> {
    let mounted = Mounted::new(context, "dbench", "rw")?;
    let throughput = run_dbench(&mounted.point())?;
    mounted.finish()?;
    Ok(throughput)
}

/// Runs dbench in a directory. Returns its throughput.
pub fn run_dbench(directory: &Path) -> Result<String> {
    let mut dbench = command("dbench");
    dbench.args(["-x", "-t", DBENCH.0, "-D"]).arg(directory).arg(DBENCH.1);
    let ended = run(&mut dbench, LIMIT_S)?;
    let throughput = dbench_throughput(&ended.text).map_err(|reason| ended.failure(&reason))?.to_owned();
    ended.success()?;
    Ok(throughput)
}

/// Returns the line of the throughput. Fails if a call had an unexpected result. A client prints a line about
/// each such call. That line begins with the number of the call's line in the load file, in brackets.
fn dbench_throughput(text: &str) -> std::result::Result<&str, String> {
    let is_of_client = |line: &&str| {
        let rest = line.strip_prefix(['[', '(']).unwrap_or_default();
        rest.starts_with(|next: char| next.is_ascii_digit())
    };
    if let Some(line) = text.lines().find(|line| is_of_client(line) || line.contains("ERROR")) {
        return Err(line.to_owned());
    }
    let found = text.lines().find_map(|line| line.strip_prefix("Throughput "));
    found.map(str::trim).ok_or_else(|| "no throughput".to_owned())
}

/// Creates, reads, extends and removes small files.
pub fn postmark(context: &Context) -> Result<String> {
    let mounted = Mounted::new(context, "postmark", "rw")?;
    let report = run_postmark(&mounted.point())?;
    mounted.finish()?;
    Ok(report)
}

/// Runs postmark in an empty directory.
pub fn run_postmark(directory: &Path) -> Result<String> {
    let input = format!("set location {}\n{POSTMARK}", directory.display());
    let text = succeed(command("postmark").stdin(text_file(&input)?), LIMIT_S)?;
    if fs::read_dir(directory)?.next().is_some() {
        return Err("postmark has left files".into());
    }
    postmark_report(&text)
}

/// Returns a remark about a report. Fails if postmark has not removed each file that it made, or has reported
/// an error.
fn postmark_report(text: &str) -> Result<String> {
    if let Some(line) = text.lines().find(|line| line.to_lowercase().contains("error")) {
        return Err(line.to_owned().into());
    }
    let count = |word: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix('\t')?.split_once(' '));
        lines.find(|(_, rest)| rest.starts_with(word)).and_then(|(count, _)| count.parse::<u64>().ok())
    };
    match (count("created"), count("deleted")) {
        (Some(created), Some(deleted)) if created == deleted => Ok(format!("{created} files")),
        counts => Err(format!("files created and deleted: {counts:?}").into()),
    }
}

/// Runs stressors at the same time. Each of them must have worked.
pub fn stress_ng(context: &Context) -> Result<String> {
    let mounted = Mounted::new(context, "stress-ng", "rw")?;
    let mut stress = command("stress-ng");
    stress.args(["--verify", "--metrics", "--timeout", STRESS_S, "--temp-path"]).arg(mounted.point());
    // Some stressors make files in their working directory.
    stress.current_dir(mounted.beside());
    for stressor in STRESSORS {
        stress.args([&format!("--{stressor}"), "1"]);
    }
    let ended = run(stress.args(STRESS_LIMITS), LIMIT_S)?;
    let done = stress_operations(&ended.text);
    let idle = |name: &&str| done.get(name).is_none_or(|&count| count == 0);
    let idle: Vec<&str> = STRESSORS.into_iter().filter(idle).collect();
    if !idle.is_empty() || has_failure(&ended.text) {
        return Err(ended.failure(&format!("stressors without an operation: {idle:?}")).into());
    }
    let operations: u64 = done.values().sum();
    ended.success()?;
    mounted.finish()?;
    Ok(format!("{} stressors, {operations} operations", STRESSORS.len()))
}

/// Returns the number of operations of each stressor that was not skipped, from the metrics of stress-ng. A
/// skipped stressor has a line that says so, and some versions also print its metrics.
pub fn stress_operations(text: &str) -> BTreeMap<&str, u64> {
    let is_skipped = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(&format!("] {name}: ")));
        lines.into_iter().any(|(_, reason)| reason.contains("skipping") || reason.contains("not supported"))
    };
    let metrics = text.lines().filter_map(|line| line.split_once(" metrc: ")?.1.split_once("] "));
    let operations = metrics.filter_map(|(_, metric)| {
        let words: Vec<&str> = metric.split_whitespace().collect();
        let [name, count, real, ..] = words[..] else { return None };
        // Other metrics have words in these places.
        real.parse::<f64>().ok().filter(|_| !is_skipped(name))?;
        Some((name, count.parse().ok()?))
    });
    operations.collect()
}

/// Returns true if stress-ng reports a failed check.
pub fn has_failure(text: &str) -> bool {
    text.lines().any(|line| line.contains(" fail:") || line.contains(" error:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_result_of_dbench_is_noticed() {
        let good = "failed to create barrier semaphore \n   4  9952   280.29 MB/sec  execute   1 sec\n\n\
                    Throughput 257.063 MB/sec  4 clients  4 procs  max_latency=8.938 ms\n";
        let wanted = "257.063 MB/sec  4 clients  4 procs  max_latency=8.938 ms";
        assert_eq!(dbench_throughput(good), Ok(wanted));
        let line = "[421] open ./clients/client1/~dmtmp failed for handle 9938 (No such file or directory)";
        assert_eq!(dbench_throughput(&format!("{line}\n{good}")), Err(line.to_owned()));
        let line = "ERROR: child 3 failed at line 421";
        assert_eq!(dbench_throughput(&format!("{good}{line}\n")), Err(line.to_owned()));
        assert_eq!(dbench_throughput("   4 cleanup   4 sec\n"), Err("no throughput".to_owned()));
    }

    #[test]
    fn report_of_postmark_is_read() {
        let good = "Files:\n\t4524 created (2262 per second)\n\t2484 read (1242 per second)\n\
                    \t4524 deleted (2262 per second)\n";
        assert_eq!(postmark_report(good).unwrap(), "4524 files");
        assert!(postmark_report(&good.replace("4524 deleted", "4523 deleted")).is_err());
        assert!(postmark_report(&format!("{good}Error: cannot open '/7'\n")).is_err());
        assert!(postmark_report("Time:\n").is_err());
    }

    #[test]
    fn skipped_stressors_are_not_counted() {
        let text = "stress-ng: info:  [7] dispatching hogs: 1 chmod, 1 dir, 1 verity\n\
                    stress-ng: info:  [8] verity: not supported by the kernel, skipping test\n\
                    stress-ng: metrc: [7] verity               0      0.00      0.00      0.00\n\
                    stress-ng: metrc: [7] stressor       bogo ops real time  usr time  sys time\n\
                    stress-ng: metrc: [7] chmod              790      2.00      0.02      0.48\n\
                    stress-ng: metrc: [7] dir                  0      2.00      0.02      0.48\n\
                    stress-ng: metrc: [7] dentry         140508.60 nanosecs per file creation\n";
        assert_eq!(stress_operations(text), BTreeMap::from([("chmod", 790), ("dir", 0)]));
        assert!(!has_failure(text));
        assert!(has_failure("stress-ng: fail:  [7] seek: incorrect file size\n"));
    }
}
