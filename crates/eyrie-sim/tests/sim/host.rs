//! The same scripts on a volume and on the host.

use std::collections::BTreeMap;
use std::path::Path;

use eyrie::{Host, Posix, PosixExt};
use eyrie_sim::canonical::{self, Include};
use eyrie_sim::script::{Generator, Mix, Script};

use crate::{directory, on_volume, run};

/// A directory of the host that must be on tmpfs, where root may do all that scripts do; `None` elsewhere.
fn host() -> Option<(tempfile::TempDir, Host)> {
    let is_tmpfs = |path: &Path| rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type == 0x0102_1994);
    let dir = directory();
    if !is_tmpfs(dir.path()) || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can compare, and with tmpfs");
        return None;
    }
    // As the volume has it, in all tests of this process.
    rustix::process::umask(rustix::fs::Mode::empty());
    let host = Host::new(dir.path()).unwrap();
    host.chmod("/", 0o755).unwrap();
    Some((dir, host))
}

/// Whether the host keeps the extended attributes that scripts are drawn with.
fn has_xattrs(host: &Host) -> bool {
    host.write("/probe", "").unwrap();
    let set = ["user.a", "trusted.a"].map(|name| host.setxattr("/probe", name, b"", eyrie::XattrMode::Set));
    host.unlink("/probe").unwrap();
    let all = set.iter().all(Result::is_ok);
    if !all {
        eprintln!("extended attributes are not compared: the host has not all of them");
    }
    all
}

#[test]
fn random_scripts_give_the_same_on_a_volume_and_on_the_host() {
    // How many calls of each name failed and succeeded.
    let mut counts = BTreeMap::<&str, [u32; 2]>::new();
    for seed in 0..100 {
        let Some((_dir, host)) = host() else { return };
        let mix = Mix { keys: false, xattrs: has_xattrs(&host), fallocate: true };
        let script: Script = Generator::new(seed, mix).take(400).collect();
        let run_on_host = script.run(&host).map(|done| {
            let name = done.line.call.name();
            counts.entry(name).or_default()[usize::from(done.result.is_ok())] += 1;
            done.to_string()
        });
        let on_host: Vec<String> = run_on_host.collect();
        on_volume(|files| {
            for (done, expected) in script.run(files).zip(&on_host) {
                assert_eq!(&done.to_string(), expected, "seed {seed}");
            }
            let text = |tree: eyrie::Result<String>| tree.unwrap();
            let expected = text(canonical::text(&host, "/", Include::default()));
            assert_eq!(text(canonical::text(files, "/", Include::default())), expected, "seed {seed}");
        });
    }
    // A comparison of failures alone, or of successes, would say little.
    counts.remove("sync");
    counts.remove("fallocate");
    assert!(
        counts.len() >= 15 && counts.values().all(|counts| *counts.iter().min().unwrap() > 20),
        "{counts:?}"
    );
}

#[test]
fn keys_are_on_the_host_what_they_are_in_a_volume() {
    let Some((_dir, host)) = host() else { return };
    let text = "mkdir /s\nput /s a 100 1\nput /s \"k/1\" 5000 2\nput /s \"\\x00\" 0 3\nput /s a 99 4\n\
                put /none a 1 1\nput /s/a b 1 1\nerase /s none\nerase /s \"\\x00\"\nerase /none a\nsync\n";
    let on_host = run(&host, text);
    assert_eq!(on_host.iter().filter(|line| line.ends_with(" = 0")).count(), 7, "{on_host:#?}");
    on_volume(|files| {
        assert_eq!(run(files, text), on_host);
        let tree = |tree: eyrie::Result<String>| tree.unwrap();
        let found = tree(canonical::text(files, "/s", Include::default()));
        assert_eq!(found, tree(canonical::text(&host, "/s", Include::default())));
        assert!(found.contains("/%kv%k%2F1 file"), "{found}");
    });
}

#[test]
fn a_store_of_the_host_is_below_its_root() {
    let dir = directory();
    let host = Host::new(dir.path()).unwrap();
    assert!(run(&host, "mkdir /s\nput //s a 1 1\nput s b 1 1").iter().all(|line| line.ends_with(" = 0")));
    assert_eq!(host.metadata("/s/a").unwrap().size, 1);
    assert_eq!(std::fs::read_dir(dir.path().join("s")).unwrap().count(), 2);
}
