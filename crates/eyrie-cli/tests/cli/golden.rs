//! Opens the volumes in `tests/golden`, which earlier versions of the program made. A later version that
//! cannot use one of them would lose the volumes of its users.

use std::fs;
use std::path::Path;

use crate::Sandbox;

/// Byte of the superblock at which the version of the format begins.
const FORMAT_VERSION: usize = 8;
/// Byte of the superblock at which the incompatible features begin.
const INCOMPATIBLE_FEATURES: usize = 56;
/// Byte of the journal's anchor at which the version of the journal begins.
const JOURNAL_VERSION: usize = 40;
const PAGE: usize = 4096;

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

const GOLDEN: [Golden; 5] = [
    Golden { name: "format-1-dram", format: 1, journal: None, features: 0 },
    Golden { name: "format-1-features-dram", format: 1, journal: None, features: FEATURES },
    Golden { name: "format-1-features-journal-3", format: 1, journal: Some(3), features: FEATURES | 1 },
    Golden { name: "format-1-journal-1", format: 1, journal: Some(1), features: 0 },
    Golden { name: "format-1-journal-2", format: 1, journal: Some(2), features: 0 },
];

/// The feature bits that the contents of `calls-features.txt` set.
const FEATURES: u8 = 0b11_1110;

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
        let segment = sandbox.path("vol/segment-0000");
        let golden = bytes_of(&fixture(&format!("{name}.od")));
        assert_eq!(golden[FORMAT_VERSION], format, "{name}");
        // The superblock of a disk gets the bits with the next checkpoint, which these volumes have not seen.
        let in_place = if journal.is_none() { features } else { features & 1 };
        assert_eq!(golden[INCOMPATIBLE_FEATURES], in_place, "{name}");
        assert_eq!(journal.map(|_| journal_version(&golden)), journal, "{name}");
        fs::create_dir(sandbox.path("vol")).unwrap();
        fs::write(sandbox.path("vol/lock"), "").unwrap();
        fs::write(&segment, &golden).unwrap();

        let report = sandbox.succeed(["fsck", "vol"]);
        let (objects, tree) = if features == 0 { (10, "tree.txt") } else { (17, "tree-features.txt") };
        assert!(report.starts_with(&format!("vol is sound: {objects} objects")), "{name}: {report}");
        assert!(fs::read(&segment).unwrap() == golden, "{name}: the check changed the volume");
        // The program that made the volume was killed.
        let information = sandbox.succeed(["info", "vol"]);
        assert!(information.contains("opened     after a crash"), "{name}: {information}");
        assert_eq!(sandbox.succeed(["tree", "--canonical", "vol:/"]), fixture(tree), "{name}");

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
fn every_fixture_has_a_test() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".od").map(str::to_owned)).collect();
    found.sort();
    assert_eq!(found, GOLDEN.map(|golden| golden.name));
}
