//! Compares the volume with the source: files, and keys with their values.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie::{Host, NAME_MAX, Posix, PosixExt, Stat, Store, Target, VALUE_MAX};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::survey::{Survey, SurveyEntry};
use crate::copy::{bar, comparable_xattrs};
use crate::failure::{Doing, Failure, Result};
use crate::place::join;
use crate::{interrupt, text};

/// Maximum number of bytes that one read takes into the buffer. Larger files need several reads.
const CHUNK_BYTES: usize = 1 << 20;
/// Maximum number of differences that the message shows.
const SHOWN: usize = 5;

/// The result of a comparison.
#[derive(Default)]
pub struct Verified {
    /// Number of equal entries or values.
    pub count: u64,
    /// Bytes of the equal regular files or values.
    pub bytes: u64,
    /// The differences, one line for each.
    differences: Vec<String>,
}

impl Verified {
    /// Fails if an entry or a value differs.
    ///
    /// # Errors
    /// The message has the first few differences.
    pub fn require_equal(&self) -> Result<()> {
        if self.differences.is_empty() {
            return Ok(());
        }
        let shown: Vec<&str> = self.differences.iter().take(SHOWN).map(String::as_str).collect();
        let found = text::counted(self.differences.len() as u64, "difference", "differences");
        Err(Failure::new("the copy is not equal to its source", found, shown.join("; ")))
    }
}

/// Reads all entries of the copy and compares them with the source: kind, mode, size, modification time,
/// device, `user` and `trusted` attributes, ACLs, targets of links, names in directories, and checksums of
/// the bytes. Owners are compared only if this user is root.
pub fn files<P: Posix + Clone>(
    survey: &Survey,
    (host, root): (&Host, &Path),
    (volume, copy): (&P, &Path),
) -> Result<Verified> {
    let owners = rustix::process::geteuid().is_root();
    let bar = bar("verify", survey.len());
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut verified = Verified::default();
    for entry in &survey.entries {
        interrupt::check("tour")?;
        bar.inc(1);
        let (from, to) = (join(root, &entry.relative), join(copy, &entry.relative));
        let mut differ = |what: String| verified.differences.push(format!("{}: {what}", text::path(&from)));
        let stat = match volume.stat(Target::NoFollow((&to).into())) {
            Ok(stat) => stat,
            Err(error) => {
                differ(error.to_string());
                continue;
            }
        };
        if let Some(what) = attribute_that_differs(&entry.stat, &stat, owners) {
            differ(format!("its {what}"));
            continue;
        }
        if !same_xattrs((host, &from), (volume, &to)).doing("read", text::path(&from))? {
            differ("its extended attributes".to_owned());
            continue;
        }
        if !same_content(entry, (host, &from), (volume, &to), &mut buffer)? {
            differ("its contents".to_owned());
            continue;
        }
        verified.count += 1;
        if entry.stat.is_file() {
            verified.bytes += entry.stat.size;
        }
    }
    bar.finish_and_clear();
    Ok(verified)
}

fn attribute_that_differs(want: &Stat, have: &Stat, owners: bool) -> Option<&'static str> {
    let sized = want.is_file() || want.is_symlink();
    [
        ("kind", want.kind == have.kind),
        // Linux ignores the mode of a symbolic link, and no call can set this mode.
        ("mode", want.mode == have.mode || want.is_symlink()),
        ("owner", !owners || (want.uid, want.gid) == (have.uid, have.gid)),
        ("size", !sized || want.size == have.size),
        ("modification time", want.modified == have.modified),
        ("device", want.device == have.device),
    ]
    .into_iter()
    .find_map(|(what, equal)| (!equal).then_some(what))
}

/// Returns true if source and target have the same `user` and `trusted` attributes and the same ACLs.
/// Attributes of the target that cannot be read are a difference.
fn same_xattrs<S: Posix + Clone, D: Posix + Clone>(
    (source, from): (&S, &Path),
    (target, to): (&D, &Path),
) -> eyrie::Result<bool> {
    let wanted = comparable_xattrs(source, from)?;
    Ok(comparable_xattrs(target, to).is_ok_and(|found| found == wanted))
}

