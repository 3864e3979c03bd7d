//! Runs of an engine on a simulated disk that loses its power, or fails.
//!
//! The model goes along, and what it holds after each Op is kept. What recovery finds after a power failure must be one of
//! those states, none older than the last acknowledged `sync`, and sound.

pub mod plant;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_engine::{Engine, Error, Kind, Model, Owner, Result, Time};
use eyrie_medium::{Fault, Medium, PagedOptions, Plan, SimulatedDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::ops::{Action, Generator, Ids, Mix};
use eyrie_sim::compare::{Tree, difference, tree};

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const BORN: Time = Time::new(1, 0);

/// What a run is like.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Size of the volume, in bytes.
    pub volume_bytes: u64,
    /// Memory for its pages, in bytes.
    pub memory_bytes: u64,
}

impl Disk {
    fn paged(self) -> PagedOptions {
        // Drains come from the run, and from the keeper only when memory is short.
        PagedOptions { memory_bytes: self.memory_bytes, drain_interval: Duration::from_secs(3600) }
    }

    /// A new disk, for a run with this plan.
    pub fn blank(self, plan: &Plan) -> SimulatedDisk {
        SimulatedDisk::new(Medium::paged_bytes(self.volume_bytes) as usize).with(plan.clone())
    }

    /// A new disk, and the medium on it.
    ///
    /// # Errors
    /// As [`Medium::paged`].
    pub fn medium(self, plan: &Plan) -> Result<(Medium, SimulatedDisk)> {
        let disk = self.blank(plan);
        Medium::format_paged(&disk, self.volume_bytes)?;
        Ok((self.mount(&disk)?, disk))
    }

    /// The medium on a disk.
    ///
    /// # Errors
    /// As [`Medium::paged`].
    pub fn mount(self, disk: &SimulatedDisk) -> Result<Medium> {
        Ok(Medium::paged(Arc::new(disk.clone()), self.paged())?)
    }

    /// A new volume on a new disk.
    ///
    /// # Errors
    /// As [`Scm::create_on`].
    pub fn create(self) -> Result<(Scm, SimulatedDisk)> {
        self.create_with(&Plan::default())
    }

    /// A new volume on a new disk, for a run with this plan.
    ///
    /// # Errors
    /// As [`Scm::create_on`].
    pub fn create_with(self, plan: &Plan) -> Result<(Scm, SimulatedDisk)> {
        let (medium, disk) = self.medium(plan)?;
        let options = Options {
            group_bytes: 1 << 18,
            hash_seed: 7,
            volume_id: [1; 16],
            created: BORN,
            medium: MediumChoice::Paged,
            overwrite: false,
            paged: self.paged(),
        };
        Ok((Scm::create_on(medium, &options, OWNER, BORN)?, disk))
    }

    /// The volume on a disk, recovered if need be.
    ///
    /// # Errors
    /// As [`Scm::open_on`].
    pub fn open(self, disk: SimulatedDisk) -> Result<Scm> {
        Scm::open_on(self.mount(&disk)?)
    }
}

/// An engine, the model, and what the model held.
pub struct Run {
    disk: Disk,
    simulated: SimulatedDisk,
    engine: Scm,
    model: Model,
    ids: Ids,
    generator: Generator,
    random: SmallRng,
    history: Vec<Tree>,
    /// Index in `history` of the state that the last `sync` acknowledged.
    acknowledged: usize,
}

impl Run {
    /// A new volume, and the steps of `seed` to come.
    ///
    /// # Errors
    /// As [`Disk::create`].
    pub fn new(disk: Disk, seed: u64) -> Result<Run> {
        Run::with_plan(disk, seed, &Plan::default())
    }

    /// As [`Run::new`], with a plan for the disk.
    ///
    /// # Errors
    /// As [`Disk::create`].
    pub fn with_plan(disk: Disk, seed: u64, plan: &Plan) -> Result<Run> {
        let (engine, simulated) = disk.create_with(plan)?;
        let model = Model::new(engine.root(), OWNER, BORN);
        let ids = Ids::new(engine.root());
        let history = vec![tree(&model)];
        Ok(Run {
            disk,
            simulated,
            engine,
            model,
            ids,
            generator: Generator::new(seed, Mix::default()),
            random: SmallRng::seed_from_u64(seed),
            history,
            acknowledged: 0,
        })
    }

    /// The disk.
    pub fn simulated(&self) -> &SimulatedDisk {
        &self.simulated
    }

    /// Does one step: an Op, or now and then a `sync`.
    ///
    /// # Errors
    /// The engine's, when the disk fails.
    ///
    /// # Panics
    /// When engine and model differ otherwise.
    pub fn step(&mut self) -> Result<()> {
        if self.random.random_ratio(1, 8) {
            self.engine.sync()?;
            self.acknowledged = self.history.len() - 1;
            return Ok(());
        }
        let step = self.generator.step(&self.ids, &self.model);
        if matches!(step.action, Action::Open { .. } | Action::Close { .. }) {
            return Ok(());
        }
        let concrete = match self.ids.instantiate(&step, &self.engine) {
            Ok(Some(concrete)) => concrete,
            Ok(None) | Err(Error::NoSpace) => return Ok(()),
            Err(error) => return Err(error),
        };
        let decoded = concrete.record.decode();
        let applied = self.engine.apply(&decoded.op());
        if let Err(Error::Fault(fault)) = applied {
            return Err(fault.into());
        }
        if !matches!(applied, Err(Error::NoSpace)) {
            let expected = self.model.apply(&decoded.op());
            assert_eq!(applied.is_ok(), expected.is_ok(), "{step}: {applied:?}, should be {expected:?}");
            self.history.push(tree(&self.model));
        }
        for &(handle, id) in &concrete.reserved {
            match self.model.attributes(id) {
                Ok(_) => self.ids.insert(handle, id),
                Err(_) => self.engine.unreserve(id),
            }
        }
        self.ids.forget_stale(&self.model);
        Ok(())
    }

