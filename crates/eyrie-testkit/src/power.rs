//! Runs an engine on a simulated disk that loses its power, or fails.
//!
//! The model runs beside the engine, and its state after each Op is kept. After a power failure, recovery
//! must give a sound volume in one of the kept states: the state at the last acknowledged `sync`, or a later
//! one.

pub mod plant;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_engine::{Engine, Error, Kind, Model, Owner, Result, Time};
use eyrie_faults::{FaultPlan, SimulatedDisk};
use eyrie_medium::{Fault, Medium, PagedOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::ops::{Action, Ids, OpGenerator, OpMix};
use eyrie_sim::compare::{Tree, difference, tree};
use eyrie_sim::explore::fixed_options;

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const BORN: Time = Time::new(1, 0);

/// Sizes of a simulated disk and of the memory for it.
#[derive(Clone, Copy, Debug)]
pub struct DiskSizes {
    /// Size of the volume, in bytes.
    pub volume_bytes: u64,
    /// Memory for the pages of the volume, in bytes.
    pub memory_bytes: u64,
}

impl DiskSizes {
    fn paged(self) -> PagedOptions {
        // The interval is so long that no drain starts because of time. Drains start for other reasons, such
        // as a sync, a close or a lack of memory.
        PagedOptions::new(self.memory_bytes, Duration::from_secs(3600))
    }

    /// Returns a new, empty disk with a fault plan.
    pub fn blank(self, plan: &FaultPlan) -> SimulatedDisk {
        SimulatedDisk::new(Medium::paged_bytes(self.volume_bytes, false) as usize).with(plan.clone())
    }

    /// Returns the medium on a new disk with a fault plan, and the disk.
    ///
    /// # Errors
    /// As [`Medium::format_paged`] and [`Medium::paged`].
    pub fn medium(self, plan: &FaultPlan) -> Result<(Medium, SimulatedDisk)> {
        let disk = self.blank(plan);
        Medium::format_paged(&disk, self.volume_bytes, false)?;
        Ok((self.mount(&disk)?, disk))
    }

    /// Returns the medium on a disk.
    ///
    /// # Errors
    /// As [`Medium::paged`].
    pub fn mount(self, disk: &SimulatedDisk) -> Result<Medium> {
        Ok(Medium::paged(Arc::new(disk.clone()), self.paged())?)
    }

    /// Returns an engine with a new volume on a new disk, and the disk.
    ///
    /// # Errors
    /// As [`DiskSizes::create_with`].
    pub fn create(self) -> Result<(Scm, SimulatedDisk)> {
        self.create_with(&FaultPlan::default())
    }

    /// Returns an engine with a new volume on a new disk with a fault plan, and the disk.
    ///
    /// # Errors
    /// As [`DiskSizes::medium`] and [`Scm::create_on`].
    pub fn create_with(self, plan: &FaultPlan) -> Result<(Scm, SimulatedDisk)> {
        let (medium, disk) = self.medium(plan)?;
        let options =
            Options { medium: MediumChoice::Paged, paged: self.paged(), ..fixed_options(1 << 18, BORN) };
        Ok((Scm::create_on(medium, &options, OWNER, BORN)?, disk))
    }

    /// Opens the volume on a disk, with recovery if it was not closed.
    ///
    /// # Errors
    /// As [`DiskSizes::mount`] and [`Scm::open_on`].
    pub fn open(self, disk: SimulatedDisk) -> Result<Scm> {
        Scm::open_on(self.mount(&disk)?)
    }
}

/// An engine beside the model, with the history of the model's states.
pub struct PowerRun {
    sizes: DiskSizes,
    simulated: SimulatedDisk,
    engine: Scm,
    model: Model,
    ids: Ids,
    generator: OpGenerator,
    random: SmallRng,
    history: Vec<Tree>,
    /// Index in `history` of the state at the last acknowledged `sync`.
    acknowledged: usize,
}

impl PowerRun {
    /// Returns a run of the steps of `seed` on a new volume.
    ///
    /// # Errors
    /// As [`DiskSizes::create`].
    pub fn new(sizes: DiskSizes, seed: u64) -> Result<PowerRun> {
        PowerRun::with_plan(sizes, seed, &FaultPlan::default())
    }

    /// Works like [`PowerRun::new`], with a fault plan for the disk.
    ///
    /// # Errors
    /// As [`DiskSizes::create`].
    pub fn with_plan(sizes: DiskSizes, seed: u64, plan: &FaultPlan) -> Result<PowerRun> {
        let (engine, simulated) = sizes.create_with(plan)?;
        let model = Model::new(engine.root(), OWNER, BORN);
        let ids = Ids::new(engine.root());
        let history = vec![tree(&model)];
        Ok(PowerRun {
            sizes,
            simulated,
            engine,
            model,
            ids,
            generator: OpGenerator::new(seed, OpMix { set_limits: 3, ..OpMix::default() }),
            random: SmallRng::seed_from_u64(seed),
            history,
            acknowledged: 0,
        })
    }

    /// Returns the disk.
    pub fn simulated(&self) -> &SimulatedDisk {
        &self.simulated
    }

    /// Makes one step: a `sync` in one step of eight on average, otherwise an Op. The step may do nothing,
    /// for example if the generator draws an open or a close.
    ///
    /// # Errors
    /// The engine's error, if the disk fails.
    ///
    /// # Panics
    /// Panics if only one of engine and model accepts the Op, unless the engine has no space for it or a
    /// limit of a quota refuses it.
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
        // The model does not know the storage that an Op takes.
        let is_refused = match applied {
            Err(Error::NoSpace) => true,
            Err(Error::QuotaExceeded) => self.model.fork().apply(&decoded.op()).is_ok(),
            _ => false,
        };
        if !is_refused {
            let expected = self.model.apply(&decoded.op());
            assert_eq!(applied.is_ok(), expected.is_ok(), "{step}: {applied:?}, should be {expected:?}");
            self.history.push(tree(&self.model));
        }
        self.ids.settle(&concrete, applied.is_ok(), &self.model, &self.engine);
        self.ids.forget_stale(&self.model);
        Ok(())
    }

    /// Simulates a power failure at this moment, and recovers a copy of the disk. The volume must have one of
    /// the states since the last acknowledged `sync`.
    ///
    /// # Panics
    /// Panics if the volume cannot be opened, is not sound, or has none of these states. The message begins
    /// with `what`.
    pub fn power_failure(&mut self, what: &str) {
        // On average, `odds` of four unflushed sector writes survive.
        let odds = self.random.random_range(0..=4);
        let survivor = self.simulated.power_failure(|| self.random.random_range(0..4) < odds);
        let engine = self.sizes.open(survivor).unwrap_or_else(|error| panic!("{what}: {error}"));
        let report = engine.check().expect("the simulated disk is sound");
        assert!(report.is_clean(), "{what}: {:#?}", report.findings);
        let found = tree(&engine);
        let states = &self.history[self.acknowledged..];
        if !states.iter().rev().any(|state| difference(&found, state).is_none()) {
            let last = difference(&found, &self.history[self.acknowledged]);
            panic!(
                "{what}: no state since the last sync matches; the difference from that sync:\n{}",
                last.unwrap_or_default()
            );
        }
    }

    /// Discards free storage, closes the volume, opens it again and runs a check. The findings of the check
    /// are ignored.
    ///
    /// # Errors
    /// The engine's error, if the disk fails.
    pub fn reopen(self) -> Result<()> {
        self.engine.trim()?;
        self.engine.close()?;
        self.sizes.open(self.simulated)?.check().map(drop)
    }

    /// Returns the disk, and the states that its volume may have after a failure. The disk is shared with
    /// this run, so later writes of the run also change the result.
    pub fn left(&self) -> LeftDisk {
        let history = self.history[self.acknowledged..].to_vec();
        LeftDisk { sizes: self.sizes, simulated: self.simulated.clone(), history }
    }

    /// True if the volume refuses changes because the disk failed.
    pub fn is_read_only(&self) -> bool {
        matches!(self.engine.reserve(Kind::File), Err(Error::Fault(Fault::ReadOnly)))
    }
}

