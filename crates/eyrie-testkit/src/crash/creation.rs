//! Explores power failures during the creation of a volume. Each must leave no volume, a volume without a
//! root (which the engine refuses to open), or a whole volume.

use std::collections::BTreeSet;

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::Volume;
use eyrie_engine::{Error, Kind, ObjectId};
use eyrie_faults::{
    CrashImage, CrashPoint, CrashPoints, Event, FaultPlan, Recorder, Site, crash_medium, traced,
};
use eyrie_medium::Medium;

use super::CaseFailure;
use super::volumes::{BORN, OWNER, VOLUME_BYTES, options};
use eyrie_sim::compare::{Tree, tree};
use eyrie_sim::explore::{Counts, CrashFailure, Images, Limits};

/// The mark in the trace that follows the making of the tables.
const HAS_TABLES: u64 = 1;
/// The mark in the trace that follows the making of the root.
const HAS_ROOT: u64 = 2;

type Examine<'a> = dyn Fn(&CrashPoint, Medium) -> Result<(), String> + 'a;

/// Opens the images of each crash in `events`, within `limits`, and calls `examine` with each of them.
fn explore(
    case: &str,
    events: &[Event],
    plan: &FaultPlan,
    dropped: Option<Site>,
    limits: Limits,
    examine: &Examine<'_>,
) -> Result<Counts, Box<CaseFailure>> {
    let mut counts = Counts::default();
    let mut points = CrashPoints::new(&vec![0; VOLUME_BYTES as usize], events).expect("memory");
    while let Some(point) = points.next() {
        let mut images = Images::new(limits, point.after);
        while let Some(picks) = images.next_picks() {
            let image = CrashImage::of(&point, picks.clone()).with(plan.clone());
            let medium = crash_medium(points.base(), image.clone()).expect("memory");
            examine(&point, medium).map_err(|what| {
                let crash = CrashFailure { after: point.after, picks, ..CrashFailure::before(what) };
                Box::new(CaseFailure { case: case.into(), dropped, crash })
            })?;
            images.add_choices(&image.choices());
        }
        let images = images.opened();
        counts += Counts { points: 1, images, ..Counts::default() };
    }
    Ok(counts)
}

/// Records the creation of a volume's tables and of its root.
fn tables(plan: &FaultPlan) -> (Vec<Event>, ObjectId) {
    let recorder = Recorder::of(plan.clone());
    let medium = traced(VOLUME_BYTES, recorder.clone()).expect("memory");
    let mut volume = Volume::create_on(medium, &options()).expect("a new volume");
    recorder.mark(HAS_TABLES);
    let place = volume.space().allocate_header().expect("room");
    let root = ObjectId::new(place.raw(), Kind::Directory);
    volume.set_root(root).expect("sound");
    recorder.mark(HAS_ROOT);
    (recorder.take(), root)
}

fn examine_tables(point: &CrashPoint, medium: Medium, root: ObjectId) -> Result<(), String> {
    let opened = Volume::open_on(medium);
    let found = match opened {
        Err(Error::Volume { .. }) if point.mark.is_none() => return Ok(()),
        Err(error) => return Err(format!("open: {error}")),
        Ok((volume, _)) => volume.root(),
    };
    if found == Some(root) || found.is_none() && point.mark != Some(HAS_ROOT) {
        return Ok(());
    }
    Err(format!("the root is {found:?}"))
}

fn examine_whole(point: &CrashPoint, medium: Medium, empty: &Tree) -> Result<(), String> {
    match Scm::open_on(medium) {
        Err(Error::Volume { .. } | Error::Corrupt { what: "volume without a root", .. })
            if point.mark.is_none() =>
        {
            Ok(())
        }
        Err(error) => Err(format!("open: {error}")),
        Ok(engine) if tree(&engine) == *empty => Ok(()),
        Ok(_) => Err("a new volume is not empty".into()),
    }
}

/// Explores the crashes during the creation of a volume, within `limits` and with the point `dropped` left
/// out. Returns the counts and the points that the creation met.
///
/// # Errors
/// The first image that is wrong.
///
/// # Panics
/// Panics if the creation fails without a crash.
pub fn explore_creation(
    dropped: Option<Site>,
    limits: Limits,
) -> Result<(Counts, BTreeSet<Site>), Box<CaseFailure>> {
    let plan = FaultPlan::without(dropped);
    let (events, root) = tables(&plan);
    let mut counts = explore("creation of tables", &events, &plan, dropped, limits, &|point, medium| {
        examine_tables(point, medium, root)
    })?;
    let recorder = Recorder::of(plan.clone());
    let medium = traced(VOLUME_BYTES, recorder.clone()).expect("memory");
    let engine = Scm::create_on(medium, &options(), OWNER, BORN).expect("a new volume");
    recorder.mark(HAS_ROOT);
    let (events, empty) = (recorder.take(), tree(&engine));
    counts += explore("creation", &events, &plan, dropped, limits, &|point, medium| {
        examine_whole(point, medium, &empty)
    })?;
    Ok((counts, plan.points().into_keys().collect()))
}
