//! Places: paths of the host, and paths inside volumes.

use std::ffi::OsStr;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use eyrie::Target;
use eyrie_client::SOCKET_NAME;

use crate::failure::{Failure, Result};
use crate::text;

/// The file with the bytes of a volume, in the directory of the volume.
const SEGMENT: &str = "segment-0000";

/// The part of a help text that explains the syntax of places.
pub const HELP: &str = "\
Places:
  VOLUME:/path  a path in the volume VOLUME; the first ':/' ends VOLUME; VOLUME: is the root
  path          a path of the host; write ./a:b for a name with a colon";

/// The meaning of a path argument: see [`Place::parse`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A path of the host.
    Host(PathBuf),
    /// A path inside a volume.
    Inside(Inside),
}

/// A path inside a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inside {
    /// The volume: a directory or a block device of the host.
    pub volume: PathBuf,
    /// The path in the volume. It begins with `/`.
    pub path: PathBuf,
}

/// Returns `base/relative`, or `base` itself if `relative` is empty. `Path::join` would then add a slash.
pub fn join(base: &Path, relative: &Path) -> PathBuf {
    if relative.as_os_str().is_empty() { base.to_owned() } else { base.join(relative) }
}

/// Returns the absolute path of a file that exists, without symbolic links. Two paths of one volume give the
/// same absolute path, which is valid in every working directory. A path that cannot be resolved stays
/// unchanged.
pub fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns the real path of the storage of the volume at `path`: its directory or its device. Two paths of
/// one volume give the same storage, and the path of the socket in the directory of the volume gives this
/// directory. A socket elsewhere does not tell the storage, and gives its own path.
pub fn storage(path: &Path) -> PathBuf {
    let real = real(path);
    let is_socket = real.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    match real.parent() {
        Some(directory) if is_socket && real.ends_with(SOCKET_NAME) && directory.join(SEGMENT).exists() => {
            directory.to_owned()
        }
        _ => real,
    }
}

/// Returns the target of a call on `path`. With `follow`, the call follows a symbolic link at `path`.
pub fn target<H>(path: &Path, follow: bool) -> Target<'_, H> {
    if follow { path.into() } else { Target::NoFollow(path.into()) }
}

/// Returns the places of a command whose arguments are all inside volumes. Fails before the command changes
/// anything.
///
/// # Errors
/// Fails with exit status 2 for a path of the host.
pub fn all_inside(places: &[Place]) -> Result<Vec<Inside>> {
    places.iter().cloned().map(Place::inside).collect()
}

/// Returns a temporary name in the directory of `path`. Each call returns a different name. A file is made
/// under this name and then renamed, so that a failure leaves the file at `path` unchanged.
///
/// The id of the process alone would not be enough. Processes of two containers may have the same id. A
/// process that was killed before it could remove its file may also have had this id.
pub fn temporary_name(path: &Path) -> PathBuf {
    // Each new `RandomState` has different random keys.
    let random = RandomState::new().hash_one(std::process::id());
    path.with_file_name(format!(".eyrie-{random:016x}"))
}

impl Place {
    /// Returns a parser of places. The bytes of an argument need not be UTF-8.
    pub fn parser() -> impl TypedValueParser<Value = Place> {
        OsStringValueParser::new().map(|argument| Place::parse(&argument))
    }

    /// Parses `VOLUME:/path`, in which the first `:/` separates volume and path. An argument without `:/` is
    /// a place in a volume in two cases. If its first colon is its last byte, as in `VOLUME:`, the place is
    /// the root of the volume. If no `/` comes before its first colon, as in `a:b`, the place is the entry
    /// `b` in the root of the volume `a`. Any other argument, such as `./a:b`, is a path of the host. An
    /// argument with no bytes before the separating colon, such as `:/x`, is also a path of the host.
    pub fn parse(argument: &OsStr) -> Place {
        let bytes = argument.as_bytes();
        let separator = bytes.windows(2).position(|pair| pair == b":/").or_else(|| {
            let colon = bytes.iter().position(|&byte| byte == b':')?;
            let separates = !bytes[..colon].contains(&b'/') || colon + 1 == bytes.len();
            separates.then_some(colon)
        });
        match separator {
            Some(colon) if colon > 0 => {
                let mut path = vec![b'/'];
                path.extend_from_slice(bytes[colon + 1..].strip_prefix(b"/").unwrap_or(&bytes[colon + 1..]));
                Place::Inside(Inside {
                    volume: PathBuf::from(OsStr::from_bytes(&bytes[..colon])),
                    path: PathBuf::from(OsStr::from_bytes(&path)),
                })
            }
            _ => Place::Host(PathBuf::from(argument)),
        }
    }

