//! Path walks: from bytes to a directory and a last component, by Linux's rules.
//!
//! A walk ends at the *parent*: the directory that holds the last component, which the caller then looks up, creates or
//! removes. A symbolic link on the way is followed by walking its target and the rest of the path instead.

use std::ops::Range;

use eyrie_engine::access::{self, Protection};
use eyrie_engine::{Engine, Kind, ObjectId, Owner};
use rustix::io::Errno;

use super::cache::{self, Directory, Scope};
use super::{Pxfs, Step};
use crate::names;

/// Bytes of a path, less than this (the kernel counts a final NUL).
const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 255;
/// Symbolic links that one walk follows.
const LINKS_MAX: u32 = 40;

/// What the last component of a path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Last {
    /// A name, see [`Walk::name`].
    Name,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// None: the path is nothing but slashes.
    Root,
}

/// Where a walk ended.
#[derive(Clone, Debug)]
pub(super) struct Parent {
    /// The directory of the last component. The caller may search it.
    pub dir: Directory,
    pub last: Last,
    /// Whether slashes follow the last component.
    pub slash: bool,
    /// Where in the path the last component is.
    part: Range<usize>,
    spelling: Spelling,
}

/// What the last component says about the key of its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spelling {
    /// It is the key.
    Plain,
    /// The key is in [`Walk::key`].
    Escaped,
    /// It is the name of no key.
    Nothing,
    TooLong,
}

/// One walk of one path.
pub(super) struct Walk<'p, 'fs, E: Engine> {
    fs: &'fs Pxfs<E>,
    given: &'p [u8],
    /// The path that is left after symbolic links; empty (and unallocated) before the first.
    expanded: Vec<u8>,
    /// The key of an escaped last component.
    key: Vec<u8>,
    links: u32,
    /// No symbolic link and no `..` so far.
    plain: bool,
}

/// Checks what holds for any path argument.
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

impl<'p, 'fs, E: Engine> Walk<'p, 'fs, E> {
    #[inline]
    pub fn new(fs: &'fs Pxfs<E>, path: &'p [u8]) -> Step<Walk<'p, 'fs, E>> {
        check_path(path)?;
        Ok(Walk { fs, given: path, expanded: Vec::new(), key: Vec::new(), links: 0, plain: true })
    }

    /// Walks to the parent of the path's last component: one probe of the prefix cache if it is there.
    #[inline]
    pub fn parent(&mut self) -> Step<Parent> {
        let scope = self.fs.scope();
        let Some((prefix, start)) = split(self.given) else { return self.walk_from_root() };
        if let Some(dir) = cache::find(&scope, prefix) {
            let part = start..self.given.len();
            return Ok(Parent { dir, last: Last::Name, slash: false, part, spelling: Spelling::Plain });
        }
        let parent = self.walk_from_root()?;
        if self.plain {
            cache::remember(&scope, prefix, &parent.dir);
        }
        Ok(parent)
    }

    /// The key that the last component names; `None` if it names none or is too long.
    #[inline]
    pub fn name(&self, parent: &Parent) -> Step<Option<&[u8]>> {
        match parent.spelling {
            Spelling::Plain => Ok(Some(&self.path()[parent.part.clone()])),
            Spelling::Escaped => Ok(Some(&self.key)),
            Spelling::Nothing => Ok(None),
            Spelling::TooLong => Err(Errno::NAMETOOLONG.into()),
        }
    }

    /// The key for a new entry.
    #[inline]
    pub fn new_name(&self, parent: &Parent) -> Step<&[u8]> {
        self.name(parent)?.ok_or(Errno::INVAL.into())
    }

    /// The object that the last component names. It must be a [`Last::Name`].
    #[inline]
    pub fn lookup(&self, parent: &Parent) -> Step<Option<ObjectId>> {
        match self.name(parent)? {
            Some(name) => Ok(self.fs.engine.lookup(parent.dir.id, name)?),
            None => Ok(None),
        }
    }

    /// The object that the last component names, whatever it is; symbolic links are not followed.
    #[inline]
    pub fn target(&self, parent: &Parent) -> Step<ObjectId> {
        match parent.last {
            Last::Name => self.lookup(parent)?.ok_or(Errno::NOENT.into()),
            Last::Dot | Last::Root => Ok(parent.dir.id),
            Last::DotDot => self.fs.parent_of(parent.dir.id),
        }
    }

    /// The object that the whole path names; a symbolic link at its end is followed if `follow`, or if slashes come
    /// after it.
    #[inline]
    pub fn resolve(&mut self, follow: bool) -> Step<ObjectId> {
        let mut parent = self.parent()?;
        loop {
            let id = self.target(&parent)?;
            if id.kind() == Kind::Symlink && (follow || parent.slash) {
                parent = self.follow(&parent, id)?;
            } else if parent.slash && !id.is_directory() {
                return Err(Errno::NOTDIR.into());
            } else {
                return Ok(id);
            }
        }
    }

    /// Goes on with the target of `link`, which the last component of `parent` names.
    #[cold]
    pub fn follow(&mut self, parent: &Parent, link: ObjectId) -> Step<Parent> {
        let (fs, dir) = (self.fs, &parent.dir.protection);
        // One link too many is told first.
        if self.links < LINKS_MAX && access::guards_links(fs.rules, dir) {
            access::check_follow(fs.rules, &fs.credentials, dir, &fs.protection(link)?)?;
        }
        let dir = self.expand(parent.dir, link, parent.part.end)?;
        self.walk(dir)
    }

