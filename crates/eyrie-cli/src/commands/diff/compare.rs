//! The comparison of two trees. Two walks advance side by side, each in the order of paths.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use eyrie::{Kind, Posix, PosixExt, Stat, Walk, WalkEntry, WalkStep};

use crate::copy::comparable_xattrs;
use crate::endpoint::Step;
use crate::failure::{Doing, Result, print_error, reason};
use crate::place::Place;
use crate::{interrupt, text};

/// Bytes of one read.
const CHUNK_BYTES: usize = 256 << 10;

/// A path at which the trees differ.
pub(super) struct Found<'a> {
    /// The path under the roots of both trees.
    pub path: &'a Path,
    pub difference: Difference,
}

/// A difference of two trees at one path.
pub(super) enum Difference {
    OnlyLeft,
    OnlyRight,
    /// Both trees have the path, and these parts differ.
    Both(Vec<&'static str>),
}

/// A comparison. Its result is the number of entries that could not be compared.
pub(super) struct Compare<'a> {
    places: [&'a Place; 2],
    /// True if only types, contents and targets are compared.
    contents_only: bool,
    /// Takes each difference, and returns false to end the comparison.
    report: &'a mut dyn FnMut(&Found<'_>) -> Result<bool>,
    troubles: u64,
    /// A directory that could not be read in one of the trees. Nothing below it is compared.
    unread: Option<PathBuf>,
}

impl<'a> Compare<'a> {
    pub(super) fn new(
        places: [&'a Place; 2],
        contents_only: bool,
        report: &'a mut dyn FnMut(&Found<'_>) -> Result<bool>,
    ) -> Compare<'a> {
        Compare { places, contents_only, report, troubles: 0, unread: None }
    }

    /// Reports a part of a tree that cannot be read.
    fn trouble(&mut self, side: usize, path: &Path, error: &eyrie::Error) {
        self.troubles += 1;
        print_error(&format!("cannot compare: {}: {}", self.places[side].join(path), reason(error)));
    }

    /// Returns the next entry of a walk. Reports entries that cannot be read, and leaves them out.
    fn next<P: Posix + Clone>(&mut self, side: usize, walk: &mut Walk<P>) -> Option<WalkEntry<P>> {
        loop {
            match walk.next()? {
                WalkStep::Left(_) => {}
                WalkStep::Failed(path, error) => {
                    self.trouble(side, &path, &error);
                    self.unread = Some(path);
                }
                WalkStep::Entry(entry) => return Some(entry),
            }
        }
    }

    fn is_unread(&self, path: &Path) -> bool {
        self.unread.as_ref().is_some_and(|unread| path.starts_with(unread))
    }
}

/// Returns the path of a place in its file system.
fn root(place: &Place) -> Result<PathBuf> {
    match place {
        Place::Host(path) => std::path::absolute(path).doing("use", text::path(path)),
        Place::Inside(inside) => Ok(inside.path.clone()),
    }
}

impl Step for Compare<'_> {
    type Output = u64;

    fn run<S, D>(&mut self, source: &S, target: &D) -> Result<u64>
    where
        S: Posix + Clone + Sync + Send,
        D: Posix + Clone + Sync + Send,
    {
        let [left, right] = self.places;
        let mut lefts = source.walk(root(left)?).doing("compare", left)?;
        let mut rights = target.walk(root(right)?).doing("compare", right)?;
        let mut buffers = [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
        let mut next = (self.next(0, &mut lefts), self.next(1, &mut rights));
        loop {
            interrupt::check("diff")?;
            let order = match &next {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                // Paths are compared name by name, and that is the order of the walks.
                (Some(left), Some(right)) => left.relative.cmp(&right.relative),
            };
            let (path, difference) = match (order, &next) {
                (Ordering::Equal, (Some(left), Some(right))) => {
                    let path = left.relative.clone();
                    let what = self.differences(left, right, &mut buffers);
                    if left.kind != right.kind {
                        lefts.prune();
                        rights.prune();
                    }
                    (path, what.map(Difference::Both))
                }
                (Ordering::Less, (Some(left), _)) => {
                    lefts.prune();
                    (left.relative.clone(), Some(Difference::OnlyLeft))
                }
                (_, (_, Some(right))) => {
                    rights.prune();
                    (right.relative.clone(), Some(Difference::OnlyRight))
                }
                (_, (_, None)) => break,
            };
            if let Some(difference) = difference.filter(|_| !self.is_unread(&path))
                && !(self.report)(&Found { path: &path, difference })?
            {
                break;
            }
            if order != Ordering::Greater {
                next.0 = self.next(0, &mut lefts);
            }
            if order != Ordering::Less {
                next.1 = self.next(1, &mut rights);
            }
        }
        Ok(self.troubles)
    }
}

