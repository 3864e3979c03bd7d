//! The state that the requests of one mount share.

use std::sync::{Arc, OnceLock};

use eyrie::{AclKind, Capabilities, Credentials, InodeFlags, LockRange, Node, ObjectId, VolumeNodes};
use fuser::{
    Errno, FileHandle, INodeNo, InitFlags, LockOwner, Notifier, OpenFlags, ReplyAttr, ReplyEntry, Request,
};

use crate::answer::{Answer, LONG, NO_ACCESS_TIME, OrErrno, entry_life, errno, reply};
use crate::convert::{Numbers, attributes, lock_kind};
use crate::locks::{Asked, FileLocks};
use crate::options::MountOptions;
use crate::turns::Turns;

/// The set-user-id and the set-group-id bit of a mode.
const SET_IDS: u16 = 0o6000;
/// Maximum number of bytes that one request copies, so that no copy keeps a thread for long.
const COPY_BYTES: u64 = 64 << 20;
/// `FS_IOC_GETFLAGS`. The number states an argument of 8 bytes, but the flags have 4.
const GET_FLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`.
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`, which the kernel sends before it sets flags.
const GET_EXTENDED: u32 = 0x801c_581f;
/// Bytes of a `struct fsxattr`, which begins with the flags.
const EXTENDED_BYTES: usize = 28;
/// `FS_XFLAG_IMMUTABLE` and `FS_XFLAG_APPEND`.
const EXTENDED_FLAGS: [(InodeFlags, u32); 2] = [(InodeFlags::IMMUTABLE, 8), (InodeFlags::APPEND_ONLY, 16)];

/// Serves the requests of one mount.
pub(crate) struct Adapter {
    pub(crate) nodes: Arc<VolumeNodes>,
    pub(crate) numbers: Numbers,
    pub(crate) writeback_cache: bool,
    /// True if the kernel checks permissions, and therefore also obeys ACLs.
    pub(crate) kernel_checks: bool,
    /// `None` if the kernel keeps the locks.
    pub(crate) locks: Option<Arc<FileLocks>>,
    /// True if listings set no access times, whatever other reads do.
    keeps_directory_times: bool,
    session: Arc<OnceLock<SessionParts>>,
}

/// The parts of an adapter that exist only when the session exists.
pub(crate) struct SessionParts {
    /// Passes notices to the kernel.
    pub kernel: Notifier,
    /// The turns of the threads. `None` if requests wait for a disk, or if the host has one processor: all
    /// threads should then read requests.
    pub turns: Option<Arc<Turns>>,
}

impl Adapter {
    pub(crate) fn new(
        nodes: Arc<VolumeNodes>,
        options: &MountOptions,
        kernel_checks: bool,
        locks: Option<Arc<FileLocks>>,
        session: Arc<OnceLock<SessionParts>>,
    ) -> Adapter {
        let numbers = Numbers { root: nodes.root() };
        let (writeback_cache, keeps_directory_times) = (options.writeback_cache, options.no_dir_access_times);
        Adapter { nodes, numbers, writeback_cache, kernel_checks, locks, keeps_directory_times, session }
    }

    /// Reads bytes of a file that was opened with these flags. The update of the access time comes before the
    /// reply, because the kernel asks for the new time after the reply.
    pub(crate) fn bytes(
        &self,
        number: INodeNo,
        offset: u64,
        out: &mut [u8],
        opened: OpenFlags,
    ) -> Answer<usize> {
        let id = self.object(number)?;
        let count = self.nodes.read(id, offset, out).or_errno()?;
        if opened.0 & NO_ACCESS_TIME == 0 {
            self.nodes.mark_access(id);
        }
        Ok(count)
    }

