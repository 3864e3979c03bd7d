//! Tests of the oracle: it must accept the model, and catch planted bugs.

use eyrie_engine::{
    Applied, Error, Kind, ListedEntry, Model, ObjectId, Op, Owner, Result, Time, Version, forward_calls,
};

use super::*;

fn model() -> Model {
    let owner = Owner { mode: 0o755, uid: 0, gid: 0 };
    Model::new(ObjectId::new(1 << 20, Kind::Directory), owner, Time::new(1, 2))
}

/// A model with a bug.
struct Flawed {
    model: Model,
    flaw: Flaw,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    /// Every rename replaces an existing target.
    AlwaysReplaces,
    /// A write at an odd offset writes zeros.
    WriteLost,
    /// `Put` on a directory has the wrong error.
    WrongErrno,
    /// A listing leaves out a name.
    ListSkips,
    /// A read from offset 4096 or later gives zeros.
    ReadZeros,
    /// A list of extended attributes leaves out a name.
    XattrLost,
    /// A change of the bytes leaves the version as it was.
    VersionStays,
    /// A `SetSize` panics.
    Panics,
}

impl Flawed {
    fn inner(&self) -> &Model {
        &self.model
    }
}

impl Engine for Flawed {
    forward_calls! {
        inner:
        root lookup attributes birth inode_flags project seek has_storage xattr open close reserve unreserve
        quotas directory_changes wait_for sync space
    }

    fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        let count = self.model.read(id, offset, out)?;
        if self.flaw == Flaw::ReadZeros && offset >= 4096 {
            out[..count].fill(0);
        }
        Ok(count)
    }

    fn version(&self, id: ObjectId) -> Result<Version> {
        let version = self.model.version(id)?;
        let [session, generation, _] = version.raw();
        Ok(if self.flaw == Flaw::VersionStays {
            Version::from_raw([session, generation, 0])
        } else {
            version
        })
    }

    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.model.xattr_names(id, &mut |name| {
            if self.flaw != Flaw::XattrLost || name != b"b" {
                visit(name);
            }
        })
    }

    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(ListedEntry<'_>) -> bool) -> Result<()> {
        self.model.list(dir, cookie, &mut |entry| {
            if self.flaw == Flaw::ListSkips && entry.name == b"c" { true } else { visit(entry) }
        })
    }

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        match (*op, self.flaw) {
            (
                Op::Rename { from_dir, from_name, to_dir, to_name, mode: _, whiteout: _, time },
                Flaw::AlwaysReplaces,
            ) => {
                let mode = eyrie_engine::RenameMode::Replace;
                self.model.apply(&Op::Rename {
                    from_dir,
                    from_name,
                    to_dir,
                    to_name,
                    mode,
                    whiteout: None,
                    time,
                })
            }
            (Op::Write { id, offset, data, set_ids, time }, Flaw::WriteLost) if offset % 2 == 1 => {
                self.model.apply(&Op::Write { id, offset, data: &vec![0; data.len()], set_ids, time })
            }
            (Op::Put { .. }, Flaw::WrongErrno) => match self.model.apply(op) {
                Err(Error::IsDirectory) => Err(Error::Exists),
                other => other,
            },
            (Op::SetSize { .. }, Flaw::Panics) => panic!("a planted panic"),
            _ => self.model.apply(op),
        }
    }
}

#[test]
fn the_model_agrees_with_itself() {
    for seed in 0..20 {
        run_against_model(&model(), seed, 500);
    }
}

#[test]
fn every_planted_bug_is_caught_and_shortened() {
    let flaws = [
        Flaw::AlwaysReplaces,
        Flaw::WriteLost,
        Flaw::WrongErrno,
        Flaw::ListSkips,
        Flaw::ReadZeros,
        Flaw::XattrLost,
        Flaw::VersionStays,
        Flaw::Panics,
    ];
    for flaw in flaws {
        let make = || Flawed { model: model(), flaw };
        let failure = run(&make(), 9, 2000, OracleOptions::default()).expect_err("the bug was not found");
        let steps = failure.steps.len();
        let replayed = replay(&make(), 9, &failure.steps, OracleOptions::default()).expect_err("no replay");
        assert_eq!(replayed.what, failure.what, "{flaw:?}");
        let few =
            minimise::minimise(failure, |steps| replay(&make(), 9, steps, OracleOptions::default()).err());
        assert!(few.steps.len() <= 5, "{flaw:?}: {steps} steps became\n{few}");
    }
}

#[test]
#[should_panic(expected = "seed 0x3, step ")]
fn a_failure_names_its_seed() {
    check(|| Flawed { model: model(), flaw: Flaw::WriteLost }, 3, 2000);
}

#[test]
fn a_seed_makes_the_same_steps_again() {
    let steps = |seed| {
        let flawed = Flawed { model: model(), flaw: Flaw::WriteLost };
        run(&flawed, seed, 2000, OracleOptions::default()).expect_err("the bug was not found").steps
    };
    assert_eq!(steps(5), steps(5));
    assert_ne!(steps(5), steps(6));
}
