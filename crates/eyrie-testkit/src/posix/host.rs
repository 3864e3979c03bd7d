//! The host's side of a comparison: calls of the kernel below the root of this process.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use eyrie::posix::{Access, OpenFlags, Posix, Target};
use eyrie::{Capabilities, Credentials, Errno, FallocateMode, Host, Kind, Stat};

use rustix::fs::Mode;

use super::calls::{PosixCall, Slots, perform};
use super::tree::{self, Parts, PosixTree};
use super::values::{Answer, CallPath};
use super::{empty, flags, xattr};

/// Maximum length of a compared copy, in bytes.
const MOST_COPIED: u64 = 1 << 20;

/// Returns the credentials of root and of two users without capabilities. One of the users has a umask.
pub fn plain_users(_seed: u64) -> Vec<Credentials> {
    let masked = Credentials::new(1001, 2000, &[]).with_umask(0o026);
    vec![Credentials::root(), Credentials::new(1000, 1000, &[2000]), masked]
}

/// Returns the [`plain_users`], a user with a single capability, and a user whose real ids differ from the
/// effective ones. Capability and ids depend on the seed.
pub fn users_of_seed(seed: u64) -> Vec<Credentials> {
    let mut users = plain_users(seed);
    // A process in a container may lack the capability with which a process exceeds limits of quotas.
    let capabilities: Vec<_> = (Capabilities::all() - Capabilities::SYS_RESOURCE).iter().collect();
    let capability = capabilities[(seed % capabilities.len() as u64) as usize];
    users.push(Credentials::new(1002, 1002, &[1000]).with_capabilities(capability));
    users.push(match seed % 4 {
        0 => Credentials::root().with_real_ids(1000, 1000),
        // `Host::become_user` leaves all capabilities in the permitted set.
        1 => Credentials::new(1000, 1000, &[]).with_permitted(Capabilities::all()).with_real_ids(0, 0),
        2 => Credentials::new(1001, 1000, &[]).with_real_ids(1000, 2000),
        _ => {
            let overriding = Credentials::new(1001, 1001, &[]).with_capabilities(Capabilities::DAC_OVERRIDE);
            overriding.with_real_ids(1001, 1000)
        }
    });
    users
}

/// The file system of the host, on which each user makes calls.
pub(super) struct HostSide {
    pub host: Host,
    pub users: Vec<Credentials>,
    /// True if extended attributes are compared.
    pub xattrs: bool,
    /// True if inode flags are compared.
    flags: bool,
    /// The inode numbers of files in which `fallocate` has allocated storage, each with the number of calls.
    allocated: RefCell<HashMap<u64, u32>>,
    /// Number of calls that a limit of a quota refused.
    pub over_limit: Cell<u64>,
}

impl HostSide {
    /// Empties the root of this process, and finds out if extended attributes and inode flags can be
    /// compared.
    pub fn new() -> HostSide {
        // The working directory of this process is the directory of its open files.
        let host = Host::new("/").expect("the host's root can be opened").with_open_files(".");
        empty(&host);
        let xattrs = xattr::has_all(&host);
        if !xattrs {
            eprintln!("extended attributes are not compared: the host does not support all of them");
        }
        let flags = flags::has_all(&host);
        if !flags {
            eprintln!("inode flags are not compared: the host does not support them");
        }
        HostSide {
            host,
            users: plain_users(0),
            xattrs,
            flags,
            allocated: RefCell::default(),
            over_limit: Cell::default(),
        }
    }

    /// Empties the root, and gives all users all rights on it.
    pub fn empty(&self) {
        self.allocated.borrow_mut().clear();
        empty(&self.host);
    }

