//! Compares the model with the kernel. The same random Ops on the model and on a directory of the host must
//! give the same errors, leave the same files, and change the times of the same objects.
//!
//! The host side keeps a descriptor of each object open, so Ops reach the object even after a rename. The
//! comparison leaves out some Ops, for example: Ops on keys and attributes, Ops on extended attributes (the
//! kernel has rules for their names), creations of devices (they need privileges), links to symbolic links
//! and pipes, and Ops with a name that no entry can have in the kernel (an empty name, `.`, or a name with a
//! slash).

#![expect(clippy::unwrap_used, reason = "this is all tests")]

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use eyrie_engine::{
    Content, Engine, Errno, FallocateMode, Kind, Model, ObjectId, Op, Owner, RenameMode, Time, Whiteout,
};
use eyrie_testkit::ops::{Ids, OpGenerator, OpMix};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Result;

/// Path of a tmpfs. The comparison is skipped on a host without this directory.
const TMPFS: &str = "/dev/shm";
/// A time longer than a tick of the kernel's clock for file times.
const TICK: Duration = Duration::from_millis(12);

/// A directory of the host to which Ops are applied.
struct Host {
    objects: BTreeMap<ObjectId, OwnedFd>,
    _dir: tempfile::TempDir,
}

impl Host {
    fn new(root: ObjectId, place: &Path) -> Host {
        let dir = tempfile::tempdir_in(place).unwrap();
        let fd = rustix::fs::open(dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        Host { objects: BTreeMap::from([(root, fd)]), _dir: dir }
    }

    fn apply(&mut self, op: &Op<'_>) -> Result<()> {
        match *op {
            Op::Create { dir, name, id, content, .. } => self.create(dir, name, id, content),
            Op::CreateUnnamed { dir, id, linkable, .. } => {
                let flags = OFlags::RDWR | OFlags::TMPFILE;
                let flags = if linkable { flags } else { flags | OFlags::EXCL };
                let fd = rustix::fs::openat(&self.objects[&dir], ".", flags, Mode::from(0o755))?;
                self.objects.insert(id, fd);
                Ok(())
            }
            Op::Link { dir, name, id, .. } => {
                let object = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&self.objects[&id]));
                rustix::fs::linkat(CWD, object, &self.objects[&dir], name, AtFlags::SYMLINK_FOLLOW)
            }
            Op::Unlink { dir, name, .. } => rustix::fs::unlinkat(&self.objects[&dir], name, AtFlags::empty()),
            Op::RemoveDirectory { dir, name, .. } => {
                rustix::fs::unlinkat(&self.objects[&dir], name, AtFlags::REMOVEDIR)
            }
            Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, .. } => {
                self.rename((from_dir, from_name), (to_dir, to_name), mode, whiteout)
            }
            Op::Write { id, offset, data, .. } => self.write(id, offset, data),
            Op::Append { id, data, .. } => {
                let size = rustix::fs::fstat(&self.objects[&id])?.st_size as u64;
                self.write(id, size, data)
            }
            Op::SetSize { id, size, .. } => rustix::fs::ftruncate(&self.objects[&id], size),
            Op::Fallocate { id, mode, offset, length, .. } => {
                rustix::fs::fallocate(&self.objects[&id], flags(mode), offset, length)
            }
            _ => unreachable!("left out"),
        }
    }

    fn rename(
        &mut self,
        (from_dir, from_name): (ObjectId, &[u8]),
        (to_dir, to_name): (ObjectId, &[u8]),
        mode: RenameMode,
        whiteout: Option<Whiteout>,
    ) -> Result<()> {
        let flags = RenameFlags::from_bits_retain(mode.flags());
        let (from, to) = (&self.objects[&from_dir], &self.objects[&to_dir]);
        let inode = || {
            let stat = rustix::fs::statat(from, from_name, AtFlags::SYMLINK_NOFOLLOW);
            stat.map(|stat| (stat.st_ino, stat.st_mode, stat.st_rdev))
        };
        let moved = inode();
        rustix::fs::renameat_with(from, from_name, to, to_name, flags)?;
        if let Some(Whiteout { id, .. }) = whiteout
            && inode() != moved
        {
            let (_, mode, device) = inode()?;
            assert_eq!(
                (FileType::from_raw_mode(mode), mode & 0o7777, device),
                (FileType::CharacterDevice, 0, 0)
            );
            let fd = rustix::fs::openat(from, from_name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
            self.objects.insert(id, fd);
        }
        Ok(())
    }

    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        let written = rustix::io::pwrite(&self.objects[&id], data, offset)?;
        assert_eq!(written, data.len());
        Ok(())
    }

    fn create(&mut self, dir: ObjectId, name: &[u8], id: ObjectId, content: Content<'_>) -> Result<()> {
        let parent = &self.objects[&dir];
        let mode = Mode::from(0o755);
        let flags = match id.kind() {
            Kind::File => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            Kind::Directory => {
                rustix::fs::mkdirat(parent, name, mode)?;
                OFlags::RDONLY | OFlags::DIRECTORY
            }
            Kind::Symlink => {
                let Content::Bytes(target) = content else { unreachable!("links have targets") };
                let target: Vec<u8> = target.iter().map(|&byte| byte.max(1)).collect();
                rustix::fs::symlinkat(target, parent, name)?;
                OFlags::PATH | OFlags::NOFOLLOW
            }
            _ => {
                rustix::fs::mknodat(parent, name, FileType::Fifo, mode, 0)?;
                OFlags::PATH
            }
        };
        let fd = rustix::fs::openat(parent, name, flags, mode)?;
        if let (Kind::File, Content::Bytes(bytes)) = (id.kind(), content) {
            assert_eq!(rustix::io::pwrite(&fd, bytes, 0)?, bytes.len());
        }
        self.objects.insert(id, fd);
        Ok(())
    }

    /// Returns the number of links, the size (0 for objects without bytes), and the modification and change
    /// times.
    fn stat(&self, id: ObjectId) -> (u32, u64, [(i64, u64); 2]) {
        let stat = rustix::fs::fstat(&self.objects[&id]).unwrap();
        let size = if id.kind().has_data() { stat.st_size as u64 } else { 0 };
        let times = [
            (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        ];
        (stat.st_nlink as u32, size, times)
    }

    /// Returns the bytes of storage of a file.
    fn storage(&self, id: ObjectId) -> u64 {
        rustix::fs::fstat(&self.objects[&id]).unwrap().st_blocks as u64 * 512
    }

    fn bytes(&self, id: ObjectId) -> Vec<u8> {
        let fd = &self.objects[&id];
        let mut bytes = vec![0; rustix::fs::fstat(fd).unwrap().st_size as usize];
        let count = rustix::io::pread(fd, &mut bytes[..], 0).unwrap();
        assert_eq!(count, bytes.len());
        bytes
    }
}