    /// Lets power fail now, and recovers: what is found must have been, and not before the last acknowledged `sync`.
    ///
    /// # Panics
    /// When it was not, or is not sound; the message has `what`.
    pub fn power_failure(&mut self, what: &str) {
        let odds = self.random.random_range(0..=4);
        let survivor = self.simulated.power_failure(|| self.random.random_range(0..4) < odds);
        let engine = self.disk.open(survivor).unwrap_or_else(|error| panic!("{what}: {error}"));
        let report = engine.check().expect("the simulated disk is sound");
        assert!(report.is_clean(), "{what}: {:#?}", report.findings);
        let found = tree(&engine);
        let states = &self.history[self.acknowledged..];
        if !states.iter().rev().any(|state| difference(&found, state).is_none()) {
            let last = difference(&found, &self.history[self.acknowledged]);
            panic!(
                "{what}: nothing like it since the last sync; the difference to that:\n{}",
                last.unwrap_or_default()
            );
        }
    }

    /// Gives back what is free, closes the volume and opens it again.
    ///
    /// # Errors
    /// The engine's, when the disk fails.
    pub fn reopen(self) -> Result<()> {
        self.engine.trim()?;
        self.engine.close()?;
        self.disk.open(self.simulated)?.check().map(drop)
    }

    /// What the volume may hold, and its disk: what was acknowledged, and what came after.
    pub fn left(&self) -> Left {
        let history = self.history[self.acknowledged..].to_vec();
        Left { disk: self.disk, simulated: self.simulated.clone(), history }
    }

    /// Whether changes are refused because the disk failed.
    pub fn is_read_only(&self) -> bool {
        matches!(self.engine.reserve(Kind::File), Err(Error::Fault(Fault::ReadOnly)))
    }
}

/// A disk whose engine is gone, and what may be found there.
pub struct Left {
    disk: Disk,
    simulated: SimulatedDisk,
    history: Vec<Tree>,
}

impl Left {
    /// Opens the volume.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn examine(&self) -> std::result::Result<(), String> {
        let mut random = SmallRng::seed_from_u64(self.history.len() as u64);
        for odds in 0..=4 {
            self.examine_one(&self.simulated.power_failure(|| random.random_range(0..4) < odds))?;
        }
        Ok(())
    }

    /// Opens the volume after chains of up to `depth` killed processes, each of which dies while it opens what the one before
    /// left, and a power failure at the end of each chain. The number of disks that were examined.
    ///
    /// # Errors
    /// The fact that is wrong with one of them.
    pub fn examine_after_kills(&self, depth: u32) -> std::result::Result<u64, String> {
        let mut random = SmallRng::seed_from_u64(self.history.len() as u64);
        self.kill_again(&self.simulated.killed(), depth, &mut random)
    }

    fn kill_again(
        &self,
        killed: &SimulatedDisk,
        depth: u32,
        random: &mut SmallRng,
    ) -> std::result::Result<u64, String> {
        let odds = [0, random.random_range(1..=4)];
        for odds in odds {
            self.examine_one(&killed.power_failure(|| random.random_range(0..4) < odds))?;
        }
        let mut examined = odds.len() as u64;
        if depth == 0 {
            return Ok(examined);
        }
        let whole = killed.killed();
        let before = whole.calls();
        drop(self.disk.open(whole.clone()).map_err(|error| format!("after a kill: {error}"))?);
        let calls = whole.calls() - before;
        // The first and the last calls differ most; those between write one page after the other.
        let middle = random.random_range(1..=calls.max(1));
        for call in BTreeSet::from([1, 2, 3, middle, calls, calls + 1]) {
            let next = killed.killed();
            next.fail_at(call, true);
            let opened = self.disk.open(next.clone());
            if call <= calls && opened.is_ok() {
                return Err(format!("opening needs no call {call}"));
            }
            drop(opened);
            let found = self.kill_again(&next.killed(), depth - 1, random);
            examined += found.map_err(|what| format!("killed at call {call} of opening: {what}"))?;
        }
        Ok(examined)
    }

    /// One disk that a failure of power left.
    fn examine_one(&self, disk: &SimulatedDisk) -> std::result::Result<(), String> {
        let engine = self.disk.open(disk.clone()).map_err(|error| error.to_string())?;
        let report = engine.check().map_err(|error| error.to_string())?;
        if let Some(finding) = report.findings.first() {
            return Err(finding.to_string());
        }
        let found = tree(&engine);
        let last = self.history.last().expect("at least what was acknowledged");
        let known = self.history.iter().any(|state| difference(&found, state).is_none());
        if known { Ok(()) } else { Err(difference(&found, last).unwrap_or_default()) }
    }
}
