//! Tests that the generator reaches every listed outcome of every Op, that it leaves out the steps that a mix
//! lacks, and that bytes differ by pattern and by place.

use std::collections::BTreeMap;

use eyrie_engine::{Engine, Error, Model, ObjectId, Op, RenameMode};

use super::*;

/// Runs steps on the model and counts each pair of Op and outcome.
fn outcomes(seeds: std::ops::Range<u64>, steps: u32, mix: OpMix) -> BTreeMap<(&'static str, String), u32> {
    let mut counts = BTreeMap::new();
    for seed in seeds {
        let root = ObjectId::new(1 << 20, Kind::Directory);
        let model = Model::new(root, Owner { mode: 0o755, uid: 0, gid: 0 }, Time::new(1, 0));
        let mut ids = Ids::new(root);
        let mut generator = OpGenerator::new(seed, mix);
        for _ in 0..steps {
            let step = generator.step(&ids, &model);
            if let Action::Open { object } = step.action {
                model.open(ids.get(object).unwrap()).unwrap();
            }
            let Some(concrete) = ids.instantiate(&step, &model).unwrap() else { continue };
            let decoded = concrete.record.decode();
            let outcome = match model.apply(&decoded.op()) {
                Ok(_) => "ok".to_owned(),
                Err(Error::Invalid(why)) => why.to_owned(),
                Err(error) => format!("{error:?}"),
            };
            *counts.entry((name(&decoded.op()), outcome)).or_default() += 1;
            for (handle, id) in concrete.reserved {
                ids.insert(handle, id);
            }
            ids.forget_stale(&model);
        }
    }
    counts
}

