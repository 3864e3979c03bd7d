//! Runs scripts.

use std::fmt;
use std::path::Path;

use eyrie::{Engine, Errno, Error, File, Host, Kvfs, OpenOptions, Posix, PosixExt, Pxfs};
use eyrie::{Result, SetTime, XattrMode};

use super::{Call, KeyChange, Script, ScriptLine, bytes, errno};

/// Keys with their new values. A key without a value is removed.
type KeyChanges = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A file system on which scripts run: the calls of [`Posix`], and the other calls that scripts have.
pub trait ScriptTarget: Posix {
    /// Makes all earlier changes durable.
    ///
    /// # Errors
    /// The error of the medium, such as `EIO`.
    fn sync(&self) -> Result<()>;

    /// Sets the value of `key` in the store `dir`. A reader sees either the old value or the new one.
    ///
    /// # Errors
    /// As [`Kvfs::open`] and [`Kvfs::put`].
    fn put(&self, dir: &Path, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes `key` from the store `dir`. Returns true if the key existed.
    ///
    /// # Errors
    /// As [`Kvfs::open`] and [`Kvfs::erase`].
    fn erase(&self, dir: &Path, key: &[u8]) -> Result<bool>;

    /// Makes several changes of the store `dir`. A key without a value is removed. In a volume a crash leaves
    /// all changes or none.
    ///
    /// # Errors
    /// As [`Kvfs::open`] and [`Batch::commit`](eyrie::Batch::commit).
    fn batch(&self, dir: &Path, changes: KeyChanges) -> Result<()>;
}

impl<E: Engine> ScriptTarget for Pxfs<E> {
    fn sync(&self) -> Result<()> {
        self.engine().sync().map_err(|error| Error::from_engine(error, "sync"))
    }

    fn put(&self, dir: &Path, key: &[u8], value: &[u8]) -> Result<()> {
        Kvfs::open(self, dir)?.put(key, value).map(drop)
    }

    fn erase(&self, dir: &Path, key: &[u8]) -> Result<bool> {
        Kvfs::open(self, dir)?.erase(key)
    }

    fn batch(&self, dir: &Path, changes: KeyChanges) -> Result<()> {
        let store = Kvfs::open(self, dir)?;
        let mut batch = store.batch();
        for (key, value) in changes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.erase(key),
            };
        }
        batch.commit()
    }
}

/// On the host, a put writes a new file and renames it over the old file, without a sync. So after a crash
/// the value may be lost. In a volume a crash leaves the old value or the new one.
impl ScriptTarget for Host {
    fn sync(&self) -> Result<()> {
        Host::sync(self)
    }

    fn put(&self, dir: &Path, key: &[u8], value: &[u8]) -> Result<()> {
        self.store(dir)?.put(key, value)
    }

    fn erase(&self, dir: &Path, key: &[u8]) -> Result<bool> {
        self.store(dir)?.erase(key)
    }

    /// Makes the changes one after the other, because the host has no batches.
    fn batch(&self, dir: &Path, changes: KeyChanges) -> Result<()> {
        let store = self.store(dir)?;
        changes.into_iter().try_for_each(|(key, value)| match value {
            Some(value) => store.put(&key, &value),
            None => store.erase(&key).map(drop),
        })
    }
}

/// A call that was made.
#[derive(Debug)]
pub struct CallOutcome<'a> {
    /// The line of the call.
    pub line: &'a ScriptLine,
    /// Result of the call.
    pub result: Result<()>,
}

/// Line number and call, with the result in a form similar to that of strace(1).
impl fmt::Display for CallOutcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScriptLine { number, call } = self.line;
        write!(f, "{number} {call} = ")?;
        match &self.result {
            Ok(()) => f.write_str("0"),
            Err(error) => write!(f, "{} ({})", errno::name(error.errno()), error.meaning()),
        }
    }
}

impl Script {
    /// Returns an iterator that makes each call when the caller takes its result. A failed call does not stop
    /// the script. A caller stops the script by taking no further result.
    pub fn run<'a, T: ScriptTarget>(&'a self, target: &'a T) -> impl Iterator<Item = CallOutcome<'a>> {
        self.lines().iter().map(|line| CallOutcome { line, result: perform(target, &line.call) })
    }
}

