//! Mounting and unmounting.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use eyrie::{AccessTimes, Volume, VolumeNodes};
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::mount::UnmountFlags;

use crate::adapter::{Adapter, SessionParts};
use crate::invalidate::{self, KernelCache};
use crate::locks::FileLocks;
use crate::place::{MountPlace, is_connected};
use crate::turns::Turns;
use crate::{MountError, MountOptions, Result};

const DEVICE: &str = "/dev/fuse";

/// A mounted volume. It is unmounted by [`Mount::unmount`], by umount(8), or when this value is dropped.
///
/// ```no_run
/// # use eyrie_fuse::*; fn f(volume: &eyrie::Volume) -> Result<()> {
/// let mut mount = mount(volume, "/mnt/nest", &MountOptions::default())?;
/// println!("mounted at {}", mount.path().display());
/// mount.unmount()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Mount {
    /// `None` after the end of the session.
    session: Option<BackgroundSession>,
    /// The threads that pass notices on, and that repeat requests for locks.
    helpers: Vec<JoinHandle<()>>,
    locks: Option<Arc<FileLocks>>,
    nodes: Arc<VolumeNodes>,
    place: MountPlace,
    /// The device of the session.
    device: Arc<OwnedFd>,
}

/// Mounts a volume at a directory, and serves it in threads of this process. The mount can be used when the
/// call returns.
///
/// ```no_run
/// # use eyrie_fuse::*; fn f(volume: &eyrie::Volume) -> Result<()> {
/// let options = "allow_other,noexec".parse()?;
/// mount(volume, "/mnt/nest", &options)?.wait()?; // serves the volume until somebody unmounts it
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`MountError`]. After an error nothing is mounted.
pub fn mount(volume: &Volume, directory: impl AsRef<Path>, options: &MountOptions) -> Result<Mount> {
    let given = directory.as_ref();
    let unusable = |source| MountError::MountPoint { path: given.to_owned(), source };
    let path = given.canonicalize().map_err(unusable)?;
    check_mount_point(&path).map_err(unusable)?;
    if is_mount_point(&path).map_err(unusable)? {
        return Err(MountError::Busy { path });
    }
    check_fuse(&path)?;
    let access_times = access_times(options);
    let nodes = volume.nodes().with_access_times(access_times).with_short_writes(options.short_writes);
    let nodes = Arc::new(nodes.watching(invalidate::NOTICES));
    let parts = Arc::new(OnceLock::new());
    let volume_locks = options.volume_locks.unwrap_or_else(|| volume.is_served());
    let locks = volume_locks.then(|| Arc::new(FileLocks::new(Arc::clone(&nodes))));
    let (for_nodes, for_locks) = (Arc::clone(&nodes), locks.clone());
    let adapter = Adapter::new(for_nodes, options, kernel_checks(options), for_locks, Arc::clone(&parts));
    let config = config(volume, options, nodes.is_read_only());
    let (session, kernel) = fuser::Session::new(adapter, &path, &config)
        .and_then(|session| {
            let turns = turns(volume, &session)?;
            parts.get_or_init(|| SessionParts { kernel: session.notifier(), turns });
            let device = Arc::new(session.as_fd().try_clone_to_owned()?);
            let kernel = KernelCache { notifier: session.notifier(), device };
            Ok((session.spawn()?, kernel))
        })
        .map_err(|error| MountError::refused("mount", &path, error))?;
    let (place, device) = (MountPlace::new(path), Arc::clone(&kernel.device));
    let mut mount = Mount { session: Some(session), helpers: Vec::new(), locks, nodes, place, device };
    // After an error, the drop of `mount` undoes the mount.
    mount.wait_until_served()?;
    mount.start_helpers(kernel).map_err(|error| MountError::refused("mount", given, error))?;
    Ok(mount)
}

