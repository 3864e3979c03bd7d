//! Breaks each rule of crash safety in a process of its own, for `--mutants`. Each broken rule must make at
//! least one exploration fail. Two kinds of rules are left out, because no exploration notices that they are
//! broken: only tests under the scheduler notice broken rules of threads, and only tests with services notice
//! broken rules of processes.

use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::thread::sleep;
use std::time::{Duration, Instant};

use eyrie_sim::explore::mutants::{NO_RULE, On, SafetyRule, control, search};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::arguments::ExploreArgs;
use crate::failure::{Doing, Failure, Result};
use crate::interrupt;
use crate::output::Output;

/// Processor time for one mutant, unless the user gives a time.
const TIME: Duration = Duration::from_secs(60);
/// A process counts as hung if its processor time exceeds `limit * PATIENCE + SLACK`. The factor is large,
/// because a process checks its time only between two images.
const PATIENCE: u32 = 3;
const SLACK: Duration = Duration::from_secs(30);
/// A process that has used no processor time for this long also counts as hung.
const STILL: Duration = Duration::from_secs(60);
/// The first word on standard error of a process that panicked.
const PANICKED: &str = "panicked:";
/// Maximum number of processes that run at the same time.
const AT_ONCE: usize = 2;

fn rule(id: &str) -> Result<SafetyRule> {
    match SafetyRule::of_id(id) {
        Some(rule) if is_explored(rule) => Ok(rule),
        Some(_) => Err(Failure::usage(
            "only tests of threads or of processes break this rule",
            id,
            "see docs/rules.md",
        )),
        None => Err(Failure::usage("no such rule", id, "docs/rules.md lists them")),
    }
}

/// Returns true if a run of the explorer can notice that the rule is broken.
fn is_explored(rule: SafetyRule) -> bool {
    !matches!(rule.entry().on, On::Scheduler | On::ServiceScheduler | On::Services | On::Sessions)
}

/// Returns the processor time of this process, in seconds.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Explores in this process, with one rule broken or none.
pub(super) fn explore_one(id: &str, arguments: &ExploreArgs, output: &mut Output) -> Result<()> {
    let rule = if id == NO_RULE { None } else { Some(rule(id)?) };
    // Panics that are caught are in the report. For a panic that ends the process, the parent needs a line on
    // standard error. The hook prints only the first panic.
    let first = Once::new();
    std::panic::set_hook(Box::new(move |panic| first.call_once(|| eprintln!("{PANICKED} {panic}"))));
    let most = arguments.time.unwrap_or(TIME).as_secs_f64();
    let goes_on = || processor_seconds() < most;
    let found = rule.map_or_else(|| control(&goes_on), |rule| search(rule, &goes_on));
    let mut value = json!(found);
    value["seconds"] = json!(processor_seconds());
    output.json(&value)
}