impl Compare<'_> {
    /// Returns the differences of two entries, or `None` if they are equal or one of them cannot be read.
    fn differences<S: Posix + Clone, D: Posix + Clone>(
        &mut self,
        left: &WalkEntry<S>,
        right: &WalkEntry<D>,
        buffers: &mut [Vec<u8>; 2],
    ) -> Option<Vec<&'static str>> {
        let compared = Entry::read(left, self.contents_only).map_err(|error| (0, error)).and_then(|one| {
            let other = Entry::read(right, self.contents_only).map_err(|error| (1, error))?;
            let mut what = one.differences(&other, self.contents_only);
            let is_file = one.stat.kind == Kind::File && other.stat.kind == Kind::File;
            if is_file && one.stat.size == other.stat.size && !same_bytes(left, right, buffers)? {
                what.push("contents");
            }
            Ok(what)
        });
        match compared {
            Ok(what) => Some(what).filter(|what| !what.is_empty()),
            Err((side, error)) => {
                self.trouble(side, &left.relative, &error);
                None
            }
        }
    }
}

/// The parts of an entry that are compared, except the bytes of a file.
struct Entry {
    stat: Stat,
    target: Option<Vec<u8>>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Entry {
    fn read<P: Posix + Clone>(entry: &WalkEntry<P>, contents_only: bool) -> eyrie::Result<Entry> {
        let (dir, name) = (entry.dir(), entry.name());
        let stat = entry.stat()?;
        let is_link = stat.kind == Kind::Symlink;
        let target = is_link.then(|| dir.readlink(name.into())).transpose()?;
        let xattrs = if contents_only { BTreeMap::new() } else { comparable_xattrs(dir, name)? };
        Ok(Entry { stat, target, xattrs })
    }

    fn differences(&self, other: &Entry, contents_only: bool) -> Vec<&'static str> {
        let (one, two) = (&self.stat, &other.stat);
        if one.kind != two.kind {
            return vec!["type"];
        }
        let attributes = !contents_only;
        [
            // Linux ignores the mode of a symbolic link, and no call can set this mode.
            ("mode", attributes && one.mode != two.mode && one.kind != Kind::Symlink),
            ("owner", attributes && (one.uid, one.gid) != (two.uid, two.gid)),
            ("size", one.kind == Kind::File && one.size != two.size),
            ("target", self.target != other.target),
            ("device", one.device != two.device),
            ("xattrs", self.xattrs != other.xattrs),
        ]
        .into_iter()
        .filter_map(|(what, differs)| differs.then_some(what))
        .collect()
    }
}

/// Returns true if two files have the same bytes. An error has the number of the side whose file cannot be
/// read.
fn same_bytes<S: Posix + Clone, D: Posix + Clone>(
    left: &WalkEntry<S>,
    right: &WalkEntry<D>,
    [one, two]: &mut [Vec<u8>; 2],
) -> std::result::Result<bool, (usize, eyrie::Error)> {
    let first = left.dir().open_file(left.name()).map_err(|error| (0, error))?;
    let second = right.dir().open_file(right.name()).map_err(|error| (1, error))?;
    let mut offset = 0;
    loop {
        let count = read_full(|out, at| first.read_at(out, at), one, offset).map_err(|error| (0, error))?;
        let others = read_full(|out, at| second.read_at(out, at), two, offset).map_err(|error| (1, error))?;
        if one[..count] != two[..others] {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
        offset += count as u64;
    }
}

/// Fills `out` from `offset` on, unless the file ends first. Returns the number of bytes.
fn read_full(
    read: impl Fn(&mut [u8], u64) -> eyrie::Result<usize>,
    out: &mut [u8],
    offset: u64,
) -> eyrie::Result<usize> {
    let mut done = 0;
    while done < out.len() {
        match read(&mut out[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}