/// The disk of a run, and the states that its volume may have after a failure.
pub struct LeftDisk {
    sizes: DiskSizes,
    simulated: SimulatedDisk,
    history: Vec<Tree>,
}

impl LeftDisk {
    /// Opens and checks the volume after each of five power failures. On average they keep none, a quarter,
    /// half, three quarters and all of the unflushed sector writes.
    ///
    /// # Errors
    /// A description of the first error.
    pub fn examine(&self) -> std::result::Result<(), String> {
        let mut random = SmallRng::seed_from_u64(self.history.len() as u64);
        for odds in 0..=4 {
            self.examine_one(&self.simulated.power_failure(|| random.random_range(0..4) < odds))?;
        }
        Ok(())
    }

    /// Opens and checks the volume after chains of killed processes, with a power failure at the end of each
    /// chain. A chain has up to `depth` more processes after the first one. Each of these processes opens the
    /// volume that its predecessor left, and is killed during the open or just after it. Returns the number
    /// of disks that were examined.
    ///
    /// # Errors
    /// A description of the first error.
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
        drop(self.sizes.open(whole.clone()).map_err(|error| format!("after a kill: {error}"))?);
        let calls = whole.calls() - before;
        // The first and the last calls differ most. The calls between them write one page after the other, so
        // a kill at one of these calls is enough. With `calls + 1` no call fails, and the kill comes just
        // after the open.
        let middle = random.random_range(1..=calls.max(1));
        for call in BTreeSet::from([1, 2, 3, middle, calls, calls + 1]) {
            let next = killed.killed();
            next.fail_at(call, true);
            let opened = self.sizes.open(next.clone());
            if call <= calls && opened.is_ok() {
                return Err(format!("the open succeeds although call {call} fails"));
            }
            drop(opened);
            let found = self.kill_again(&next.killed(), depth - 1, random);
            examined += found.map_err(|what| format!("killed at call {call} of opening: {what}"))?;
        }
        Ok(examined)
    }

    /// Examines the disk that one power failure left.
    fn examine_one(&self, disk: &SimulatedDisk) -> std::result::Result<(), String> {
        let engine = self.sizes.open(disk.clone()).map_err(|error| error.to_string())?;
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