fn same_content<S: Posix + Clone, D: Posix + Clone>(
    entry: &SurveyEntry,
    (source, from): (&S, &Path),
    (target, to): (&D, &Path),
    buffer: &mut [u8],
) -> Result<bool> {
    let shown = text::path(from);
    match entry.stat.kind {
        eyrie::Kind::File => {
            let left = checksum(source, from, buffer).doing("read", &shown)?;
            Ok(left == checksum(target, to, buffer).doing("read the copy of", &shown)?)
        }
        eyrie::Kind::Directory => {
            let left = names(source, from).doing("list", &shown)?;
            Ok(left == names(target, to).doing("list the copy of", &shown)?)
        }
        eyrie::Kind::Symlink => {
            let left = source.readlink(from.into()).doing("read", &shown)?;
            Ok(left == target.readlink(to.into()).doing("read the copy of", &shown)?)
        }
        _ => Ok(true),
    }
}

fn checksum<P: Posix + Clone>(fs: &P, path: &Path, buffer: &mut [u8]) -> eyrie::Result<u64> {
    let file = fs.open_file(path)?;
    let mut hash = Xxh3Default::new();
    let mut offset = 0;
    loop {
        let count = file.read_at(buffer, offset)?;
        if count == 0 {
            return Ok(hash.digest());
        }
        hash.update(&buffer[..count]);
        offset += count as u64;
    }
}

fn names<P: Posix + Clone>(fs: &P, path: &Path) -> eyrie::Result<Vec<OsString>> {
    let entries = fs.read_dir(path)?;
    let mut names: Vec<OsString> =
        entries.map(|entry| Ok(entry?.name().to_owned())).collect::<eyrie::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Returns the key of a file: its path, or for a long path the first bytes and a checksum.
fn key(relative: &Path) -> Vec<u8> {
    let bytes = relative.as_os_str().as_bytes();
    if bytes.len() <= NAME_MAX {
        return bytes.to_vec();
    }
    let tail = format!("~{:016x}", xxh3_64(bytes));
    [&bytes[..NAME_MAX - tail.len()], tail.as_bytes()].concat()
}

/// Puts the bytes of each regular file as a value, except files that are too large for a value. Then gets all
/// values and compares their checksums.
pub fn keys(survey: &Survey, (host, root): (&Host, &Path), store: &Store) -> Result<Verified> {
    let files: Vec<&SurveyEntry> = survey
        .entries
        .iter()
        .filter(|entry| entry.stat.is_file() && entry.stat.size <= VALUE_MAX as u64)
        .collect();
    let bar = bar("keys", 2 * files.len() as u64);
    let mut sums = Vec::with_capacity(files.len());
    for entry in &files {
        interrupt::check("tour")?;
        let path = join(root, &entry.relative);
        let value = host.read(&path).doing("read", text::path(&path))?;
        store.put(key(&entry.relative), &value).doing("put", text::path(&entry.relative))?;
        sums.push(xxh3_64(&value));
        bar.inc(1);
    }
    let mut verified = Verified::default();
    let mut value = Vec::new();
    for (entry, sum) in files.iter().zip(sums) {
        interrupt::check("tour")?;
        let shown = text::path(&entry.relative);
        let found = store.get_into(key(&entry.relative), &mut value).doing("get", &shown)?;
        if found && xxh3_64(&value) == sum {
            verified.count += 1;
            verified.bytes += value.len() as u64;
        } else {
            verified.differences.push(format!("the value of {shown}"));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(verified)
}

#[cfg(test)]
mod tests {
    use eyrie::{Credentials, Volume, XattrMode};

    use super::*;

    #[test]
    fn missing_and_further_attributes_are_differences() {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let volume = Volume::create(dir.path().join("vol"), 64 << 20).unwrap();
        let files = volume.files(Credentials::of_process());
        let [left, right] = ["/left", "/right"].map(Path::new);
        let same = |from, to| same_xattrs((&files, from), (&files, to)).unwrap();
        files.write(left, "").unwrap();
        files.write(right, "").unwrap();
        assert!(same(left, right));
        files.setxattr(left.into(), b"user.x", b"value", XattrMode::Set).unwrap();
        assert!(!same(left, right) && !same(right, left));
        files.setxattr(right.into(), b"user.x", b"value", XattrMode::Set).unwrap();
        assert!(same(left, right));
    }

    #[test]
    fn keys_are_paths_or_shortened_ones() {
        assert_eq!(key(Path::new("a/b")), b"a/b");
        let long = |last: &str| key(Path::new(&("x/".repeat(200) + last)));
        assert_eq!(long("a").len(), NAME_MAX);
        assert_ne!(long("a"), long("b"));
    }
}
