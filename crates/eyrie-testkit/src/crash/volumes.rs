//! The volumes that crash runs start from: closed, as small as may be, full of the bytes of removed files.

use std::sync::Arc;

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_engine::{Engine, Error, Kind, Model, Owner, Time};
use eyrie_medium::{Event, Medium, Recorder};

use super::Change;
use super::run::apply;
use crate::ops::{Bytes, Start};

/// Bytes of a volume.
pub(super) const VOLUME_BYTES: u64 = 448 << 10;
/// Owner of the root.
pub(super) const OWNER: Owner = Owner { mode: 0o755, uid: 1, gid: 2 };
/// When the root was made.
pub(super) const BORN: Time = Time { seconds: 1, nanoseconds: 0 };

/// How volumes are made: with the smallest groups.
pub(super) fn options() -> Options {
    Options {
        group_bytes: 64 << 10,
        hash_seed: 7,
        volume_id: [1; 16],
        created: BORN,
        medium: MediumChoice::Auto,
        overwrite: false,
        paged: eyrie_medium::PagedOptions::for_host(),
    }
}

/// A volume to start from.
#[derive(Clone)]
pub struct Volume {
    /// Its name, for reports.
    pub name: &'static str,
    /// Its bytes.
    pub image: Arc<[u8]>,
    /// What it holds. Forked, never changed.
    pub model: Arc<Model>,
}

/// Applies the stores of a trace.
pub(super) fn replay_stores(image: &mut [u8], events: &[Event]) {
    for event in events {
        if let Event::Store { addr, bytes, .. } = event {
            image[addr.offset() as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }
}

impl Volume {
    /// A closed volume of the usual size after `changes`. All free memory has been used if `worn`.
    ///
    /// # Panics
    /// If a change fails.
    pub fn after(name: &'static str, worn: bool, changes: &[Change]) -> Volume {
        Volume::of_bytes(name, VOLUME_BYTES, worn, changes)
    }

    /// As [`Volume::after`], of so many bytes.
    pub(super) fn of_bytes(name: &'static str, bytes: u64, worn: bool, changes: &[Change]) -> Volume {
        let recorder = Recorder::default();
        let medium = Medium::traced(bytes, recorder.clone()).expect("memory");
        let engine = Scm::create_on(medium, &options(), OWNER, BORN).expect("a new volume");
        let model = Model::new(engine.root(), OWNER, BORN);
        if worn {
            wear(&engine, &model);
        }
        for (index, change) in changes.iter().enumerate() {
            let time = Time::new(10 + index as i64, 0);
            let resolved = change.resolve(&engine, time).expect("ids").expect("what it names exists");
            let (actual, expected) = apply(&engine, &model, &resolved);
            assert!(actual.is_ok() && expected.is_ok(), "{name}: {change:?}: {actual:?}, {expected:?}");
        }
        drop(recorder.take());
        let mut image = engine.volume().medium().snapshot();
        engine.close().expect("sound");
        replay_stores(&mut image, &recorder.take());
        Volume { name, image: image.into(), model: Arc::new(model) }
    }
}

/// Fills all memory with bytes that look like none of an empty volume, and frees it.
fn wear(engine: &Scm, model: &Model) {
    let mut paths = Vec::new();
    for length in [60 << 10, 16 << 10, 4 << 10] {
        loop {
            let path = format!("worn {}", paths.len());
            let start = Start::Bytes(Bytes { length, pattern: 0x5eed });
            let create = Change::Create { path: path.clone(), kind: Kind::File, start };
            let Some(resolved) = create.resolve(engine, BORN).expect("ids") else { break };
            let done = engine.apply(&resolved.record.decode().op());
            if matches!(done, Err(Error::NoSpace)) {
                resolved.reserved.iter().for_each(|reserved| reserved.settle(engine));
                break;
            }
            done.expect("only memory can be missing");
            model.apply(&resolved.record.decode().op()).expect("as the engine");
            paths.push(path);
        }
    }
    for path in paths {
        let unlink = Change::Unlink { path };
        let resolved = unlink.resolve(engine, BORN).expect("ids").expect("just made");
        let (actual, _) = apply(engine, model, &resolved);
        actual.expect("just made");
    }
    engine.volume().space().reclaim();
}
