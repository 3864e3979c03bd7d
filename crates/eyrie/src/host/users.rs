//! Several users in one process, and a process whose root has no `/proc`, for tests.

use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{Host, named};
use crate::{Credentials, Result};

impl Host {
    /// Returns the same file system for a process whose root has no `/proc`. `dir` is another path to the
    /// directory `/proc/self/fd`: for example `.`, if that directory is the working directory. This function
    /// needs the feature `testing`.
    ///
    /// ```
    /// let root = eyrie::Host::new("/")?.with_open_files("/proc/self/fd");
    /// # Ok::<(), eyrie::Error>(())
    /// ```
    pub fn with_open_files(self, dir: &'static str) -> Host {
        Host { open_files: dir, ..self }
    }

    /// Gives the calling thread, and no other thread, the user ids, groups and capabilities of `credentials`.
    /// The umask does not change. All capabilities of the process stay permitted. Root always has all
    /// capabilities. The process must have been started by root. A call with the credentials of root makes
    /// the thread root again. This function needs the feature `testing`.
    ///
    /// ```
    /// # use eyrie::*; fn f() -> Result<()> {
    /// Host::become_user(&Credentials::new(1000, 1000, &[]))
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EPERM` unless the process was started by root.
    pub fn become_user(credentials: &Credentials) -> Result<()> {
        let (uid, gid) = (Uid::from_raw(credentials.uid()), Gid::from_raw(credentials.gid()));
        let (real_uid, real_gid) = credentials.real_ids();
        let (real_uid, real_gid) = (Uid::from_raw(real_uid), Gid::from_raw(real_gid));
        let groups: Vec<Gid> = credentials.groups().iter().copied().map(Gid::from_raw).collect();
        // Setting groups needs the effective user id of root. The saved user id stays that of root, so that
        // the thread can become root again.
        let all = || {
            rustix::thread::set_thread_res_uid(None, Uid::ROOT, None)?;
            rustix::thread::set_thread_groups(&groups)?;
            rustix::thread::set_thread_res_gid(real_gid, gid, Gid::ROOT)?;
            rustix::thread::set_thread_res_uid(real_uid, uid, Uid::ROOT)?;
            // A user other than root has no effective capabilities now. The saved user id of root has kept
            // the permitted ones.
            let effective = CapabilitySet::from_bits_retain(credentials.capabilities().bits().into());
            if uid.is_root() || effective.is_empty() {
                return Ok(());
            }
            let sets = CapabilitySets { effective, ..rustix::thread::capabilities(None)? };
            rustix::thread::set_capabilities(None, sets)
        };
        named("setresuid", all())
    }
}