    /// Writes bytes to a file, and returns their number. The kernel ignores the number for pages of its cache
    /// (`from_cache`), so a short write of such pages goes on until all bytes are written or an error comes.
    pub(crate) fn store(
        &self,
        user: &Credentials,
        id: ObjectId,
        offset: u64,
        data: &[u8],
        from_cache: bool,
    ) -> eyrie::Result<usize> {
        let mut written = match self.nodes.write(user, id, offset, data) {
            Err(error) if from_cache && errno(&error) == Errno::EPERM => {
                self.append_pages(user, id, offset, data)?.ok_or(error)?
            }
            written => written?,
        };
        while from_cache && written < data.len() {
            written += self.nodes.write(user, id, offset + written as u64, &data[written..])?;
        }
        Ok(written)
    }

    /// Appends bytes to a file, and returns their number. The kernel has chosen `offset` by the size that it
    /// knows, and has put the bytes into its cache there. If the file has grown in another way, the bytes
    /// come to its true end, and the kernel must forget its pages.
    pub(crate) fn append(
        &self,
        locks: &FileLocks,
        user: &Credentials,
        id: ObjectId,
        offset: u64,
        data: &[u8],
    ) -> eyrie::Result<usize> {
        let written = self.nodes.append(user, id, data)?;
        if written.start != offset {
            locks.forget_pages(id);
        }
        Ok((written.end - written.start) as usize)
    }

    /// Writes pages of the kernel's cache to an append-only file, and returns the number of bytes. The first
    /// page may begin before the end of the file, so this function appends only the bytes after the end.
    /// Returns `None` if the pages would change other bytes.
    fn append_pages(
        &self,
        user: &Credentials,
        id: ObjectId,
        offset: u64,
        data: &[u8],
    ) -> eyrie::Result<Option<usize>> {
        let size = self.nodes.node(id)?.stat.size;
        let Some(known) = size.checked_sub(offset) else { return Ok(None) };
        let (known, new) = data.split_at(data.len().min(known as usize));
        let mut stored = vec![0; known.len()];
        let count = self.nodes.read(id, offset, &mut stored)?;
        if &stored[..count] != known {
            return Ok(None);
        }
        let appended = if new.is_empty() { 0 } else { self.nodes.write(user, id, size, new)? };
        Ok(Some(known.len() + appended))
    }

    /// Reads the target of a symbolic link.
    pub(crate) fn target(&self, number: INodeNo) -> Answer<Vec<u8>> {
        let id = self.object(number)?;
        let target = self.nodes.readlink(id).or_errno()?;
        self.nodes.mark_access(id);
        Ok(target)
    }

    /// Sets the access time of a directory that was listed, if the options of the mount say so.
    pub(crate) fn mark_listed(&self, dir: ObjectId) {
        if !self.keeps_directory_times {
            self.nodes.mark_access(dir);
        }
    }

    /// Returns the user of a request, with all capabilities that the kernel checks. No permission is checked
    /// here, because the kernel has checked the permissions, or because only root can use the mount.
    fn user(request: &Request) -> Credentials {
        Credentials::new(request.uid(), request.gid(), &[]).with_capabilities(capabilities(request))
    }

    /// Calls the library for the user of a request, with the object of an inode number.
    pub(crate) fn as_user<T>(
        &self,
        request: &Request,
        number: INodeNo,
        call: impl FnOnce(&Credentials, ObjectId) -> eyrie::Result<T>,
    ) -> Answer<T> {
        call(&Adapter::user(request), self.object(number)?).or_errno()
    }

    /// As [`Adapter::as_user`], for a request that makes an object. The library applies the umask, because
    /// the kernel does not know if the object inherits an ACL in place of the umask.
    pub(crate) fn as_creator<T>(
        &self,
        request: &Request,
        number: INodeNo,
        umask: u32,
        call: impl FnOnce(&Credentials, ObjectId) -> eyrie::Result<T>,
    ) -> Answer<T> {
        let user = Adapter::user(request).with_umask(umask as u16);
        call(&user, self.object(number)?).or_errno()
    }

