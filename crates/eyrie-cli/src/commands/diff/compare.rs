//! The comparison of two trees. Two walks advance side by side, each in the order of paths.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};

use eyrie::{File, Kind, Posix, PosixClones, PosixExt, Stat, Walk, WalkEntry, WalkStep};

use crate::copy::{DataRuns, PAGE_BYTES, comparable_xattrs, open_entry};
use crate::endpoint::BetweenFileSystems;
use crate::failure::{Doing, Result, print_error, reason};
use crate::interrupt;
use crate::place::Place;

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

/// A comparison.
pub(super) struct Compare<'a> {
    places: [&'a Place; 2],
    /// The absolute paths of the places in their file systems.
    roots: [&'a Path; 2],
    /// True if only types, contents, targets and device numbers are compared.
    contents_only: bool,
    /// Takes each difference, and returns false to end the comparison.
    report: &'a mut dyn FnMut(&Found<'_>) -> Result<bool>,
    /// The number of entries that could not be compared.
    pub troubles: u64,
    /// For each tree the paths that could not be read, in the order of the walks. Nothing below them is
    /// compared.
    unread: [VecDeque<PathBuf>; 2],
}

impl<'a> Compare<'a> {
    pub(super) fn new(
        places: [&'a Place; 2],
        roots: [&'a Path; 2],
        contents_only: bool,
        report: &'a mut dyn FnMut(&Found<'_>) -> Result<bool>,
    ) -> Compare<'a> {
        Compare { places, roots, contents_only, report, troubles: 0, unread: Default::default() }
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
                    self.unread[side].push_back(path);
                }
                WalkStep::Entry(entry) => return Some(entry),
            }
        }
    }

    /// Returns true if the tree `side` may have `path`, because this part of the tree could not be read.
    fn is_unread(&mut self, side: usize, path: &Path) -> bool {
        let unread = &mut self.unread[side];
        // Both walks are in the order of paths. So an unread path before `path` is no longer needed, unless
        // `path` is below it.
        while unread.front().is_some_and(|first| first.as_path() < path && !path.starts_with(first)) {
            unread.pop_front();
        }
        unread.front().is_some_and(|first| path.starts_with(first))
    }
}

