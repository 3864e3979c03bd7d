//! Directory trees with every attribute that a file can have, and manifests that compare trees.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, SeekFrom, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

/// Unit in which holes are compared, in bytes. The unit is large, because file systems differ in the exact
/// ends of holes.
const HOLE_UNIT: u64 = 64 << 10;

/// Runs of data, in units of `HOLE_UNIT` bytes. A run is a pair: the number of its first unit, and the number
/// of the unit after its last unit.
pub type FixtureSteps = Vec<(u64, u64)>;

/// True if this process may create devices and give files away.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes a tree under the empty directory `root`. The tree has modes with every bit, times before 1970 and in
/// the far future, hard links, dangling and looping symbolic links, holes, special files, and names of all
/// kinds of bytes. The tree has files of several owners, and devices, if the process is root, and extended
/// attributes if the host supports them.
///
/// # Errors
/// Fails if a call of the host fails.
pub fn grow(root: &Path) -> io::Result<()> {
    modes(&subdirectory(root, "modes")?)?;
    names(&subdirectory(root, "names")?)?;
    links(&subdirectory(root, "links")?)?;
    holes(&subdirectory(root, "holes")?)?;
    special(&subdirectory(root, "special")?)?;
    if is_root() {
        owners(&subdirectory(root, "owners")?)?;
    }
    xattrs(&subdirectory(root, "xattrs")?)?;
    times(&subdirectory(root, "times")?)?;
    set_times(root, (1_234_567_890, 123_456_789), (987_654_321, 987_654_321))
}

/// Makes `count` files of up to `most_bytes` bytes, in some directories under the empty directory `root`.
/// Equal arguments make equal bytes.
///
/// # Errors
/// Fails if a call of the host fails.
pub fn fill(root: &Path, count: usize, most_bytes: usize) -> io::Result<()> {
    for number in 0..count {
        let dir = root.join(format!("dir-{}", number % 17)).join(format!("{}", number % 3));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("file-{number}")), bytes(number * 7919 % (most_bytes + 1), number))?;
    }
    Ok(())
}

/// Returns bytes that depend on `seed`.
fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(31) ^ (index >> 8) ^ seed.wrapping_mul(97)) as u8).collect()
}

fn subdirectory(root: &Path, name: &str) -> io::Result<PathBuf> {
    let path = root.join(name);
    fs::create_dir(&path)?;
    Ok(path)
}

/// Makes files and directories with each mode bit alone, with all bits, with none, and with some common
/// modes. If the process is not root, each mode also has the bits without which the process could not read
/// the object.
fn modes(dir: &Path) -> io::Result<()> {
    let readable = |mode: u32, least: u32| if is_root() { mode } else { mode | least };
    let modes = (0..12).map(|bit| 1 << bit).chain([0, 0o7777, 0o6755, 0o1777, 0o644]);
    for mode in modes {
        let file = dir.join(format!("file-{mode:04o}"));
        fs::write(&file, bytes(100, mode as usize))?;
        chmod(&file, readable(mode, 0o400))?;
        let inner = dir.join(format!("dir-{mode:04o}"));
        fs::create_dir(&inner)?;
        fs::write(inner.join("inside"), b"inside")?;
        chmod(&inner, readable(mode, 0o500))?;
    }
    Ok(())
}

fn chmod(path: &Path, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?)
}

