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
        /// Sets and clears the inode flags, which make an object immutable or append-only.
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
/// User and group are the effective ones. `access(2)` checks with the real ones, which are the same unless
/// [`with_real_ids`](Credentials::with_real_ids) sets them.
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
    real_uid: u32,
    real_gid: u32,
    /// The effective capabilities, and those that the caller may make effective.
    permitted: Capabilities,
}

/// Returns an id that no other credentials of this process have had.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed increments are enough, because the id only has to be unique.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Credentials {
    /// Returns the credentials of a user with a primary group and supplementary groups. The umask is 0. User
    /// 0 has all capabilities, and other users have none.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        let capabilities = if uid == 0 { Capabilities::all() } else { Capabilities::empty() };
        // A user may be in tens of thousands of groups, and an ACL may have thousands of entries of groups.
        // So the groups are sorted for `in_group`.
        let mut groups: Arc<[u32]> = groups.into();
        Arc::make_mut(&mut groups).sort_unstable();
        let permitted = capabilities;
        let (id, umask, real_uid, real_gid) = (next_id(), 0, uid, gid);
        Credentials { id, uid, gid, umask, capabilities, groups, real_uid, real_gid, permitted }
    }

    /// Returns the credentials of the superuser: user and group 0.
    pub fn root() -> Credentials {
        Credentials::new(0, 0, &[])
    }

    /// Returns the effective and the real user and group of this process, with its supplementary groups and
    /// its umask. The umask is 0o022 if the host has no `/proc`. All capabilities are permitted to the real
    /// user 0.
    pub fn of_process() -> Credentials {
        use rustix::process::{Gid, getegid, geteuid, getgid, getgroups, getuid};
        let groups: Vec<u32> = getgroups().unwrap_or_default().into_iter().map(Gid::as_raw).collect();
        let who = Credentials::new(geteuid().as_raw(), getegid().as_raw(), &groups)
            .with_real_ids(getuid().as_raw(), getgid().as_raw())
            .with_umask(umask_of_process().unwrap_or(0o022));
        if who.real_uid == 0 { who.with_permitted(Capabilities::all()) } else { who }
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
        Credentials { id: next_id(), capabilities, permitted: capabilities, ..self }
    }

    /// Returns the same user with another real user and group, with which `access(2)` checks rights. No other
    /// call uses them.
    ///
    /// ```
    /// use eyrie_engine::access::Credentials;
    ///
    /// // User 1000 runs a set-user-id program of root.
    /// let program = Credentials::new(0, 1000, &[]).with_real_ids(1000, 1000);
    /// assert_eq!(program.real_ids(), (1000, 1000));
    /// assert_eq!(program.for_access_call().map(|user| user.uid()), Some(1000));
    /// ```
    #[must_use]
    pub fn with_real_ids(self, uid: u32, gid: u32) -> Credentials {
        Credentials { real_uid: uid, real_gid: gid, ..self }
    }

    /// Returns the same user with these capabilities as permitted ones, in addition to the effective ones.
    /// `access(2)` checks with the permitted capabilities if the real user is root.
    ///
    /// ```
    /// use eyrie_engine::access::{Capabilities, Credentials};
    ///
    /// // A program of root acts as user 1000 for a while (`seteuid`).
    /// let acting = Credentials::new(1000, 1000, &[]).with_real_ids(0, 0);
    /// let acting = acting.with_permitted(Capabilities::all());
    /// assert!(acting.capabilities().is_empty());
    /// assert!(acting.for_access_call().is_some_and(|user| user.has(Capabilities::DAC_OVERRIDE)));
    /// ```
    #[must_use]
    pub fn with_permitted(self, capabilities: Capabilities) -> Credentials {
        Credentials { permitted: self.capabilities | capabilities, ..self }
    }

    /// Returns the credentials with which `access(2)` checks rights: the real user and group, with the
    /// permitted capabilities if the real user is root, and without capabilities otherwise. `None` if they do
    /// not differ from these credentials.
    pub fn for_access_call(&self) -> Option<Credentials> {
        let (uid, gid) = (self.real_uid, self.real_gid);
        let capabilities = if uid == 0 { self.permitted } else { Capabilities::empty() };
        let differs = (uid, gid, capabilities) != (self.uid, self.gid, self.capabilities);
        differs.then(|| Credentials { uid, gid, ..self.clone() }.with_capabilities(capabilities))
    }

    /// Returns the id of these credentials. Clones share the id, even if they have different umasks or real
    /// ids. No other credentials of this process have it.
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

    /// Returns the real user id and the real group id.
    ///
    /// ```
    /// # use eyrie_engine::access::Credentials;
    /// assert_eq!(Credentials::root().with_real_ids(1000, 100).real_ids(), (1000, 100));
    /// ```
    pub fn real_ids(&self) -> (u32, u32) {
        (self.real_uid, self.real_gid)
    }

    /// Returns the supplementary group ids, in ascending order.
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
        self.gid == gid || self.groups.binary_search(&gid).is_ok()
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