fn flags(mode: FallocateMode) -> FallocateFlags {
    match mode {
        FallocateMode::Allocate => FallocateFlags::empty(),
        FallocateMode::KeepSize => FallocateFlags::KEEP_SIZE,
        FallocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateMode::ZeroRange => FallocateFlags::ZERO_RANGE,
        FallocateMode::ZeroRangeKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        FallocateMode::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
        FallocateMode::InsertRange => FallocateFlags::INSERT_RANGE,
        FallocateMode::UnshareRange => FallocateFlags::UNSHARE_RANGE,
        FallocateMode::UnshareRangeKeepSize => FallocateFlags::UNSHARE_RANGE | FallocateFlags::KEEP_SIZE,
    }
}

/// Returns the modes of `fallocate` that the file system at `place` supports.
fn modes(place: &Path) -> Vec<FallocateMode> {
    let file = tempfile::tempfile_in(place).unwrap();
    rustix::io::pwrite(&file, &[1; 5 * 4096], 0).unwrap();
    let mut all = FallocateMode::ALL.to_vec();
    all.retain(|&mode| rustix::fs::fallocate(&file, flags(mode), 4096, 4096).is_ok());
    all
}

/// True if the comparison includes `op`. A call of the kernel can apply each included Op without privileges.
/// `modes` are the modes of `fallocate` that the host supports.
fn is_for_kernel(op: &Op<'_>, modes: &[FallocateMode]) -> bool {
    let is_legal = |name: &[u8]| name != b"." && !name.contains(&b'/') && !name.is_empty();
    match op {
        Op::Create { dir, name, id, .. } => {
            dir.is_directory() && is_legal(name) && !matches!(id.kind(), Kind::BlockDevice | Kind::CharDevice)
        }
        Op::CreateUnnamed { dir, .. } => dir.is_directory(),
        // Only links to files and directories are included, because `Host` opens all other objects with
        // `O_PATH`.
        Op::Link { dir, name, id, .. } => {
            dir.is_directory() && is_legal(name) && matches!(id.kind(), Kind::File | Kind::Directory)
        }
        Op::Unlink { dir, name, .. } | Op::RemoveDirectory { dir, name, .. } => {
            dir.is_directory() && is_legal(name)
        }
        Op::Rename { from_dir, from_name, to_dir, to_name, .. } => {
            from_dir.is_directory() && to_dir.is_directory() && is_legal(from_name) && is_legal(to_name)
        }
        Op::Write { id, .. } | Op::Append { id, .. } | Op::SetSize { id, .. } => id.kind() == Kind::File,
        Op::Fallocate { id, mode, .. } => id.kind() == Kind::File && modes.contains(mode),
        _ => false,
    }
}

/// True if the errors differ only because the model checks in another order than Linux. If the target of a
/// rename is a directory above the source, Linux first checks that the target is empty, and only then that
/// the source is a directory. Linux also reports a removed directory before it checks names.
fn is_known_deviation(op: &Op<'_>, model: Option<Errno>, host: Option<Errno>) -> bool {
    let is_above = (model, host) == (Some(Errno::ISDIR), Some(Errno::NOTEMPTY));
    let is_removed = (model, host) == (Some(Errno::NAMETOOLONG), Some(Errno::NOENT));
    is_removed || is_above && matches!(op, Op::Rename { .. })
}

