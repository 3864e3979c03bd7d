//! Listings of a directory, in the style of [`std::fs::ReadDir`].

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyrie_engine::Kind;

use super::{File, Posix};
use crate::Result;
use crate::fetch::FetchSize;

/// An iterator over the entries of a directory. Changes made during the iteration may or may not appear.
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
    /// The position in the directory where the next fetch begins. `None` at the end, and after an error.
    cookie: Option<u64>,
    fetch: FetchSize,
}

impl<P: Posix> ReadDir<P> {
    /// Lists the open directory `dir`, whose path is `path`.
    pub(super) fn new(dir: File<P>, path: &Path) -> ReadDir<P> {
        let fetched = Vec::new().into_iter();
        ReadDir { dir, path: path.into(), fetched, cookie: Some(0), fetch: FetchSize::first() }
    }

    fn fetch(&mut self) -> Result<()> {
        let Some(from) = self.cookie.take() else { return Ok(()) };
        let at_most = self.fetch.next();
        let mut entries = Vec::new();
        let mut next = None;
        let dir = &self.path;
        self.dir
            .file_system()
            .list(self.dir.handle(), from, &mut |entry| {
                entries.push(DirEntry {
                    dir: Arc::clone(dir),
                    name: OsString::from_vec(entry.name.to_vec()),
                    kind: entry.kind,
                    inode: entry.inode,
                });
                let full = entries.len() == at_most;
                next = full.then_some(entry.next);
                !full
            })
            .map_err(|error| error.at(&self.path))?;
        self.cookie = next;
        self.fetched = entries.into_iter();
        Ok(())
    }
}

impl<P: Posix> Iterator for ReadDir<P> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.fetched.next() {
            return Some(Ok(entry));
        }
        match self.fetch() {
            Ok(()) => self.fetched.next().map(Ok),
            Err(error) => Some(Err(error)),
        }
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
}
