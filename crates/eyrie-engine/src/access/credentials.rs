//! The callers of operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Protection;

bitflags::bitflags! {
    /// The capabilities of Linux (capabilities(7)) that concern files, each with the value of its bit in
    /// Linux.
    ///
    /// ```
    /// use eyrie_engine::access::{Capabilities, Credentials};
    ///
    /// let backup = Credentials::new(34, 34, &[]).with_capabilities(Capabilities::DAC_READ_SEARCH);
    /// assert!(backup.has(Capabilities::DAC_READ_SEARCH) && !backup.has(Capabilities::CHOWN));
    /// assert!(Credentials::root().capabilities().contains(Capabilities::FOWNER));
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Capabilities: u32 {
        /// Changes owners and groups at will.
        const CHOWN = 1 << 0;
        /// Reads, writes and searches without a permission, and executes if any class of users may.
        const DAC_OVERRIDE = 1 << 1;
        /// Reads, and searches directories, without a permission.
        const DAC_READ_SEARCH = 1 << 2;
        /// Counts as the owner of every file.
        const FOWNER = 1 << 3;
        /// Keeps set-id bits on writes, and sets the set-group-id bit for other groups.
        const FSETID = 1 << 4;
        /// Sets and clears the inode flags of immutable objects and of objects that only grow.
        const LINUX_IMMUTABLE = 1 << 9;
        /// Sees and sets `trusted` extended attributes, and sets `security` ones except
        /// `security.capability`. Sees all quotas, and sets limits and project ids.
        const SYS_ADMIN = 1 << 21;
        /// Takes storage and makes files above the limits of quotas.
        const SYS_RESOURCE = 1 << 24;
        /// Makes devices.
        const MKNOD = 1 << 27;
        /// Sets and removes the capabilities of programs (`security.capability`).
        const SETFCAP = 1 << 31;
    }
}

/// The caller of an operation: user, groups, capabilities and umask.
///
/// Every set of credentials has an [`id`](Credentials::id) that is unique in this process and shared by
/// clones. Caches of decisions use this id as a key.
///
/// ```
/// use eyrie_engine::access::Credentials;
///
/// let ada = Credentials::new(1000, 1000, &[24, 25]).with_umask(0o027);
/// assert!(!ada.is_root() && ada.groups() == [24, 25]);
/// assert_eq!((ada.uid(), ada.gid(), ada.umask()), (1000, 1000, 0o027));
/// assert!(ada.in_group(1000) && ada.in_group(24) && !ada.in_group(26));
/// let capabilities = Credentials::root().capabilities(); // all of them
/// assert!(ada.clone().with_capabilities(capabilities).has(capabilities));
/// let me = Credentials::of_process();
/// assert_ne!(me.id(), ada.id());
/// ```
#[derive(Clone, Debug)]
pub struct Credentials {
    id: u64,
    uid: u32,
    gid: u32,
    umask: u16,
    capabilities: Capabilities,
    groups: Arc<[u32]>,
}

impl Credentials {
    /// Returns the credentials of a user with a primary group and supplementary groups. The umask is empty.
    /// User 0 has all capabilities, and other users have none.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        // Relaxed increments are enough, because the id only has to be unique.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let capabilities = if uid == 0 { Capabilities::all() } else { Capabilities::empty() };
        Credentials { id, uid, gid, umask: 0, capabilities, groups: groups.into() }
    }

    /// Returns the credentials of the superuser: user and group 0.
    pub fn root() -> Credentials {
        Credentials::new(0, 0, &[])
    }

    /// Returns the effective user and group of this process, with its supplementary groups and its umask. The
    /// umask is 0o022 if the host has no `/proc`.
    pub fn of_process() -> Credentials {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups: Vec<u32> = groups.into_iter().map(rustix::process::Gid::as_raw).collect();
        Credentials::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw(), &groups)
            .with_umask(umask_of_process().unwrap_or(0o022))
    }

    /// Returns the same user with a umask: the bits that are cleared in the modes of new objects.
    #[must_use]
    pub fn with_umask(mut self, umask: u16) -> Credentials {
        self.umask = umask & 0o777;
        self
    }

    /// Returns the same user with these capabilities only.
    #[must_use]
    pub fn with_capabilities(self, capabilities: Capabilities) -> Credentials {
        Credentials {
            capabilities,
            ..Credentials::new(self.uid, self.gid, &self.groups).with_umask(self.umask)
        }
    }

    /// Returns the credentials with which `access(2)` checks rights, if they differ from these: the
    /// capabilities of a user other than root do not count.
    #[doc(hidden)]
    pub fn for_access_call(&self) -> Option<Credentials> {
        let differs = !self.is_root() && !self.capabilities.is_empty();
        differs.then(|| self.clone().with_capabilities(Capabilities::empty()))
    }

    /// Returns the id of these credentials. Clones share the id, even if they have different umasks. No other
    /// credentials of this process have it.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the user id.
    #[inline]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the primary group id: the group of new objects, except in set-group-id directories.
    #[inline]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the supplementary group ids.
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Returns the bits that are cleared in the modes of new objects.
    #[inline]
    pub fn umask(&self) -> u16 {
        self.umask
    }

    /// Returns the capabilities.
    #[inline]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// True if the caller has all of these capabilities.
    #[inline]
    pub fn has(&self, capabilities: Capabilities) -> bool {
        self.capabilities.contains(capabilities)
    }

    /// True for the superuser: user id 0, with or without capabilities.
    #[inline]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// True if `gid` is the primary group or a supplementary group.
    #[inline]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// True if the caller owns the object or has [`Capabilities::FOWNER`].
    #[doc(hidden)]
    #[inline]
    pub fn owns(&self, object: &Protection) -> bool {
        self.has(Capabilities::FOWNER) || self.uid == object.uid
    }
}

/// Returns the umask of this process. The system call `umask` would also set it, and other threads could then
/// make files with a wrong mode.
fn umask_of_process() -> Option<u16> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u16::from_str_radix(umask.trim(), 8).ok()
}
