//! Checks of a volume that was opened after a crash.

use std::panic::{AssertUnwindSafe, catch_unwind};

use eyrie_engine::object::header::Identity;
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::layout::{CLEAN, CLEAN_MARK};
use eyrie_engine::{Content, Engine, Kind, ObjectId, Op, Owner, SetIds, Time, recovery};
use eyrie_faults::{Choice, CrashImage, CrashPoint, CrashRule, FaultPlan, ImageBase};
use eyrie_medium::epoch;

use super::medium::crashed;
use crate::compare::{Tree, TreeParts, difference, try_tree};

type Verdict = Result<(), String>;

/// The checks fill the volume of the first image of a crash, if the number of events before the crash is a
/// multiple of this constant. It would take too long to fill the volume for every crash.
const FILLED_EVERY: usize = 5;
/// First byte of the names of files that the checks make.
const NEW: &[u8] = b"\x01";

/// The states that a crash may leave, and the conditions of the recovery.
pub(super) struct Expected<'a> {
    /// The allowed states.
    pub(super) states: Vec<&'a Tree>,
    /// True if the volume must open without recovery.
    pub(super) is_closed: bool,
    /// The plan with the point that recovery leaves out. It also counts the points that recovery meets.
    pub(super) plan: &'a FaultPlan,
}

/// The error of a wrong image.
pub(super) struct Wrong {
    pub(super) what: String,
    /// The picks of the image (see [`Images`](super::Images)), without the zeros at the end.
    pub(super) picks: Vec<usize>,
}

/// Opens the image that `picks` select for the crash at `point`, and checks the volume. Returns the choices
/// that were made before the checks of unreachable memory, and the change of the fingerprint of `base` by
/// these choices. A panic is an error of the image.
pub(super) fn examine(
    base: &ImageBase,
    point: &CrashPoint,
    picks: &[usize],
    expected: &Expected<'_>,
) -> Result<(Vec<Choice>, u64), Wrong> {
    let image = CrashImage::of(point, picks.to_vec()).with(expected.plan.clone());
    // Only the first image of a crash, which has lost all pending stores, is filled.
    let is_thorough = picks.is_empty() && point.after.is_multiple_of(FILLED_EVERY);
    caught(|| judge(base, image.clone(), expected, is_thorough)).unwrap_or_else(Err).map_err(|what| {
        let mut picks: Vec<usize> = image.choices().iter().map(|choice| choice.taken).collect();
        // Missing picks count as 0, so zeros at the end need not be listed.
        picks.truncate(picks.iter().rposition(|&pick| pick != 0).map_or(0, |last| last + 1));
        Wrong { what, picks }
    })
}

/// Returns the result of `run`.
///
/// # Errors
/// Fails with the message if `run` panics.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        format!("panic: {}", text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?"))
    })
}

/// Recovers the volume of an image, and compares it with the allowed states. Then tests whether the volume is
/// sound and usable. Returns the same values as [`examine`].
fn judge(
    base: &ImageBase,
    image: CrashImage,
    expected: &Expected<'_>,
    is_thorough: bool,
) -> Result<(Vec<Choice>, u64), String> {
    let rule = image.rule();
    let medium = crashed(base, image.clone()).map_err(|error| format!("open: {error}"))?;
    let is_marked_clean = {
        let _pin = epoch::pin();
        medium.load(CLEAN_MARK).map_err(|error| error.to_string())? == CLEAN
    };
    let engine = Scm::open_on(medium).map_err(|error| format!("open: {error}"))?;
    // On a disk the first drain makes the cleared clean mark durable. Before that, the drain may write fresh
    // pages over the saved allocator, so a recovery is allowed even if the mark is set.
    let may_recover = !is_marked_clean || rule == CrashRule::Sectors;
    let is_right = if engine.recovered() { may_recover } else { is_marked_clean };
    if !is_right {
        let (set, done) =
            if is_marked_clean { ("is set", "recovered") } else { ("is not set", "did not recover") };
        return Err(format!("the clean mark {set}, but the open {done} the volume"));
    }
    if expected.is_closed && engine.recovered() {
        return Err("a closed volume needed a recovery".into());
    }
    let found = try_tree(&engine, TreeParts::ALL).map_err(|error| error.to_string())?;
    if !expected.states.contains(&&found) {
        let differences: Vec<String> =
            expected.states.iter().filter_map(|state| difference(&found, state)).collect();
        return Err(format!(
            "the volume (first) is not as it should be (second): {}",
            differences.join("\n  or: ")
        ));
    }
    sound(&engine)?;
    let decided = (image.choices(), image.fingerprint());
    // The checks below read memory that the root does not reach. Their choices are not part of the image.
    headers(&engine)?;
    usable(&engine)?;
    if is_thorough {
        filled(&engine, &found)?;
    }
    Ok(decided)
}

