//! Readers: a view of a value, and an open file without a name, keep their contents while other calls write.

use eyrie::Pxfs;
use eyrie_engine::scm::Scm;
use eyrie_engine::{Engine, ObjectId};
use eyrie_faults::FaultPlan;
use eyrie_medium::epoch;

use super::images::Counts;
use super::record::{RecordSession, StartVolume};
use super::recovered::{caught, sound};
use crate::script::{Script, perform};

/// Number of rounds. Each round checks views of values, and an open file without a name.
const ROUNDS: u64 = 24;
const KEYS: u64 = 6;

fn call(files: &Pxfs<Scm>, text: &str) -> Result<(), String> {
    let script = Script::parse("readers", text.as_bytes()).expect("a constant script");
    script.lines().iter().try_for_each(|line| {
        perform(files, &line.call).map_err(|error| format!("{}: {error}", line.call))?;
        Ok(())
    })
}

fn named(engine: &Scm, name: &str) -> Result<ObjectId, String> {
    let found = engine.lookup(engine.root(), name.as_bytes()).map_err(|error| error.to_string())?;
    found.ok_or_else(|| format!("no {name}"))
}

/// Overwrites values while it holds views of them, and reuses storage of many sizes.
fn views(session: &RecordSession, round: u64) -> Result<(), String> {
    let (files, engine) = (&session.files, &**session.files.engine());
    for key in 0..KEYS {
        call(files, &format!("put / view-{key} {} {round}", 100 + 900 * key))?;
    }
    for key in 0..KEYS {
        // On a disk a freed page can be reused only after a drain has made the free durable. This sync drains
        // the frees of earlier calls, so that the calls below reuse storage.
        engine.sync().map_err(|error| error.to_string())?;
        let (name, length) = (format!("view-{key}"), 100 + 900 * key);
        let guard = epoch::pin();
        let view = engine.view(named(engine, &name)?, &guard).map_err(|error| error.to_string())?;
        let view = view.ok_or_else(|| format!("the value of {name} cannot be viewed in place"))?;
        let before = view.to_vec();
        call(files, &format!("write /{name} 8 8 {}", round + 500))?;
        call(files, &format!("put / {name} {length} {}", round + 1000))?;
        for other in 0..4 {
            (0..3).for_each(|_| _ = epoch::advance());
            call(files, &format!("put / other-{key}-{other} {length} {}", round + 2000 + other))?;
        }
        if view != before {
            return Err(format!("the value of {name} changed while it was in view"));
        }
    }
    (0..KEYS * 4).try_for_each(|other| call(files, &format!("erase / other-{}-{}", other / 4, other % 4)))
}

/// Unlinks an open file, and reuses freed storage.
fn orphans(session: &RecordSession, round: u64) -> Result<(), String> {
    let (files, engine) = (&session.files, &**session.files.engine());
    call(files, &format!("creat /orphan\nwrite /orphan 0 6000 {round}\n"))?;
    let id = named(engine, "orphan")?;
    let read = || {
        let mut bytes = vec![0; 6000];
        let count =
            engine.read(id, 0, &mut bytes).map_err(|error| format!("reading the open file: {error}"))?;
        bytes.truncate(count);
        Ok::<_, String>(bytes)
    };
    engine.sync().map_err(|error| error.to_string())?;
    engine.open(id).map_err(|error| error.to_string())?;
    let before = read()?;
    call(files, "unlink /orphan\n")?;
    for key in 0..KEYS {
        (0..3).for_each(|_| _ = epoch::advance());
        call(
            files,
            &format!("put / other-{key} 4096 {}\ncreat /file-{key}\nunlink /file-{key}\n", round + key),
        )?;
    }
    let after = read();
    engine.close(id);
    if after? == before { Ok(()) } else { Err("an open file without a name changed".to_string()) }
}

/// Checks readers on a volume in memory or on a disk. Stops when `should_continue` returns false.
///
/// # Errors
/// Fails at the first view or open orphan whose contents change, if a call fails, or if the volume is not
/// sound afterwards.
pub(super) fn explore(
    start: &StartVolume,
    should_continue: &mut dyn FnMut() -> bool,
) -> Result<Counts, String> {
    let run = || {
        let session = RecordSession::open(start, &FaultPlan::default()).map_err(|error| error.to_string())?;
        for round in 0..ROUNDS {
            if !should_continue() {
                break;
            }
            views(&session, round)?;
            orphans(&session, round)?;
        }
        sound(session.files.engine())
    };
    caught(run).unwrap_or_else(Err).map(|()| Counts::default())
}
