//! Path walks: from the bytes of a path to a directory and a last component, by the rules of Linux.
//!
//! A walk ends at the *parent*, the directory of the last component. The caller then looks up, creates or
//! removes the last component. A walk replaces a symbolic link on the way with the link's target, and
//! continues with the new path.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie_engine::access::{self, Protection};
use eyrie_engine::{Engine, Kind, ObjectId};

use super::cache::{self, Directory, Scope};
use super::{AsUser, CallResult, Handle};
use crate::posix::{OpenFlags, PathAt, Target};
use crate::{Errno, NAME_MAX, names};

/// Maximum length of a path, in bytes, including a final NUL, which the kernel counts.
const PATH_MAX: usize = 4096;
/// Maximum number of symbolic links that one walk follows, as on Linux.
const LINKS_MAX: u32 = 40;

/// The kind of the last component of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Last {
    /// A name: see [`PathWalk::name`].
    Name,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// No component: the path has only slashes.
    Root,
}

/// The result of a walk: the directory of the last component, and the last component.
#[derive(Clone, Debug)]
pub(super) struct Parent {
    /// The directory of the last component. The walk has checked the permission to search it, unless the path
    /// has only slashes.
    pub dir: Directory,
    pub last: Last,
    /// True if slashes follow the last component.
    pub has_trailing_slash: bool,
    /// The range of the last component in `PathWalk::path`.
    last_range: Range<usize>,
    spelling: Spelling,
}

/// The relation of the last component to the name that the directory stores for its entry. This stored name
/// is the *key* (see [`names`]). Only an escaped component differs from its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spelling {
    /// The component is the key. A component that is no [`Last::Name`] has this value, too.
    Plain,
    /// The key is in [`PathWalk::key`].
    Escaped,
    /// The component stands for no key.
    Nothing,
    TooLong,
}

/// One walk of one path.
pub(super) struct PathWalk<'p, 'fs, E: Engine> {
    fs: AsUser<'fs, E>,
    /// The open directory where the path begins. `None` means the root.
    start: Option<ObjectId>,
    given: &'p [u8],
    /// The target of the symbolic link that the walk met last, followed by the part of the path after that
    /// link. Before the first symbolic link this buffer is empty and takes no memory.
    expanded: Vec<u8>,
    /// The key of an escaped last component.
    key: Vec<u8>,
    links: u32,
    /// True as long as the walk met no symbolic link, and no `..` before the last component.
    plain: bool,
}

/// Checks the rules for every path argument.
#[inline]
pub(super) fn check_path(path: &[u8]) -> Result<(), Errno> {
    if path.contains(&0) {
        return Err(Errno::INVAL);
    }
    match path.len() {
        0 => Err(Errno::NOENT),
        PATH_MAX.. => Err(Errno::NAMETOOLONG),
        _ => Ok(()),
    }
}

impl<'p, 'fs, E: Engine> PathWalk<'p, 'fs, E> {
    #[inline]
    pub fn new(fs: AsUser<'fs, E>, path: PathAt<'p, Handle>) -> CallResult<PathWalk<'p, 'fs, E>> {
        let given = bytes(path.path);
        check_path(given)?;
        let start = match path.dir {
            Some(dir) if given[0] != b'/' => {
                fs.check_engine(dir).map_err(|_| Errno::XDEV)?;
                Some(dir.current(fs.engine())?)
            }
            _ => None,
        };
        Ok(PathWalk { fs, start, given, expanded: Vec::new(), key: Vec::new(), links: 0, plain: true })
    }

    /// Begins a walk of one name in a directory, which the caller knows by its id.
    pub fn of_name(fs: AsUser<'fs, E>, dir: ObjectId, name: &'p [u8]) -> CallResult<PathWalk<'p, 'fs, E>> {
        check_path(name)?;
        if name.contains(&b'/') {
            return Err(Errno::INVAL.into());
        }
        let start = Some(dir);
        Ok(PathWalk { fs, start, given: name, expanded: Vec::new(), key: Vec::new(), links: 0, plain: true })
    }