/// Unmounts the file system at a directory, whichever process serves it. With `lazily`, also unmounts a file
/// system in use: it disappears from the tree now, and ends with its last user.
///
/// ```no_run
/// # fn f() -> eyrie_fuse::Result<()> {
/// eyrie_fuse::unmount("/mnt/nest", false) // fails if the file system is in use
/// # }
/// ```
///
/// # Errors
/// [`MountError::Refused`], for example with `EBUSY` if the file system is in use, or with `EINVAL` if
/// nothing is mounted there. For users other than root, this error has the message of `fusermount3`.
/// [`MountError::NoHelper`] if the host has no `fusermount3` for these users.
pub fn unmount(directory: impl AsRef<Path>, lazily: bool) -> Result<()> {
    let given = directory.as_ref();
    let refused = |error: io::Error| MountError::refused("unmount", given, error);
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(given, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        // Users other than root unmount through the helper.
        Err(rustix::io::Errno::PERM) => {
            let mut helper = Command::new("fusermount3");
            helper.arg("-u").args(lazily.then_some("-z")).arg("--").arg(given);
            let output = helper.output().map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => MountError::NoHelper { action: "unmount", path: given.to_owned() },
                _ => refused(error),
            })?;
            let text = String::from_utf8_lossy(&output.stderr);
            if output.status.success() { Ok(()) } else { Err(refused(io::Error::other(text.trim()))) }
        }
        Err(error) => Err(refused(error.into())),
    }
}

fn check_mount_point(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() { Ok(()) } else { Err(rustix::io::Errno::NOTDIR.into()) }
}

/// True if another file system is mounted at this real path.
fn is_mount_point(path: &Path) -> io::Result<bool> {
    let Some(parent) = path.parent() else { return Ok(true) };
    Ok(std::fs::metadata(path)?.dev() != std::fs::metadata(parent)?.dev())
}

/// Checks that the kernel has FUSE, and that this user may mount.
fn check_fuse(path: &Path) -> Result<()> {
    let path = path.to_owned();
    let device = std::fs::OpenOptions::new().read(true).write(true).open(DEVICE);
    if rustix::process::geteuid().is_root() {
        return device.map(drop).map_err(|source| MountError::NoFuse { path, source });
    }
    // For other users, the helper `fusermount3` opens the device.
    match Command::new("fusermount3").arg("--version").output() {
        Ok(_) if !Path::new(DEVICE).exists() => {
            Err(MountError::NoFuse { path, source: rustix::io::Errno::NOENT.into() })
        }
        Ok(_) => Ok(()),
        Err(_) => Err(MountError::NoHelper { action: "mount", path }),
    }
}

/// Returns the turns of the threads. Returns `None` if requests wait for a disk, because the threads that
/// wait then need others to read requests. Also returns `None` if the host has one processor, because a
/// thread that spins would keep this processor from the program that makes the calls.
fn turns(volume: &Volume, session: &fuser::Session<Adapter>) -> io::Result<Option<Arc<Turns>>> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if processors == 1 || volume.stats().disk.is_some() {
        return Ok(None);
    }
    Ok(Some(Arc::new(Turns::new(session.as_fd().try_clone_to_owned()?))))
}

fn config(volume: &Volume, options: &MountOptions, is_read_only: bool) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source(volume, options)),
        // `MountOption::Subtype` reaches only the helper, and this option reaches the kernel, too.
        MountOption::CUSTOM("subtype=eyrie".to_owned()),
        // The kernel only shows this option, and leaves access times to the file system.
        if access_times(options) == AccessTimes::Never { MountOption::NoAtime } else { MountOption::Atime },
        if options.read_only || is_read_only { MountOption::RO } else { MountOption::RW },
        if options.suid { MountOption::Suid } else { MountOption::NoSuid },
        if options.dev { MountOption::Dev } else { MountOption::NoDev },
        if options.no_exec { MountOption::NoExec } else { MountOption::Exec },
        if options.sync { MountOption::Sync } else { MountOption::Async },
    ];
    if kernel_checks(options) {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    config.n_threads = Some(options.threads.unwrap_or(processors.clamp(2, 8)));
    config.clone_fd = true;
    config
}

/// True if the kernel checks permissions. The kernel then asks for the attributes of a directory after each
/// change of the directory, and for the ACL of each object. Without the option `default_permissions`, a mount
/// that only root can use does without the checks, because root passes them.
fn kernel_checks(options: &MountOptions) -> bool {
    options.default_permissions || options.allow_other || !rustix::process::geteuid().is_root()
}

/// Returns the reads that set access times. A mount that refuses changes sets none.
fn access_times(options: &MountOptions) -> AccessTimes {
    if options.read_only { AccessTimes::Never } else { options.access_times }
}

