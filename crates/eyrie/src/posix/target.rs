//! Names of files in the calls of [`Posix`](super::Posix).

use std::fmt;
use std::path::Path;

/// A path, from the root of the file system or from an open directory.
///
/// `"/a/b".into()` is a path from the root, and `(&handle, "b").into()` a path from an open directory. An
/// absolute path begins at the root of the file system, even if an open directory is given, as for
/// `openat(2)`.
///
/// ```
/// # use eyrie::*; fn f(fs: &Host, nest: <Host as Posix>::Handle) -> Result<()> {
/// fs.unlink("/nest/egg".into())?; // a path from the root
/// fs.unlink((&nest, "other egg").into()) // a path from an open directory
/// # }
/// ```
pub struct PathAt<'a, H> {
    /// The open directory where a relative path begins. `None` means the root of the file system.
    pub dir: Option<&'a H>,
    /// The path.
    pub path: &'a Path,
}

/// A file as the target of a call: a path, or an open file.
///
/// ```
/// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
/// let linked = fs.stat("/link".into())?; // as stat(2)
/// let link = fs.stat(Target::NoFollow("/link".into()))?; // as lstat(2)
/// let open = fs.stat(Target::Open(&file))?; // as fstat(2)
/// # Ok(())
/// # }
/// ```
pub enum Target<'a, H> {
    /// The file that the path leads to. A symbolic link at the end is followed.
    Follow(PathAt<'a, H>),
    /// The file that the path names. A symbolic link at the end is not followed (`AT_SYMLINK_NOFOLLOW`).
    NoFollow(PathAt<'a, H>),
    /// An open file or directory.
    Open(&'a H),
}

impl<'a, H> Target<'a, H> {
    /// Returns the target with its path changed by `change`. An open file stays as it is.
    #[inline]
    pub(super) fn map<'b>(self, change: impl FnOnce(PathAt<'a, H>) -> PathAt<'b, H>) -> Target<'b, H>
    where
        'a: 'b,
    {
        match self {
            Target::Follow(path) => Target::Follow(change(path)),
            Target::NoFollow(path) => Target::NoFollow(change(path)),
            Target::Open(handle) => Target::Open(handle),
        }
    }
}

// The derives would demand these traits of `H`, too.
impl<H> Copy for PathAt<'_, H> {}

impl<H> Clone for PathAt<'_, H> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Target<'_, H> {}

impl<H> Clone for Target<'_, H> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: fmt::Debug> fmt::Debug for PathAt<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathAt { dir, path } = self;
        f.debug_struct("PathAt").field("dir", dir).field("path", path).finish()
    }
}

impl<H: fmt::Debug> fmt::Debug for Target<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Follow(path) => f.debug_tuple("Follow").field(path).finish(),
            Target::NoFollow(path) => f.debug_tuple("NoFollow").field(path).finish(),
            Target::Open(handle) => f.debug_tuple("Open").field(handle).finish(),
        }
    }
}

/// A path from the root of the file system.
impl<'a, H, P: AsRef<Path> + ?Sized> From<&'a P> for PathAt<'a, H> {
    #[inline]
    fn from(path: &'a P) -> Self {
        PathAt { dir: None, path: path.as_ref() }
    }
}

/// A path from an open directory.
impl<'a, H, P: AsRef<Path> + ?Sized> From<(&'a H, &'a P)> for PathAt<'a, H> {
    #[inline]
    fn from((dir, path): (&'a H, &'a P)) -> Self {
        PathAt { dir: Some(dir), path: path.as_ref() }
    }
}

/// The file that a path from the root leads to.
impl<'a, H, P: AsRef<Path> + ?Sized> From<&'a P> for Target<'a, H> {
    #[inline]
    fn from(path: &'a P) -> Self {
        Target::Follow(path.into())
    }
}

/// The file that a path from an open directory leads to.
impl<'a, H, P: AsRef<Path> + ?Sized> From<(&'a H, &'a P)> for Target<'a, H> {
    #[inline]
    fn from(at: (&'a H, &'a P)) -> Self {
        Target::Follow(at.into())
    }
}