/// Makes files with names of all kinds, files of many sizes (some are one byte more or less than a block), a
/// deep path, a directory with many files, and an empty directory.
fn names(dir: &Path) -> io::Result<()> {
    let long = [b'n'; 255];
    let names: [&[u8]; 12] = [
        b"\xff\xfe not utf-8 \x80",
        b"new\nline",
        b"tab\tand \x1b[31mcolour",
        b"back\\slash",
        b" space ",
        b"-rf",
        b"...",
        b"a:b",
        b"*?[]'\"$",
        "\u{e9}\u{1f985}\u{202e}".as_bytes(),
        b"%41",
        &long,
    ];
    for (number, name) in names.into_iter().enumerate() {
        fs::write(dir.join(OsStr::from_bytes(name)), bytes(number * 1000, number))?;
    }
    for size in [0, 1, 63, 64, 65, 2047, 2048, 2049, 4095, 4096, 4097, 65_536, (2 << 20) + 1, (9 << 20) + 5] {
        fs::write(dir.join(format!("size-{size}")), bytes(size, size))?;
    }
    let mut deep = dir.join("deep");
    for level in 0..60 {
        deep.push(format!("level-{level}"));
    }
    fs::create_dir_all(&deep)?;
    fs::write(deep.join("bottom"), b"bottom")?;
    let many = subdirectory(dir, "many")?;
    for number in 0..1500 {
        fs::write(many.join(format!("{number}")), number.to_string())?;
    }
    subdirectory(dir, "empty").map(drop)
}

fn links(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("one"), bytes(5000, 1))?;
    let other = subdirectory(dir, "other")?;
    fs::hard_link(dir.join("one"), dir.join("two"))?;
    fs::hard_link(dir.join("one"), other.join("three"))?;
    fs::write(dir.join("empty"), b"")?;
    fs::hard_link(dir.join("empty"), other.join("empty too"))?;
    for (target, name) in [
        ("one", "symlink"),
        ("other", "to a directory"),
        ("nowhere/at/all", "dangling"),
        ("itself", "itself"),
        ("loop-b", "loop-a"),
        ("loop-a", "loop-b"),
        ("/etc/passwd", "absolute"),
        ("..", "up"),
    ] {
        symlink(target, dir.join(name))?;
    }
    symlink(OsStr::from_bytes(b"\xff\xfe"), dir.join("to bytes"))?;
    symlink("x/".repeat(2000), dir.join("long"))?;
    fs::hard_link(dir.join("dangling"), other.join("dangling too"))?;
    set_times(&dir.join("dangling"), (-5, 5), (7, 999_999_999))
}

/// Makes files with holes. Their data are whole units of [`HOLE_UNIT`]. The files are so small that copies
/// without holes fit into memory.
fn holes(dir: &Path) -> io::Result<()> {
    let block = bytes(64 << 10, 3);
    let mib = 1_u64 << 20;
    for (name, size, data) in [
        ("only", 5 * mib + 3, vec![]),
        ("first", 4 * mib, vec![3 * mib]),
        ("last", 4 * mib, vec![0]),
        ("between", 20 * mib, vec![0, 6 * mib, 20 * mib - (64 << 10)]),
        ("large", 200 * mib, vec![130 * mib]),
    ] {
        let file = File::create(dir.join(name))?;
        file.set_len(size)?;
        for offset in data {
            file.write_all_at(&block, offset)?;
        }
    }
    Ok(())
}

fn special(dir: &Path) -> io::Result<()> {
    let mode = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, dir.join("fifo"), FileType::Fifo, mode, 0)?;
    rustix::fs::mknodat(CWD, dir.join("socket"), FileType::Socket, mode, 0)?;
    if is_root() {
        let null = rustix::fs::makedev(1, 3);
        rustix::fs::mknodat(CWD, dir.join("null"), FileType::CharacterDevice, mode, null)?;
        let disk = rustix::fs::makedev(259, 1_000_000);
        rustix::fs::mknodat(CWD, dir.join("disk"), FileType::BlockDevice, mode, disk)?;
    }
    Ok(())
}

