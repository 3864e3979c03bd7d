//! `eyrie mount`: mounts a volume with FUSE, and serves it until it is unmounted.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use eyrie_fuse::{MountError, MountOptions};

use crate::failure::{Doing, Failure, NOT_FOUND, Result};
use crate::volumes::Purpose;
use crate::{interrupt, text, volumes};

/// Mount a volume, so that every program can use it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie mount /dev/shm/vol /mnt/vol
  eyrie mount -o ro,allow_other vol /mnt/vol
  eyrie mount --foreground vol /mnt/vol          # as a service
  eyrie umount /mnt/vol

Options of -o: ro, rw, allow_other, default_permissions, suid, nosuid, dev, nodev, exec, noexec, sync, \
async, writeback_cache, threads=N, fsname=NAME. Access times never change by themselves, so noatime, \
relatime and defaults change nothing.

The command returns when the mount can be used, and a process in the background serves it. That process has \
the volume open, so other commands on the volume fail until `eyrie umount`; use the files of the mount \
instead. SIGTERM saves the volume and unmounts it. After SIGKILL the volume is sound, and the next mount \
recovers it. docs/mount.md has the details, an entry for fstab and a unit for systemd.

Users other than root need fusermount3 (package fuse3), and `user_allow_other` in /etc/fuse.conf for \
allow_other.")]
pub struct MountArgs {
    /// Volume to mount
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// Directory at which the volume appears
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Mount options, separated by commas
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Serve the mount in this process, and return when it is unmounted
    #[arg(long, short)]
    foreground: bool,
    /// Serve in this process, detach from the terminal, and report to standard output
    #[arg(long, hide = true)]
    background: bool,
}

/// The word with which the background process reports that the mount can be used.
const READY: &str = "ready";

pub fn run(arguments: &MountArgs) -> Result<()> {
    let mut options = MountOptions::default();
    for list in &arguments.options {
        options.set(list).map_err(|error| Failure::of_line(error).with_status(2))?;
    }
    if arguments.foreground || arguments.background { serve(arguments, &options) } else { start(arguments) }
}

/// Starts the background process, and waits until the mount can be used.
fn start(arguments: &MountArgs) -> Result<()> {
    let doing = |result: std::io::Result<_>| result.doing("start the server", text::path(&arguments.volume));
    let program = std::env::current_exe().doing("start the server", text::path(&arguments.volume))?;
    let mut command = Command::new(program);
    command.args(["mount", "--background"]);
    for list in &arguments.options {
        command.arg("-o").arg(list);
    }
    // The server changes its directory to the root.
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    command.arg("--").arg(real(&arguments.volume)).arg(real(&arguments.directory));
    if let Some(bytes) = volumes::memory() {
        command.env("EYRIE_MEMORY", bytes.to_string());
    }
    let mut child = doing(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn())?;
    let mut report = [0; READY.len()];
    let is_ready = child.stdout.take().is_some_and(|mut output| output.read_exact(&mut report).is_ok());
    if is_ready && report == READY.as_bytes() {
        return Ok(());
    }
    // The server has printed its error.
    let status = child.wait().doing("wait for the server", text::path(&arguments.volume))?;
    let status = status.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0);
    Err(Failure::silent(status.unwrap_or(1)))
}

/// Mounts the volume, and serves it until it is unmounted.
fn serve(arguments: &MountArgs, options: &MountOptions) -> Result<()> {
    if arguments.background {
        // A process that already leads a session stays in it.
        let _ = rustix::process::setsid();
    }
    let purpose = if options.read_only { Purpose::Read } else { Purpose::Change };
    volumes::with_volume(&arguments.volume, purpose, |volume| {
        let mount = eyrie_fuse::mount(volume, &arguments.directory, options).map_err(failure)?;
        // A second signal ends the process, and leaves the volume to recovery.
        let unmounter = mount.unmounter();
        interrupt::install_with(move || unmounter.end());
        if arguments.background {
            report_ready().doing("detach from the terminal", text::path(&arguments.directory))?;
        }
        notify_manager("READY=1");
        let ended = mount.wait();
        notify_manager("STOPPING=1");
        // A mount that a signal has ended while it was in use ends with an error of the connection.
        if interrupt::requested() { Ok(()) } else { ended.map_err(failure) }
    })
}

fn failure(error: MountError) -> Failure {
    let missing = matches!(&error, MountError::MountPoint { source, .. }
        if source.kind() == std::io::ErrorKind::NotFound);
    Failure::of_line(error).with_status(if missing { NOT_FOUND } else { 1 })
}

/// Detaches from the terminal, and tells the starting process that the mount can be used. The steps that can
/// fail come before the report.
fn report_ready() -> std::io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    std::env::set_current_dir("/")?;
    rustix::stdio::dup2_stderr(&null)?;
    let mut output = std::io::stdout().lock();
    output.write_all(READY.as_bytes())?;
    output.flush()?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}

/// Tells the service manager a state, by the protocol of sd_notify(3). Does nothing without a manager, or if
/// the manager does not listen.
fn notify_manager(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    if let (Ok(socket), Ok(address)) = (UnixDatagram::unbound(), address) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}

/// Returns the words of the command line. If mount(8) calls this program as `mount.eyrie`, these are the
/// words of `eyrie mount`.
pub fn helper_words(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let words: Vec<OsString> = words.collect();
    let is_helper = words.first().is_some_and(|name| Path::new(name).ends_with("mount.eyrie"));
    if !is_helper {
        return words;
    }
    // mount(8) adds flags that concern only itself: -s, -n and -v, and -t with the type.
    let mut kept = vec![OsString::from("eyrie"), OsString::from("mount")];
    let mut words = words.into_iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"-t" => drop(words.next()),
            flags if flags.starts_with(b"-") && flags[1..].iter().all(|flag| b"snv".contains(flag)) => {}
            _ => kept.push(word),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn helper(words: &[&str]) -> Vec<String> {
        let words = words.iter().map(|word| OsStr::new(word).to_owned());
        helper_words(words).into_iter().map(|word| word.into_string().expect("UTF-8")).collect()
    }

    #[test]
    fn helper_of_mount_takes_its_words() {
        assert_eq!(helper(&["eyrie", "ls", "-n"]), ["eyrie", "ls", "-n"]);
        let words = ["/sbin/mount.eyrie", "/srv/vol", "/mnt", "-sn", "-t", "eyrie", "-o", "rw,noatime"];
        assert_eq!(helper(&words), ["eyrie", "mount", "/srv/vol", "/mnt", "-o", "rw,noatime"]);
    }
}