/// Returns the name of the volume in the table of mounts, by default its real path.
fn source(volume: &Volume, options: &MountOptions) -> String {
    let path = || volume.path().canonicalize().unwrap_or_else(|_| volume.path().to_owned());
    let name = options.name.clone().unwrap_or_else(|| path().to_string_lossy().into_owned());
    if rustix::process::geteuid().is_root() {
        return name;
    }
    // `fusermount3` takes the name in a list of options, in which a comma ends a value.
    name.replace('\\', "\\\\").replace(',', "\\,")
}

impl Mount {
    /// Returns the directory at which the volume was mounted.
    ///
    /// ```no_run
    /// # use eyrie_fuse::*; fn f(mount: &Mount) {
    /// println!("mounted at {}", mount.path().display());
    /// # }
    /// ```
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Unmounts the volume wherever it is mounted, also after `mount --move` and `mount --bind`, and waits
    /// until all requests have ended. The volume stays open. A second call does nothing.
    ///
    /// ```no_run
    /// # use eyrie_fuse::*; fn f(mount: &mut Mount) {
    /// while let Err(error) = mount.unmount() {
    ///     eprintln!("{error}"); // files are in use
    ///     std::thread::sleep(std::time::Duration::from_secs(1));
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`unmount`]. The mount then stays until this value is dropped, but some of its places may already
    /// be unmounted. If the unmount succeeds, but the session ended with an error, this call returns the
    /// error of the session.
    pub fn unmount(&mut self) -> Result<()> {
        if self.is_running() && is_connected(&self.device) {
            let paths = self.place.now();
            if paths.is_empty() {
                return Err(self.refused("unmount", rustix::io::Errno::INVAL.into()));
            }
            for path in paths {
                // If places share their mounts, the kernel unmounts several of them at once.
                if self.place.now().contains(&path) {
                    unmount(&path, false)?;
                }
            }
        }
        self.end()
    }

    /// Returns a value with which another thread can end the mount, while the present thread
    /// [waits](Mount::wait).
    ///
    /// ```no_run
    /// # use eyrie_fuse::*; fn f(mount: Mount) -> Result<()> {
    /// let unmounter = mount.unmounter();
    /// std::thread::spawn(move || unmounter.end());
    /// mount.wait()
    /// # }
    /// ```
    pub fn unmounter(&self) -> Unmounter {
        Unmounter { place: self.place.clone(), device: Arc::downgrade(&self.device) }
    }

    /// Waits until somebody unmounts the volume.
    ///
    /// ```no_run
    /// # use eyrie_fuse::*; fn f(mount: Mount) {
    /// if let Err(error) = mount.wait() {
    ///     eprintln!("{error}");
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error with which the session ended.
    pub fn wait(mut self) -> Result<()> {
        self.end()
    }

    /// True until somebody has unmounted the volume.
    ///
    /// ```no_run
    /// # use eyrie_fuse::*; fn f(mount: &Mount) {
    /// if !mount.is_running() {
    ///     println!("somebody has unmounted {}", mount.path().display());
    /// }
    /// # }
    /// ```
    pub fn is_running(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Waits until the session has answered a request. The threads of the session may fail to start, for
    /// example at the limit of descriptors, and then nobody would ever answer.
    fn wait_until_served(&mut self) -> Result<()> {
        let (send, answered) = mpsc::channel();
        let path = self.path().to_owned();
        let asking = std::thread::Builder::new().name("eyrie-mount".to_owned()).spawn(move || {
            // The receiver has left if the session has ended.
            let _ = send.send(std::fs::metadata(path).map(drop));
        });
        asking.map_err(|error| self.refused("mount", error))?;
        loop {
            match answered.recv_timeout(Duration::from_millis(5)) {
                Ok(answer) => return answer.map_err(|error| self.refused("mount", error)),
                Err(_) if !self.is_running() => {
                    self.end()?;
                    return Err(self.refused("mount", io::Error::other("the session has ended")));
                }
                Err(_) => {}
            }
        }
    }

    fn start_helpers(&mut self, kernel: KernelCache) -> io::Result<()> {
        let builder = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let (nodes, notifier) = (Arc::clone(&self.nodes), kernel.notifier.clone());
        let run = move || invalidate::run(&nodes, &kernel);
        self.helpers.push(builder("eyrie-notices").spawn(run)?);
        if let Some(locks) = self.locks.clone() {
            self.helpers.push(builder("eyrie-locks").spawn(move || locks.run(&notifier))?);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let session = self.session.take();
        let ended = session.map_or(Ok(()), |session| self.join(session));
        self.stop_helpers();
        ended.map_err(|error| self.refused("mount", error))
    }

    /// Waits for the end of a session. A session that ended with an error may still be mounted, so this
    /// function then ends the mount. The drop of a session unmounts once more, whatever is mounted at its
    /// path. So if anything is mounted there now, this function does not drop the session, and leaks its
    /// descriptor.
    fn join(&self, mut session: BackgroundSession) -> io::Result<()> {
        let Ok(nothing) = std::thread::Builder::new().spawn(|| Ok(())) else { return session.join() };
        let ended = std::mem::replace(&mut session.guard, nothing).join();
        self.unmounter().end();
        if self.place.is_mount_point() {
            std::mem::forget(session);
        }
        ended.map_err(|_panic| io::Error::other("a thread of the session panicked"))?
    }

    fn refused(&self, action: &'static str, error: io::Error) -> MountError {
        MountError::refused(action, self.path(), error)
    }

    fn stop_helpers(&mut self) {
        self.nodes.stop_notices();
        self.locks.iter().for_each(|locks| locks.stop());
        for helper in self.helpers.drain(..) {
            // A panic of that thread has been printed. The volume is sound, and the mount is gone.
            let _ = helper.join();
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_running() {
            self.unmounter().end();
        }
        let _ = self.end();
    }
}

/// Ends a mount: see [`Mount::unmounter`].
///
/// ```no_run
/// # use eyrie_fuse::*; fn f(mount: &Mount) {
/// let unmounter: Unmounter = mount.unmounter();
/// let on_signal = move || unmounter.end();
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Unmounter {
    place: MountPlace,
    device: Weak<OwnedFd>,
}

impl Unmounter {
    /// Unmounts the volume wherever it is mounted. A mount in use disappears from the tree, and the calls of
    /// its users fail from now on. After the end of the mount, this call does nothing.
    ///
    /// ```no_run
    /// # use eyrie_fuse::*; fn f(mount: &Mount) {
    /// mount.unmounter().end(); // the volume stays open
    /// # }
    /// ```
    pub fn end(&self) {
        let paths = if self.is_connected() { self.place.now() } else { Vec::new() };
        for path in paths {
            // If places share their mounts, the kernel unmounts several of them at once.
            if self.place.now().contains(&path) && unmount(&path, false).is_err() {
                // The kernel would keep the connection until the last user closes its files. A forced unmount
                // by root ends the connection, even though the mount stays.
                let _ = rustix::mount::unmount(&path, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
                self.abort();
                // The mount point may be gone already.
                let _ = unmount(&path, true);
            }
        }
        // After a lazy unmount, and in other mount namespaces, the file system has users without a path here.
        self.abort();
    }

    /// True until the end of the connection. After the end, its number may be that of another file system.
    fn is_connected(&self) -> bool {
        self.device.upgrade().is_some_and(|device| is_connected(&device))
    }

    /// Ends the connection through the kernel's list of connections.
    fn abort(&self) {
        if self.is_connected() {
            let _ = std::fs::write(self.place.abort_path(), "1");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::*;

    /// If this variable is set, the test runs in a child process that is not root and finds no `fusermount3`.
    const CHILD: &str = "EYRIE_TEST_WITHOUT_HELPER";
    const NOBODY: u32 = 65534;

    #[test]
    fn regression_missing_helper_is_an_error_of_its_action() {
        let path = Path::new("/usr");
        if std::env::var_os(CHILD).is_some() {
            for result in [check_fuse(path), unmount(path, false)] {
                println!("refused: {}", result.expect_err("no helper"));
            }
            return;
        }
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        let name = concat!(module_path!(), "::regression_missing_helper_is_an_error_of_its_action");
        child.args(["--exact", name.split_once("::").expect("a crate").1, "--nocapture"]);
        child.env(CHILD, "1").env("PATH", "/nowhere");
        if rustix::process::geteuid().is_root() {
            child.uid(NOBODY).gid(NOBODY);
        }
        let output = String::from_utf8(child.output().expect("ran").stdout).expect("text");
        for action in ["mount", "unmount"] {
            let expected = format!("refused: {action} /usr: only root may {action} without `fusermount3`;");
            assert!(output.contains(&expected), "{output}");
        }
    }
}