    /// Makes a change of an extended attribute. An ACL also changes the mode. If a user outside the group of
    /// the object sets or removes its access ACL, the change clears the set-group-id bit.
    pub(crate) fn change_xattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &[u8],
        change: impl FnOnce(&Credentials, ObjectId) -> eyrie::Result<()>,
    ) -> Answer<()> {
        if AclKind::of_name(name).is_none() {
            return self.as_user(request, number, change);
        }
        let changed = self.change(request, number, drops_set_ids(request), change);
        self.forget_attributes(number);
        changed
    }

    /// Makes a change that may clear the set-id bits of a file. If `drops_set_ids` is true, the user of the
    /// change lacks `CAP_FSETID`, so the library clears these bits where POSIX demands it. The kernel then
    /// forgets the mode that it has cached.
    pub(crate) fn change<T>(
        &self,
        request: &Request,
        number: INodeNo,
        drops_set_ids: bool,
        change: impl FnOnce(&Credentials, ObjectId) -> eyrie::Result<T>,
    ) -> Answer<T> {
        let id = self.object(number)?;
        if !drops_set_ids || self.nodes.node(id).or_errno()?.stat.mode & SET_IDS == 0 {
            return self.as_user(request, number, change);
        }
        let capabilities = capabilities(request) - Capabilities::FSETID;
        let user = Credentials::new(request.uid(), request.gid(), &groups_of(request.pid()));
        let changed = change(&user.with_capabilities(capabilities), id).or_errno();
        self.forget_attributes(number);
        changed
    }

    /// Answers an ioctl(2) that asks for the inode flags of an object, or sets them. The kernel has checked
    /// the rights of the user.
    pub(crate) fn inode_flags(
        &self,
        request: &Request,
        number: INodeNo,
        command: u32,
        argument: &[u8],
    ) -> Answer<Vec<u8>> {
        let id = self.object(number)?;
        match command {
            GET_FLAGS => {
                let flags = self.nodes.inode_flags(id).or_errno()?;
                Ok(u32::from(flags.bits()).to_ne_bytes().into())
            }
            GET_EXTENDED => {
                let flags = self.nodes.inode_flags(id).or_errno()?;
                let set = EXTENDED_FLAGS.iter().filter(|(flag, _)| flags.contains(*flag));
                let mut answer = vec![0; EXTENDED_BYTES];
                answer[..4].copy_from_slice(&set.map(|(_, bit)| bit).sum::<u32>().to_ne_bytes());
                Ok(answer)
            }
            SET_FLAGS => {
                let flags = argument.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
                let flags = flags.ok_or(Errno::EINVAL)?;
                let flags = u8::try_from(flags).ok().and_then(InodeFlags::from_bits);
                let flags = flags.ok_or(Errno::EOPNOTSUPP)?;
                self.as_user(request, number, |user, id| self.nodes.set_inode_flags(user, id, flags))?;
                Ok(Vec::new())
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    /// Copies bytes of a file for the user of a request, and returns their number.
    pub(crate) fn copy(
        &self,
        request: &Request,
        (from, from_offset): (INodeNo, u64),
        (to, to_offset): (INodeNo, u64),
        length: u64,
    ) -> Answer<u64> {
        let from = self.object(from)?;
        self.change(request, to, drops_set_ids(request), |user, to| {
            let (from, to) = ((from, from_offset), (to, to_offset));
            let copied = self.nodes.copy(user, from, to, length.min(COPY_BYTES))?;
            if copied > 0 {
                self.nodes.mark_access(from.0);
            }
            Ok(copied)
        })
    }

    /// Returns a request about a lock, with the locks of the mount.
    pub(crate) fn asked(
        &self,
        request: &Request,
        number: INodeNo,
        (handle, owner): (FileHandle, LockOwner),
        (start, last): (u64, u64),
        kind: i32,
        process: u32,
    ) -> Answer<(&FileLocks, Asked)> {
        let locks = self.locks.as_deref().ok_or(Errno::ENOSYS)?;
        let range = LockRange::new(start, last).ok_or(Errno::EINVAL)?;
        let (id, kind) = (self.object(number)?, lock_kind(kind).ok_or(Errno::EINVAL)?);
        let (handle, owner) = (handle.0, owner.0);
        Ok((locks, Asked { id, handle, owner, range, kind, process, thread: request.pid() }))
    }

    /// Returns a handle for an open file.
    pub(crate) fn new_handle(&self) -> FileHandle {
        FileHandle(self.locks.as_ref().map_or(0, |locks| locks.new_handle()))
    }

    /// Makes the kernel forget the attributes that it has cached.
    pub(crate) fn forget_attributes(&self, number: INodeNo) {
        if let Some(session) = self.session.get() {
            // A negative offset means the attributes alone. An error means that the mount ends.
            let _ = session.kernel.inval_inode(number, -1, 0);
        }
    }

    fn turns(&self) -> Option<&Arc<Turns>> {
        self.session.get().and_then(|session| session.turns.as_ref())
    }

    /// Lets another thread read requests, because the request of this thread may take long.
    pub(crate) fn begin_long(&self) {
        self.turns().inspect(|turns| turns.begin_long());
    }

    /// Waits a moment for the next request after a forget.
    pub(crate) fn after_forget(&self) {
        self.turns().inspect(|turns| turns.after_forget());
    }

    /// Waits until this thread should read the next request.
    pub(crate) fn next_turn(&self) {
        self.turns().inspect(|turns| turns.next());
    }

    /// Returns the object of an inode number.
    pub(crate) fn object(&self, number: INodeNo) -> Answer<ObjectId> {
        self.numbers.object(number).ok_or(Errno::ESTALE)
    }

    pub(crate) fn entry(&self, dir: INodeNo, reply: ReplyEntry, result: Answer<Node>) {
        reply!(self, reply, result, |node: Node| {
            let attributes = attributes(&node, self.numbers.of(node.id));
            let generation = self.numbers.generation(&node);
            reply.entry_with_ttls(&LONG, &entry_life(dir), &attributes, generation);
        });
    }

    pub(crate) fn attributes(&self, reply: ReplyAttr, result: Answer<Node>) {
        reply!(self, reply, result, |node: Node| {
            reply.attr(&LONG, &attributes(&node, self.numbers.of(node.id)));
        });
    }
}

/// True if a change of bytes by the user of this request clears set-id bits. The capability `CAP_FSETID`
/// decides, but the request does not tell if the user has it. This function assumes that only root has it.
pub(crate) fn drops_set_ids(request: &Request) -> bool {
    request.uid() != 0
}

/// Returns the capabilities of the user of a request. The kernel does not check `CAP_SYS_RESOURCE`, which
/// overrides the limits of quotas, and no request tells if the user has this capability. This function
/// assumes that only root has it.
fn capabilities(request: &Request) -> Capabilities {
    if request.uid() == 0 { Capabilities::all() } else { Capabilities::all() - Capabilities::SYS_RESOURCE }
}

/// Returns the supplementary groups of a thread from `/proc`, because no request has them. Returns an empty
/// list if the thread has ended or is not visible here.
fn groups_of(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

/// Returns the abilities of the kernel that a mount uses.
pub(crate) fn wanted(writeback_cache: bool, kernel_checks: bool, kernel_locks: bool) -> InitFlags {
    let mut wanted = InitFlags::FUSE_ASYNC_DIO
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_CACHE_SYMLINKS
        | InitFlags::FUSE_EXPORT_SUPPORT
        // Notices tell of changed pages, so a new modification time alone does not empty the cache.
        | InitFlags::FUSE_EXPLICIT_INVAL_DATA
        // Without this flag, the kernel asks for an extended attribute before each write.
        | InitFlags::FUSE_HANDLE_KILLPRIV_V2
        // A default ACL takes the place of the umask.
        | InitFlags::FUSE_DONT_MASK
        | InitFlags::FUSE_NO_OPEN_SUPPORT
        | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
    if kernel_checks {
        wanted |= InitFlags::FUSE_POSIX_ACL;
    }
    if !kernel_locks {
        wanted |= InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS;
    }
    if writeback_cache {
        wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
    }
    wanted
}
