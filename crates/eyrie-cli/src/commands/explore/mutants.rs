//! `explore --mutants`.

use std::io::{self, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use eyrie_sim::explore::mutants::{SafetyRule, hunt};
use serde_json::{Value, json};

use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::{arguments, interrupt};

/// How long one mutant is hunted, in time of a processor, if nobody says.
const TIME: Duration = Duration::from_secs(60);
/// How many times as long its process may take before it counts as one that hangs: others need the processor, too.
const PATIENCE: u32 = 10;
/// Processes at a time.
const AT_ONCE: usize = 2;

fn rule(id: &str) -> Result<SafetyRule> {
    SafetyRule::of_id(id).ok_or_else(|| Failure::usage("no such rule", id, "docs/rules.md lists them"))
}

/// Seconds that this process has had of a processor.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Breaks a rule in this process.
pub(super) fn explore_one(id: &str, arguments: &arguments::Explore, output: &mut Output) -> Result<()> {
    let rule = rule(id)?;
    // What is caught is told in the report.
    std::panic::set_hook(Box::new(|_| {}));
    let most = arguments.time.unwrap_or(TIME).as_secs_f64();
    let found = hunt(rule, &|| processor_seconds() < most);
    let mut value = json!(found);
    value["seconds"] = json!(processor_seconds());
    output.json(&value)
}

/// A process in which a rule is broken.
struct Hunted {
    rule: SafetyRule,
    process: Child,
    began: Instant,
}

impl Hunted {
    fn start(rule: SafetyRule, time: Duration) -> Result<Hunted> {
        let program = std::env::current_exe().doing("find this program", "eyrie")?;
        let mut command = Command::new(program);
        command.args(["explore", "--json", "--mutant", rule.entry().id]);
        command.arg("--time").arg(format!("{}s", time.as_secs()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let process = command.spawn().doing("start", "eyrie explore --mutant")?;
        Ok(Hunted { rule, process, began: Instant::now() })
    }

    /// What became of it, when its process has ended or must.
    fn end(&mut self, time: Duration) -> io::Result<Option<Value>> {
        let seen = |what: String| {
            let caught = json!({ "medium": "-", "kind": "-", "script": 0, "what": what });
            let seconds = self.began.elapsed().as_secs_f64();
            json!({ "rule": self.rule.entry().id, "caught": caught, "images": 0, "complete": false, "seconds": seconds })
        };
        if self.process.try_wait()?.is_none() {
            if self.began.elapsed() < time * PATIENCE {
                return Ok(None);
            }
            self.process.kill()?;
            self.process.wait()?;
            return Ok(Some(seen("it hangs".to_string())));
        }
        let status = self.process.wait()?;
        let told = self.process.stdout.take().map(io::read_to_string).transpose()?.unwrap_or_default();
        Ok(Some(serde_json::from_str(&told).unwrap_or_else(|_| seen(format!("the process ended: {status}")))))
    }
}

fn row(value: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let (rule, images) = (text(&value["rule"]), value["images"].as_u64().unwrap_or(0));
    let seconds = value["seconds"].as_f64().unwrap_or(0.0);
    let caught = &value["caught"];
    if caught.is_null() {
        let why = if value["complete"] == json!(true) { "NOT CAUGHT" } else { "NOT CAUGHT in its time" };
        return format!("{rule:<42} {:<6} {why:<30} {images:>8} {seconds:>8.1}", "");
    }
    let kind = match caught["script"].as_u64() {
        Some(script) if script > 0 => format!("{} {script}", text(&caught["kind"])),
        _ => text(&caught["kind"]),
    };
    let (medium, what) = (text(&caught["medium"]), text(&caught["what"]));
    format!("{rule:<42} {medium:<6} {kind:<30} {images:>8} {seconds:>8.1}  {what}")
}

/// Breaks each rule in a process of its own.
pub(super) fn explore(arguments: &arguments::Explore, output: &mut Output) -> Result<()> {
    let time = arguments.time.unwrap_or(TIME);
    let only = arguments.only.iter().map(|id| rule(id)).collect::<Result<Vec<_>>>()?;
    let mut waiting: Vec<SafetyRule> =
        if only.is_empty() { SafetyRule::ALL.iter().rev().copied().collect() } else { only };
    if !arguments.json {
        writeln!(
            output,
            "{:<42} {:<6} {:<30} {:>8} {:>8}  SEEN",
            "RULE", "MEDIUM", "CAUGHT BY", "IMAGES", "SECONDS"
        )?;
    }
    let (mut hunted, mut found): (Vec<Hunted>, Vec<Value>) = (Vec::new(), Vec::new());
    while !waiting.is_empty() || !hunted.is_empty() {
        if interrupt::requested() {
            hunted.iter_mut().for_each(|hunted| _ = hunted.process.kill());
        }
        interrupt::check("explore")?;
        while hunted.len() < AT_ONCE
            && let Some(rule) = waiting.pop()
        {
            hunted.push(Hunted::start(rule, time)?);
        }
        let mut still = Vec::new();
        for mut one in hunted {
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
        hunted = still;
        sleep(Duration::from_millis(20));
    }
    report(arguments, &found, output)
}

fn report(arguments: &arguments::Explore, found: &[Value], output: &mut Output) -> Result<()> {
    let missed = found.iter().filter(|value| value["caught"].is_null()).count();
    let seconds: f64 = found.iter().filter_map(|value| value["seconds"].as_f64()).sum();
    let images: u64 = found.iter().filter_map(|value| value["images"].as_u64()).sum();
    if arguments.json {
        output.json(&json!({
            "mutants": found,
            "caught": found.len() - missed,
            "missed": missed,
            "images": images,
            "seconds": seconds,
        }))?;
    } else {
        let caught = found.len() - missed;
        writeln!(
            output,
            "{caught} of {} mutants caught, {images} images, {seconds:.0} s of a processor",
            found.len()
        )?;
    }
    if missed == 0 { Ok(()) } else { Err(Failure::silent(1)) }
}
