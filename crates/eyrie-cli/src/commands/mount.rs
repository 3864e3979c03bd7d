//! `eyrie mount`: mounts a volume with FUSE, and serves it until it is unmounted.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use eyrie_fuse::{MountError, MountOptions};

use crate::failure::{Doing, Failure, Result};
use crate::place::real;
use crate::transfer::refuse_own_storage;
use crate::volumes::Purpose;
use crate::{background, interrupt, text, volumes};

/// Mount a volume, so that every program can use it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie mount /dev/shm/vol /mnt/vol
  eyrie mount -o ro,allow_other vol /mnt/vol
  eyrie mount --foreground vol /mnt/vol          # as a service
  eyrie umount /mnt/vol

Options of -o: ro, rw, allow_other, default_permissions, suid, nosuid, dev, nodev, exec, noexec, sync, \
async, lock, nolock, writeback_cache, short_writes, threads=N, fsname=NAME, and for access times \
noatime (the default), relatime, strictatime, nodiratime. Reads that the kernel answers from its cache \
set no access times.

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
    /// Check the arguments, and mount nothing
    #[arg(long, hide = true)]
    fake: bool,
}

pub fn run(arguments: &MountArgs) -> Result<()> {
    let mut options = MountOptions::default();
    for list in &arguments.options {
        options.set(list).map_err(|error| Failure::of_text(error).with_status(2))?;
    }
    // A mount over the storage of the volume would hide the volume from all other commands.
    let directory = std::path::absolute(&arguments.directory);
    let directory = directory.doing("mount at", text::path(&arguments.directory))?;
    refuse_own_storage(&arguments.volume, &directory, "cannot mount at")?;
    if arguments.fake {
        return Ok(());
    }
    if arguments.foreground || arguments.background {
        return serve(arguments, &options);
    }
    let mut words: Vec<OsString> = vec!["mount".into(), "--background".into()];
    for list in &arguments.options {
        words.extend(["-o".into(), list.into()]);
    }
    words.push("--".into());
    words.extend([&arguments.volume, &arguments.directory].map(|path| real(path).into()));
    background::start(&words, &arguments.volume)
}

/// Mounts the volume, and serves it until it is unmounted.
fn serve(arguments: &MountArgs, options: &MountOptions) -> Result<()> {
    if arguments.background {
        background::lead_session();
    }
    let purpose = if options.read_only { Purpose::Read } else { Purpose::Change };
    volumes::with_volume(&arguments.volume, purpose, |volume| {
        let mount = eyrie_fuse::mount(volume, &arguments.directory, options).map_err(failure)?;
        // A second signal ends the process, and leaves the volume to recovery.
        let unmounter = mount.unmounter();
        interrupt::install_with(move || unmounter.end());
        if arguments.background {
            background::report_ready().doing("detach from the terminal", text::path(&arguments.directory))?;
        }
        background::notify_manager("READY=1");
        let ended = mount.wait();
        background::notify_manager("STOPPING=1");
        // If a signal ends a mount that is in use, `wait` returns an error of the connection. The user asked
        // for this end, so the error is not reported.
        if interrupt::requested() { Ok(()) } else { ended.map_err(failure) }
    })
}

fn failure(error: MountError) -> Failure {
    match &error {
        MountError::MountPoint { path, source, .. } if source.kind() == ErrorKind::NotFound => {
            let why = "No such file or directory: make it with mkdir(1), or check the spelling";
            Failure::not_found("cannot mount", text::path(path), why)
        }
        MountError::MountPoint { path, source, .. } if source.kind() == ErrorKind::NotADirectory => {
            Failure::new("cannot mount", text::path(path), "Not a directory: name one as the mount point")
        }
        _ => Failure::of_text(format_args!("cannot {error}")),
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
    // mount(8) adds flags that concern only itself: -s, -n and -v, -t with the type, and -N with a namespace.
    // Its flag -f asks to mount nothing. The flag -f of `eyrie mount` has another meaning.
    let mut kept = vec![OsString::from("eyrie"), OsString::from("mount")];
    let mut words = words.into_iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"-t" | b"-N" => drop(words.next()),
            flags if flags.starts_with(b"-") && flags[1..].iter().all(|flag| b"fsnv".contains(flag)) => {
                if flags.contains(&b'f') {
                    kept.push("--fake".into());
                }
            }
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
        let words = ["/sbin/mount.eyrie", "/srv/vol", "/mnt", "-fv", "-N", "/proc/1/ns/mnt"];
        assert_eq!(helper(&words), ["eyrie", "mount", "/srv/vol", "/mnt", "--fake"]);
    }
}
