//! Opens the volumes in `tests/golden`, which earlier versions of the program made. A later version that
//! cannot use one of them would lose the volumes of its users.

use std::fs;
use std::path::Path;

use serde_json::Value::Null;

use crate::quotas::account;
use crate::{Sandbox, is_root};

/// Byte of the superblock at which the version of the format begins.
const FORMAT_VERSION: usize = 8;
/// Byte of the superblock at which the incompatible features begin.
const INCOMPATIBLE_FEATURES: usize = 56;
/// Byte of the journal's anchor at which the version of the journal begins.
const JOURNAL_VERSION: usize = 40;
const PAGE: usize = 4096;
/// The file that has the bytes of the volume `vol`.
const SEGMENT: &str = "vol/segment-0000";

/// A golden volume, and the versions of its structures.
struct Golden {
    name: &'static str,
    /// Version of the format.
    format: u8,
    /// Version of the journal, if the volume is on the medium `paged`.
    journal: Option<u8>,
    /// The feature bits of `incompat`.
    features: u8,
}

const GOLDEN: [Golden; 6] = [
    Golden { name: "format-1-dram", format: 1, journal: None, features: 0 },
    Golden { name: "format-1-features-dram", format: 1, journal: None, features: FEATURES },
    Golden { name: "format-1-features-journal-3", format: 1, journal: Some(3), features: FEATURES | 1 },
    Golden { name: "format-1-journal-1", format: 1, journal: Some(1), features: 0 },
    Golden { name: "format-1-journal-2", format: 1, journal: Some(2), features: 0 },
    Golden { name: "format-1-quotas-dram", format: 1, journal: None, features: QUOTAS },
];

/// The feature bits that the contents of `calls-features.txt` set.
const FEATURES: u8 = 0b11_1110;
/// The feature bit that the contents of `calls-quotas.txt` set.
const QUOTAS: u8 = 0b100_0000;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the bytes that `od -Ax -tx8` shows as `text`: words of eight bytes, and a `*` for lines that are
/// equal to the line before.
fn bytes_of(text: &str) -> Vec<u8> {
    let (mut bytes, mut line) = (Vec::new(), Vec::new());
    for shown in text.lines().filter(|shown| *shown != "*") {
        let mut words = shown.split(' ');
        let offset = usize::from_str_radix(words.next().unwrap(), 16).unwrap();
        while bytes.len() < offset {
            bytes.extend_from_slice(&line);
        }
        let word = |word: &str| u64::from_str_radix(word, 16).unwrap().to_le_bytes();
        line = words.flat_map(word).collect();
        bytes.extend_from_slice(&line);
    }
    bytes
}

/// Makes the volume `vol` from a fixture. Returns its bytes.
fn unpack(sandbox: &Sandbox, name: &str) -> Vec<u8> {
    let golden = bytes_of(&fixture(&format!("{name}.od")));
    fs::create_dir(sandbox.path("vol")).unwrap();
    fs::write(sandbox.path("vol/lock"), "").unwrap();
    fs::write(sandbox.path(SEGMENT), &golden).unwrap();
    golden
}

/// Returns the canonical tree of a fixture with these features, as this user sees it.
fn tree_of(features: u8) -> String {
    match features {
        0 => fixture("tree.txt"),
        QUOTAS if !is_root() => {
            // Only the user root sees the quota limits, which are an attribute of the root directory.
            let tree = fixture("tree-quotas.txt");
            let (root, rest) = tree.split_once('\n').unwrap();
            format!("{}\n{rest}", root.split_once(" xattr=").unwrap().0)
        }
        QUOTAS => fixture("tree-quotas.txt"),
        _ => fixture("tree-features.txt"),
    }
}

/// Returns the version of the journal, from the anchor in the last page.
fn journal_version(volume: &[u8]) -> u8 {
    let anchor = &volume[volume.len() - PAGE..];
    assert_eq!(&anchor[..7], b"EyrJrnl");
    anchor[JOURNAL_VERSION]
}

