//! Checks the dependencies between crates, the manifests of crates, and that unsafe code is only in
//! `eyrie-medium` and in one optional module of `eyrie-bench`.

use std::collections::BTreeSet;
use std::fs;

use super::{assert_none, read, root, sources};

/// The crates of the workspace on which each crate may depend. Dependencies of its tests are not listed.
const MAY_USE: [(&str, &[&str]); 12] = [
    ("eyrie-medium", &[]),
    ("eyrie-faults", &["eyrie-medium"]),
    ("eyrie-engine", &["eyrie-medium"]),
    ("eyrie-client", &["eyrie-engine", "eyrie-medium"]),
    ("eyrie-service", &["eyrie-client", "eyrie-engine", "eyrie-medium"]),
    ("eyrie", &["eyrie-client", "eyrie-engine", "eyrie-medium"]),
    ("eyrie-fuse", &["eyrie"]),
    ("eyrie-bench", &["eyrie", "eyrie-fuse"]),
    ("eyrie-sim", &["eyrie", "eyrie-engine", "eyrie-faults", "eyrie-medium"]),
    ("eyrie-cli", &["eyrie", "eyrie-bench", "eyrie-client", "eyrie-fuse", "eyrie-service", "eyrie-sim"]),
    (
        "eyrie-testkit",
        &[
            "eyrie",
            "eyrie-client",
            "eyrie-engine",
            "eyrie-faults",
            "eyrie-medium",
            "eyrie-service",
            "eyrie-sim",
        ],
    ),
    ("xtask", &["eyrie"]),
];

/// Returns the lines of one section of a manifest.
fn section<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    let head = format!("[{name}]");
    let lines = manifest.lines().skip_while(|line| line.trim() != head).skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.trim().is_empty()).collect()
}

#[test]
fn crates_depend_on_lower_crates() {
    let crates: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .expect("crates")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let known: BTreeSet<String> = MAY_USE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(crates, known, "a new crate needs a line in MAY_USE");
    for (name, may_use) in MAY_USE {
        let manifest = read(root().join("crates").join(name).join("Cargo.toml"));
        let used: Vec<&str> = section(&manifest, "dependencies")
            .iter()
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            .filter(|dependency| known.contains(*dependency))
            .collect();
        assert!(used.iter().all(|used| may_use.contains(used)), "{name} depends on {used:?}");
    }
}

#[test]
fn manifests_inherit_from_the_workspace() {
    for (name, _) in MAY_USE {
        let manifest = read(root().join("crates").join(name).join("Cargo.toml"));
        for field in ["version", "edition", "rust-version", "license"] {
            assert!(manifest.contains(&format!("{field}.workspace = true\n")), "{name}: {field}");
        }
        assert!(
            section(&manifest, "package").iter().any(|line| line.starts_with("description = \"")),
            "{name}"
        );
        assert!(manifest.contains("[lints]\nworkspace = true\n"), "{name}: lints");
    }
}

#[test]
fn published_packages_are_complete() {
    for (name, may_use) in MAY_USE {
        let home = root().join("crates").join(name);
        let manifest = read(home.join("Cargo.toml"));
        if manifest.contains("publish = false\n") {
            continue;
        }
        for field in ["keywords = [", "categories = [", "[package.metadata.docs.rs]"] {
            assert!(manifest.contains(field), "{name}: {field}");
        }
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert_eq!(read(home.join(licence)), read(root().join(licence)), "{name}: {licence}");
        }
        for used in may_use {
            let manifest = read(root().join("crates").join(used).join("Cargo.toml"));
            assert!(!manifest.contains("publish = false\n"), "{name} needs {used}, which is not published");
        }
    }
}

#[test]
fn unsafe_code_has_one_home() {
    for (name, _) in MAY_USE {
        let home = root().join("crates").join(name).join("src");
        let top = [home.join("lib.rs"), home.join("main.rs")].into_iter().find(|path| path.exists());
        let text = read(top.expect("a crate has a root"));
        // One optional module of `eyrie-bench` opens an environment of LMDB. The crate `heed` declares this
        // call unsafe.
        let forbids = match name {
            "eyrie-bench" => {
                "\n#![cfg_attr(not(feature = \"peers\"), forbid(unsafe_code))]\n#![deny(unsafe_code)]\n"
            }
            _ => "\n#![forbid(unsafe_code)]\n",
        };
        assert_eq!(text.contains(forbids), name != "eyrie-medium", "{name}: forbid(unsafe_code)");
    }
    let word = ["un", "safe "].concat();
    let has_word =
        |line: &str| ["fn", "impl", "{", "extern"].iter().any(|next| line.contains(&format!("{word}{next}")));
    let places = [
        "crates/eyrie",
        "crates/eyrie-bench",
        "crates/eyrie-client",
        "crates/eyrie-service",
        "crates/eyrie-engine",
        "crates/eyrie-fuse",
        "crates/eyrie-cli",
        "crates/eyrie-sim",
        "crates/eyrie-testkit",
    ];
    let found: Vec<String> = sources()
        .iter()
        .filter(|source| places.iter().any(|place| source.is_in(place)))
        .filter(|source| !source.is_in("crates/eyrie-bench/src/peers/lmdb.rs"))
        .filter(|source| {
            source.text.lines().any(|line| !line.trim_start().starts_with("//") && has_word(line))
        })
        .map(|source| source.path.display().to_string())
        .collect();
    assert_none("unsafe code outside eyrie-medium", &found);
}
