//! Power fails while a volume is made: there is none yet, or a whole one.

use std::collections::BTreeSet;

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::Volume;
use eyrie_engine::{Error, Kind, ObjectId};
use eyrie_medium::{Choice, CrashImage, CrashPoint, CrashPoints, Event, Medium, Plan, Recorder, Site};

use super::Failure;
use super::volumes::{BORN, OWNER, VOLUME_BYTES, options};
use eyrie_sim::compare::{Tree, tree};
use eyrie_sim::explore::{self, Counts, Limits};

/// A volume with tables, and a volume with a root, has returned.
const HAS_TABLES: u64 = 1;
const HAS_ROOT: u64 = 2;

type Examine<'a> = dyn Fn(&CrashPoint, Medium) -> Result<(), String> + 'a;

fn explore(
    case: &str,
    events: &[Event],
    plan: &Plan,
    dropped: Option<Site>,
    limits: Limits,
    examine: &Examine<'_>,
) -> Result<Counts, Box<Failure>> {
    let mut counts = Counts::default();
    let mut points = CrashPoints::new(&vec![0; VOLUME_BYTES as usize], events).expect("memory");
    while let Some(point) = points.next() {
        let mut images = 0;
        let mut next = Some(Vec::new());
        while let Some(script) = next.filter(|_| images < limits.images) {
            images += 1;
            let image = CrashImage::new(point.pending.clone(), script.clone()).with(plan.clone());
            let medium = Medium::image(points.base(), image.clone()).expect("memory");
            examine(&point, medium).map_err(|what| {
                let before = explore::Failure::before(what);
                let crash = explore::Failure { after: point.after, picks: script, ..before };
                Box::new(Failure { case: case.into(), dropped, crash })
            })?;
            let choices: Vec<Choice> = image.choices();
            next = CrashImage::next_script(&choices);
        }
        counts += Counts { points: 1, images, ..Counts::default() };
    }
    Ok(counts)
}

/// The volume has its tables once it was made, and its root from then on or not yet.
fn tables(plan: &Plan) -> (Vec<Event>, ObjectId) {
    let recorder = Recorder::of(plan.clone());
    let medium = Medium::traced(VOLUME_BYTES, recorder.clone()).expect("memory");
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

/// Crashes everywhere in the creation of a volume, without what `dropped` does; also the points that were met.
///
/// # Errors
/// The first image that is not as it must be.
///
/// # Panics
/// If no volume can be made.
pub fn explore_creation(
    dropped: Option<Site>,
    limits: Limits,
) -> Result<(Counts, BTreeSet<Site>), Box<Failure>> {
    let plan = Plan::without(dropped);
    let (events, root) = tables(&plan);
    let mut counts = explore("creation of tables", &events, &plan, dropped, limits, &|point, medium| {
        examine_tables(point, medium, root)
    })?;
    let recorder = Recorder::of(plan.clone());
    let medium = Medium::traced(VOLUME_BYTES, recorder.clone()).expect("memory");
    let engine = Scm::create_on(medium, &options(), OWNER, BORN).expect("a new volume");
    recorder.mark(HAS_ROOT);
    let (events, empty) = (recorder.take(), tree(&engine));
    counts += explore("creation", &events, &plan, dropped, limits, &|point, medium| {
        examine_whole(point, medium, &empty)
    })?;
    Ok((counts, plan.points().into_keys().collect()))
}
