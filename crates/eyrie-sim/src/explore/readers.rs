//! Readers: views of values and files, and an open file without a name, keep their contents while other calls
//! write.

use std::time::{Duration, Instant};

use eyrie::{Errno, PosixExt, Pxfs};
use eyrie_engine::scm::Scm;
use eyrie_engine::{Engine, FileView, ObjectId};
use eyrie_faults::FaultPlan;
use eyrie_medium::epoch;

use super::images::Counts;
use super::record::{RecordSession, StartVolume};
use super::recovered::{caught, sound};
use crate::script::{Script, perform};

/// Number of rounds. Each round checks views of values, views of files, and an open file without a name.
const ROUNDS: u64 = 24;
const KEYS: u64 = 6;
/// Maximum time for which a call that finds no room is repeated. Slow readers of other threads may pin freed
/// storage for that long.
const PATIENCE: Duration = Duration::from_secs(60);

fn call(files: &Pxfs<Scm>, text: &str) -> Result<(), String> {
    let script = Script::parse("readers", text.as_bytes()).expect("a constant script");
    script.lines().iter().try_for_each(|line| {
        let started = Instant::now();
        loop {
            match perform(files, &line.call) {
                // A pin of any thread of the process, for example of another test, keeps freed storage from
                // being reused.
                Err(error) if error.errno() == Errno::NOSPC && started.elapsed() < PATIENCE => {
                    std::thread::yield_now();
                }
                done => break done.map(drop).map_err(|error| format!("{}: {error}", line.call)),
            }
        }
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
        // On a disk a freed page can be reused only after a drain has made the freeing durable. This sync
        // drains the changes of earlier calls, so that the calls below reuse storage.
        engine.sync().map_err(|error| error.to_string())?;
        let (name, length) = (format!("view-{key}"), 100 + 900 * key);
        let guard = epoch::pin();
        let id = named(engine, &name)?;
        let view = engine.view(id, (0, u64::MAX), &guard).map_err(|error| error.to_string())?;
        let view = view
            .and_then(FileView::whole)
            .ok_or_else(|| format!("the value of {name} cannot be viewed in place"))?;
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

/// Changes a file by all kinds of calls while it holds views of two ranges of the file.
fn file_views(session: &RecordSession, round: u64) -> Result<(), String> {
    let files = &session.files;
    let failed = |error: eyrie::Error| error.to_string();
    for size in [50, 3000, 20_000] {
        call(files, &format!("creat /viewed\nwrite /viewed 0 {size} {round}"))?;
        // A small change gives a tree to a file that had one extent. The whole file then need not be in one
        // extent, so only the range of eight bytes must be in place.
        call(files, &format!("write /viewed {} 9 {round}", size / 2))?;
        session.files.engine().sync().map_err(|error| error.to_string())?;
        let file = files.open_file("/viewed").map_err(failed)?;
        let guard = files.pin();
        let views = [
            file.view(.., &guard).map_err(failed)?,
            file.view(size / 4 + 1..size / 4 + 9, &guard).map_err(failed)?,
        ];
        if !views[1].is_in_place() {
            return Err(format!("eight bytes of a file of {size} bytes cannot be viewed in place"));
        }
        let before = views.each_ref().map(|view| view.to_vec());
        let quarter = size / 4 / 8 * 8;
        for change in [
            // A file that no view has sealed would take this word in place. In this file, which is sealed,
            // the call must copy the page.
            format!("write /viewed {} 8 {}", quarter + 8, round + 500),
            format!("write /viewed {quarter} 16 {}", round + 600),
            format!("truncate /viewed {}", quarter + 4),
            format!("append /viewed 100 {}", round + 700),
            format!("put / viewed {size} {}", round + 800),
            "unlink /viewed".to_string(),
        ] {
            call(files, &change)?;
            (0..3).for_each(|_| _ = epoch::advance());
            call(files, &format!("put / other {size} {}\nerase / other", round + 900))?;
        }
        if views.iter().zip(&before).any(|(view, before)| view[..] != before[..]) {
            return Err(format!("bytes of a file of {size} bytes changed while they were in view"));
        }
    }
    Ok(())
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
/// Fails if the contents of a view or of an open orphan change, if a call fails, or if the volume is not
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
            file_views(&session, round)?;
            orphans(&session, round)?;
        }
        sound(session.files.engine())
    };
    caught(run).unwrap_or_else(Err).map(|()| Counts::default())
}
