//! Tests of limits of quotas through a mount.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use eyrie::{
    Credentials, PosixExt, PosixProjects, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaTable, Volume,
};
use rustix::io::Errno;

use super::{errno, fixture};

const USER: QuotaId = QuotaId { kind: QuotaKind::User, number: 1000 };
const TREE: QuotaId = QuotaId { kind: QuotaKind::Tree, number: 9 };
/// Limit of the storage of the tree, in bytes.
const TREE_BYTES: u64 = 1 << 20;

fn limits(bytes: u64, files: u64) -> QuotaLimits {
    let hard = |hard| QuotaLimit { hard, ..QuotaLimit::default() };
    QuotaLimits { bytes: hard(bytes), files: hard(files) }
}

/// Runs a line of the shell in a directory as the user with limits. Returns the error messages of a failure.
fn fails(dir: &Path, line: &str) -> Option<String> {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(dir).env("LC_ALL", "C").uid(USER.number).gid(USER.number);
    let output = command.output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn limits_stop_programs_and_are_the_size_of_a_tree() {
    let Some(fixture) = fixture() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: only root sets limits");
        return;
    }
    fs::set_permissions(fixture.place.path(), Permissions::from_mode(0o755)).unwrap();
    let mut mount = fixture.mount_with("allow_other");
    let tree = fixture.point.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::set_permissions(&tree, Permissions::from_mode(0o777)).unwrap();
    fixture.files.set_project("/tree".into(), TREE.number).unwrap();
    let mut table = QuotaTable::default();
    table.set(USER, limits(64 << 10, 3)).unwrap();
    table.set(TREE, limits(TREE_BYTES, 10)).unwrap();
    fixture.files.set_quota_table(Some(&table)).unwrap();

    let refused = |line: &str| {
        let messages = fails(&tree, line).expect("refused");
        assert!(messages.contains("Disk quota exceeded"), "{line}: {messages}");
    };
    assert_eq!(fails(&tree, "head -c 20000 /dev/zero > small && mkdir dir"), None);
    refused("cat small small small small > large");
    refused("touch fourth");
    refused("ln -s target fourth");
    // Limits do not stop root, but a tree refuses a link to an object outside the tree, also by root.
    fs::write(tree.join("of root"), vec![1; 100_000]).unwrap();
    fs::write(fixture.point.join("outside"), "").unwrap();
    let linked = fs::hard_link(fixture.point.join("outside"), tree.join("link"));
    assert_eq!(errno(linked), Some(Errno::XDEV.raw_os_error()));

    let space = rustix::fs::statvfs(&tree).unwrap();
    // The tree has its directory, three objects of the user, and one of root.
    assert_eq!((space.f_blocks * space.f_frsize, space.f_files, space.f_ffree), (TREE_BYTES, 10, 5));
    let free = space.f_bfree * space.f_frsize;
    assert!(free <= TREE_BYTES - 120_000, "{free}");
    assert!(rustix::fs::statvfs(&fixture.point).unwrap().f_blocks > space.f_blocks);

    assert_eq!(fails(&tree, "rm small large && touch fourth"), None);
    crate::unmount_idle(&mut mount);
    assert!(fixture.volume.check().unwrap().findings.is_empty());
}

#[test]
fn regression_allocation_that_fails_later_shows_its_size() {
    let Some(fixture) = fixture() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: only root sets limits");
        return;
    }
    fs::set_permissions(fixture.place.path(), Permissions::from_mode(0o755)).unwrap();
    let volume = Volume::create(fixture.place.path().join("large"), 256 << 20).unwrap();
    let files = volume.files(Credentials::root());
    let mut table = QuotaTable::default();
    table.set(USER, limits(100 << 20, 3)).unwrap();
    files.set_quota_table(Some(&table)).unwrap();
    let mut mount = eyrie_fuse::mount(&volume, &fixture.point, &"allow_other".parse().unwrap()).unwrap();
    let dir = fixture.point.join("dir");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    // The library allocates 64 MiB in one step, and the limit stops the second step.
    let messages = fails(&dir, "touch file && stat file && fallocate -l 160M file").expect("refused");
    assert!(messages.contains("Disk quota exceeded"), "{messages}");
    let size = files.metadata("/dir/file").unwrap().size;
    assert_eq!((fs::metadata(dir.join("file")).unwrap().len(), size), (size, 64 << 20));
    crate::unmount_idle(&mut mount);
}