/// Returns a mix of all Ops that are compared.
fn all() -> OpMix {
    OpMix {
        clone_range: 0,
        set_attributes: 0,
        set_xattr: 0,
        remove_xattr: 0,
        set_acl: 0,
        put: 0,
        erase: 0,
        batch: 0,
        open: 0,
        close: 0,
        is_sparse: false,
        ..OpMix::default()
    }
}

/// Draws `steps` steps, applies those that the comparison includes to the model and to the host, and compares
/// the results. With `times`, the function waits a tick before each step, and compares which times changed.
fn compare(place: &Path, mix: OpMix, seed: u64, steps: u32, times: bool) {
    if !place.is_dir() {
        return;
    }
    let modes = modes(place);
    let root = ObjectId::new(1 << 30, Kind::Directory);
    let model = Model::new(root, Owner { mode: 0o700, uid: 0, gid: 0 }, Time::new(1, 0));
    let mut host = Host::new(root, place);
    let mut ids = Ids::new(root);
    let mut generator = OpGenerator::new(seed, mix);
    for _ in 0..steps {
        let step = generator.step(&ids, &model);
        let Some(concrete) = ids.instantiate(&step, &model).unwrap() else { continue };
        let decoded = concrete.record.decode();
        let op = decoded.op();
        if !is_for_kernel(&op, &modes) {
            continue;
        }
        let stamps = |host: &Host| -> BTreeMap<ObjectId, [(i64, u64); 2]> {
            host.objects.keys().map(|&id| (id, host.stat(id).2)).collect()
        };
        let before = stamps(&host);
        if times {
            std::thread::sleep(TICK);
        }
        let expected = host.apply(&op).err().map(|errno| Errno::from_raw_os_error(errno.raw_os_error()));
        let actual = model.apply(&op).map_err(|error| error.errno()).err();
        if !is_known_deviation(&op, actual, expected) {
            assert_eq!(actual, expected, "errors of the model and the kernel, seed {seed}: {step}");
        }
        for (handle, id) in concrete.reserved {
            // A rename of an object over itself makes no whiteout.
            if actual.is_none() && model.attributes(id).is_ok() {
                ids.insert(handle, id);
                // The host keeps a descriptor of each object, so the model keeps the object open.
                model.open(id).unwrap();
            }
        }
        for (id, stamps) in stamps(&host) {
            let attributes = model.attributes(id).unwrap();
            let (links, size, _) = host.stat(id);
            assert_eq!(attributes.links, links, "links of {id:?}, seed {seed}: {step}");
            if id.kind().has_data() {
                assert_eq!(attributes.size, size, "size of {id:?}, seed {seed}: {step}");
            }
            // Other file systems also count blocks of their own, and allocate late.
            if id.kind() == Kind::File && place == Path::new(TMPFS) {
                let storage = host.storage(id);
                assert_eq!(attributes.allocated, storage, "storage of {id:?}, seed {seed}: {step}");
            }
            if times {
                let old = before.get(&id).copied().unwrap_or([(0, 0); 2]);
                let kernel = [stamps[0] != old[0], stamps[1] != old[1]];
                let model = [attributes.modified == step.time, attributes.changed == step.time];
                assert_eq!(model, kernel, "which times of {id:?} changed, seed {seed}: {step}");
            }
        }
    }
    for &id in host.objects.keys().filter(|id| id.kind() == Kind::File) {
        let mut bytes = vec![0; model.attributes(id).unwrap().size as usize];
        model.read(id, 0, &mut bytes).unwrap();
        assert!(bytes == host.bytes(id), "bytes of {id:?}, seed {seed}");
    }
}

#[test]
fn the_model_has_the_errors_and_files_of_the_kernel() {
    for seed in 0..30 {
        compare(TMPFS.as_ref(), all(), seed, 400, false);
    }
}

#[test]
fn the_model_changes_the_times_that_the_kernel_changes() {
    compare(TMPFS.as_ref(), all(), 1, 400, true);
}

#[test]
fn ranges_of_files_are_the_same_in_the_model_and_the_kernel() {
    let files = OpMix {
        create: 10,
        write: 30,
        append: 10,
        set_size: 10,
        fallocate: 40,
        is_sparse: false,
        has_bad_names: false,
        ..OpMix::none()
    };
    let temporary = std::env::temp_dir();
    for place in [Path::new(TMPFS), &temporary].into_iter().filter(|place| place.is_dir()) {
        let modes = modes(place);
        if modes.len() < FallocateMode::ALL.len() {
            eprintln!("in {} only {modes:?} are compared", place.display());
        }
        for seed in 0..30 {
            compare(place, files, seed, 150, false);
        }
    }
    // Times are compared only on a tmpfs, because other file systems also change times when they refuse a
    // call.
    compare(TMPFS.as_ref(), OpMix { fallocate: 200, ..files }, 99, 200, true);
}