/// Parses the processor time of a process from its line in `/proc/PID/stat`.
fn processor_time(stat: &str) -> Option<Duration> {
    // The name in parentheses may contain any bytes, so the fields are counted from its end. The first field
    // after the name is the third.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let user: u64 = fields.nth(14 - 3)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_secs_f64((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// A process that explores with one broken rule, or with none.
struct ExplorationProcess {
    name: &'static str,
    process: Child,
    /// The processor time when it was last read.
    used: Duration,
    /// The time at which `used` last changed.
    since: Instant,
}

impl ExplorationProcess {
    fn start(name: &'static str, time: Duration) -> Result<ExplorationProcess> {
        let program = std::env::current_exe().doing("find this program", "eyrie")?;
        let mut command = Command::new(program);
        command.args(["explore", "--json", "--mutant", name]);
        command.arg("--time").arg(format!("{}s", time.as_secs()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = command.spawn().doing("start", "eyrie explore --mutant")?;
        Ok(ExplorationProcess { name, process, used: Duration::ZERO, since: Instant::now() })
    }

    /// Makes a report for a process that printed none.
    fn value(&self, key: &str, found: Value) -> Value {
        let seconds = self.used.as_secs_f64();
        let mut value =
            json!({ "rule": self.name, "caught": null, "images": 0, "complete": false, "seconds": seconds });
        value[key] = found;
        value
    }

    /// Returns true if the process counts as hung, by [`PATIENCE`] or [`STILL`].
    fn hangs(&mut self, time: Duration) -> io::Result<bool> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        let used = processor_time(&stat).ok_or(io::ErrorKind::InvalidData)?;
        if used > self.used {
            (self.used, self.since) = (used, Instant::now());
        }
        Ok(used > time * PATIENCE + SLACK || self.since.elapsed() > STILL)
    }

    /// Kills the process if it hangs. Returns a report if the process has ended or was killed.
    fn end(&mut self, time: Duration) -> io::Result<Option<Value>> {
        let caught = |what: String| json!({ "medium": "-", "kind": "-", "script": 0, "what": what });
        if self.process.try_wait()?.is_none() {
            if !self.hangs(time)? {
                return Ok(None);
            }
            self.process.kill()?;
            self.process.wait()?;
            return Ok(Some(self.value("caught", caught("it hangs".to_string()))));
        }
        let status = self.process.wait()?;
        let told = self.process.stdout.take().map(io::read_to_string).transpose()?.unwrap_or_default();
        let errors = self.process.stderr.take().map(io::read_to_string).transpose()?.unwrap_or_default();
        Ok(Some(match serde_json::from_str(&told) {
            Ok(value) => value,
            Err(_) if is_death(status, &errors) => {
                self.value("caught", caught(format!("the process ended: {status}")))
            }
            Err(_) => {
                let why = errors.lines().next().map_or(String::new(), |line| format!(": {line}"));
                self.value("failed", json!(format!("{status}{why}")))
            }
        }))
    }
}

/// Returns true if a process without a report ended by its own error: by a panic, or by a signal that a
/// program causes itself, such as `SIGSEGV` or `SIGABRT`. Any other signal counts as sent by another process.
fn is_death(status: ExitStatus, errors: &str) -> bool {
    let own = [Signal::SEGV, Signal::BUS, Signal::ABORT, Signal::ILL, Signal::FPE].map(Signal::as_raw);
    let panicked = errors.contains(PANICKED) || errors.contains("panicked at");
    status.signal().map_or(panicked, |signal| own.contains(&signal))
}

/// Explores without a broken rule. If this exploration finds an error, an error of a mutant proves nothing.
fn explore_none(time: Duration) -> Result<()> {
    let mut control = ExplorationProcess::start(NO_RULE, time)?;
    let value = loop {
        if interrupt::requested() {
            // `interrupt::check` below ends this process.
            let _ = control.process.kill();
        }
        interrupt::check("explore")?;
        if let Some(value) = control.end(time).doing("wait for", "eyrie explore --mutant")? {
            break value;
        }
        sleep(Duration::from_millis(20));
    };
    if !value["caught"].is_null() {
        return Err(Failure::new("an exploration without a broken rule failed", NO_RULE, row(&value)));
    }
    value["failed"].as_str().map_or(Ok(()), |why| Err(Failure::new("failed to run", NO_RULE, why)))
}

fn row(value: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let (rule, images) = (text(&value["rule"]), value["images"].as_u64().unwrap_or(0));
    let seconds = value["seconds"].as_f64().unwrap_or(0.0);
    if let Some(why) = value["failed"].as_str() {
        return format!("{rule:<42} {:<6} {:<30} {images:>8} {seconds:>8.1}  {why}", "", "FAILED TO RUN");
    }
    let caught = &value["caught"];
    if caught.is_null() {
        let why = if value["complete"] == json!(true) { "NOT CAUGHT" } else { "NOT CAUGHT IN TIME" };
        return format!("{rule:<42} {:<6} {why:<30} {images:>8} {seconds:>8.1}", "");
    }
    let kind = match caught["script"].as_u64() {
        Some(script) if script > 0 => format!("{} {script}", text(&caught["kind"])),
        _ => text(&caught["kind"]),
    };
    let (medium, what) = (text(&caught["medium"]), text(&caught["what"]));
    format!("{rule:<42} {medium:<6} {kind:<30} {images:>8} {seconds:>8.1}  {what}")
}

/// Explores without a broken rule. Then breaks each rule that an exploration can notice (or each rule of
/// `--only`), and explores again. Each exploration has a process of its own.
pub(super) fn explore(arguments: &ExploreArgs, output: &mut Output) -> Result<()> {
    let time = arguments.time.unwrap_or(TIME);
    let only = arguments.only.iter().map(|id| rule(id)).collect::<Result<Vec<_>>>()?;
    let mut waiting: Vec<SafetyRule> = if only.is_empty() {
        SafetyRule::ALL.iter().rev().copied().filter(|&rule| is_explored(rule)).collect()
    } else {
        only
    };
    explore_none(time)?;
    if !arguments.json {
        writeln!(
            output,
            "{:<42} {:<6} {:<30} {:>8} {:>8}  ERROR",
            "RULE", "MEDIUM", "CAUGHT BY", "IMAGES", "SECONDS"
        )?;
    }
    let (mut running, mut found): (Vec<ExplorationProcess>, Vec<Value>) = (Vec::new(), Vec::new());
    while !waiting.is_empty() || !running.is_empty() {
        if interrupt::requested() {
            running.iter_mut().for_each(|one| _ = one.process.kill());
        }
        interrupt::check("explore")?;
        while running.len() < AT_ONCE
            && let Some(rule) = waiting.pop()
        {
            running.push(ExplorationProcess::start(rule.entry().id, time)?);
        }
        let mut still = Vec::new();
        for mut one in running {
            match one.end(time).doing("wait for", "eyrie explore --mutant")? {
                None => still.push(one),
                Some(value) => {
                    if !arguments.json {
                        writeln!(output, "{}", row(&value))?;
                        output.flush()?;
                    }
                    found.push(value);
                }
            }
        }
        running = still;
        sleep(Duration::from_millis(20));
    }
    report(arguments, &found, output)
}

fn report(arguments: &ExploreArgs, found: &[Value], output: &mut Output) -> Result<()> {
    let failed = found.iter().filter(|value| value["failed"].is_string()).count();
    let caught = found.iter().filter(|value| !value["caught"].is_null()).count();
    let missed = found.len() - caught - failed;
    let seconds: f64 = found.iter().filter_map(|value| value["seconds"].as_f64()).sum();
    let images: u64 = found.iter().filter_map(|value| value["images"].as_u64()).sum();
    if arguments.json {
        output.json(&json!({
            "mutants": found,
            "caught": caught,
            "missed": missed,
            "failed": failed,
            "images": images,
            "seconds": seconds,
        }))?;
    } else {
        let failed = if failed == 0 { String::new() } else { format!(" {failed} failed to run,") };
        writeln!(
            output,
            "{caught} of {} mutants caught,{failed} {images} images, {seconds:.0} s of processor time",
            found.len()
        )?;
    }
    if caught == found.len() { Ok(()) } else { Err(Failure::silent(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_deaths_by_own_fault_count_as_caught() {
        let exited = |status: i32| ExitStatus::from_raw(status << 8);
        assert!(is_death(exited(101), "panicked: at redo.rs:1"));
        assert!(!is_death(exited(1), "eyrie: cannot write: standard output"));
        assert!(!is_death(exited(127), ""));
        assert!(is_death(ExitStatus::from_raw(Signal::SEGV.as_raw()), ""));
        assert!(!is_death(ExitStatus::from_raw(Signal::KILL.as_raw()), "panicked: at redo.rs:1"));
    }

    #[test]
    fn processor_time_is_parsed() {
        let line = "12 (a) b (c) R 1 12 12 0 -1 4194304 100 0 0 0 300 50 0 0 20 0 1 0 1 1 1";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(processor_time(line), Some(Duration::from_secs_f64(350.0 / ticks)));
        assert_eq!(processor_time("12"), None);
    }
}
