//! Runs scripts.

use std::fmt;
use std::path::Path;

use eyrie::{
    AccessTimes, Batch, Engine, Errno, Error, File, Host, KeyValueStore, Kind, Kvfs, OpenOptions,
    PosixClones, PosixExt, PosixProjects, Pxfs, QuotaId, QuotaLimits, Result, SetTime, XattrMode,
};

use super::{Call, KeyChange, Script, ScriptLine, bytes};

/// A file system on which scripts run: the calls of [`Posix`](eyrie::Posix), and the other calls that scripts
/// have.
pub trait ScriptTarget: PosixClones + PosixProjects + Clone {
    /// Makes all earlier changes durable.
    ///
    /// # Errors
    /// The error of the medium, such as `EIO`.
    fn sync(&self) -> Result<()>;

    /// Opens the store in the directory `dir`.
    ///
    /// # Errors
    /// As [`Kvfs::open`].
    fn keys(&self, dir: &Path) -> Result<Box<dyn KeyValueStore + '_>>;

    /// Sets the limits of an account. A volume has quotas from then on.
    ///
    /// # Errors
    /// `EINVAL` for a soft limit above the hard limit, and for the number 0. `EPERM` unless the user is root.
    /// `EOPNOTSUPP` on the host.
    fn set_limits(&self, account: QuotaId, limits: QuotaLimits) -> Result<()>;

    /// Returns the same file system, but every read through it sets an access time. On the host, the options
    /// of the mount decide if a read does so.
    #[must_use]
    fn noting_reads(&self) -> Self;
}

impl<E: Engine> ScriptTarget for Pxfs<E> {
    fn sync(&self) -> Result<()> {
        self.engine().sync().map_err(|error| Error::from_engine(error, "sync"))
    }

    fn keys(&self, dir: &Path) -> Result<Box<dyn KeyValueStore + '_>> {
        Ok(Box::new(Kvfs::open(self, dir)?))
    }

    fn set_limits(&self, account: QuotaId, limits: QuotaLimits) -> Result<()> {
        let mut table = self.quota_table()?.unwrap_or_default();
        table.set(account, limits).map_err(|error| Error::from_engine(error, "set quotas"))?;
        self.set_quota_table(Some(&table))
    }

    fn noting_reads(&self) -> Self {
        self.with_access_times(AccessTimes::Always)
    }
}

/// On the host, a put writes a new file and renames it over the old file, without a sync. So after a crash
/// the value may be lost. In a volume a crash leaves the old value or the new one. On the host, a batch makes
/// its changes one after the other, because the host has no batches.
impl ScriptTarget for Host {
    fn sync(&self) -> Result<()> {
        Host::sync(self)
    }

