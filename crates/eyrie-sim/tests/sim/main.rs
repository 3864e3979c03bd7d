//! Tests of scripts and canonical trees, on volumes and on the host.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls;
mod canonical;
mod host;

use eyrie::{Credentials, Files, Volume};
use eyrie_sim::script::{Script, ScriptTarget};
use tempfile::TempDir;

/// Makes a temporary directory, in memory if possible.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Runs `work` on the files of a new volume, which must be sound afterwards.
fn on_volume<T>(work: impl FnOnce(&Files) -> T) -> T {
    let dir = directory();
    let options = Volume::options().size(64 << 20).group_size(1 << 20);
    let volume = options.owner(0o755, 0, 0).create(dir.path().join("volume")).unwrap();
    let result = work(&volume.files(Credentials::root()));
    assert!(volume.check().unwrap().is_clean());
    volume.close().unwrap();
    result
}

/// Runs the script `text`, and returns the printed results of its calls.
fn run<T: ScriptTarget>(target: &T, text: &str) -> Vec<String> {
    let script = Script::parse("test", text.as_bytes()).unwrap();
    script.run(target).map(|done| done.to_string()).collect()
}

/// Runs the script `text`, whose calls must all succeed.
fn succeed<T: ScriptTarget>(target: &T, text: &str) {
    for line in run(target, text) {
        assert!(line.ends_with(" = 0"), "{line}");
    }
}
