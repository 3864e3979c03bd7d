//! Power fails at every write and barrier. After each failure, every change must be complete or absent.

use std::collections::BTreeSet;

use eyrie_faults::{CrashImage, CrashPoint, CrashPoints, ImageBase, Recorder, Site, crash_medium, traced};
use eyrie_medium::SiteKind;

use super::*;
use crate::transaction::redo;

/// Recovers one crash image of `point`. `script` selects the image, as in [`CrashImage::new`]. Returns the
/// entries of the image, and the script of the next image of the point. Asserts that counts and look-ups
/// agree with the entries.
fn recovered(
    base: &ImageBase,
    point: &CrashPoint,
    word: Addr,
    script: Vec<usize>,
) -> (BTreeMap<Vec<u8>, ObjectId>, Option<Vec<usize>>) {
    let image = CrashImage::new(point.pending.clone(), script);
    let medium = crash_medium(base, image.clone()).expect("memory");
    let (volume, _) = Volume::open_on(medium).expect("a volume");
    redo::replay(&volume).expect("sound");
    let directory = Directory { volume: &volume, word };
    let entries = directory.entries().expect("sound");
    let summary = directory.summary().expect("sound");
    assert_eq!(summary.entries, entries.len() as u64);
    assert_eq!(summary.subdirectories, entries.values().filter(|id| id.is_directory()).count() as u64);
    for (name, id) in &entries {
        assert_eq!(directory.lookup(name).expect("sound").map(|found| found.id), Some(*id));
    }
    directory.extents().expect("sound");
    (entries, CrashImage::next_script(&image.choices()))
}

/// Runs `steps` random changes on a traced medium, with `names` different names. Recovers from a crash at
/// every crash point of the run. If `dropped` names a fence, the run leaves that fence out. If `emptied` is
/// true, the run removes all entries after the random changes, so that the collection shrinks.
///
/// Returns the sites of all fences of the run.
fn explore(seed: u64, steps: u64, names: u64, dropped: Option<Site>, emptied: bool) -> BTreeSet<Site> {
    let recorder = Recorder::without(dropped);
    let medium = traced(1 << 20, recorder.clone()).expect("memory");
    let volume = volume_on(medium, 64 << 10);
    let directory = Directory::new(&volume);
    drop(recorder.take());
    let before = volume.medium().snapshot();
    let mut model = BTreeMap::new();
    let mut models = vec![model.clone()];
    let mut random = SplitMix64(seed);
    for step in 1..=steps {
        let (one, other) = (name(random.below(names)), name(random.below(names)));
        match (model.contains_key(&one), model.contains_key(&other)) {
            (false, _) => {
                directory.insert(&one, id(step));
                model.insert(one, id(step));
            }
            (true, false) => {
                // A rename within the directory.
                directory.make_room(&other);
                let found = directory.lookup(&one).expect("sound").expect("there");
                directory.change(|tx| {
                    remove(tx, &found, NOW, TIMES_VERSION)?;
                    insert(tx, directory.root(), &other, found.id, NOW, TIMES_VERSION)
                });
                model.remove(&one);
                model.insert(other, found.id);
            }
            (true, true) if random.below(2) == 0 => {
                directory.remove(&one);
                model.remove(&one);
            }
            (true, true) => {
                directory.replace(&one, id(step));
                model.insert(one, id(step));
            }
        }
        models.push(model.clone());
        recorder.mark(step);
    }
    directory.assert_is(&model);
    if emptied {
        assert!(directory.view().bucket_count().expect("sound") > 4);
        while let Some((name, _)) = model.pop_first() {
            directory.remove(&name);
            models.push(model.clone());
            recorder.mark(models.len() as u64 - 1);
        }
        assert_eq!(directory.view().bucket_count().expect("sound"), 1);
    }
    let events = recorder.take();
    let mut points = CrashPoints::new(&before, &events).expect("memory");
    while let Some(point) = points.next() {
        let done = point.mark.unwrap_or(0) as usize;
        let mut script = Some(Vec::new());
        while let Some(taken) = script {
            let (entries, next) = recovered(points.base(), &point, directory.word, taken.clone());
            assert!(
                models[done..models.len().min(done + 2)].contains(&entries),
                "seed {seed}, after event {}, images {taken:?}: neither before nor after step {}",
                point.after,
                done + 1,
            );
            script = next;
        }
    }
    recorder.plan().points().into_keys().filter(|site| site.kind == SiteKind::Fence).collect()
}

#[test]
fn crash_leaves_each_change_whole_or_undone() {
    explore(1, 80, 60, None, false);
    explore(2, 60, 200, None, false);
}

#[test]
fn crash_of_shrinking_collection_leaves_each_change_whole_or_undone() {
    explore(3, 110, 1000, None, true);
}

#[test]
fn no_barrier_can_be_left_out() {
    let ours = |site: &Site| site.file.ends_with("/commit.rs") || site.file.ends_with("/redo.rs");
    let sites: Vec<Site> = explore(1, 80, 60, None, false).into_iter().filter(ours).collect();
    assert!(sites.len() >= 5, "{sites:?}");
    for site in sites {
        // Some missing barriers show only if one rename across pages follows another rename across pages.
        // Therefore the test tries several seeds.
        let shows = |seed| std::panic::catch_unwind(|| explore(seed, 80, 60, Some(site), false)).is_err();
        assert!((1..20).any(shows), "no seed shows that the barrier at {site:?} is missing");
    }
}

#[test]
fn an_image_opened_again_has_the_same_entries() {
    let volume = volume(16 << 20);
    let directory = Directory::new(&volume);
    let model: BTreeMap<_, _> = (0..700).map(|n| (name(n), id(n))).collect();
    for (name, id) in &model {
        directory.insert(name, *id);
    }
    let medium = Medium::memory(16 << 20).expect("memory");
    drop(medium.write(Addr::NULL, &volume.medium().snapshot()).expect("in bounds"));
    let (volume, _) = Volume::open_on(medium).expect("a volume");
    Directory { volume: &volume, word: directory.word }.assert_is(&model);
}