    fn path(&self) -> &[u8] {
        if self.links == 0 { self.given } else { &self.expanded }
    }

    #[cold]
    #[inline(never)]
    fn walk_from_root(&mut self) -> Step<Parent> {
        let root = self.fs.directory(self.fs.start())?;
        self.walk(root)
    }

    /// Walks the path that is left from `dir` (or the root, if it begins with a slash).
    fn walk(&mut self, mut dir: Directory) -> Step<Parent> {
        let mut at = 0;
        loop {
            let path = self.path();
            let start = at + leading_slashes(&path[at..]);
            if start == path.len() {
                let part = start..start;
                return Ok(Parent { dir, last: Last::Root, slash: false, part, spelling: Spelling::Plain });
            }
            access::check_search(&self.fs.credentials, &dir.protection)?;
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

    fn end(&mut self, dir: Directory, part: Range<usize>) -> Parent {
        let slash = part.end < self.path().len();
        let (last, spelling) = match &self.path()[part.clone()] {
            b"." => (Last::Dot, Spelling::Plain),
            b".." => (Last::DotDot, Spelling::Plain),
            name if names::is_marked(name) => {
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
        Parent { dir, last, slash, part, spelling }
    }

    /// Replaces the path up to `end` by the target of `link`, an entry of `dir`; the directory to go on from.
    fn expand(&mut self, dir: Directory, link: ObjectId, end: usize) -> Step<Directory> {
        if self.links == LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let mut path = self.fs.read_link(link)?;
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        path.extend_from_slice(&self.path()[end..]);
        self.links += 1;
        self.plain = false;
        self.expanded = path;
        match self.expanded[0] {
            b'/' => self.fs.directory(self.fs.engine.root()),
            _ => Ok(dir),
        }
    }
}

impl<E: Engine> Pxfs<E> {
    /// The directory and the last name of a path whose prefix is remembered, and whose last component is a common name.
    #[inline(always)]
    pub(super) fn entry_quickly<'p>(&self, path: &'p [u8]) -> Option<(Directory, &'p [u8])> {
        let (prefix, start) = split(path).filter(|_| check_path(path).is_ok())?;
        Some((cache::find(&self.scope(), prefix)?, &path[start..]))
    }

    /// The object that a path names whose prefix is remembered, unless it is a symbolic link: all that most calls need.
    #[inline(always)]
    pub(super) fn resolve_quickly(&self, path: &[u8]) -> Step<Option<ObjectId>> {
        let Some((dir, name)) = self.entry_quickly(path) else { return Ok(None) };
        let id = self.engine.lookup(dir.id, name)?.ok_or(Errno::NOENT)?;
        Ok((id.kind() != Kind::Symlink).then_some(id))
    }

    #[inline]
    fn scope(&self) -> Scope {
        Scope {
            instance: self.instance,
            credentials: self.credentials.id(),
            changes: self.engine.directory_changes(),
        }
    }

    /// A directory with its protection.
    pub(super) fn directory(&self, id: ObjectId) -> Step<Directory> {
        Ok(Directory { id, protection: self.protection(id)? })
    }

    #[inline]
    pub(super) fn protection(&self, id: ObjectId) -> Step<Protection> {
        let Owner { mode, uid, gid } = self.engine.owner(id)?;
        Ok(Protection { kind: id.kind(), mode, uid, gid })
    }

    fn parent_of(&self, dir: ObjectId) -> Step<ObjectId> {
        self.engine.parent_of(dir)?.ok_or(eyrie_engine::Error::Stale.into())
    }

    fn lookup_name(&self, dir: ObjectId, name: &[u8]) -> Step<Option<ObjectId>> {
        if names::is_marked(name) {
            return match names::decode(name) {
                Some(key) if key.len() <= NAME_MAX => Ok(self.engine.lookup(dir, &key)?),
                None if name.len() <= names::LONGEST => Ok(None),
                _ => Err(Errno::NAMETOOLONG.into()),
            };
        }
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        Ok(self.engine.lookup(dir, name)?)
    }

    /// The target of a symbolic link.
    pub(super) fn read_link(&self, link: ObjectId) -> Step<Vec<u8>> {
        let size = self.engine.attributes(link)?.size;
        let mut target = vec![0; usize::try_from(size).map_err(|_| Errno::NAMETOOLONG)?.min(PATH_MAX)];
        let count = self.engine.read(link, 0, &mut target)?;
        target.truncate(count);
        Ok(target)
    }
}

fn leading_slashes(path: &[u8]) -> usize {
    path.iter().take_while(|&&byte| byte == b'/').count()
}

/// The prefix of a path and where its last component begins, if that is a common one: a name of legal length that is
/// not escaped, without slashes after it.
#[inline]
fn split(path: &[u8]) -> Option<(&[u8], usize)> {
    let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let name = &path[start..];
    let common = match name {
        b"" | b"." | b".." => false,
        _ => name.len() <= NAME_MAX && !names::is_marked(name),
    };
    common.then_some((&path[..start.saturating_sub(1)], start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_paths_split_before_the_last_name() {
        assert_eq!(split(b"a"), Some((&b""[..], 0)));
        assert_eq!(split(b"/a"), Some((&b""[..], 1)));
        assert_eq!(split(b"/a/b.c"), Some((&b"/a"[..], 3)));
        for other in ["", "/", "a/", "a/.", "..", "a/%kv%%2F"] {
            assert_eq!(split(other.as_bytes()), None, "{other}");
        }
        assert_eq!(split(&[b'a'; 256]), None);
    }
}
