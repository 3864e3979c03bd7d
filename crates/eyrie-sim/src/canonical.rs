//! Directory trees as canonical text: equal contents give equal text on any file system and medium.
//!
//! Each line describes one name. It has the attributes of the object, or, if an earlier line has them, the
//! first path of the object. Lines are in the byte order of their paths. The text leaves out attributes that
//! differ between two runs: inode numbers, allocated storage, and the times of creation, change and access.
//! Modification times are optional.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::vec::IntoIter;

use eyrie::{Errno, Kind, Posix, PosixExt, Result, Stat, Walk, WalkStep};
use xxhash_rust::xxh3::Xxh3;

use crate::Word;
use crate::seconds::Seconds;

/// Maximum number of bytes of one read of a file.
const READ_BYTES: usize = 1 << 20;

/// Optional parts of a canonical tree.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CanonicalParts {
    /// Modification times.
    pub times: bool,
}

/// Iterator over the lines of a tree, without line ends.
#[derive(Debug)]
pub struct Lines<'a, P> {
    fs: &'a P,
    /// Path of the tree's root, without trailing slashes.
    root: Vec<u8>,
    include: CanonicalParts,
    /// The paths that have no line yet, in byte order. The first of all paths is `/`, the root of the tree.
    paths: IntoIter<Vec<u8>>,
    /// First path of each object that has several names, by inode number.
    first: HashMap<u64, Vec<u8>>,
    /// Buffer for one read of a file.
    buffer: Vec<u8>,
}

/// Returns the text of the tree at `root`.
///
/// # Errors
/// Fails if any part of the tree cannot be read.
pub fn text<P: Posix>(fs: &P, root: impl AsRef<Path>, include: CanonicalParts) -> Result<String> {
    let mut text = String::new();
    for line in lines(fs, root, include)? {
        text.push_str(&line?);
        text.push('\n');
    }
    Ok(text)
}

/// Returns the lines of the tree at `root`. The tree must not change while the iterator is in use.
///
/// # Errors
/// Fails if `root` does not exist or a directory cannot be listed. Each item of the iterator can fail by
/// itself.
pub fn lines<P: Posix>(fs: &P, root: impl AsRef<Path>, include: CanonicalParts) -> Result<Lines<'_, P>> {
    let root = root.as_ref().as_os_str().as_bytes();
    let end = root.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let mut lines = Lines {
        fs,
        root: root[..end].to_vec(),
        include,
        paths: Vec::new().into_iter(),
        first: HashMap::new(),
        buffer: vec![0; READ_BYTES],
    };
    lines.paths = lines.all_paths()?.into_iter();
    Ok(lines)
}

impl<P: Posix> Lines<'_, P> {
    /// Collects all paths in byte order. A walk visits them in another order, because `/a-b` sorts before
    /// `/a/b`.
    fn all_paths(&self) -> Result<Vec<Vec<u8>>> {
        let mut paths = Vec::new();
        let root = self.place(b"/");
        for step in Walk::new(self.fs, Path::new(&root))? {
            match step {
                WalkStep::Entry(found) => {
                    paths.push([&b"/"[..], found.relative.as_os_str().as_bytes()].concat());
                }
                WalkStep::Left(_) => {}
                WalkStep::Failed(relative, error) => return Err(error.at(Path::new(&root).join(relative))),
            }
        }
        paths.sort_unstable();
        Ok(paths)
    }

    /// Returns the path in the file system for a path that begins at the root of the tree.
    fn place(&self, path: &[u8]) -> OsString {
        match path {
            b"" | b"/" if !self.root.is_empty() => OsString::from_vec(self.root.clone()),
            b"" => OsString::from("/"),
            path => OsString::from_vec([&self.root, path].concat()),
        }
    }

    fn line(&mut self, path: Vec<u8>) -> Result<String> {
        let place = self.place(&path);
        let stat = self.fs.symlink_metadata(&place)?;
        if !stat.is_dir() && stat.links > 1 {
            if let Some(first) = self.first.get(&stat.inode) {
                return Ok(format!("{} same={}", Word(&path), Word(first)));
            }
            self.first.insert(stat.inode, path.clone());
        }
        let mut line = format!(
            "{} {} mode={:04o} uid={} gid={} links={}",
            Word(&path),
            kind_name(stat.kind),
            stat.mode,
            stat.uid,
            stat.gid,
            stat.links
        );
        if self.include.times {
            push(&mut line, format_args!(" mtime={}", Seconds(stat.modified)));
        }
        self.push_contents(&mut line, &place, &stat)?;
        self.push_xattrs(&mut line, &place)?;
        Ok(line)
    }

    fn push_contents(&mut self, line: &mut String, place: &OsStr, stat: &Stat) -> Result<()> {
        match stat.kind {
            Kind::File => {
                let hash = self.hash(place)?;
                push(line, format_args!(" size={} xxh3={hash:032x}", stat.size));
            }
            Kind::Symlink => {
                let target = self.fs.readlink(place.into()).map_err(|error| error.at(place))?;
                push(line, format_args!(" target={}", Word(&target)));
            }
            Kind::CharDevice | Kind::BlockDevice => push(line, format_args!(" device={:#x}", stat.device)),
            Kind::Directory | Kind::Fifo | Kind::Socket => {}
        }
        Ok(())
    }

    fn push_xattrs(&self, line: &mut String, place: &OsStr) -> Result<()> {
        let mut names = match self.fs.symlink_xattr_names(place) {
            // The host's file system does not support extended attributes.
            Err(error) if error.errno() == Errno::OPNOTSUPP => return Ok(()),
            names => names?,
        };
        names.sort_unstable();
        for name in names {
            let value = self.fs.symlink_xattr(place, &name)?;
            push(line, format_args!(" xattr={}={}", Word(&name), Word(&value)));
        }
        Ok(())
    }

    /// Computes XXH3 of the bytes of a file, in which holes count as zeros.
    fn hash(&mut self, place: &OsStr) -> Result<u128> {
        let file = self.fs.open_file(place)?;
        let mut hasher = Xxh3::new();
        let mut offset = 0;
        loop {
            match file.read_at(&mut self.buffer, offset).map_err(|error| error.at(place))? {
                0 => return Ok(hasher.digest128()),
                count => {
                    hasher.update(&self.buffer[..count]);
                    offset += count as u64;
                }
            }
        }
    }
}

impl<P: Posix> Iterator for Lines<'_, P> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        let path = self.paths.next()?;
        Some(self.line(path))
    }
}

fn push(line: &mut String, more: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = line.write_fmt(more);
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "char-device",
        Kind::BlockDevice => "block-device",
    }
}
