//! Listings of a directory, in the style of [`std::fs::ReadDir`].

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyrie_engine::Kind;

use super::{File, OpenFlags, Posix};
use crate::Result;
use crate::fetch::FetchSize;

/// An iterator over the entries of a directory. Changes made during the iteration may or may not appear.
///
/// A *cookie* is a position in the directory: 0 is the start, and [`DirEntry::cookie`] is the position after
/// an entry. A cookie is valid as long as the directory exists, for every listing of the directory. In a
/// volume, changes of entries with other hashes do not move the cookie. On the host this depends on the
/// host's file system.
///
/// ```
/// # use eyrie::{Host, PosixExt};
/// # let place = tempfile::tempdir()?;
/// # let fs = Host::new(place.path())?;
/// fs.write("/egg", "blue")?;
/// let names = fs.read_dir("/")?.map(|entry| Ok(entry?.name().to_owned()));
/// assert_eq!(names.collect::<eyrie::Result<Vec<_>>>()?, ["egg"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ReadDir<P: Posix> {
    dir: File<P>,
    path: Arc<Path>,
    fetched: std::vec::IntoIter<DirEntry>,
    /// The position of the iterator: the cookie of the entry that it returned last.
    cookie: u64,
    /// The position where the next fetch begins. `None` at the end, and after an error.
    fetch_from: Option<u64>,
    fetch: FetchSize,
}

impl<P: Posix> ReadDir<P> {
    /// Opens the directory `path`.
    pub(super) fn open(fs: P, path: Arc<Path>) -> Result<ReadDir<P>> {
        let opened = fs.open((&*path).into(), OpenFlags::READ | OpenFlags::DIRECTORY, 0);
        let handle = opened.map_err(|error| error.at(&path))?;
        let dir = File::new(fs, handle, false, &path);
        let (fetched, fetch) = (Vec::new().into_iter(), FetchSize::first());
        Ok(ReadDir { dir, path, fetched, cookie: 0, fetch_from: Some(0), fetch })
    }

    /// Returns the position, as `telldir(3)`. [`seek`](ReadDir::seek) to this position continues with the
    /// entries that the iterator has not returned yet.
    ///
    /// ```
    /// # use eyrie::{Host, PosixExt, ReadDir, Result};
    /// /// Returns true if the listing is at its end. The listing stays where it is.
    /// fn is_at_end(listing: &mut ReadDir<Host>) -> Result<bool> {
    ///     let here = listing.cookie();
    ///     let next = listing.next().transpose()?;
    ///     listing.seek(here);
    ///     Ok(next.is_none())
    /// }
    /// ```
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Continues at the position `cookie`, as `seekdir(3)`. The iterator then reads the directory again, also
    /// after its end and after an error.
    ///
    /// ```
    /// # use eyrie::{Host, PosixExt};
    /// # let place = tempfile::tempdir()?;
    /// # let fs = Host::new(place.path())?;
    /// for name in ["/egg", "/owl", "/twig"] {
    ///     fs.write(name, "")?;
    /// }
    /// let first = fs.read_dir("/")?.next().expect("three entries")?;
    /// let mut others = fs.read_dir("/")?;
    /// others.seek(first.cookie());
    /// assert_eq!(others.count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn seek(&mut self, cookie: u64) {
        self.fetched = Vec::new().into_iter();
        (self.cookie, self.fetch_from, self.fetch) = (cookie, Some(cookie), FetchSize::first());
    }

    /// Begins again at the first entry, as `rewinddir(3)`. The iterator then returns also the entries that
    /// were made since the first fetch.
    ///
    /// ```
    /// # use eyrie::{Host, PosixExt};
    /// # let place = tempfile::tempdir()?;
    /// # let fs = Host::new(place.path())?;
    /// let mut listing = fs.read_dir("/")?;
    /// assert_eq!(listing.by_ref().count(), 0);
    /// fs.write("/egg", "")?;
    /// listing.rewind();
    /// assert_eq!(listing.count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rewind(&mut self) {
        self.seek(0);
    }

    fn fetch(&mut self) -> Result<()> {
        let Some(from) = self.fetch_from.take() else { return Ok(()) };
        let at_most = self.fetch.next();
        let mut entries = Vec::new();
        let mut next = None;
        self.dir.call(|fs, handle| {
            fs.list(handle, from, &mut |entry| {
                entries.push(DirEntry {
                    dir: Arc::clone(&self.path),
                    name: OsString::from_vec(entry.name.to_vec()),
                    kind: entry.kind,
                    inode: entry.inode,
                    cookie: entry.next,
                });
                let full = entries.len() == at_most;
                next = full.then_some(entry.next);
                !full
            })
        })?;
        self.fetch_from = next;
        self.fetched = entries.into_iter();
        Ok(())
    }
}

impl<P: Posix> Iterator for ReadDir<P> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.fetched.as_slice().is_empty()
            && let Err(error) = self.fetch()
        {
            return Some(Err(error));
        }
        let entry = self.fetched.next()?;
        self.cookie = entry.cookie;
        Some(Ok(entry))
    }
}

/// One entry of a directory.
///
/// ```
/// # use eyrie::{Host, Kind, PosixExt};
/// # let place = tempfile::tempdir()?;
/// # let fs = Host::new(place.path())?;
/// fs.create_dir_all("/nest/egg")?;
/// let entry = fs.read_dir("/nest")?.next().expect("one entry")?;
/// assert_eq!((entry.name_bytes(), entry.kind()), (&b"egg"[..], Kind::Directory));
/// assert_eq!(entry.path(), std::path::Path::new("/nest/egg"));
/// assert_eq!(entry.inode(), fs.metadata(entry.path())?.inode);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    dir: Arc<Path>,
    name: OsString,
    kind: Kind,
    inode: u64,
    cookie: u64,
}

impl DirEntry {
    /// Returns the name, without the directory.
    ///
    /// ```
    /// # fn f(entry: eyrie::DirEntry) {
    /// println!("{}", entry.name().display());
    /// # }
    /// ```
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the name, without a copy.
    ///
    /// ```
    /// # fn f(entry: eyrie::DirEntry) {
    /// let name: std::ffi::OsString = entry.into_name();
    /// # }
    /// ```
    pub fn into_name(self) -> OsString {
        self.name
    }

    /// Returns the bytes of the name.
    ///
    /// ```
    /// # fn f(entry: eyrie::DirEntry) {
    /// let hidden = entry.name_bytes().starts_with(b".");
    /// # }
    /// ```
    pub fn name_bytes(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// Returns the path given to `read_dir`, joined with the name.
    ///
    /// ```
    /// # fn f(entry: eyrie::DirEntry) {
    /// println!("{}", entry.path().display());
    /// # }
    /// ```
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// Returns the kind of the entry.
    ///
    /// ```
    /// # fn f(entry: eyrie::DirEntry) {
    /// let is_dir = entry.kind() == eyrie::Kind::Directory;
    /// # }
    /// ```
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the inode number.
    ///
    /// ```
    /// # fn f(entry: eyrie::DirEntry) {
    /// println!("{}", entry.inode());
    /// # }
    /// ```
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns the position after this entry, for [`ReadDir::seek`].
    ///
    /// ```
    /// # use eyrie::*; fn f(listing: &mut ReadDir<Host>, entry: DirEntry) {
    /// listing.seek(entry.cookie()); // the next entry is the one that follows `entry`
    /// # }
    /// ```
    pub fn cookie(&self) -> u64 {
        self.cookie
    }
}
