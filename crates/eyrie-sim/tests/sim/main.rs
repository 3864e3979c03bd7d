//! Scripts and canonical trees on volumes and on the host.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls;
mod canonical;
mod host;

use eyrie::{Credentials, Files, Volume};
use eyrie_sim::script::{Script, Target};
use tempfile::TempDir;

/// A directory in memory where there is such a thing; removed at the end.
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

/// What a run of `text` prints.
fn run<T: Target>(target: &T, text: &str) -> Vec<String> {
    let script = Script::parse("test", text.as_bytes()).unwrap();
    script.run(target).map(|done| done.to_string()).collect()
}

/// Runs `text`, all of which must succeed.
fn succeed<T: Target>(target: &T, text: &str) {
    for line in run(target, text) {
        assert!(line.ends_with(" = 0"), "{line}");
    }
}
