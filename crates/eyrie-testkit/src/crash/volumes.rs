//! The volumes of the crash run. They are small. All except the volume `interrupted` were closed after their
//! changes. In most of them the free storage is full of old bytes.

use std::sync::Arc;

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::Options;
use eyrie_engine::{Engine, Error, Kind, Model, Owner, Time};
use eyrie_faults::{Recorder, traced};
use eyrie_sim::explore::{apply_stores, fixed_options};

use super::PathOp;
use super::path_op::apply;
use crate::ops::{Bytes, InitialContent};

/// Usual size of a volume, in bytes.
pub(super) const VOLUME_BYTES: u64 = 448 << 10;
/// Owner of the root.
pub(super) const OWNER: Owner = Owner { mode: 0o755, uid: 1, gid: 2 };
/// Creation time of the root.
pub(super) const BORN: Time = Time { seconds: 1, nanoseconds: 0 };

/// Returns options with the smallest groups, so that small volumes have several groups.
pub(super) fn options() -> Options {
    fixed_options(64 << 10, BORN)
}

/// A volume that cases start from.
#[derive(Clone)]
pub struct CaseVolume {
    /// Name of the volume, for reports.
    pub name: &'static str,
    /// Bytes of the volume.
    pub image: Arc<[u8]>,
    /// Contents of the volume. Each run changes a fork of this model.
    pub model: Arc<Model>,
}

impl CaseVolume {
    /// Creates a volume of the usual size, applies `changes` and closes it. If `worn` is true, its free
    /// memory is full of old bytes.
    ///
    /// # Panics
    /// Panics if a change fails.
    pub fn after(name: &'static str, worn: bool, changes: &[PathOp]) -> CaseVolume {
        CaseVolume::of_bytes(name, VOLUME_BYTES, worn, changes)
    }

    /// Works like [`CaseVolume::after`], with a size in bytes.
    pub(super) fn of_bytes(name: &'static str, bytes: u64, worn: bool, changes: &[PathOp]) -> CaseVolume {
        let recorder = Recorder::default();
        let medium = traced(bytes, recorder.clone()).expect("memory");
        let engine = Scm::create_on(medium, &options(), OWNER, BORN).expect("a new volume");
        let model = Model::new(engine.root(), OWNER, BORN);
        if worn {
            wear(&engine, &model);
        }
        for (index, change) in changes.iter().enumerate() {
            let time = Time::new(10 + index as i64, 0);
            let resolved = change.resolve(&engine, time).expect("ids").expect("its objects exist");
            let (actual, expected) = apply(&engine, &model, &resolved);
            assert!(actual.is_ok() && expected.is_ok(), "{name}: {change:?}: {actual:?}, {expected:?}");
        }
        drop(recorder.take());
        // The close consumes the engine with its medium. So the stores of the close are recorded, and applied
        // to a copy of the bytes before the close.
        let mut image = engine.volume().medium().snapshot();
        engine.close().expect("sound");
        apply_stores(&mut image, &recorder.take());
        CaseVolume { name, image: image.into(), model: Arc::new(model) }
    }
}

/// Fills the free storage of the volume with files, and removes the files.
fn wear(engine: &Scm, model: &Model) {
    let mut paths = Vec::new();
    for length in [60 << 10, 16 << 10, 4 << 10] {
        loop {
            let path = format!("worn {}", paths.len());
            let start = InitialContent::Bytes(Bytes { length, pattern: 0x5eed });
            let create = PathOp::Create { path: path.clone(), kind: Kind::File, start };
            let Some(resolved) = create.resolve(engine, BORN).expect("ids") else { break };
            let done = engine.apply(&resolved.record.decode().op());
            if matches!(done, Err(Error::NoSpace)) {
                resolved.reserved.iter().for_each(|reserved| reserved.release_unused(engine));
                break;
            }
            done.expect("only a full volume is an error");
            model.apply(&resolved.record.decode().op()).expect("as the engine");
            paths.push(path);
        }
    }
    for path in paths {
        let unlink = PathOp::Unlink { path };
        let resolved = unlink.resolve(engine, BORN).expect("ids").expect("just made");
        let (actual, _) = apply(engine, model, &resolved);
        actual.expect("just made");
    }
    engine.volume().space().reclaim();
}