    /// Makes a call as a user.
    pub fn perform(&self, user: usize, slots: &mut Slots<Host>, call: &PosixCall) -> Result<Answer, Errno> {
        if let PosixCall::Fallocate { mode: FallocateMode::Allocate | FallocateMode::KeepSize, .. } = call
            && let Some(stat) = self.object_of(slots, call)
        {
            *self.allocated.borrow_mut().entry(stat.inode).or_default() += 1;
        }
        let answer = self.as_user(user, || perform(&self.host, slots, call));
        self.over_limit.update(|calls| calls + u64::from(matches!(answer, Err(Errno::DQUOT))));
        answer
    }

    /// Runs `work` while this thread is a user.
    pub fn as_user<T>(&self, user: usize, work: impl FnOnce() -> T) -> T {
        let umask = |user: &Credentials| rustix::process::umask(Mode::from(u32::from(user.umask())));
        Host::become_user(&self.users[user]).expect("root can become any user");
        umask(&self.users[user]);
        let done = work();
        umask(&self.users[0]);
        Host::become_user(&self.users[0]).expect("the thread can become root again");
        done
    }

    /// True if a service may answer a call in another way than the kernel. A service does not know the rights
    /// that a user had at the open of a file. It gives the present time to each change, also to a change that
    /// should keep the change time. It refuses some calls that change nothing. The calling thread must have
    /// become this user. The function also makes its look-ups in `subject`, as
    /// [`HostSide::is_beyond_comparison`] does.
    pub fn is_beyond_a_service<P: Posix>(
        &self,
        user: usize,
        slots: &Slots<Host>,
        call: &PosixCall,
        (subject, subject_slots): (&P, &Slots<P>),
    ) -> bool {
        let user = &self.users[user];
        // True if the user could not open the file of this slot again.
        let lacks = |slot: usize, access: Access| {
            let Some(file) = &slots[slot] else { return false };
            !self.host.stat(Target::Open(file)).is_ok_and(|stat| stat.uid == user.uid())
                && self.host.access(Target::Open(file), access).is_err()
        };
        match call {
            PosixCall::Read { slot, .. } | PosixCall::ListHandle { slot, .. } => lacks(*slot, Access::READ),
            PosixCall::Write { slot, .. }
            | PosixCall::Append { slot, .. }
            | PosixCall::AppendRange { slot, .. }
            | PosixCall::SetLen { slot, .. }
            | PosixCall::Fallocate { slot, .. } => lacks(*slot, Access::WRITE),
            PosixCall::CopyRange { slot, target, .. } => {
                lacks(*slot, Access::READ) || lacks(*target, Access::WRITE)
            }
            PosixCall::Flock { slot, .. }
            | PosixCall::LockRange { slot, .. }
            | PosixCall::FindLock { slot, .. } => lacks(*slot, Access::READ) && lacks(*slot, Access::WRITE),
            // The kernel clears the set-id bits, but may keep the change time.
            PosixCall::Truncate { path, .. } | PosixCall::TruncateToSame { path } => {
                let _ = subject.stat(Target::Follow(path.at(subject_slots)));
                let stat = self.host.stat(Target::Follow(path.at(slots)));
                !user.is_root() && stat.is_ok_and(|stat| stat.mode & 0o6000 != 0)
            }
            PosixCall::Chown { uid, gid, .. }
            | PosixCall::Lchown { uid, gid, .. }
            | PosixCall::Fchown { uid, gid, .. } => !user.is_root() && uid.is_none() && gid.is_none(),
            _ => false,
        }
    }

    /// Returns the attributes of the object of a call, if there is one.
    pub fn object_of(&self, slots: &Slots<Host>, call: &PosixCall) -> Option<Stat> {
        let target = match call.slot() {
            Some(slot) => Target::Open(slots[slot].as_ref()?),
            None => Target::Follow(call.paths().first()?.at(slots)),
        };
        self.host.stat(target).ok()
    }

    /// Closes an open file.
    pub fn close(&self, file: <Host as Posix>::Handle) {
        self.host.close(file).expect("open files close");
    }

    /// Returns all objects.
    pub fn tree(&self, targets: bool) -> PosixTree {
        tree::read(&self.host, Parts { xattrs: self.xattrs, targets }).expect("root reads everything")
    }

