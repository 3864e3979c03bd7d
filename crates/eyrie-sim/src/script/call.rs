//! The calls of scripts and their syntax.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use eyrie::{FallocateMode, InodeFlags, QuotaId, QuotaKind, QuotaLimits, RenameMode, Time};

use crate::Word;
use crate::seconds::Seconds;

/// Name and syntax of each call.
pub(super) const USAGE: [(&str, &str); 28] = [
    ("creat", "PATH [MODE]"),
    ("tmpfile", "DIR PATH LENGTH SEED [MODE]"),
    ("mkdir", "PATH [MODE]"),
    ("write", "PATH OFFSET LENGTH SEED"),
    ("append", "PATH LENGTH SEED"),
    ("read", "PATH"),
    ("fsync", "PATH"),
    ("fdatasync", "PATH"),
    ("sync", ""),
    ("rename", "FROM TO [noreplace|exchange|whiteout|noreplace-whiteout]"),
    ("link", "FROM TO"),
    ("symlink", "TARGET PATH"),
    ("unlink", "PATH"),
    ("rmdir", "PATH"),
    ("truncate", "PATH LENGTH"),
    ("fallocate", "PATH MODE OFFSET LENGTH"),
    ("clone", "FROM OFFSET TO OFFSET LENGTH"),
    ("setxattr", "PATH NAME VALUE"),
    ("removexattr", "PATH NAME"),
    ("chmod", "PATH MODE"),
    ("chown", "PATH UID GID"),
    ("chattr", "PATH -|a|i|ai"),
    ("project", "PATH ID"),
    ("quota", "user|group|tree ID SOFT-BYTES HARD-BYTES SOFT-FILES HARD-FILES"),
    ("utimes", "PATH ATIME MTIME"),
    ("put", "DIR KEY LENGTH SEED"),
    ("erase", "DIR KEY"),
    ("batch", "DIR [put KEY LENGTH SEED | erase KEY]..."),
];

/// A call of a script. `Display` gives its line.
///
/// A path may have any bytes except NUL. Sizes and offsets are in bytes. The written bytes follow from the
/// seed: see [`bytes`](super::bytes).
#[expect(missing_docs, reason = "the fields are the arguments of the calls of POSIX")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// Creates a file, or truncates an existing file to size 0.
    Creat { path: OsString, mode: u16 },
    /// Creates a file without a name, writes bytes to it, and gives it its first name.
    Tmpfile { dir: OsString, path: OsString, length: u64, seed: u64, mode: u16 },
    /// Creates a directory.
    Mkdir { path: OsString, mode: u16 },
    /// Writes bytes at an offset.
    Write { path: OsString, offset: u64, length: u64, seed: u64 },
    /// Appends bytes.
    Append { path: OsString, length: u64, seed: u64 },
    /// Reads an object, which may set its access time.
    Read { path: OsString },
    /// Makes a file or directory durable.
    Fsync { path: OsString },
    /// Makes the bytes of a file durable, with the metadata that reading them needs.
    Fdatasync { path: OsString },
    /// Makes all earlier changes durable.
    Sync,
    /// Renames an object.
    Rename { from: OsString, to: OsString, mode: RenameMode },
    /// Adds a name to an object.
    Link { from: OsString, to: OsString },
    /// Creates a symbolic link.
    Symlink { target: OsString, path: OsString },
    /// Removes a name of an object that is not a directory.
    Unlink { path: OsString },
    /// Removes an empty directory.
    Rmdir { path: OsString },
    /// Sets the size of a file.
    Truncate { path: OsString, length: u64 },
    /// Changes the storage of a range of a file.
    Fallocate { path: OsString, mode: FallocateMode, offset: u64, length: u64 },
    /// Clones a range of a file into another file, or to another place in the same file, so that both ranges
    /// share storage. A length of 0 means all bytes up to the end of the source.
    Clone { from: OsString, from_offset: u64, to: OsString, to_offset: u64, length: u64 },
    /// Sets an extended attribute.
    Setxattr { path: OsString, name: Vec<u8>, value: Vec<u8> },
    /// Removes an extended attribute.
    Removexattr { path: OsString, name: Vec<u8> },
    /// Sets the permission bits.
    Chmod { path: OsString, mode: u16 },
    /// Sets user and group. `None` keeps the current user or group.
    Chown { path: OsString, uid: Option<u32>, gid: Option<u32> },
    /// Sets the inode flags of a file or a directory.
    Chattr { path: OsString, flags: InodeFlags },
    /// Sets the project id of an object.
    Project { path: OsString, project: u32 },
    /// Sets the limits of an account.
    Quota { account: QuotaId, limits: QuotaLimits },
    /// Sets the times of last access and modification.
    Utimes { path: OsString, accessed: Time, modified: Time },
    /// Sets the value of a key.
    Put { dir: OsString, key: Vec<u8>, length: u64, seed: u64 },
    /// Removes a key.
    Erase { dir: OsString, key: Vec<u8> },
    /// Changes several keys: in a volume in one commit, on the host one after the other.
    Batch { dir: OsString, changes: Vec<KeyChange> },
}

