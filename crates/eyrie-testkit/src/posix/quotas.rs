//! Compares calls with those of a tmpfs with quotas. A tmpfs supports quotas from Linux 6.6 on.
//!
//! The tmpfs has the same limits for all users, or for all groups. The volume has these limits for the users
//! or groups that make the calls, and for those to whom files are given. There is one difference: user 0 and
//! group 0 have no limits in a volume.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use eyrie::posix::{OpenFlags, Posix};
use eyrie::{Credentials, Engine, Pxfs, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaTable};
use eyrie_medium::Medium;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::calls::{PosixCall, SLOTS};
use super::threads::Subtree;
use super::values::CallPath;
use super::{Comparison, check, compare_engine_with_host, enter_root, new_engine, run_in_root};

/// Size of a page, in bytes. The tmpfs counts whole pages.
const PAGE: usize = 4096;
/// The users and groups to whom files may belong.
const OWNERS: [u32; 4] = [1000, 1001, 1002, 2000];

/// Hard limits of each user or group. 0 means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnerLimits {
    /// The kind of the limited accounts: users or groups.
    pub kind: QuotaKind,
    /// Maximum number of objects.
    pub objects: u64,
    /// Maximum number of pages.
    pub pages: u64,
}

/// A tmpfs that is unmounted when it is dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts a tmpfs with quotas at a directory. Returns `None` if this process may not mount, or if the
    /// kernel has no such quotas.
    fn with_quotas(place: &Path, limits: OwnerLimits) -> Option<Tmpfs> {
        let OwnerLimits { kind, objects, pages } = limits;
        let quota = if kind == QuotaKind::User { "usrquota" } else { "grpquota" };
        let mut options = quota.to_owned();
        for (name, limit) in [("inode", objects), ("block", pages * PAGE as u64)] {
            if limit > 0 {
                options += &format!(",{quota}_{name}_hardlimit={limit}");
            }
        }
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(place).output();
        mount.is_ok_and(|output| output.status.success()).then(|| Tmpfs(place.to_owned()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Runs `body` in a child process, as [`in_tmpfs_root`](super::in_tmpfs_root) does. The root of the child is
/// a new tmpfs with these limits. If this process may not mount, or the kernel has no quotas of a tmpfs, the
/// function prints a note and returns.
///
/// # Panics
/// Panics if the child fails.
pub fn in_tmpfs_with_quotas(test: &str, limits: OwnerLimits, body: impl FnOnce()) {
    if enter_root() {
        return body();
    }
    let place = tempfile::tempdir().expect("the host has room for a directory");
    let Some(tmpfs) = Tmpfs::with_quotas(place.path(), limits) else {
        eprintln!(
            "skipped: only root can mount a tmpfs with quotas, and the kernel needs CONFIG_TMPFS_QUOTA"
        );
        return;
    };
    run_in_root(&tmpfs.0, test, |_| ());
}

/// Compares POSIX calls over the engine `scm` with the calls of the host, as
/// [`compare_scm_with_host`](super::compare_scm_with_host) does. The volume has the limits `limits`.
///
/// # Panics
/// As [`compare_scm_with_host`](super::compare_scm_with_host), and if no call of the comparison met a limit.
pub fn compare_quotas_with_host(medium: Medium, limits: OwnerLimits, comparison: Comparison) {
    let volume = new_engine(medium);
    let files = Pxfs::new(Arc::clone(&volume), Credentials::root());
    // The attribute of the limits must not be on the root of the compared tree, because the tmpfs has none.
    files.mkdir("/tree".into(), 0o777).expect("a new volume has room");
    let hard = |hard| QuotaLimit { soft: 0, hard, deadline: 0 };
    let OwnerLimits { kind, objects, pages } = limits;
    let limits = QuotaLimits { bytes: hard(pages * PAGE as u64), files: hard(objects) };
    let mut table = QuotaTable::default();
    for number in OWNERS {
        table.set(QuotaId { kind, number }, limits).expect("room for a few users");
    }
    files.set_quota_table(Some(&table)).expect("a new volume has room");
    let root = volume.lookup(volume.root(), b"tree").expect("the volume is sound").expect("it is there");
    let subtree = Subtree { volume: Arc::clone(&volume), root };
    compare_engine_with_host(Arc::new(subtree), &Comparison { meets_limits: true, ..comparison });
    check(&volume);
}

/// Draws calls that store one or two pages in files. A volume and a tmpfs count such files alike. Other files
/// may take more storage in a volume, because the nodes of their trees count.
pub fn generate_pages(seed: u64, count: usize, users: usize) -> Vec<(usize, PosixCall)> {
    let mut random = StdRng::seed_from_u64(seed);
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let calls = (0..count).map(|_| {
        let (user, slot) = (random.random_range(1..users), random.random_range(0..SLOTS));
        let mut path = || CallPath::from(["a", "b", "c", "d", "e"][random.random_range(0..5)]);
        let (path, to) = (path(), path());
        let data = vec![random.random_range(1..=u8::MAX); PAGE * random.random_range(1..3)];
        let call = match random.random_range(0..12) {
            0..3 => PosixCall::Open { slot, path, flags, mode: 0o666 },
            3..8 => PosixCall::Write { slot, data, offset: 0 },
            8 => PosixCall::SetLen { slot, size: 0 },
            9 => PosixCall::Unlink { path },
            10 => PosixCall::Close { slot },
            _ => PosixCall::Rename { from: path, to, mode: eyrie::RenameMode::Replace },
        };
        (user, call)
    });
    calls.collect()
}
