//! Comparisons of the same scripts on a volume and on the host.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use eyrie::{FallocateMode, Host, Posix, PosixExt};
use eyrie_sim::canonical::{self, CanonicalParts};
use eyrie_sim::script::{Call, CallGenerator, CallMix, Script};
use tempfile::TempDir;

use crate::{directory, on_volume, run};

/// Makes a directory on a tmpfs of the host. Returns `None` if there is no tmpfs, or if root does not run the
/// test.
fn host() -> Option<(TempDir, Host)> {
    let is_tmpfs = |path: &Path| rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type == 0x0102_1994);
    let dir = directory();
    if !is_tmpfs(dir.path()) {
        eprintln!("skipped: there is no tmpfs to compare with");
        return None;
    }
    host_at(dir)
}

/// Returns a directory of the host as a file system for scripts, or `None` unless root runs the test.
fn host_at(dir: TempDir) -> Option<(TempDir, Host)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can compare");
        return None;
    }
    // Calls on volumes use `Credentials::root`, which has no umask. So calls on the host must have none. This
    // line changes the umask of the whole process, because a thread has no umask of its own.
    rustix::process::umask(rustix::fs::Mode::empty());
    let host = Host::new(dir.path()).unwrap();
    host.chmod("/".into(), 0o755).unwrap();
    Some((dir, host))
}

/// Returns true if the host keeps the extended attributes of random scripts.
fn has_xattrs(host: &Host) -> bool {
    host.write("/probe", "").unwrap();
    let set = ["user.a", "trusted.a"]
        .map(|name| host.setxattr("/probe".into(), name.as_bytes(), b"", eyrie::XattrMode::Set));
    host.unlink("/probe".into()).unwrap();
    let all = set.iter().all(Result::is_ok);
    if !all {
        eprintln!("extended attributes are not compared: the host does not support all of them");
    }
    all
}

/// Returns true if the call is a fallocate with a mode that a tmpfs lacks.
fn shifts_or_zeroes(call: &Call) -> bool {
    use FallocateMode::{Allocate, KeepSize, PunchHole};
    matches!(call, Call::Fallocate { mode, .. } if !matches!(mode, Allocate | KeepSize | PunchHole))
}

/// Runs `script` on the host and on a volume, and checks that results and trees are equal. Counts the
/// failures and successes of each kind of call. Messages name the seed of the script.
fn compare(script: &Script, seed: u64, host: &Host, counts: &mut BTreeMap<&'static str, [u32; 2]>) {
    let run_on_host = script.run(host).map(|done| {
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
        let expected = text(canonical::text(host, "/", CanonicalParts::default()));
        assert_eq!(text(canonical::text(files, "/", CanonicalParts::default())), expected, "seed {seed}");
    });
}

#[test]
fn random_scripts_give_the_same_on_a_volume_and_on_the_host() {
    let mut counts = BTreeMap::new();
    for seed in 0..100 {
        let Some((_dir, host)) = host() else { return };
        let mix = CallMix { keys: false, xattrs: has_xattrs(&host), fallocate: true };
        let script: Script =
            CallGenerator::new(seed, mix).filter(|call| !shifts_or_zeroes(call)).take(400).collect();
        compare(&script, seed, &host, &mut counts);
    }
    // A kind of call that always fails, or always succeeds, tests little.
    counts.remove("sync");
    assert!(
        counts.len() >= 15 && counts.values().all(|counts| *counts.iter().min().unwrap() > 20),
        "{counts:?}"
    );
}

#[test]
fn every_fallocate_gives_the_same_where_the_host_has_it() {
    let mut counts = BTreeMap::new();
    for seed in 0..60 {
        let Some((_dir, host)) = host_at(tempfile::tempdir().unwrap()) else { return };
        let probe = run(&host, "creat /p\nwrite /p 0 8K 1\nfallocate /p insert-range 4K 4K\nunlink /p");
        if !probe.iter().all(|line| line.ends_with(" = 0")) {
            eprintln!("skipped: the file system of temporary files does not support all modes");
            return;
        }
        let mix = CallMix { keys: false, xattrs: false, fallocate: true };
        let on_files = ["creat", "write", "append", "truncate", "fallocate"];
        let calls =
            CallGenerator::new(seed, mix).filter(|call| on_files.contains(&call.name())).map(on_blocks);
        compare(&calls.take(200).collect(), seed, &host, &mut counts);
    }
    assert!(counts["fallocate"].iter().all(|count| *count > 300), "{counts:?}");
}

/// Changes the call to act on one of a few files, and on whole blocks if its mode needs whole blocks.
fn on_blocks(mut call: Call) -> Call {
    let blocks = |bytes: u64| bytes.next_multiple_of(4096).min(16 << 10);
    match &mut call {
        Call::Fallocate { path, mode, offset, length } => {
            if mode.shifts() {
                (*offset, *length) = (blocks(*offset), blocks(*length));
            }
            on_few(path);
        }
        Call::Creat { path, .. }
        | Call::Write { path, .. }
        | Call::Append { path, .. }
        | Call::Truncate { path, .. } => on_few(path),
        _ => {}
    }
    call
}

/// Changes a path to the path of the file in the root that has the same name.
fn on_few(path: &mut OsString) {
    *path = Path::new("/").join(Path::new(path).file_name().unwrap()).into();
}

#[test]
fn keys_are_the_same_on_the_host_and_in_a_volume() {
    let Some((_dir, host)) = host() else { return };
    let text = "mkdir /s\nput /s a 100 1\nput /s \"k/1\" 5000 2\nput /s \"\\x00\" 0 3\nput /s a 99 4\n\
                put /none a 1 1\nput /s/a b 1 1\nerase /s none\nerase /s \"\\x00\"\nerase /none a\nsync\n";
    let on_host = run(&host, text);
    assert_eq!(on_host.iter().filter(|line| line.ends_with(" = 0")).count(), 7, "{on_host:#?}");
    on_volume(|files| {
        assert_eq!(run(files, text), on_host);
        let tree = |tree: eyrie::Result<String>| tree.unwrap();
        let found = tree(canonical::text(files, "/s", CanonicalParts::default()));
        assert_eq!(found, tree(canonical::text(&host, "/s", CanonicalParts::default())));
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
