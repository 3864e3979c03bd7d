//! Resizes: the power fails at every fence of a resize, and in further resizes the system calls of one call
//! site after the other fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie::{Credentials, Pxfs};
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_engine::{Owner, Time};
use eyrie_faults::{CrashRule, Failing, FailureKind, FaultPlan, Recorder, traced_from};
use eyrie_medium::PagedOptions;

use super::images::{Counts, Limits};
use super::medium::RunMedium;
use super::record::StartVolume;
use super::recovered::{caught, sound};
use super::run::TracedRun;
use crate::compare::{Tree, difference, tree};
use crate::script::Script;

/// Sizes of volumes that are grown and shrunk, in bytes.
const SMALL: u64 = 1 << 20;
const LARGE: u64 = (3 << 19) + 8192;

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };

/// Returns a script that fills a volume of at most `LARGE` bytes, and then removes most of its files.
fn contents() -> Script {
    let mut text = "creat /a\nwrite /a 0 9000 1\nmkdir /d\nput /d k 100 2\n".to_string();
    (0..24).for_each(|key| text.push_str(&format!("put / large-{key} 64K 3\n")));
    (0..24).for_each(|key| text.push_str(&format!("erase / large-{key}\n")));
    Script::parse("contents", text.as_bytes()).expect("a constant script")
}

/// Lets power fail while a volume in memory is resized.
fn crashes(from: u64, to: u64, should_continue: &mut dyn FnMut() -> bool) -> Result<Counts, String> {
    let start = StartVolume::on(RunMedium::of(CrashRule::Lines, from))
        .and_then(|empty| empty.after_script(&contents()));
    let start = start.map_err(|error| error.to_string())?;
    let mut base = start.image().to_vec();
    base.resize(from.max(to) as usize, 0);
    let recorder = Recorder::default();
    let medium = traced_from(&base, recorder.clone()).map_err(|error| error.to_string())?;
    Scm::resize_on(medium, to).map_err(|error| format!("resize: {error}"))?;
    recorder.mark(1);
    let held = tree(start.model());
    let run = TracedRun {
        rule: CrashRule::Lines,
        base,
        events: recorder.take(),
        states: vec![held.clone(), held],
        durable: vec![0, 1],
        early: Vec::new(),
        orders: None,
        is_closed: false,
        plan: FaultPlan::default(),
    };
    let limits = Limits { images: 2000, sampled: 0, is_complete: false, recoveries: 1 };
    run.explore(limits, &mut |_| should_continue()).map_err(|failure| failure.to_string())
}

/// A temporary directory for volumes.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new() -> Result<ScratchDir, String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = std::env::temp_dir().join(format!("eyrie-resizing-{}-{number}", std::process::id()));
        fs::create_dir_all(&place).map_err(|error| error.to_string())?;
        Ok(ScratchDir(place))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // A directory that stays behind harms no test.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes a volume of `bytes` on the host, runs the script of [`contents`] and closes the volume. Returns the
/// contents of the volume.
fn volume(path: &Path, bytes: u64, medium: MediumChoice) -> Result<Tree, String> {
    let random = Options::random(Time::new(1, 0)).map_err(|error| error.to_string())?;
    let options = Options { medium, group_bytes: 64 << 10, ..random };
    let engine = Scm::create(path, Some(bytes), &options, OWNER, Time::new(1, 0));
    let files = Pxfs::new(Arc::new(engine.map_err(|error| error.to_string())?), Credentials::root());
    // The script may fill the volume. Calls that find no room change nothing.
    contents().run(&files).for_each(drop);
    let held = tree(&**files.engine());
    let engine = Arc::clone(files.engine());
    drop(files);
    let engine = Arc::into_inner(engine).ok_or("the volume is still in use")?;
    engine.close().map_err(|error| error.to_string())?;
    Ok(held)
}

/// Repeats a resize on new volumes. In each repetition one system call fails, and so do all later calls from
/// the same call site. The call that fails first is one of the first three calls from its site. The volume
/// must then have its old or its new size, and its old contents. Returns the number of repetitions.
fn failures(
    medium: MediumChoice,
    from: u64,
    to: u64,
    should_continue: &mut dyn FnMut() -> bool,
) -> Result<u64, String> {
    let place = ScratchDir::new()?;
    let paged = PagedOptions::for_host();
    let plan = FaultPlan::default();
    plan.count_calls();
    let path = place.0.join("first");
    volume(&path, from, medium)?;
    plan.on_this_thread(|| Scm::resize(&path, Some(to), paged))
        .map_err(|error| format!("resize: {error}"))?;
    let mut tried = 0;
    for (site, calls) in plan.calls() {
        for first in 1..=calls.min(3) {
            if !should_continue() {
                return Ok(tried);
            }
            tried += 1;
            let path = place.0.join(tried.to_string());
            let held = volume(&path, from, medium)?;
            let plan = FaultPlan::default();
            plan.fail(Some(Failing { site, kind: FailureKind::Io, first, is_persistent: true }));
            // The resize may fail or succeed. Only the volume that it leaves is checked.
            let _ = plan.on_this_thread(|| Scm::resize(&path, Some(to), paged));
            let with_context =
                |what: String| format!("from {from} to {to} bytes, call {first} of {site} fails: {what}");
            let engine = Scm::open(&path, paged).map_err(|error| with_context(error.to_string()))?;
            let bytes = engine.volume().geometry().volume_bytes();
            if ![from, to].contains(&bytes) {
                return Err(with_context(format!("the volume has {bytes} bytes")));
            }
            difference(&tree(&engine), &held).map_or(Ok(()), |what| Err(with_context(what)))?;
            sound(&engine).map_err(with_context)?;
        }
    }
    Ok(tried)
}

/// Checks resizes that grow and shrink volumes. Stops when `should_continue` returns false.
///
/// # Errors
/// Fails at the first crash or failure that leaves a wrong volume.
pub(super) fn explore(should_continue: &mut dyn FnMut() -> bool) -> Result<Counts, String> {
    let run = || {
        let mut counts = Counts::default();
        for (from, to) in [(SMALL, LARGE), (LARGE, SMALL), (LARGE, LARGE - 4096)] {
            counts += crashes(from, to, should_continue)?;
        }
        for (from, to) in [(1 << 20, 2 << 20), (2 << 20, 1 << 20)] {
            counts.images += failures(MediumChoice::Dram, from, to, should_continue)?;
        }
        Ok(counts)
    };
    caught(run).unwrap_or_else(Err)
}