fn name(op: &Op<'_>) -> &'static str {
    match op {
        Op::Create { .. } => "create",
        Op::CreateUnnamed { .. } => "create unnamed",
        Op::Link { .. } => "link",
        Op::Unlink { .. } => "unlink",
        Op::RemoveDirectory { .. } => "remove directory",
        Op::Rename { mode: RenameMode::Replace, .. } => "rename",
        Op::Rename { mode: RenameMode::NoReplace, .. } => "rename to a free name",
        Op::Rename { mode: RenameMode::Exchange, .. } => "exchange",
        Op::Rename { .. } => "rename with a whiteout",
        Op::Write { .. } => "write",
        Op::Append { .. } => "append",
        Op::SetSize { .. } => "set size",
        Op::Fallocate { .. } => "fallocate",
        Op::CloneRange { .. } => "clone range",
        Op::SetAttributes { .. } => "set attributes",
        Op::MarkAccess { .. } => "mark access",
        Op::SetXattr { .. } => "set xattr",
        Op::RemoveXattr { .. } => "remove xattr",
        Op::SetAcl { .. } => "set ACL",
        Op::Put { .. } => "put",
        Op::Erase { .. } => "erase",
        Op::Expect { .. } => "expect",
        Op::Batch { .. } => "batch",
    }
}

#[test]
fn every_outcome_of_every_op_is_reached() {
    const LOOP: &str = "a directory cannot move into itself";
    const EMPTY_NAME: &str = "a name must have at least one byte";
    const NO_FILE: &str = "the object is no file";
    const TWICE: &str = "a batch has two changes or two conditions of one key";
    const NO_BYTES: &str = "a range must have at least one byte";
    const NO_BLOCKS: &str = "offset and length must be multiples of 4096";
    const LATE_END: &str = "the range must end before the end of the file";
    const LATE_START: &str = "the offset must be before the end of the file";
    const NO_ACL: &str = "an object of this kind has no such ACL";
    const BAD_ACL: &str =
        "an ACL must have entries for the owner, users, the group, groups, a mask and others";
    const OLD_ACL: &str = "Unsupported(\"an ACL of another version than 2\")";
    let expected: [(&str, &[&str]); 21] = [
        ("create", &["ok", "Stale", "Exists", "NotFound", "NotDirectory", "NameTooLong", EMPTY_NAME]),
        ("create unnamed", &["ok", "Stale", "NotDirectory"]),
        ("link", &["ok", "Exists", "NotFound", "NotPermitted", "NotDirectory"]),
        ("unlink", &["ok", "NotFound", "IsDirectory", "NotDirectory"]),
        ("remove directory", &["ok", "NotFound", "NotEmpty", "NotDirectory"]),
        ("rename", &["ok", "NotFound", "NotEmpty", "IsDirectory", "NotDirectory", "NameTooLong", LOOP]),
        ("rename to a free name", &["ok", "NotFound", "Exists", LOOP]),
        ("rename with a whiteout", &["ok", "NotFound", "NotEmpty", "Exists", LOOP]),
        ("exchange", &["ok", "NotFound", LOOP]),
        ("write", &["ok", "TooLarge", "IsDirectory", NO_FILE]),
        ("append", &["ok", "TooLarge", "IsDirectory", NO_FILE]),
        ("set size", &["ok", "TooLarge", "IsDirectory", NO_FILE]),
        ("fallocate", &["ok", "TooLarge", "IsDirectory", NO_FILE, NO_BYTES, NO_BLOCKS, LATE_END, LATE_START]),
        (
            "clone range",
            &[
                "ok",
                "IsDirectory",
                NO_FILE,
                "an offset is no multiple of 4096",
                "the source is too short",
                "the target would be too long",
                "only the ends of both files may be inside a page",
                "the ranges overlap",
            ],
        ),
        ("set attributes", &["ok"]),
        (
            "set xattr",
            &[
                "ok",
                "not a value of security.capability",
                "Exists",
                "NoXattr",
                "XattrName",
                "XattrTooLarge",
                "XattrsFull",
            ],
        ),
        ("remove xattr", &["ok", "NoXattr", "XattrName"]),
        ("set ACL", &["ok", NO_ACL, BAD_ACL, OLD_ACL]),
        ("put", &["ok", "Stale", "IsDirectory", NO_FILE, "NameTooLong", "NotDirectory"]),
        ("erase", &["ok", "IsDirectory", NO_FILE, "NotFound"]),
        ("batch", &["ok", "IsDirectory", NO_FILE, TWICE, "NameTooLong", "NotDirectory", "ConditionFailed"]),
    ];
    let counts = outcomes(0..40, 1000, OpMix::default());
    for (op, outcomes) in expected {
        for outcome in outcomes {
            assert!(
                counts.contains_key(&(op, (*outcome).to_owned())),
                "{op} never gave {outcome}: {counts:#?}"
            );
        }
        let of = |is_ok: bool| -> u32 {
            counts
                .iter()
                .filter(|((name, outcome), _)| *name == op && (outcome == "ok") == is_ok)
                .map(|(_, count)| count)
                .sum()
        };
        assert!(of(true) * 20 > of(false), "{op} fails too often: {counts:#?}");
    }
}

#[test]
fn limits_of_quotas_are_reached() {
    let mix = OpMix { set_limits: 6, set_attributes: 20, ..OpMix::default() };
    let counts = outcomes(0..80, 600, mix);
    for (op, outcome) in [
        ("create", "QuotaExceeded"),
        ("create unnamed", "QuotaExceeded"),
        ("put", "QuotaExceeded"),
        ("batch", "QuotaExceeded"),
        ("rename with a whiteout", "QuotaExceeded"),
        ("set attributes", "QuotaExceeded"),
        ("link", "OtherTree"),
        ("rename", "OtherTree"),
        ("exchange", "OtherTree"),
    ] {
        assert!(counts.contains_key(&(op, outcome.to_owned())), "{op} never gave {outcome}: {counts:#?}");
    }
}

#[test]
fn mix_leaves_out_steps() {
    let mix = OpMix { rename: 0, batch: 0, is_sparse: false, has_bad_names: false, ..OpMix::default() };
    let counts = outcomes(0..5, 500, mix);
    assert!(!counts.is_empty());
    for (op, outcome) in counts.keys() {
        assert!(!["rename", "exchange", "batch"].contains(op));
        assert!(outcome != "TooLarge" && outcome != "NameTooLong");
    }
}

#[test]
fn bytes_differ_by_pattern_and_by_place() {
    let make = |length, pattern| Bytes { length, pattern }.make();
    assert_eq!(make(5, 0), [0; 5]);
    let (a, b) = (make(100_001, 1), make(100_001, 2));
    assert_eq!(a.len(), 100_001);
    assert_eq!(a[..64], make(64, 1)[..]);
    assert_ne!(a, b);
    let pages: std::collections::BTreeSet<&[u8]> = a.chunks(4096).collect();
    assert_eq!(pages.len(), 25);
}