    /// Walks to the parent of the last component. The *prefix* of a path is the part before its last
    /// component. If the path begins at the root and its prefix is in the cache, the walk is one probe of the
    /// cache.
    #[inline]
    pub fn parent(&mut self) -> CallResult<Parent> {
        let scope = self.fs.scope();
        let Some((prefix, start)) = split(self.given).filter(|_| self.start.is_none()) else {
            return self.walk_from_start();
        };
        if let Some(dir) = cache::find(&scope, prefix) {
            let last_range = start..self.given.len();
            return Ok(Parent {
                dir,
                last: Last::Name,
                has_trailing_slash: false,
                last_range,
                spelling: Spelling::Plain,
            });
        }
        let parent = self.walk_from_start()?;
        if self.plain {
            cache::remember(&scope, prefix, &parent.dir);
        }
        Ok(parent)
    }

    /// Returns the key that the last component stands for, or `None` if it stands for no key. The last
    /// component must be a [`Last::Name`].
    #[inline]
    pub fn name(&self, parent: &Parent) -> CallResult<Option<&[u8]>> {
        match parent.spelling {
            Spelling::Plain => Ok(Some(&self.path()[parent.last_range.clone()])),
            Spelling::Escaped => Ok(Some(&self.key)),
            Spelling::Nothing => Ok(None),
            Spelling::TooLong => self.fs.refuse_long_name(parent.dir.id),
        }
    }

    /// Returns the key for a new entry.
    #[inline]
    pub fn new_name(&self, parent: &Parent) -> CallResult<&[u8]> {
        self.name(parent)?.ok_or(Errno::INVAL.into())
    }

    /// Returns the object that the last component names. The last component must be a [`Last::Name`].
    #[inline]
    pub fn lookup(&self, parent: &Parent) -> CallResult<Option<ObjectId>> {
        match self.name(parent)? {
            Some(name) => Ok(self.fs.engine().lookup(parent.dir.id, name)?),
            None => Ok(None),
        }
    }

    /// Returns the object that the last component names. Symbolic links are not followed.
    #[inline]
    pub fn object(&self, parent: &Parent) -> CallResult<ObjectId> {
        match parent.last {
            Last::Name => self.lookup(parent)?.ok_or(Errno::NOENT.into()),
            Last::Dot | Last::Root => Ok(parent.dir.id),
            Last::DotDot => self.fs.parent_of(parent.dir.id),
        }
    }

    /// Returns the object that the whole path names. A symbolic link at the end is followed if `follow` is
    /// true, or if slashes come after the link.
    #[inline]
    pub fn resolve(&mut self, follow: bool) -> CallResult<ObjectId> {
        let mut parent = self.parent()?;
        loop {
            let id = self.object(&parent)?;
            if id.kind() == Kind::Symlink && (follow || parent.has_trailing_slash) {
                parent = self.follow(&parent, id)?;
            } else if parent.has_trailing_slash && !id.is_directory() {
                return Err(Errno::NOTDIR.into());
            } else {
                return Ok(id);
            }
        }
    }

    /// Continues the walk with the target of `link`, the last component of `parent`.
    #[cold]
    pub fn follow(&mut self, parent: &Parent, link: ObjectId) -> CallResult<Parent> {
        let (fs, dir) = (self.fs, &parent.dir.protection);
        // Linux compares the number of links with the limit before it checks the rules for the link. So for
        // one link too many, this function skips the rules, and `expand` returns `ELOOP`.
        if self.links < LINKS_MAX && access::guards_links(fs.rules(), dir) {
            access::check_follow(fs.rules(), fs.credentials(), dir, &fs.protection(link)?)?;
        }
        let dir = self.expand(parent.dir, link, parent.last_range.end)?;
        self.walk(dir)
    }

    fn path(&self) -> &[u8] {
        if self.links == 0 { self.given } else { &self.expanded }
    }

    #[inline(never)]
    fn walk_from_start(&mut self) -> CallResult<Parent> {
        let start = self.start.unwrap_or_else(|| self.fs.engine().root());
        if !start.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        let start = self.fs.directory(start)?;
        self.walk(start)
    }

