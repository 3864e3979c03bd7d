//! Places: paths of the host, and paths inside volumes.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::copy::under;
use crate::failure::{Failure, Result};
use crate::text;

/// What an argument names. See [`Place::parse`].
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
    /// The volume, a directory of the host.
    pub volume: PathBuf,
    /// The path, beginning with `/`.
    pub path: PathBuf,
}

impl Place {
    /// `VOLUME:/path`, cut at the first `:/`; `VOLUME:` is the root. `a:b` is `b` in the root of `a`, unless a `/` comes
    /// before the colon: `./a:b` is a file of the host. Everything without a colon is the host's.
    pub fn parse(argument: &OsStr) -> Place {
        let bytes = argument.as_bytes();
        let cut = bytes.windows(2).position(|pair| pair == b":/").or_else(|| {
            let colon = bytes.iter().position(|&byte| byte == b':')?;
            let is_name = !bytes[..colon].contains(&b'/') || colon + 1 == bytes.len();
            is_name.then_some(colon)
        });
        match cut {
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

    /// The place inside a volume, where nothing else will do.
    ///
    /// # Errors
    /// Exit status 2 for a path of the host.
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

    /// As [`Place::inside`], but a path of the host is the root of that volume.
    pub fn inside_or_root(self) -> Inside {
        match self {
            Place::Inside(inside) => inside,
            Place::Host(volume) => Inside { volume, path: PathBuf::from("/") },
        }
    }
}

impl Inside {
    /// The place of that name or path under this one; of an empty path it is this one.
    pub fn join(&self, name: impl AsRef<Path>) -> Inside {
        Inside { volume: self.volume.clone(), path: under(&self.path, name.as_ref()) }
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

    fn inside(argument: &str) -> Option<(String, String)> {
        match Place::parse(OsStr::new(argument)) {
            Place::Host(_) => None,
            Place::Inside(inside) => {
                Some((inside.volume.display().to_string(), inside.path.display().to_string()))
            }
        }
    }

    #[test]
    fn a_colon_and_a_slash_cut_volume_and_path() {
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