    /// Returns the volume of the place, if the place is in a volume.
    pub fn volume(&self) -> Option<&Path> {
        match self {
            Place::Host(_) => None,
            Place::Inside(inside) => Some(&inside.volume),
        }
    }

    /// Returns the place of a name or a path under this place. An empty path gives this place.
    pub fn join(&self, name: impl AsRef<Path>) -> Place {
        match self {
            Place::Host(path) => Place::Host(join(path, name.as_ref())),
            Place::Inside(inside) => Place::Inside(inside.join(name)),
        }
    }

    /// Returns a place inside a volume. Commands that do not accept paths of the host use this method.
    ///
    /// # Errors
    /// Fails with exit status 2 for a path of the host.
    pub fn inside(self) -> Result<Inside> {
        match self {
            Place::Inside(inside) => Ok(inside),
            Place::Host(path) => Err(Failure::usage(
                "not a place in a volume",
                text::path(&path),
                format_args!("write VOLUME:/path, such as {}:/", text::path(&path)),
            )),
        }
    }

    /// Works like [`Place::inside`], but takes a path of the host as the root of the volume at that path.
    pub fn inside_or_root(self) -> Inside {
        match self {
            Place::Inside(inside) => inside,
            Place::Host(volume) => Inside { volume, path: PathBuf::from("/") },
        }
    }
}

impl Inside {
    /// Returns the place of a name or a path under this place. An empty path gives this place.
    pub fn join(&self, name: impl AsRef<Path>) -> Inside {
        Inside { volume: self.volume.clone(), path: join(&self.path, name.as_ref()) }
    }

    /// Returns `VOLUME:/path` with the bytes of its names, which a message has yet to escape.
    pub fn to_path(&self) -> PathBuf {
        let mut place = self.volume.clone().into_os_string();
        place.push(":");
        place.push(&self.path);
        PathBuf::from(place)
    }

    /// Makes this place the place of `name` under `base`, which is in the same volume. Allocates nothing
    /// unless the path becomes longer than all earlier paths of this place.
    pub fn move_to(&mut self, base: &Inside, name: &Path) {
        self.path.as_mut_os_string().clear();
        self.path.push(&base.path);
        if !name.as_os_str().is_empty() {
            self.path.push(name);
        }
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", text::path(&self.volume), text::path(&self.path))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host(path) => f.write_str(&text::path(path)),
            Place::Inside(inside) => inside.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_different() {
        let [one, two] = [temporary_name(Path::new("/nest/egg")), temporary_name(Path::new("/nest/egg"))];
        assert!(one != two && one.parent() == Some(Path::new("/nest")), "{one:?}, {two:?}");
    }

    fn inside(argument: &str) -> Option<(String, String)> {
        match Place::parse(OsStr::new(argument)) {
            Place::Host(_) => None,
            Place::Inside(inside) => {
                Some((inside.volume.display().to_string(), inside.path.display().to_string()))
            }
        }
    }

    #[test]
    fn moved_place_is_the_joined_place() {
        let base = |path: &str| Inside { volume: "vol".into(), path: path.into() };
        let mut place = base("/other");
        for (path, name) in [("/", ""), ("/", "a"), ("/a/b", "c/d"), ("/a", ""), ("/a/", "b")] {
            place.move_to(&base(path), Path::new(name));
            assert_eq!(place, base(path).join(name), "{path} {name}");
            assert_eq!(place.path.as_os_str(), base(path).join(name).path.as_os_str());
        }
    }

    #[test]
    fn colon_and_slash_separate_volume_and_path() {
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(inside("vol:/a/b"), pair("vol", "/a/b"));
        assert_eq!(inside("/dev/shm/vol:/a:b"), pair("/dev/shm/vol", "/a:b"));
        assert_eq!(inside("./vol:"), pair("./vol", "/"));
        assert_eq!(inside("vol:a"), pair("vol", "/a"));
        assert_eq!(inside("./a:b"), None);
        assert_eq!(inside("/x/a:b"), None);
        assert_eq!(inside("plain"), None);
        assert_eq!(inside(":/x"), None);
    }
}