    /// Walks the path that `path()` returns, from `dir` on.
    fn walk(&mut self, mut dir: Directory) -> CallResult<Parent> {
        let mut at = 0;
        loop {
            let path = self.path();
            let start = at + leading_slashes(&path[at..]);
            if start == path.len() {
                let last_range = start..start;
                return Ok(Parent {
                    dir,
                    last: Last::Root,
                    has_trailing_slash: false,
                    last_range,
                    spelling: Spelling::Plain,
                });
            }
            access::check_search(self.fs.credentials(), &dir.protection)?;
            let length = path[start..].iter().position(|&byte| byte == b'/');
            let end = length.map_or(path.len(), |length| start + length);
            let next = end + leading_slashes(&path[end..]);
            if next == path.len() {
                return Ok(self.end(dir, start..end));
            }
            at = next;
            match &path[start..end] {
                b"." => {}
                b".." => {
                    dir = self.fs.directory(self.fs.parent_of(dir.id)?)?;
                    self.plain = false;
                }
                name => {
                    let id = self.fs.lookup_name(dir.id, name)?.ok_or(Errno::NOENT)?;
                    match id.kind() {
                        Kind::Directory => dir = self.fs.directory(id)?,
                        Kind::Symlink => {
                            dir = self.expand(dir, id, end)?;
                            at = 0;
                        }
                        _ => return Err(Errno::NOTDIR.into()),
                    }
                }
            }
        }
    }

    fn end(&mut self, dir: Directory, last_range: Range<usize>) -> Parent {
        let has_trailing_slash = last_range.end < self.path().len();
        let (last, spelling) = match &self.path()[last_range.clone()] {
            b"." => (Last::Dot, Spelling::Plain),
            b".." => (Last::DotDot, Spelling::Plain),
            name if names::may_be_escaped(name) => {
                let key = names::decode(name).map(|key| key.into_owned());
                let spelling = match &key {
                    Some(key) if key.len() > NAME_MAX => Spelling::TooLong,
                    Some(_) => Spelling::Escaped,
                    None if name.len() > names::LONGEST => Spelling::TooLong,
                    None => Spelling::Nothing,
                };
                self.key = key.unwrap_or_default();
                (Last::Name, spelling)
            }
            name if name.len() > NAME_MAX => (Last::Name, Spelling::TooLong),
            _ => (Last::Name, Spelling::Plain),
        };
        Parent { dir, last, has_trailing_slash, last_range, spelling }
    }

    /// Replaces the path up to `end` with the target of `link`, an entry of `dir`. Returns the directory from
    /// which the walk continues.
    fn expand(&mut self, dir: Directory, link: ObjectId, end: usize) -> CallResult<Directory> {
        if self.links == LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let mut path = self.fs.link_target(link)?;
        self.fs.note_read(link, OpenFlags::READ);
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        path.extend_from_slice(&self.path()[end..]);
        self.links += 1;
        self.plain = false;
        self.expanded = path;
        match self.expanded[0] {
            // As for `openat`, an absolute target begins at the root of the volume, even if the path begins
            // at an open directory.
            b'/' => self.fs.directory(self.fs.engine().root()),
            _ => Ok(dir),
        }
    }
}

