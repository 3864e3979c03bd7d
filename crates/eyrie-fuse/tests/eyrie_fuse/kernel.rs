//! Compares a mounted volume with a tmpfs: several users make the same random calls on both.

use std::fs;

use eyrie::{OpenFlags, SetTime, Stat, Volume};
use eyrie_testkit::posix::{PosixCall, compare_roots};
use rustix::fs::StatVfsMountFlags;

const TMPFS: &str = "/dev/shm";

/// True for calls that the kernel does not pass on as they are: a truncate(2) to 0 bytes, which looks like an
/// open with `O_TRUNC`; a chown(2) that changes nothing, which looks like no change at all; `SEEK_DATA` and
/// `SEEK_HOLE` on directories; `O_TMPFILE`. Inode flags are left out, because the kernel does not check them
/// at an open. The smallest time is left out, because the crate `fuser` negates its seconds. The result is
/// right in a release build, but a build with overflow checks panics.
fn is_left_out(call: &PosixCall, object: Option<&Stat>) -> bool {
    match call {
        PosixCall::Open { flags, .. } => flags.contains(OpenFlags::TEMPORARY),
        PosixCall::Truncate { size, .. } => *size == 0,
        PosixCall::TruncateToSame { .. } => object.is_some_and(|object| object.is_file() && object.size == 0),
        PosixCall::Chown { uid, gid, .. } | PosixCall::Lchown { uid, gid, .. } => {
            (*uid, *gid) == (None, None)
        }
        PosixCall::SetInodeFlags { .. } => true,
        PosixCall::Seek { .. } => object.is_some_and(Stat::is_dir),
        PosixCall::Utimens { accessed, modified, .. }
        | PosixCall::Lutimens { accessed, modified, .. }
        | PosixCall::Futimens { accessed, modified, .. } => [accessed, modified]
            .iter()
            .any(|set| matches!(set, SetTime::To(time) if time.seconds == i64::MIN)),
        _ => false,
    }
}

#[test]
fn calls_through_a_mount_have_the_answers_of_a_tmpfs() {
    let test = "kernel::calls_through_a_mount_have_the_answers_of_a_tmpfs";
    compare_roots(test, 0..40, 300, is_left_out, || {
        if fs::File::options().read(true).write(true).open("/dev/fuse").is_err()
            || !rustix::process::geteuid().is_root()
        {
            eprintln!("NOT TESTED: only root compares mounts with a tmpfs, with /dev/fuse");
            return None;
        }
        let place = tempfile::tempdir_in(TMPFS).unwrap();
        let roots = ["tmpfs", "mount"].map(|name| place.path().join(name));
        roots.iter().for_each(|root| fs::create_dir(root).unwrap());
        let volume = Volume::create(place.path().join("volume"), 256 << 20).unwrap();
        // The tmpfs may refuse to execute files, and then the mount must do so, too.
        let host = rustix::fs::statvfs(place.path()).unwrap().f_flag;
        let exec = if host.contains(StatVfsMountFlags::NOEXEC) { ",noexec" } else { "" };
        let options = format!("allow_other,suid,dev{exec}").parse().unwrap();
        let mount = eyrie_fuse::mount(&volume, &roots[1], &options).unwrap();
        Some((roots, (mount, volume, place)))
    });
}