/// Fills the volume with files of many sizes. The old contents of the volume must not change.
fn filled(engine: &Scm, found: &Tree) -> Verdict {
    fill(engine).map_err(|error| format!("not usable: {error}"))?;
    let mut now =
        try_tree(engine, TreeParts::ALL).map_err(|error| format!("after more was written: {error}"))?;
    let mut was = found.clone();
    for tree in [&mut now, &mut was] {
        // Leaves out the new files. Also leaves out the root, because the new files changed it.
        tree.nodes.retain(|path, _| path.first().is_some_and(|name| !name.starts_with(NEW)));
    }
    difference(&now, &was).map_or(Ok(()), |what| {
        Err(format!("after more was written, the volume (first) is not as it should be (second): {what}"))
    })
}

/// Makes files of several sizes, and then appends to an empty file until the volume is full.
fn fill(engine: &Scm) -> eyrie_engine::Result<()> {
    let (dir, time) = (engine.root(), Time::new(5001, 0));
    let owner = Owner { mode: 0o600, uid: 0, gid: 0 };
    let is_full = |error: &eyrie_engine::Error| error.is_full();
    let mut number = 0_u32;
    let mut create = |bytes: &[u8]| {
        number += 1;
        let name = [NEW, number.to_string().as_bytes()].concat();
        let id = engine.reserve(Kind::File)?;
        let content = if bytes.is_empty() { Content::Empty } else { Content::Bytes(bytes) };
        engine.apply(&Op::Create { dir, name: &name, id, owner, content, time }).map(|_| id)
    };
    let mut last = None;
    for (count, length) in [(16, 40), (8, 100), (8, 250), (4, 500), (4, 1000), (4, 2000)] {
        for _ in 0..count {
            match create(&vec![0xa5; length]) {
                Err(error) if is_full(&error) => break,
                done => last = Some(done?),
            }
        }
    }
    // An append needs no header. If an empty file finds no room, the last older file gets the appends.
    let id = match (create(&[]), last) {
        (Err(error), None) if is_full(&error) => return Ok(()),
        (Err(error), Some(last)) if is_full(&error) => last,
        (done, _) => done?,
    };
    for length in [32 << 10, 4 << 10] {
        let data = vec![0xa5; length];
        loop {
            match engine.apply(&Op::Append { id, data: &data, set_ids: SetIds::Keep, time }) {
                Err(error) if is_full(&error) => break,
                done => done?,
            };
        }
    }
    Ok(())
}

pub(super) fn sound(engine: &Scm) -> Verdict {
    let report = engine.check().map_err(|error| format!("check: {error}"))?;
    if let Some(finding) = report.findings.first() {
        return Err(format!("check: {finding} (and {} more)", report.findings.len() - 1));
    }
    let (space, objects) = (engine.space(), report.directories + report.files + report.others);
    if space.objects != objects {
        return Err(format!("{} objects are counted, but there are {objects}", space.objects));
    }
    Ok(())
}

/// Checks that the first word of each unreachable header slot is zero or that of a former header, because
/// header chunks hold nothing else.
fn headers(engine: &Scm) -> Verdict {
    let volume = engine.volume();
    let marks = recovery::mark_reachable(volume, engine.root()).map_err(|error| format!("mark: {error}"))?;
    for slot in marks.unmarked_headers() {
        let _pin = epoch::pin();
        let word = volume.medium().load(slot).map_err(|error| error.to_string())?;
        if word != 0 && word as u32 != Identity::MAGIC {
            return Err(format!("header slot {slot} holds {word:#x}"));
        }
    }
    Ok(())
}

/// Makes and reads a file. Checks that its generation is newer than those of all other reachable objects. A
/// full volume counts as usable.
pub(super) fn usable(engine: &Scm) -> Verdict {
    match write_anew(engine) {
        // A full volume cannot make a file, but is still usable for reads and removals.
        Err(error) if error.is_full() => Ok(()),
        Err(error) => Err(format!("not usable: {error}")),
        Ok(what) => what,
    }
}

fn write_anew(engine: &Scm) -> eyrie_engine::Result<Verdict> {
    let id = engine.reserve(Kind::File)?;
    let (dir, time) = (engine.root(), Time::new(5000, 0));
    let owner = Owner { mode: 0o600, uid: 0, gid: 0 };
    let content = Content::Bytes(b"written after the crash");
    engine.apply(&Op::Create { dir, name: b"\x01new", id, owner, content, time })?;
    engine.apply(&Op::Write { id, offset: 8, data: b"anew ", set_ids: SetIds::Keep, time })?;
    let mut bytes = [0; 40];
    let count = engine.read(id, 0, &mut bytes)?;
    if &bytes[..count] != b"written anew  the crash" {
        let read = bytes[..count].escape_ascii().to_string();
        return Ok(Err(format!("a new file has the bytes {read:?}")));
    }
    let newest = engine.birth(id)?.generation;
    let mut waiting = vec![dir];
    while let Some(at) = waiting.pop() {
        let mut children: Vec<ObjectId> = Vec::new();
        let listed = engine.list(at, 0, &mut |entry| {
            children.push(entry.id);
            true
        });
        listed?;
        for child in children {
            let generation = engine.birth(child)?.generation;
            if child != id && generation >= newest {
                return Ok(Err(format!(
                    "a new file has generation {newest}, but an older object has {generation}"
                )));
            }
            if child.is_directory() {
                waiting.push(child);
            }
        }
    }
    Ok(Ok(()))
}