impl<E: Engine> AsUser<'_, E> {
    /// Returns the directory and the last name of a path. Returns `None` unless the path begins at the root,
    /// its prefix is in the cache, and the last name is a common one (see [`split`]).
    #[inline(always)]
    pub(super) fn entry_quickly<'p>(&self, path: PathAt<'p, Handle>) -> Option<(Directory, &'p [u8])> {
        let (dir, path) = (path.dir, bytes(path.path));
        if dir.is_some() && path.first() != Some(&b'/') {
            return None;
        }
        let (prefix, start) = split(path).filter(|_| check_path(path).is_ok())?;
        Some((cache::find(&self.scope(), prefix)?, &path[start..]))
    }

    /// Returns the object of a path whose prefix is in the cache, unless the object is a symbolic link. Most
    /// calls need no other look-up.
    #[inline(always)]
    pub(super) fn resolve_quickly(&self, path: PathAt<'_, Handle>) -> CallResult<Option<ObjectId>> {
        let Some((dir, name)) = self.entry_quickly(path) else { return Ok(None) };
        let id = self.engine().lookup(dir.id, name)?.ok_or(Errno::NOENT)?;
        Ok((id.kind() != Kind::Symlink).then_some(id))
    }

    /// Returns the object that is the target of a call.
    #[inline]
    pub(super) fn object_of(&self, file: Target<'_, Handle>) -> CallResult<ObjectId> {
        match file {
            Target::Follow(path) => PathWalk::new(*self, path)?.resolve(true),
            Target::NoFollow(path) => PathWalk::new(*self, path)?.resolve(false),
            Target::Open(handle) => Ok(self.opened(handle)?),
        }
    }

    /// Works as [`AsUser::object_of`], but refuses a handle that was opened with [`OpenFlags::PATH`].
    pub(super) fn usable_target(&self, file: Target<'_, Handle>) -> CallResult<ObjectId> {
        match file {
            Target::Open(handle) => self.usable(handle),
            path => self.object_of(path),
        }
    }

    #[inline]
    pub(super) fn scope(&self) -> Scope {
        Scope {
            instance: self.shared.instance,
            credentials: self.credentials().id(),
            changes: self.engine().directory_changes(),
        }
    }

    /// Returns a directory, with mode and owner.
    pub(super) fn directory(&self, id: ObjectId) -> CallResult<Directory> {
        Ok(Directory { id, protection: self.protection(id)? })
    }

    #[inline]
    pub(super) fn protection(&self, id: ObjectId) -> CallResult<Protection> {
        Ok(access::protection(self.engine(), id, self.credentials())?)
    }

    /// Checks that the credentials may add a name to a directory.
    pub(super) fn check_new_entry(&self, dir: &Directory) -> CallResult<()> {
        self.unless_removed(dir, access::check_add(self.credentials(), &dir.protection))
    }

    /// Returns the result of a check for a new name in a directory. If the check fails and the directory was
    /// removed, the error is `ENOENT`, as on Linux.
    pub(super) fn unless_removed(
        &self,
        dir: &Directory,
        checked: eyrie_engine::Result<()>,
    ) -> CallResult<()> {
        match checked {
            Err(_) if self.engine().is_removed(dir.id)? => Err(Errno::NOENT.into()),
            checked => Ok(checked?),
        }
    }

    pub(super) fn parent_of(&self, dir: ObjectId) -> CallResult<ObjectId> {
        // A directory that another thread removed has no parent. `Stale` makes the call begin again. If the
        // walk begins at a removed open directory, the call fails with `ESTALE` in the end.
        self.engine().parent_of(dir)?.ok_or(eyrie_engine::Error::Stale.into())
    }

    fn lookup_name(&self, dir: ObjectId, name: &[u8]) -> CallResult<Option<ObjectId>> {
        if names::may_be_escaped(name) {
            return match names::decode(name) {
                Some(key) if key.len() <= NAME_MAX => Ok(self.engine().lookup(dir, &key)?),
                None if name.len() <= names::LONGEST => Ok(None),
                _ => self.refuse_long_name(dir),
            };
        }
        if name.len() > NAME_MAX {
            return self.refuse_long_name(dir);
        }
        Ok(self.engine().lookup(dir, name)?)
    }

    /// Refuses a name that is too long. As on Linux, `ENOENT` for a removed directory comes before
    /// `ENAMETOOLONG`.
    #[cold]
    fn refuse_long_name<T>(&self, dir: ObjectId) -> CallResult<T> {
        Err(if self.engine().is_removed(dir)? { Errno::NOENT } else { Errno::NAMETOOLONG }.into())
    }

    /// Returns the target of a symbolic link.
    pub(super) fn link_target(&self, link: ObjectId) -> CallResult<Vec<u8>> {
        let size = self.engine().attributes(link)?.size;
        // The size of a damaged link may be huge.
        let mut target = vec![0; usize::try_from(size).map_err(|_| Errno::NAMETOOLONG)?.min(PATH_MAX)];
        let count = self.engine().read(link, 0, &mut target)?;
        target.truncate(count);
        Ok(target)
    }
}

#[inline]
fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn leading_slashes(path: &[u8]) -> usize {
    path.iter().take_while(|&&byte| byte == b'/').count()
}

/// Returns the prefix of a path and the start of its last component. Returns `None` unless the last component
/// is a common name: it has at most [`NAME_MAX`] bytes, is not `.` or `..`, is not escaped, and no slash
/// follows it.
#[inline]
fn split(path: &[u8]) -> Option<(&[u8], usize)> {
    let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let name = &path[start..];
    let common = match name {
        b"" | b"." | b".." => false,
        _ => name.len() <= NAME_MAX && !names::may_be_escaped(name),
    };
    common.then_some((&path[..start.saturating_sub(1)], start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_path_splits_before_its_last_name() {
        assert_eq!(split(b"a"), Some((&b""[..], 0)));
        assert_eq!(split(b"/a"), Some((&b""[..], 1)));
        assert_eq!(split(b"/a/b.c"), Some((&b"/a"[..], 3)));
        for other in ["", "/", "a/", "a/.", "..", "a/%kv%%2F"] {
            assert_eq!(split(other.as_bytes()), None, "{other}");
        }
        assert_eq!(split(&[b'a'; 256]), None);
    }
}
