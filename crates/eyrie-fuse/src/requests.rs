//! The requests of the kernel: each becomes one call of [`Nodes`](eyrie::Nodes).

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use eyrie::{Credentials, Kind, Node, NodeEntry, OpenFlags as Open, RenameMode, SetAttributes, SetTime};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::adapter::{Adapter, drops_set_ids, wanted};
use crate::answer::{
    KEEP, OrErrno, entry_life, error_of_create, is_append, permissions, reply, rights, xattr,
};
use crate::convert::{
    attributes, fallocate_mode, file_type, kind_of, send_lock, send_space, set_time, whence, xattr_mode,
};
use crate::listing::{ListedNode, list, list_with_attributes};

/// Maximum number of bytes of a read or a write request.
const REQUEST_BYTES: u32 = 1 << 20;

thread_local! {
    /// The bytes of the latest read of this thread. A new buffer for each read would be filled with zeros
    /// first.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wanted = wanted(self.writeback_cache, self.kernel_checks, self.locks.is_none());
        // An older kernel lacks some of these abilities, and makes more requests.
        let offered = wanted & config.capabilities();
        let _ = config.add_capabilities(offered);
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.set_max_readahead(REQUEST_BYTES);
        // The kernel sends read-ahead and direct reads in the background, by default at most 12 at a time.
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let result = self.object(parent).and_then(|dir| {
            // The kernel has checked the permission to search. A server of NFS looks `.` up in any object.
            let node = match name.as_bytes() {
                b"." => self.nodes.find(dir.raw(), None),
                name => self.nodes.lookup(&Credentials::root(), dir, name),
            };
            node.or_errno()
        });
        self.entry(parent, reply, result);
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        if let Ok(id) = self.object(number) {
            self.nodes.forget(id, lookups);
        }
        // The session calls this function for each node of a batch, so the thread must not park here (see
        // `turns`).
        self.after_forget();
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attributes(reply, self.object(number).and_then(|id| self.nodes.node(id).or_errno()));
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        file: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut change = SetAttributes::default();
        (change.mode, change.size) = (mode.map(permissions), size);
        (change.uid, change.gid) = (uid, gid);
        (change.accessed, change.modified) = (set_time(accessed), set_time(modified));
        if modified.is_none() && (size == Some(0) || size.is_some() && file.is_some()) {
            // ftruncate(2) and an open with `O_TRUNC` set the times even if the size stays the same, and
            // truncate(2) does not. But for a truncate(2) to 0 bytes, the kernel makes the same request as
            // for an open with `O_TRUNC`. So this request sets the times in both cases.
            change.modified = SetTime::Now;
        }
        if size.is_some() {
            self.begin_long();
        }
        let drops = (size.is_some() || uid.is_some() || gid.is_some()) && drops_set_ids(request);
        let mut result =
            self.change(request, number, drops, |user, id| self.nodes.set(user, id, None, &change));
        if file.is_some() && size.is_none() && matches!(result, Err(Errno::EPERM)) {
            // With `writeback_cache`, the kernel itself sends the time of its latest write to an open file.
            // An append-only file refuses this time, and keeps the time at which the bytes came.
            result = self.object(number).and_then(|id| self.nodes.node(id).or_errno());
        }
        self.attributes(reply, result);
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let result = self.target(number);
        reply!(self, reply, result, |target: Vec<u8>| reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let result = kind_of(mode).ok_or(Errno::EINVAL).and_then(|kind| {
            self.as_creator(request, parent, umask, |user, dir| {
                self.nodes.make(user, dir, name.as_bytes(), kind, permissions(mode), device.into())
            })
        });
        self.entry(parent, reply, result);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let result = self.as_creator(request, parent, umask, |user, dir| {
            self.nodes.make(user, dir, name.as_bytes(), Kind::Directory, permissions(mode), 0)
        });
        self.entry(parent, reply, result);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.as_user(request, parent, |user, dir| self.nodes.unlink(user, dir, name.as_bytes()));
        reply!(self, reply, result, |()| reply.ok());
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.as_user(request, parent, |user, dir| self.nodes.rmdir(user, dir, name.as_bytes()));
        reply!(self, reply, result, |()| reply.ok());
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let result =
            self.as_user(request, parent, |user, dir| self.nodes.symlink(user, dir, name.as_bytes(), target));
        self.entry(parent, reply, result);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = RenameMode::of_flags(flags.bits()).ok_or(Errno::EINVAL);
        let result = mode.and_then(|mode| {
            let to = (self.object(new_parent)?, new_name.as_bytes());
            self.as_user(request, parent, |user, dir| {
                self.nodes.rename(user, (dir, name.as_bytes()), to, mode)
            })
        });
        reply!(self, reply, result, |()| reply.ok());
    }

    fn link(&self, request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let result = self.object(parent).and_then(|dir| {
            self.as_user(request, number, |user, id| self.nodes.link(user, id, dir, name.as_bytes()))
        });
        self.entry(parent, reply, result);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.locks {
            Some(_) => reply.opened(self.new_handle(), KEEP),
            // After this answer, a kernel with `FUSE_NO_OPEN_SUPPORT` sends no more requests for opens.
            None => reply.error(Errno::ENOSYS),
        }
        self.next_turn();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.as_creator(request, parent, umask, |user, dir| {
            let open = Open::READ | Open::WRITE | Open::EXCLUSIVE;
            let (node, handle) = self.nodes.create(user, dir, name.as_bytes(), open, permissions(mode))?;
            self.nodes.close(handle)?;
            Ok(node)
        });
        let result = made.map_err(|error| error_of_create(error, flags));
        reply!(self, reply, result, |node: Node| {
            let attributes = attributes(&node, self.numbers.of(node.id));
            let generation = self.numbers.generation(&node);
            reply.created(&entry_life(parent), &attributes, generation, self.new_handle(), KEEP);
        });
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        opened: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            buffer.resize(size.max(buffer.len()), 0);
            let bytes = &mut buffer[..size];
            let result = self.bytes(number, offset, bytes, opened);
            reply!(self, reply, result, |count: usize| reply.data(&bytes[..count]));
        });
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        opened: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let drops = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let from_cache = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        // The kernel finds the offset of an append itself. If the volume keeps the locks, the file may have
        // grown in another way, so the bytes go to its true end.
        let result = self.change(request, number, drops, |user, id| match &self.locks {
            Some(locks) if !from_cache && is_append(opened) => self.append(locks, user, id, offset, data),
            _ => self.store(user, id, offset, data, from_cache),
        });
        reply!(self, reply, result, |count| reply.written(count as u32));
    }

    fn flush(&self, _: &Request, number: INodeNo, _: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let Some(locks) = &self.locks else {
            // A close has nothing to write. After this answer, the kernel sends no more such requests.
            return reply.error(Errno::ENOSYS);
        };
        let result = self.object(number).map(|id| locks.flush(id, owner.0));
        reply!(self, reply, result, |()| reply.ok());
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        // If the kernel keeps the locks, it makes this request only for a file that was created by its open.
        if let (Some(locks), Ok(id)) = (&self.locks, self.object(number)) {
            locks.release(id, handle.0);
        }
        reply.ok();
        self.next_turn();
    }

    fn getlk(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        last: u64,
        kind: i32,
        process: u32,
        reply: ReplyLock,
    ) {
        let asked = self.asked(request, number, (handle, owner), (start, last), kind, process);
        let result = asked.and_then(|(locks, asked)| locks.find(asked));
        reply!(self, reply, result, |found| send_lock(reply, found));
    }

    fn setlk(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        last: u64,
        kind: i32,
        process: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        match self.asked(request, number, (handle, owner), (start, last), kind, process) {
            Ok((locks, asked)) => locks.set(asked, waits, reply),
            Err(error) => reply.error(error),
        }
        self.next_turn();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.begin_long();
        let result = self.object(number).and_then(|id| self.nodes.fsync(id).or_errno());
        reply!(self, reply, result, |()| reply.ok());
    }

    fn fsyncdir(&self, request: &Request, number: INodeNo, file: FileHandle, data: bool, reply: ReplyEmpty) {
        self.fsync(request, number, file, data, reply);
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let result = list(self, number, offset, false, |next, entry| match entry {
            ListedNode::Dot(name, id) => {
                reply.add(self.numbers.of(id), next, file_type(Kind::Directory), name)
            }
            ListedNode::Entry(NodeEntry { name, id, .. }) => {
                reply.add(INodeNo(id.raw()), next, file_type(id.kind()), OsStr::from_bytes(name))
            }
        });
        reply!(self, reply, result, |()| reply.ok());
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let result = list_with_attributes(self, number, offset, &mut reply);
        reply!(self, reply, result, |()| reply.ok());
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let result = self.object(number).and_then(|id| self.nodes.statvfs(id).or_errno());
        reply!(self, reply, result, |space| send_space(reply, &space));
    }

    fn access(&self, request: &Request, number: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel asks only if it does not check permissions itself.
        let user = Credentials::new(request.uid(), request.gid(), &[]);
        let result = self.object(number).and_then(|id| self.nodes.access(&user, id, rights(mask)).or_errno());
        reply!(self, reply, result, |()| reply.ok());
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let result = xattr_mode(flags).and_then(|mode| {
            self.change_xattr(request, number, name.as_bytes(), |user, id| {
                self.nodes.setxattr(user, id, name.as_bytes(), value, mode)
            })
        });
        reply!(self, reply, result, |()| reply.ok());
    }

    fn getxattr(&self, request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let mut value = vec![0; size as usize];
        let result = self
            .as_user(request, number, |user, id| self.nodes.getxattr(user, id, name.as_bytes(), &mut value));
        reply!(self, reply, result, |length: usize| xattr(reply, &value, length));
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let mut names = vec![0; size as usize];
        // In a list, the kernel does not hide the attributes that only root sees. (It hides them in requests
        // for a single name.)
        let user = Credentials::new(request.uid(), request.gid(), &[]);
        let result =
            self.object(number).and_then(|id| self.nodes.listxattr(&user, id, &mut names).or_errno());
        reply!(self, reply, result, |length: usize| xattr(reply, &names, length));
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.change_xattr(request, number, name.as_bytes(), |user, id| {
            self.nodes.removexattr(user, id, name.as_bytes())
        });
        reply!(self, reply, result, |()| reply.ok());
    }

    fn fallocate(
        &self,
        request: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.begin_long();
        let result = fallocate_mode(mode).and_then(|mode| {
            let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
            self.change(request, number, drops_set_ids(request), |user, id| {
                self.nodes.fallocate(user, id, mode, offset..end)
            })
        });
        if result.is_err() {
            // The first steps may have changed the size.
            self.forget_attributes(number);
        }
        reply!(self, reply, result, |()| reply.ok());
    }

    fn lseek(&self, _: &Request, number: INodeNo, _: FileHandle, offset: i64, from: i32, reply: ReplyLseek) {
        if self.writeback_cache {
            // The kernel does not write its cached bytes back before this request. After this answer, it
            // takes each file for data without holes.
            return reply.error(Errno::ENOSYS);
        }
        let result = whence(from).and_then(|whence| {
            let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            self.nodes.seek(self.object(number)?, offset, whence).or_errno()
        });
        reply!(self, reply, result, |offset: u64| reply.offset(offset as i64));
    }

    fn ioctl(
        &self,
        request: &Request,
        number: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        argument: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let result = self.inode_flags(request, number, command, argument);
        reply!(self, reply, result, |answer: Vec<u8>| reply.ioctl(0, &answer));
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.begin_long();
        let result = self.copy(request, (from, from_offset), (to, to_offset), length);
        reply!(self, reply, result, |copied: u64| reply.written(copied as u32));
    }
}