/// A change of a [`Call::Batch`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyChange {
    /// Sets the value of a key.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Length of the value, in bytes.
        length: u64,
        /// Seed of the value's bytes.
        seed: u64,
    },
    /// Removes a key if it exists.
    Erase {
        /// The key.
        key: Vec<u8>,
    },
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyChange::Put { key, length, seed } => write!(f, "put {} {length} {seed}", Word(key)),
            KeyChange::Erase { key } => write!(f, "erase {}", Word(key)),
        }
    }
}

/// Returns the name of a mode in scripts. The names are similar to the options of fallocate(1).
pub(super) fn fallocate_name(mode: FallocateMode) -> &'static str {
    match mode {
        FallocateMode::Allocate => "allocate",
        FallocateMode::KeepSize => "keep-size",
        FallocateMode::PunchHole => "punch-hole",
        FallocateMode::ZeroRange => "zero-range",
        FallocateMode::ZeroRangeKeepSize => "zero-range-keep-size",
        FallocateMode::CollapseRange => "collapse-range",
        FallocateMode::InsertRange => "insert-range",
        FallocateMode::UnshareRange => "unshare-range",
        FallocateMode::UnshareRangeKeepSize => "unshare-range-keep-size",
    }
}

/// Returns the name of a set of inode flags in scripts: the letters of chattr(1), or `-` for no flag.
pub(super) fn flags_name(flags: InodeFlags) -> &'static str {
    match (flags.contains(InodeFlags::APPEND_ONLY), flags.contains(InodeFlags::IMMUTABLE)) {
        (false, false) => "-",
        (true, false) => "a",
        (false, true) => "i",
        (true, true) => "ai",
    }
}

/// Returns the name of a kind of accounts in scripts.
pub(super) fn quota_kind_name(kind: QuotaKind) -> &'static str {
    match kind {
        QuotaKind::User => "user",
        QuotaKind::Group => "group",
        QuotaKind::Tree => "tree",
    }
}