    fn keys(&self, dir: &Path) -> Result<Box<dyn KeyValueStore + '_>> {
        Ok(Box::new(self.store(dir)?))
    }

    fn set_limits(&self, _account: QuotaId, _limits: QuotaLimits) -> Result<()> {
        Err(Error::new(Errno::OPNOTSUPP, "set quotas"))
    }

    fn noting_reads(&self) -> Self {
        self.clone()
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
            Err(error) => write!(f, "{:?} ({})", error.errno(), error.meaning()),
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
        Call::Tmpfile { dir, path, length, seed, mode } => {
            let file = target.options().write(true).temporary(true).mode(*mode).open(dir)?;
            let content = content(*seed, 0, *length, "write")?;
            all(&content, |rest, done| file.write_at(rest, done))?;
            file.link_at(path)?;
            file.close()
        }
        Call::Mkdir { path, mode } => target.mkdir(path.into(), *mode),
        Call::Write { path, offset, length, seed } => write(target, path.as_ref(), *offset, *length, *seed),
        Call::Append { path, length, seed } => append(target, path.as_ref(), *length, *seed),
        Call::Read { path } => read(target, path.as_ref()),
        Call::Fsync { path } => with_file(target.options().read(true), path.as_ref(), File::sync_all),
        Call::Fdatasync { path } => with_file(target.options().read(true), path.as_ref(), File::sync_data),
        Call::Sync => target.sync(),
        Call::Rename { from, to, mode } => target.rename_with(from.into(), to.into(), *mode),
        Call::Link { from, to } => target.hard_link(from, to),
        Call::Symlink { target: text, path } => target.symlink(text.as_ref(), path.into()),
        Call::Unlink { path } => target.unlink(path.into()),
        Call::Rmdir { path } => target.rmdir(path.into()),
        Call::Truncate { path, length } => target.truncate(path.into(), *length),
        Call::Fallocate { path, mode, offset, length } => {
            with_file(target.options().write(true), path.as_ref(), |file| {
                file.fallocate(*mode, *offset, *length)
            })
        }
        Call::Clone { from, from_offset, to, to_offset, length } => {
            with_file(target.options().read(true), from.as_ref(), |source| {
                with_file(target.options().write(true), to.as_ref(), |file| {
                    file.clone_range((source, *from_offset), *to_offset, *length)
                })
            })
        }
        Call::Setxattr { path, name, value } => target.setxattr(path.into(), name, value, XattrMode::Set),
        Call::Removexattr { path, name } => target.removexattr(path.into(), name),
        Call::Chmod { path, mode } => target.chmod(path.into(), *mode),
        Call::Chown { path, uid, gid } => target.chown(path.into(), *uid, *gid),
        Call::Chattr { path, flags } => {
            with_file(target.options().read(true), path.as_ref(), |file| file.set_inode_flags(*flags))
        }
        Call::Project { path, project } => target.set_project(path.into(), *project),
        Call::Quota { account, limits } => target.set_limits(*account, *limits),
        Call::Utimes { path, accessed, modified } => {
            target.utimens(path.into(), SetTime::To(*accessed), SetTime::To(*modified))
        }
        Call::Put { dir, key, length, seed } => {
            target.keys(dir.as_ref())?.put(key, &content(*seed, 0, *length, "put")?)
        }
        Call::Erase { dir, key } => match target.keys(dir.as_ref())?.erase(key)? {
            true => Ok(()),
            false => Err(Error::new(Errno::NOENT, "erase")),
        },
        Call::Batch { dir, changes } => {
            let mut batch = Batch::new();
            for change in changes {
                match change {
                    KeyChange::Put { key, length, seed } => {
                        batch.put(&key[..], content(*seed, 0, *length, "put")?)
                    }
                    KeyChange::Erase { key } => batch.erase(&key[..]),
                };
            }
            target.keys(dir.as_ref())?.commit(&batch)
        }
    }
}

/// Opens a file, calls `work` with the open file, and closes it.
fn with_file<T: ScriptTarget>(
    options: OpenOptions<T>,
    path: &Path,
    work: impl FnOnce(&File<T>) -> Result<()>,
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

/// Reads the target of a symbolic link, the entries of a directory, or the first byte of a file. Sets the
/// access time of this object only, and not those of symbolic links on the way. So the call makes at most one
/// Op.
fn read<T: ScriptTarget>(target: &T, path: &Path) -> Result<()> {
    let (noting, opening) = (target.noting_reads(), target.options().read(true));
    match (target.symlink_metadata(path)?.kind, path.parent(), path.file_name()) {
        (Kind::Symlink, Some(parent), Some(name)) => with_file(opening, parent, |dir| {
            noting.readlink((dir.handle(), Path::new(name)).into()).map(drop)
        }),
        (Kind::Directory, ..) => with_file(opening, path, |dir| noting.list(dir.handle(), 0, &mut |_| true)),
        _ => with_file(opening, path, |file| noting.read_at(file.handle(), &mut [0], 0).map(drop)),
    }
}

fn write<T: ScriptTarget>(target: &T, path: &Path, offset: u64, length: u64, seed: u64) -> Result<()> {
    with_file(target.options().write(true), path, |file| {
        let content = content(seed, offset, length, "write")?;
        all(&content, |rest, done| file.write_at(rest, offset.saturating_add(done)))
    })
}

fn append<T: ScriptTarget>(target: &T, path: &Path, length: u64, seed: u64) -> Result<()> {
    with_file(target.options().append(true), path, |file| {
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
