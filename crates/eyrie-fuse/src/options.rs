//! Options of a mount.

use eyrie::AccessTimes;

use crate::{MountError, Result};

/// Options of a mount: see [`mount`](crate::mount). By default, only the user who mounts the volume can use
/// the mount, changes are allowed, and set-user-id bits and devices have no effect.
///
/// ```
/// use eyrie_fuse::MountOptions;
///
/// let options: MountOptions = "ro,allow_other".parse()?;
/// assert!(options.read_only && options.allow_other);
/// assert!("colour=blue".parse::<MountOptions>().is_err());
/// # Ok::<(), eyrie_fuse::MountError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MountOptions {
    /// Refuse changes through the mount (`ro`).
    pub read_only: bool,
    /// Let all users use the mount (`allow_other`). If the user who mounts is not root, `/etc/fuse.conf`
    /// needs the line `user_allow_other`.
    pub allow_other: bool,
    /// Let the kernel check permissions even if only root can use the mount (`default_permissions`). In all
    /// other mounts the kernel always checks them. Without this option, nobody checks permissions in a mount
    /// that only root can use, because root passes the checks. Set this option if processes of root that have
    /// given up capabilities use the mount. The checks make such a mount slower, because the kernel then asks
    /// for the attributes of a directory after each change of it.
    pub default_permissions: bool,
    /// Honour set-user-id and set-group-id bits (`suid`). Only root may set this.
    pub suid: bool,
    /// Let devices be opened (`dev`). Only root may set this.
    pub dev: bool,
    /// Execute no programs (`noexec`).
    pub no_exec: bool,
    /// Make all writes durable before they return (`sync`).
    pub sync: bool,
    /// Let the kernel collect writes before it sends them (`writeback_cache`). A file that is changed through
    /// the mount must then not be changed in another way, for example by other threads of this process.
    pub writeback_cache: bool,
    /// Let a write that does not fit write the bytes that fit, as Linux does (`short_writes`). Of pages that
    /// the kernel has cached (`writeback_cache`, `mmap`), the bytes that fit are then written, and `fsync`
    /// gets the error. Without this option, a write that does not fit writes nothing.
    pub short_writes: bool,
    /// The reads that set access times (`noatime`, which is the default, `relatime`, `strictatime`). Only
    /// reads that reach the mount count: the kernel answers other reads from its cache.
    pub access_times: AccessTimes,
    /// Let listings set no access times (`nodiratime`).
    pub no_dir_access_times: bool,
    /// Let the volume keep advisory locks, for all its users (`lock`), or let the kernel keep them
    /// (`nolock`). Locks of the kernel exclude only other programs that use this mount, but opens and closes
    /// are then faster. By default the volume keeps the locks if a service shares it. Without a service, only
    /// the process of the mount can use the volume beside the mount.
    pub volume_locks: Option<bool>,
    /// Number of threads that serve requests. The default is one for each processor, but at least 2 and at
    /// most 8.
    pub threads: Option<usize>,
    /// Name of the volume in `/proc/mounts` (`fsname=`). The default is the path of the volume.
    pub name: Option<String>,
}

impl MountOptions {
    /// Sets the options in a list that is separated by commas, as mount(8) takes it after `-o`: for example
    /// `ro,noatime`.
    ///
    /// ```
    /// # use eyrie_fuse::MountOptions;
    /// let mut options = MountOptions::default();
    /// options.set("ro,threads=4")?;
    /// assert!(options.read_only && options.threads == Some(4));
    /// # Ok::<(), eyrie_fuse::MountError>(())
    /// ```
    ///
    /// # Errors
    /// [`MountError::Option`] for an option that is unknown, has a wrong value, or is refused.
    pub fn set(&mut self, list: &str) -> Result<()> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.set_one(option))
    }

    fn set_one(&mut self, option: &str) -> Result<()> {
        let wrong = |reason| Err(MountError::Option { option: option.to_owned(), reason });
        match option.split_once('=') {
            Some(("fsname", name)) => self.name = Some(name.to_owned()),
            Some(("threads", number)) => match number.parse() {
                Ok(number @ 1..=64) => self.threads = Some(number),
                _ => return wrong("the number of threads must be 1 to 64"),
            },
            // Contexts of SELinux and remarks of fstab(5) are ignored.
            Some(("context" | "rootcontext" | "comment", _)) => {}
            Some(_) => return wrong("unknown; see `eyrie mount --help`"),
            None => match option {
                "ro" => self.read_only = true,
                "rw" => self.read_only = false,
                "allow_other" => self.allow_other = true,
                "default_permissions" => self.default_permissions = true,
                "suid" => self.suid = true,
                "nosuid" => self.suid = false,
                "dev" => self.dev = true,
                "nodev" => self.dev = false,
                "exec" => self.no_exec = false,
                "noexec" => self.no_exec = true,
                "sync" => self.sync = true,
                "async" => self.sync = false,
                "short_writes" => self.short_writes = true,
                "lock" => self.volume_locks = Some(true),
                "nolock" => self.volume_locks = Some(false),
                "writeback_cache" => self.writeback_cache = true,
                "defaults" => {}
                "noatime" => self.access_times = AccessTimes::Never,
                // As in mount(8), `atime` leaves the choice to the kernel, whose default is `relatime`.
                "relatime" | "atime" => self.access_times = AccessTimes::Relative,
                "strictatime" => self.access_times = AccessTimes::Always,
                "nodiratime" => self.no_dir_access_times = true,
                "diratime" => self.no_dir_access_times = false,
                "auto_unmount" => return wrong("use `eyrie umount` after a crash"),
                // Options of fstab(5) that other programs obey.
                "auto" | "noauto" | "user" | "nouser" | "users" | "nofail" | "_netdev" => {}
                _ if option.starts_with("x-") => {}
                _ => return wrong("unknown; see `eyrie mount --help`"),
            },
        }
        Ok(())
    }
}

impl std::str::FromStr for MountOptions {
    type Err = MountError;

    fn from_str(list: &str) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        options.set(list)?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_options_are_read_like_those_of_mount() {
        let options: MountOptions =
            "rw,noatime,,allow_other,suid,short_writes,fsname=a=b,threads=3,x-systemd.automount"
                .parse()
                .expect("all are known");
        let expected = MountOptions {
            allow_other: true,
            suid: true,
            short_writes: true,
            name: Some("a=b".to_owned()),
            threads: Some(3),
            ..MountOptions::default()
        };
        assert_eq!(options, expected);
        let volume_locks = |list: &str| list.parse::<MountOptions>().expect("all are known").volume_locks;
        assert_eq!(["nolock", "ro", "nolock,lock"].map(volume_locks), [Some(false), None, Some(true)]);
        let times = |list: &str| {
            let MountOptions { access_times, no_dir_access_times, .. } = list.parse().expect("all are known");
            (access_times, no_dir_access_times)
        };
        assert_eq!(times("defaults"), (AccessTimes::Never, false));
        assert_eq!(times("relatime,nodiratime"), (AccessTimes::Relative, true));
        assert_eq!(times("nodiratime,atime,diratime"), (AccessTimes::Relative, false));
        assert_eq!(times("strictatime"), (AccessTimes::Always, false));
        assert_eq!(times("strictatime,noatime"), (AccessTimes::Never, false));
        for wrong in ["colour", "colour=blue", "threads=0", "threads=x", "lazytime"] {
            assert!(wrong.parse::<MountOptions>().is_err(), "{wrong}");
        }
    }
}