    /// True if the host's answer cannot be compared. In most of these cases the host would wait for another
    /// process (a pipe), pass the call to a driver (a device), apply options and limits of its mount, or not
    /// support the call. A look-up of the call's path may set the access times of symbolic links. So the same
    /// look-up is made in `subject`, the file system under test.
    pub fn is_beyond_comparison<P: Posix>(
        &self,
        slots: &Slots<Host>,
        call: &PosixCall,
        (subject, subject_slots): (&P, &Slots<P>),
    ) -> bool {
        if call.paths().iter().any(|path| self.leaves_removed_directory(slots, path)) {
            return true;
        }
        if matches!(call, PosixCall::Seek { .. }) {
            let Some(stat) = self.object_of(slots, call) else { return false };
            // If storage without data is allocated a second time, a tmpfs takes it for data. The end of the
            // last page of the largest file wraps in a tmpfs, so the tmpfs does not find this page.
            let calls = self.allocated.borrow().get(&stat.inode).copied();
            return calls.is_some_and(|calls| calls > 1) || stat.size > i64::MAX as u64 - 4096;
        }
        if let PosixCall::CopyRange { slot, offset, length, .. } = call {
            // A tmpfs fills the holes of a copy, so the copy of a large hole would fill the memory.
            let source = slots[*slot].as_ref().and_then(|file| self.host.stat(Target::Open(file)).ok());
            let size = source.map_or(0, |stat| stat.size);
            return size.saturating_sub(*offset).min(*length) > MOST_COPIED;
        }
        if matches!(call, PosixCall::Xattr { .. } | PosixCall::Fxattr { .. }) {
            return !self.xattrs;
        }
        if matches!(call, PosixCall::InodeFlags { .. } | PosixCall::SetInodeFlags { .. }) {
            return !self.flags;
        }
        if let PosixCall::Fallocate { mode, offset, length, .. } = call {
            // A tmpfs lacks some modes, its page numbers wrap at the largest size, and its capacity is
            // limited by memory.
            return !matches!(
                mode,
                FallocateMode::Allocate | FallocateMode::KeepSize | FallocateMode::PunchHole
            ) || offset.checked_add(*length).is_some_and(|end| end.abs_diff(i64::MAX as u64) < 4096)
                || (1 << 40..1 << 63).contains(length);
        }
        let (PosixCall::Open { path: name, .. } | PosixCall::Access { path: name, .. }) = call else {
            return false;
        };
        let _ = subject.stat(Target::Follow(name.at(subject_slots)));
        match (self.host.stat(Target::Follow(name.at(slots))), call) {
            (Ok(stat), PosixCall::Access { access, .. }) => {
                stat.is_file() && access.contains(Access::EXECUTE) && self.no_exec()
            }
            (Ok(_), PosixCall::Open { flags, .. }) if flags.contains(OpenFlags::PATH) => false,
            (Ok(stat), _) => !matches!(stat.kind, Kind::File | Kind::Directory | Kind::Symlink),
            (Err(_), _) => false,
        }
    }

    /// True if a path may go from a removed directory to its former parent. A volume does not know this
    /// parent.
    fn leaves_removed_directory(&self, slots: &Slots<Host>, path: &CallPath) -> bool {
        let mut components = path.bytes.split(|byte| *byte == b'/');
        !path.bytes.starts_with(b"/")
            && components.any(|component| component == b"..")
            && path.dir.and_then(|slot| slots[slot].as_ref()).is_some_and(|dir| {
                self.host.stat(Target::Open(dir)).is_ok_and(|stat| stat.is_dir() && stat.links == 0)
            })
    }

    fn no_exec(&self) -> bool {
        let flags = rustix::fs::statvfs("/").map(|stat| stat.f_flag);
        flags.is_ok_and(|flags| flags.contains(rustix::fs::StatVfsMountFlags::NOEXEC))
    }
}