/// Makes one call.
///
/// # Errors
/// The error of the call on `target`.
pub fn perform<T: ScriptTarget>(target: &T, call: &Call) -> Result<()> {
    match call {
        Call::Creat { path, mode } => {
            let options = target.options().write(true).create(true).truncate(true);
            options.mode(*mode).open(path)?.close()
        }
        Call::Mkdir { path, mode } => target.mkdir(path, *mode),
        Call::Write { path, offset, length, seed } => write(target, path.as_ref(), *offset, *length, *seed),
        Call::Append { path, length, seed } => append(target, path.as_ref(), *length, *seed),
        // The library has no separate `fdatasync`, so both calls run `fsync`.
        Call::Fsync { path } | Call::Fdatasync { path } => {
            with_file(target.options().read(true), path.as_ref(), File::sync_all)
        }
        Call::Sync => target.sync(),
        Call::Rename { from, to, mode } => target.rename(from, to, *mode),
        Call::Link { from, to } => target.link(from, to),
        Call::Symlink { target: text, path } => target.symlink(text, path),
        Call::Unlink { path } => target.unlink(path),
        Call::Rmdir { path } => target.rmdir(path),
        Call::Truncate { path, length } => target.truncate(path, *length),
        Call::Fallocate { path, mode, offset, length } => {
            with_file(target.options().write(true), path.as_ref(), |file| {
                file.fallocate(*mode, *offset, *length)
            })
        }
        Call::Setxattr { path, name, value } => target.setxattr(path, name, value, XattrMode::Set),
        Call::Removexattr { path, name } => target.removexattr(path, name),
        Call::Chmod { path, mode } => target.chmod(path, *mode),
        Call::Chown { path, uid, gid } => target.chown(path, *uid, *gid),
        Call::Utimes { path, accessed, modified } => {
            target.utimens(path, SetTime::To(*accessed), SetTime::To(*modified))
        }
        Call::Put { dir, key, length, seed } => {
            target.put(dir.as_ref(), key, &content(*seed, 0, *length, "put")?)
        }
        Call::Erase { dir, key } => match target.erase(dir.as_ref(), key)? {
            true => Ok(()),
            false => Err(Error::new(Errno::NOENT, "erase")),
        },
        Call::Batch { dir, changes } => {
            let change = |change: &KeyChange| match change {
                KeyChange::Put { key, length, seed } => {
                    Ok((key.clone(), Some(content(*seed, 0, *length, "put")?)))
                }
                KeyChange::Erase { key } => Ok((key.clone(), None)),
            };
            target.batch(dir.as_ref(), changes.iter().map(change).collect::<Result<_>>()?)
        }
    }
}

/// Opens a file, calls `work` with the open file, and closes it.
fn with_file<'a, T: ScriptTarget>(
    options: OpenOptions<'a, T>,
    path: &Path,
    work: impl FnOnce(&File<'a, T>) -> Result<()>,
) -> Result<()> {
    let file = options.open(path)?;
    work(&file)?;
    file.close()
}

/// Returns the bytes that a call writes at `offset`.
fn content(seed: u64, offset: u64, length: u64, call: &'static str) -> Result<Vec<u8>> {
    let no_memory = || Error::new(Errno::NOMEM, call);
    let length = usize::try_from(length).map_err(|_| no_memory())?;
    let mut content = Vec::new();
    content.try_reserve_exact(length).map_err(|_| no_memory())?;
    content.resize(length, 0);
    bytes::fill(seed, offset, &mut content);
    Ok(content)
}

fn write<T: ScriptTarget>(target: &T, path: &Path, offset: u64, length: u64, seed: u64) -> Result<()> {
    with_file(target.options().write(true), path, |file| {
        let content = content(seed, offset, length, "write")?;
        all(&content, |rest, done| file.write_at(rest, offset.saturating_add(done)))
    })
}

fn append<T: ScriptTarget>(target: &T, path: &Path, length: u64, seed: u64) -> Result<()> {
    with_file(target.options().write(true), path, |file| {
        // The bytes depend on their offset, so no other thread may move the end of the file before the
        // append.
        let content = content(seed, file.metadata()?.size, length, "write")?;
        all(&content, |rest, _| file.append(rest))
    })
}

/// Writes all of `content`, with several calls if a call writes only a part. If the file reaches its maximum
/// size, the last of these calls fails with the reason. Empty content makes one call.
fn all(content: &[u8], mut write: impl FnMut(&[u8], u64) -> Result<usize>) -> Result<()> {
    let mut done = 0;
    loop {
        match write(&content[done..], done as u64)? {
            0 if done < content.len() => return Err(Error::new(Errno::IO, "write")),
            count => done += count,
        }
        if done == content.len() {
            return Ok(());
        }
    }
}