impl Call {
    /// Returns the name of the call.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Creat { .. } => "creat",
            Call::Tmpfile { .. } => "tmpfile",
            Call::Mkdir { .. } => "mkdir",
            Call::Write { .. } => "write",
            Call::Append { .. } => "append",
            Call::Read { .. } => "read",
            Call::Fsync { .. } => "fsync",
            Call::Fdatasync { .. } => "fdatasync",
            Call::Sync => "sync",
            Call::Rename { .. } => "rename",
            Call::Link { .. } => "link",
            Call::Symlink { .. } => "symlink",
            Call::Unlink { .. } => "unlink",
            Call::Rmdir { .. } => "rmdir",
            Call::Truncate { .. } => "truncate",
            Call::Fallocate { .. } => "fallocate",
            Call::Clone { .. } => "clone",
            Call::Setxattr { .. } => "setxattr",
            Call::Removexattr { .. } => "removexattr",
            Call::Chmod { .. } => "chmod",
            Call::Chown { .. } => "chown",
            Call::Chattr { .. } => "chattr",
            Call::Project { .. } => "project",
            Call::Quota { .. } => "quota",
            Call::Utimes { .. } => "utimes",
            Call::Put { .. } => "put",
            Call::Erase { .. } => "erase",
            Call::Batch { .. } => "batch",
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Call::Creat { path, mode } | Call::Mkdir { path, mode } | Call::Chmod { path, mode } => {
                write!(f, " {} {mode:04o}", word(path))
            }
            Call::Tmpfile { dir, path, length, seed, mode } => {
                write!(f, " {} {} {length} {seed} {mode:04o}", word(dir), word(path))
            }
            Call::Write { path, offset, length, seed } => {
                write!(f, " {} {offset} {length} {seed}", word(path))
            }
            Call::Append { path, length, seed } => write!(f, " {} {length} {seed}", word(path)),
            Call::Sync => Ok(()),
            Call::Rename { from, to, mode } => {
                write!(f, " {} {}{}", word(from), word(to), rename_suffix(*mode))
            }
            Call::Link { from, to } => write!(f, " {} {}", word(from), word(to)),
            Call::Symlink { target, path } => write!(f, " {} {}", word(target), word(path)),
            Call::Read { path }
            | Call::Fsync { path }
            | Call::Fdatasync { path }
            | Call::Unlink { path }
            | Call::Rmdir { path } => write!(f, " {}", word(path)),
            Call::Truncate { path, length } => write!(f, " {} {length}", word(path)),
            Call::Fallocate { path, mode, offset, length } => {
                write!(f, " {} {} {offset} {length}", word(path), fallocate_name(*mode))
            }
            Call::Clone { from, from_offset, to, to_offset, length } => {
                write!(f, " {} {from_offset} {} {to_offset} {length}", word(from), word(to))
            }
            Call::Setxattr { path, name, value } => {
                write!(f, " {} {} {}", word(path), Word(name), Word(value))
            }
            Call::Removexattr { path, name } => write!(f, " {} {}", word(path), Word(name)),
            Call::Chown { path, uid, gid } => write!(f, " {} {} {}", word(path), id(*uid), id(*gid)),
            Call::Chattr { path, flags } => write!(f, " {} {}", word(path), flags_name(*flags)),
            Call::Project { path, project } => write!(f, " {} {project}", word(path)),
            Call::Quota { account: QuotaId { kind, number }, limits: QuotaLimits { bytes, files } } => {
                write!(f, " {} {number}", quota_kind_name(*kind))?;
                [bytes, files].into_iter().try_for_each(|limit| write!(f, " {} {}", limit.soft, limit.hard))
            }
            Call::Utimes { path, accessed, modified } => {
                write!(f, " {} {} {}", word(path), Seconds(*accessed), Seconds(*modified))
            }
            Call::Put { dir, key, length, seed } => {
                write!(f, " {} {} {length} {seed}", word(dir), Word(key))
            }
            Call::Erase { dir, key } => write!(f, " {} {}", word(dir), Word(key)),
            Call::Batch { dir, changes } => {
                write!(f, " {}", word(dir))?;
                changes.iter().try_for_each(|change| write!(f, " {change}"))
            }
        }
    }
}

fn word(path: &OsString) -> Word<'_> {
    Word(path.as_bytes())
}

fn rename_suffix(mode: RenameMode) -> &'static str {
    match mode {
        RenameMode::Replace => "",
        RenameMode::NoReplace => " noreplace",
        RenameMode::Exchange => " exchange",
        RenameMode::Whiteout => " whiteout",
        RenameMode::NoReplaceWhiteout => " noreplace-whiteout",
    }
}

/// Returns a user or group id as in chown(2): -1 means no change.
fn id(id: Option<u32>) -> i64 {
    id.map_or(-1, i64::from)
}
