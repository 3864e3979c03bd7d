//! A volume of one suite, and its mount.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::mount::UnmountFlags;
use rustix::process::Signal;

use super::Context;
use super::tool::{command, succeed, wait};
use crate::run::{Result, private_mib, serve};

/// Size of each volume. A volume takes storage of the host only as it is used.
const VOLUME_SIZE: &str = "8G";
/// Time limit for a server to end after an unmount.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit of the commands `mkfs`, `umount` and `fsck`, in seconds.
const LIMIT_S: u64 = 120;

/// The medium of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuiteMedium {
    /// A volume of the medium `dram`, in memory.
    Memory,
    /// A volume of the medium `paged`, on a disk.
    Disk,
}

impl SuiteMedium {
    pub const ALL: [SuiteMedium; 2] = [SuiteMedium::Memory, SuiteMedium::Disk];

    /// Returns the name of the medium.
    pub fn name(self) -> &'static str {
        match self {
            SuiteMedium::Memory => "dram",
            SuiteMedium::Disk => "paged",
        }
    }
}

/// A new volume and its mount, in a directory of their own. A drop unmounts the volume and removes the
/// directory, also after a failure.
pub struct Mounted<'a> {
    eyrie: &'a Path,
    directory: PathBuf,
    options: &'static str,
    /// The process that serves the mount.
    server: Option<Child>,
}

impl<'a> Mounted<'a> {
    /// Makes a volume in memory, and mounts it with the options of `mount -o`.
    pub fn new(context: &'a Context, name: &str, options: &'static str) -> Result<Mounted<'a>> {
        Mounted::at(context, name, SuiteMedium::Memory, options)
    }

    /// Makes a volume, and mounts it with the options of `mount -o`.
    pub fn at(
        context: &'a Context,
        name: &str,
        medium: SuiteMedium,
        options: &'static str,
    ) -> Result<Mounted<'a>> {
        let directory = context.scratch(medium).join(name);
        let mut mounted = Mounted { eyrie: &context.eyrie, directory, options, server: None };
        fs::create_dir_all(mounted.point())?;
        fs::create_dir(mounted.beside())?;
        let mut mkfs = mounted.eyrie("mkfs");
        mkfs.args(["--quiet", "--size", VOLUME_SIZE, "--medium", medium.name()]).arg(mounted.volume());
        succeed(&mut mkfs, LIMIT_S)?;
        mounted.mount()?;
        Ok(mounted)
    }

    /// The directory at which the volume is mounted.
    pub fn point(&self) -> PathBuf {
        self.directory.join("mnt")
    }

    /// A directory for files that are not on the mount. It is removed with the volume.
    pub fn beside(&self) -> PathBuf {
        self.directory.join("beside")
    }

    /// Returns the private memory of the server, in MiB.
    pub fn server_mib(&self) -> Result<f64> {
        let Some(server) = &self.server else { return Err("nothing is mounted".into()) };
        private_mib(server.id())
    }

    fn volume(&self) -> PathBuf {
        self.directory.join("volume")
    }

    fn eyrie(&self, word: &str) -> Command {
        eyrie(self.eyrie, word)
    }

    /// Starts the server, and waits until the mount can be used.
    fn mount(&mut self) -> Result<()> {
        let mut mount = self.eyrie("mount");
        mount.args(["--foreground", "-o", self.options]).arg(self.volume()).arg(self.point());
        self.server = Some(serve(mount.stdout(Stdio::null()), &self.point())?);
        Ok(())
    }

    /// Unmounts the volume with `eyrie umount`, and checks that its server ends without an error.
    fn unmount(&mut self) -> Result<()> {
        let point = self.point();
        let Some(server) = &mut self.server else { return Err("nothing was mounted".into()) };
        unmount(self.eyrie, &point, server)?;
        self.server = None;
        Ok(())
    }

    /// Unmounts the volume and mounts it again, so that the caches of the kernel have nothing of the volume.
    pub fn remount(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    /// Checks the volume with `eyrie fsck`.
    fn check(&self) -> Result<()> {
        succeed(self.eyrie("fsck").arg("--quiet").arg(self.volume()), LIMIT_S).map(drop)
    }

    /// Unmounts the volume, and checks that it is sound. Then removes everything.
    pub fn finish(mut self) -> Result<()> {
        self.unmount()?;
        self.check()
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Err("nothing is mounted".into()) };
        kill(&mut server, "eyrie mount")
    }

    /// Removes the dead mount of a killed server, checks that the volume is sound, and mounts it again.
    pub fn recover(&mut self) -> Result<()> {
        succeed(self.eyrie("umount").arg(self.point()), LIMIT_S)?;
        self.check()?;
        self.mount()
    }
}

/// Returns a subcommand of `eyrie`.
pub fn eyrie(program: &Path, word: &str) -> Command {
    let mut eyrie = command(program);
    eyrie.arg(word);
    eyrie
}

/// Unmounts a volume with `eyrie umount`, and checks that its server ends without an error.
pub fn unmount(program: &Path, point: &Path, server: &mut Child) -> Result<()> {
    succeed(eyrie(program, "umount").arg(point), LIMIT_S)?;
    ended_well(server, "eyrie mount")
}

/// Waits for the end of a server that was asked to end. Fails if the server reports an error, or does not
/// end.
pub fn ended_well(server: &mut Child, name: &str) -> Result<()> {
    match wait(server, PATIENCE)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("{name}: {status}").into()),
        None => Err(format!("{name}: does not end").into()),
    }
}

/// Kills a server with SIGKILL. Fails if the server has ended by itself before.
pub fn kill(server: &mut Child, name: &str) -> Result<()> {
    server.kill()?;
    let status = server.wait()?;
    match status.signal() {
        Some(signal) if signal == Signal::KILL.as_raw() => Ok(()),
        _ => Err(format!("{name} has ended by itself: {status}").into()),
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // After `finish` only the directory is left. After a failure the mount may be in use, or its server
        // may be dead. So these calls may fail.
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = rustix::mount::unmount(self.point(), UnmountFlags::DETACH);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_that_ends_by_itself_is_no_killed_server() {
        for (script, is_killed) in [("kill -KILL $$", true), ("exit 0", false), ("kill -ABRT $$", false)] {
            let mut server = command("sh").args(["-c", script]).spawn().unwrap();
            server.wait().unwrap();
            assert_eq!(kill(&mut server, "sh").is_ok(), is_killed, "{script}");
        }
    }
}