impl BetweenFileSystems for Compare<'_> {
    type Output = ();

    fn run<S, D>(&mut self, source: &S, target: &D) -> Result<()>
    where
        S: PosixClones + Clone + Sync + Send + 'static,
        D: PosixClones + Clone + Sync + Send + 'static,
    {
        let mut lefts = source.walk(self.roots[0]).doing("compare", self.places[0])?;
        let mut rights = target.walk(self.roots[1]).doing("compare", self.places[1])?;
        let mut buffers = [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
        let mut next = (self.next(0, &mut lefts), self.next(1, &mut rights));
        loop {
            let order = match &next {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                // `cmp` compares paths name by name, which is the order of the walks.
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
                    let path = left.relative.clone();
                    let is_only = !self.is_unread(1, &path);
                    (path, is_only.then_some(Difference::OnlyLeft))
                }
                (_, (_, Some(right))) => {
                    rights.prune();
                    let path = right.relative.clone();
                    let is_only = !self.is_unread(0, &path);
                    (path, is_only.then_some(Difference::OnlyRight))
                }
                (_, (_, None)) => break,
            };
            // An interrupt ends the comparison of two files early, and the result then has no meaning. So the
            // check for an interrupt follows the comparison.
            interrupt::check("diff")?;
            if let Some(difference) = difference
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
        Ok(())
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

/// A file that is compared, and the range of its data that the comparison has reached.
struct Data<'a, P: Posix + Clone> {
    file: &'a File<P>,
    runs: DataRuns<'a, P>,
    /// `None` after the last range.
    run: Option<Range<u64>>,
}

impl<'a, P: Posix + Clone> Data<'a, P> {
    fn of(file: &'a File<P>, size: u64) -> eyrie::Result<Data<'a, P>> {
        // A small file is one range, which is read until the file ends (see `PAGE_BYTES`).
        let run = if size <= PAGE_BYTES { 0..u64::MAX } else { 0..0 };
        Ok(Data { file, runs: DataRuns::new(file)?, run: Some(run) })
    }

    /// Returns the data of the next range from `offset` on, or `None` if no data follows. Each call must pass
    /// at least the offset of the call before.
    fn next_from(&mut self, offset: u64) -> eyrie::Result<Option<Range<u64>>> {
        while self.run.as_ref().is_some_and(|run| run.end <= offset) {
            self.run = self.runs.next()?;
        }
        Ok(self.run.as_ref().map(|run| run.start.max(offset)..run.end))
    }
}

/// Returns true if two files have the same bytes. Reads only ranges in which one of the files has data. An
/// error has the number of the side whose file cannot be read. After an interrupt the result has no meaning.
fn same_bytes<S: Posix + Clone, D: Posix + Clone>(
    left: &WalkEntry<S>,
    right: &WalkEntry<D>,
    [one, two]: &mut [Vec<u8>; 2],
) -> std::result::Result<bool, (usize, eyrie::Error)> {
    let of = |side: usize| move |error| (side, error);
    let (left, right) = (open_entry(left).map_err(of(0))?, open_entry(right).map_err(of(1))?);
    let size = left.metadata().map_err(of(0))?.size;
    if size != right.metadata().map_err(of(1))?.size {
        return Ok(false);
    }
    let mut first = Data::of(&left, size).map_err(of(0))?;
    let mut second = Data::of(&right, size).map_err(of(1))?;
    let mut offset = 0;
    while !interrupt::requested() {
        let runs = [first.next_from(offset).map_err(of(0))?, second.next_from(offset).map_err(of(1))?];
        let Some(run) = runs.into_iter().flatten().min_by_key(|run| run.start) else { break };
        let length = usize::try_from(run.end - run.start).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let (one, two) = (&mut one[..length], &mut two[..length]);
        let count = read_full(first.file, one, run.start).map_err(of(0))?;
        let others = read_full(second.file, two, run.start).map_err(of(1))?;
        if one[..count] != two[..others] {
            return Ok(false);
        }
        if count < length {
            break;
        }
        offset = run.start + count as u64;
    }
    Ok(true)
}

/// Fills `out` from `offset` on, unless the file ends first. Returns the number of bytes.
fn read_full<P: Posix + Clone>(file: &File<P>, out: &mut [u8], offset: u64) -> eyrie::Result<usize> {
    let mut done = 0;
    while done < out.len() {
        match file.read_at(&mut out[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use eyrie::{Errno, Host};

    use super::*;

    /// Returns the first file of a walk through the directory `root`.
    fn first_file(host: &Host, root: &Path) -> WalkEntry<Host> {
        let mut entries = host.walk(root).unwrap().filter_map(|step| match step {
            WalkStep::Entry(entry) if entry.kind == Kind::File => Some(entry),
            _ => None,
        });
        entries.next().unwrap()
    }

    #[test]
    fn entry_that_is_no_longer_a_file_is_not_compared() {
        let dir = tempfile::tempdir().unwrap();
        let [left, right] = ["left", "right"].map(|name| dir.path().join(name));
        for root in [&left, &right] {
            fs::create_dir(root).unwrap();
            fs::write(root.join("file"), "same").unwrap();
        }
        let host = Host::new("/").unwrap();
        let entries = [first_file(&host, &left), first_file(&host, &right)];
        let mut buffers = [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
        let mut compare = || same_bytes(&entries[0], &entries[1], &mut buffers);
        assert!(compare().unwrap());
        let refusal = |found: std::result::Result<bool, (usize, eyrie::Error)>| {
            found.map_err(|(side, error)| (side, error.errno()))
        };
        let file = right.join("file");
        fs::remove_file(&file).unwrap();
        symlink("../left/file", &file).unwrap();
        assert_eq!(refusal(compare()), Err((1, Errno::LOOP)));
        fs::remove_file(&file).unwrap();
        host.mknod((&file).into(), Kind::Fifo, 0o600, 0).unwrap();
        assert_eq!(refusal(compare()), Err((1, Errno::STALE)));
        fs::remove_file(&file).unwrap();
        fs::write(&file, "another size").unwrap();
        assert_eq!(refusal(compare()), Ok(false));
    }
}