fn owners(dir: &Path) -> io::Result<()> {
    for (uid, gid) in [(0, 1), (1, 0), (1000, 1000), (65_534, 65_534), (u32::MAX - 1, 1 << 31)] {
        for name in [format!("file-{uid}"), format!("dir-{uid}"), format!("link-{uid}")] {
            let path = dir.join(&name);
            match &name[..3] {
                "fil" => fs::write(&path, &name)?,
                "dir" => fs::create_dir(&path)?,
                _ => symlink("nowhere", &path)?,
            }
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            rustix::fs::chownat(CWD, &path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        let set_id = dir.join(format!("set-id-{uid}"));
        fs::write(&set_id, b"#!")?;
        rustix::fs::chown(&set_id, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        chmod(&set_id, 0o6755)?;
    }
    Ok(())
}

/// Makes files and a directory with extended attributes, a symbolic link, and a FIFO. If the process is root,
/// the link and the FIFO also get extended attributes. Skips attributes that the host refuses.
fn xattrs(dir: &Path) -> io::Result<()> {
    let set = |name: &str, xattr: &[u8], value: &[u8]| match rustix::fs::lsetxattr(
        dir.join(name),
        xattr,
        value,
        XattrFlags::CREATE,
    ) {
        // Some file systems have no extended attributes, or only 4 KiB for all attributes of an object.
        Err(Errno::OPNOTSUPP | Errno::NOSPC | Errno::PERM | Errno::TOOBIG) => Ok(()),
        set => set,
    };
    for name in ["one", "many", "empty", "large", "read-only"] {
        fs::write(dir.join(name), name)?;
    }
    subdirectory(dir, "directory")?;
    symlink("one", dir.join("link"))?;
    rustix::fs::mknodat(CWD, dir.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
    set("one", b"user.one", b"value")?;
    for number in 0..20 {
        set("many", format!("user.number {number}").as_bytes(), &bytes(number * 5, number))?;
    }
    set("many", b"user.\xff\xfe not utf-8", b"\0\n\xff")?;
    set("empty", b"user.empty", b"")?;
    set("large", b"user.large", &bytes(60_000, 1))?;
    set("read-only", b"user.one", b"kept though nobody may write")?;
    chmod(&dir.join("read-only"), 0o444)?;
    set("directory", b"user.of a directory", b"value")?;
    if is_root() {
        for name in ["one", "directory", "link", "fifo"] {
            set(name, b"trusted.eyrie", name.as_bytes())?;
            set(name, b"security.eyrie", name.as_bytes())?;
        }
    }
    Ok(())
}

/// True if manifests include the extended attribute `name`. They leave out the attributes that the host
/// itself sets, and those of root if the process is not root.
fn is_included(name: &[u8]) -> bool {
    let of_root: [&[u8]; 2] = [b"trusted.", b"security.eyrie"];
    name.starts_with(b"user.") || is_root() && of_root.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the extended attributes of `path` itself that manifests include.
fn xattrs_of(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut list = vec![0; 64 << 10];
    let size = match rustix::fs::llistxattr(path, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        size => size?,
    };
    let mut xattrs = BTreeMap::new();
    for name in list[..size].split(|&byte| byte == 0).filter(|name| is_included(name)) {
        let mut value = vec![0; 64 << 10];
        let size = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(size);
        xattrs.insert(name.to_vec(), value);
    }
    Ok(xattrs)
}

/// Makes objects with times before 1970, times near the limits of 32 bits, and times in the far future.
fn times(dir: &Path) -> io::Result<()> {
    let seconds =
        [0, -1, -1_000_000_000, i64::from(i32::MIN), 1 << 31, 1 << 32, 1 << 34, 253_402_300_800, -(1 << 36)];
    for (number, seconds) in seconds.into_iter().enumerate() {
        let nanoseconds = [0, 1, 999_999_999][number % 3];
        let file = dir.join(format!("file{seconds}"));
        fs::write(&file, b"time")?;
        let inner = dir.join(format!("dir{seconds}"));
        fs::create_dir(&inner)?;
        fs::write(inner.join("inside"), b"inside")?;
        let link = dir.join(format!("link{seconds}"));
        symlink("nowhere", &link)?;
        for path in [file, inner, link] {
            set_times(&path, (seconds, nanoseconds), (seconds, 999_999_999 - nanoseconds))?;
        }
    }
    Ok(())
}

/// Sets access and modification time, in seconds and nanoseconds. Does not follow a link.
fn set_times(path: &Path, accessed: (i64, u32), modified: (i64, u32)) -> io::Result<()> {
    let time = |(tv_sec, nanoseconds): (i64, u32)| Timespec { tv_sec, tv_nsec: nanoseconds.into() };
    let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The compared attributes of one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FixtureLine {
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Number of names, or 0 for directories.
    pub links: u64,
    /// The first path of the same object, in byte order.
    pub first_name: Vec<u8>,
    /// Size in bytes, or 0 for directories.
    pub size: u64,
    /// Number of a device.
    pub device: u64,
    /// Access time, in seconds and nanoseconds.
    pub accessed: (i64, i64),
    /// Modification time, in seconds and nanoseconds.
    pub modified: (i64, i64),
    /// Runs of data.
    pub data: FixtureSteps,
    /// Checksum of the data, or target of a symbolic link.
    pub content: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl FixtureLine {
    /// Returns the fields that differ, each with the value of this line first.
    fn differences(&self, other: &FixtureLine) -> Vec<String> {
        let mut found = Vec::new();
        macro_rules! compare {
            ($($field:ident)*) => {
                $(if self.$field != other.$field {
                    let name = stringify!($field).replace('_', " ");
                    found.push(format!("{name} {:?}, and {:?}", self.$field, other.$field));
                })*
            };
        }
        compare!(owner links size device accessed modified data);
        if self.mode != other.mode {
            found.push(format!("mode {:#o}, and {:#o}", self.mode, other.mode));
        }
        let escaped = |bytes: &Vec<u8>| bytes.escape_ascii().to_string();
        for (name, left, right) in
            [("first name", &self.first_name, &other.first_name), ("content", &self.content, &other.content)]
        {
            if left != right {
                found.push(format!("{name} {}, and {}", escaped(left), escaped(right)));
            }
        }
        found.extend(eyrie_sim::compare::xattr_differences(&self.xattrs, &other.xattrs));
        found
    }
}

/// All entries of a tree by path. The path of the root is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manifest {
    lines: BTreeMap<Vec<u8>, FixtureLine>,
}

impl Manifest {
    /// Returns the manifest of the tree `root`. The function restores the access times that its reads change.
    ///
    /// # Errors
    /// Fails if a call of the host fails.
    pub fn of(root: &Path) -> io::Result<Manifest> {
        let mut manifest = Manifest::default();
        let mut first_names = HashMap::new();
        let mut pending = vec![PathBuf::new()];
        while let Some(relative) = pending.pop() {
            let path = if relative.as_os_str().is_empty() { root.to_owned() } else { root.join(&relative) };
            let metadata = path.symlink_metadata()?;
            if metadata.is_dir() {
                for entry in fs::read_dir(&path)? {
                    pending.push(relative.join(entry?.file_name()));
                }
            }
            let (content, data) = content_of(&path, &metadata)?;
            let clock = |seconds, nanoseconds: i64| (seconds, nanoseconds as u32);
            let accessed = clock(metadata.atime(), metadata.atime_nsec());
            set_times(&path, accessed, clock(metadata.mtime(), metadata.mtime_nsec()))?;
            let name = relative.into_os_string().into_encoded_bytes();
            let known = first_names.entry((metadata.dev(), metadata.ino())).or_insert_with(|| name.clone());
            if name < *known {
                known.clone_from(&name);
            }
            let is_dir = metadata.is_dir();
            let line = FixtureLine {
                mode: metadata.mode(),
                owner: (metadata.uid(), metadata.gid()),
                links: if is_dir { 0 } else { metadata.nlink() },
                // The field holds the inode number until all names are known.
                first_name: metadata.ino().to_le_bytes().to_vec(),
                size: if is_dir { 0 } else { metadata.size() },
                device: metadata.rdev(),
                accessed: (metadata.atime(), metadata.atime_nsec()),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                data,
                content,
                xattrs: xattrs_of(&path)?,
            };
            manifest.lines.insert(name, line);
        }
        let by_inode: HashMap<Vec<u8>, Vec<u8>> =
            first_names.into_iter().map(|((_, inode), name)| (inode.to_le_bytes().to_vec(), name)).collect();
        for line in manifest.lines.values_mut() {
            if let Some(name) = by_inode.get(&line.first_name) {
                line.first_name.clone_from(name);
            }
        }
        Ok(manifest)
    }

    /// Applies `change` to the line of every entry. Tests use this function to drop attributes that an
    /// archive does not keep.
    pub fn change(&mut self, change: impl FnMut(&mut FixtureLine)) {
        self.lines.values_mut().for_each(change);
    }

    /// Returns the number of entries, with the root.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// True if the manifest has no entries.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the differences from `other`, with one line for each entry that differs.
    pub fn differences(&self, other: &Manifest) -> Vec<String> {
        let mut found = Vec::new();
        for (name, line) in &self.lines {
            let display_name = String::from_utf8_lossy(name);
            match other.lines.get(name) {
                None => found.push(format!("{display_name}: missing")),
                Some(theirs) if theirs != line => {
                    found.push(format!("{display_name}: {}", line.differences(theirs).join("; ")));
                }
                Some(_) => {}
            }
        }
        let extra = other.lines.keys().filter(|name| !self.lines.contains_key(*name));
        found.extend(extra.map(|name| format!("{}: extra", String::from_utf8_lossy(name))));
        found
    }
}

/// Returns the fields `content` and `data` of a line: the checksum of a file's data with the runs of data, or
/// the target of a symbolic link without runs. The checksum covers whole units of [`HOLE_UNIT`] bytes.
fn content_of(path: &Path, metadata: &fs::Metadata) -> io::Result<(Vec<u8>, FixtureSteps)> {
    if metadata.is_symlink() {
        return Ok((fs::read_link(path)?.into_os_string().into_encoded_bytes(), Vec::new()));
    }
    if !metadata.is_file() {
        return Ok((Vec::new(), Vec::new()));
    }
    let file = File::open(path)?;
    let mut runs: FixtureSteps = Vec::new();
    let mut hashes = Vec::new();
    let mut offset = 0;
    while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(offset)) {
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start))?;
        let (first, last) = (start / HOLE_UNIT, end.div_ceil(HOLE_UNIT));
        match runs.last_mut() {
            Some(before) if before.1 >= first => before.1 = last,
            _ => runs.push((first, last)),
        }
        offset = end;
    }
    let mut buffer = vec![0; HOLE_UNIT as usize];
    for &(first, last) in &runs {
        for unit in first..last {
            let count = file.read_at(&mut buffer, unit * HOLE_UNIT)?;
            hashes.extend_from_slice(&xxh3_64(&buffer[..count]).to_le_bytes());
        }
    }
    Ok((xxh3_64(&hashes).to_le_bytes().to_vec(), runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_fields_that_differ() {
        let place = tempfile::tempdir().expect("a directory");
        fs::write(place.path().join("egg"), "blue").expect("room");
        let before = Manifest::of(place.path()).expect("readable");
        let mut after = before.clone();
        after.change(|line| {
            line.owner = (7, 8);
            line.mode = 0o100_600;
            line.xattrs.insert(b"user.a".to_vec(), b"1".to_vec());
        });
        let owner = before.lines[&b"egg"[..]].owner;
        let mode = before.lines[&b"egg"[..]].mode;
        let expected = format!(
            "egg: owner {owner:?}, and (7, 8); mode {mode:#o}, and 0o100600; extended attribute user.a \
             absent, and of 1 B"
        );
        assert_eq!(before.differences(&after)[1], expected);
        assert_eq!(before.differences(&before), [""; 0]);
    }
}