#[test]
fn every_golden_volume_opens_and_can_be_changed() {
    for Golden { name, format, journal, features } in GOLDEN {
        let sandbox = Sandbox::new();
        let golden = unpack(&sandbox, name);
        let segment = sandbox.path(SEGMENT);
        assert_eq!(golden[FORMAT_VERSION], format, "{name}");
        // If a disk has checksums, its superblock has their bit, 1, from the start. It gets the other feature
        // bits with the next checkpoint, which these volumes have not seen.
        let in_place = if journal.is_none() { features } else { features & 1 };
        assert_eq!(golden[INCOMPATIBLE_FEATURES], in_place, "{name}");
        assert_eq!(journal.map(|_| journal_version(&golden)), journal, "{name}");

        let report = sandbox.succeed(["fsck", "vol"]);
        let tree = tree_of(features);
        // The tree has one line for each name.
        let objects = tree.lines().filter(|line| !line.contains(" same=")).count();
        assert!(report.starts_with(&format!("vol is sound: {objects} objects")), "{name}: {report}");
        assert!(fs::read(&segment).unwrap() == golden, "{name}: the check changed the volume");
        // The program that made the volume was killed.
        let information = sandbox.succeed(["info", "vol"]);
        assert!(information.contains("opened     after a crash"), "{name}: {information}");
        assert_eq!(sandbox.succeed(["tree", "--canonical", "vol:/"]), tree, "{name}");

        sandbox.succeed(["kv", "put", "vol:/store", "new", "value"]);
        sandbox.succeed(["fsck", "vol"]);
        assert_eq!(sandbox.succeed(["kv", "get", "vol:/store", "new"]), "value", "{name}");
        if journal.is_some() {
            // The journal may get records of the present version, so its anchor must have this version, too.
            let (after, version) = (fs::read(&segment).unwrap(), if features & 1 == 0 { 2 } else { 3 });
            assert_eq!(journal_version(&after), version, "{name}");
            assert_eq!(after[INCOMPATIBLE_FEATURES], features, "{name}");
        }
    }
}

#[test]
fn golden_volume_keeps_its_quotas() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    unpack(&sandbox, "format-1-quotas-dram");
    let tree = account(&sandbox, "tree", 9);
    assert_eq!((&tree["files"], &tree["hard_files"], &tree["soft_files"]), (&3.into(), &10.into(), &Null));
    assert_eq!((&tree["soft_bytes"], &tree["hard_bytes"]), (&(64 << 10).into(), &(128 << 10).into()));
    let user = account(&sandbox, "user", 1000);
    assert_eq!(
        (&user["files"], &user["soft_files"], &user["hard_files"]),
        (&1.into(), &5.into(), &10.into())
    );
    assert_eq!((&user["soft_bytes"], &user["hard_bytes"]), (&Null, &(1 << 20).into()));
    assert!(user["used_bytes"].as_u64().is_some_and(|used| used >= 64), "{user}");
    assert_eq!(account(&sandbox, "group", 1000)["hard_files"], 100);
}

/// Returns the text of a file of the repository.
fn of_repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the incompatible features that the program knows.
fn known_features() -> u64 {
    let layout = of_repository("crates/eyrie-engine/src/tables/layout.rs");
    let value = |name: &str| {
        let (_, rest) = layout.split_once(&format!("const {name}: u64 =")).unwrap();
        rest.split(';').next().unwrap().trim().to_owned()
    };
    value("INCOMPAT").split(" | ").map(|name| value(name).parse::<u64>().unwrap()).sum()
}

/// Without a fixture, a later program could fail to open volumes with a feature or a version, and no test
/// would notice.
#[test]
fn every_feature_and_every_version_of_the_journal_has_a_fixture() {
    let features = GOLDEN.iter().fold(0, |all, golden| all | u64::from(golden.features));
    assert_eq!(features, known_features());
    let layout = of_repository("crates/eyrie-medium/src/paged/journal/layout.rs");
    let versions =
        layout.lines().filter_map(|line| line.split_once("const VERSION")?.1.split_once(": u32 = "));
    let mut versions: Vec<u8> =
        versions.map(|(_, value)| value.trim_end_matches(';').parse().unwrap()).collect();
    versions.sort_unstable();
    let mut fixtures: Vec<u8> = GOLDEN.iter().filter_map(|golden| golden.journal).collect();
    fixtures.sort_unstable();
    assert_eq!(versions, fixtures);
}

#[test]
fn page_on_upgrades_shows_a_feature_that_is_unknown() {
    let page = of_repository("docs/upgrade.md");
    let (_, rest) = page.split_once("incompatible features 0x").unwrap();
    let shown = u64::from_str_radix(rest.split(' ').next().unwrap(), 16).unwrap();
    assert_eq!(shown & known_features(), 0, "{shown:#x}");
}

#[test]
fn every_fixture_has_a_test() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".od").map(str::to_owned)).collect();
    found.sort();
    assert_eq!(found, GOLDEN.map(|golden| golden.name));
}
