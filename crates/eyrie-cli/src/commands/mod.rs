//! The subcommands, a file each for those that belong together.

mod archives;
mod copies;
mod document;
mod du;
mod explore;
mod find;
mod fsck;
mod inspect;
mod kv;
mod list;
mod manage;
mod script;
mod transfer;
mod workloads;
mod xattr;

pub use fsck::objects;

use std::fmt::Display;
use std::path::Path;
use std::sync::OnceLock;

use eyrie::{Credentials, Files, PagedOptions, Volume};

use crate::arguments::{Arguments, Command};
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::{text, tour};

/// Memory for pages, in bytes, where the user has said how much: as the umask, of the whole process.
static MEMORY: OnceLock<u64> = OnceLock::new();

/// How volumes on disks use memory and time.
pub fn paged() -> PagedOptions {
    let host = PagedOptions::for_host();
    PagedOptions { memory_bytes: MEMORY.get().copied().unwrap_or(host.memory_bytes), ..host }
}

/// Does what the command says.
///
/// # Errors
/// With the line to print and the exit status.
pub fn run(arguments: Arguments, output: &mut Output) -> Result<()> {
    if let Some(bytes) = arguments.memory {
        MEMORY.get_or_init(|| bytes);
    }
    match arguments.command {
        Command::Mkfs(arguments) => inspect::mkfs(&arguments, output),
        Command::Resize(arguments) => inspect::resize(&arguments, output),
        Command::Trim(arguments) => inspect::trim(&arguments, output),
        Command::Info(arguments) => inspect::info(&arguments, output),
        Command::Import(arguments) => transfer::import(arguments, output),
        Command::Export(arguments) => transfer::export(arguments, output),
        Command::Dump(arguments) => archives::dump(arguments, output),
        Command::Load(arguments) => archives::load(arguments, output),
        Command::Ls(arguments) => list::ls(arguments, output),
        Command::Tree(arguments) => list::tree(arguments, output),
        Command::Find(arguments) => find::find(arguments, output),
        Command::Du(arguments) => du::du(arguments, output),
        Command::Cat(arguments) => manage::cat(arguments, output),
        Command::Stat(arguments) => inspect::stat(arguments, output),
        Command::Mkdir(arguments) => manage::mkdir(arguments),
        Command::Cp(arguments) => copies::cp(arguments),
        Command::Mv(arguments) => copies::mv(arguments),
        Command::Rm(arguments) => manage::rm(arguments),
        Command::Ln(arguments) => manage::ln(arguments),
        Command::Kv(arguments) => kv::run(arguments.command, output),
        Command::Xattr(arguments) => xattr::run(arguments.command, output),
        Command::Run(arguments) => script::run(&arguments, output),
        Command::Explore(arguments) => explore::explore(&arguments, output),
        Command::Trace(arguments) => explore::trace(&arguments, output),
        Command::Replay(arguments) => explore::replay(&arguments),
        Command::Fsck(arguments) => fsck::fsck(&arguments, output),
        Command::Df(arguments) => inspect::df(&arguments, output),
        Command::Tour(arguments) => tour::run(&arguments, output),
        Command::Completions(arguments) => document::completions(&arguments, output),
        Command::Man(arguments) => document::man(&arguments, output),
    }
}

/// Opens a volume.
///
/// # Errors
/// When there is none, it is in use, or it cannot be read.
pub fn open(volume: &Path) -> Result<Volume> {
    Volume::open_with(volume, paged()).map_err(|error| {
        if matches!(error.errno(), eyrie::Errno::NOENT) {
            let why = "there is none: make it with `eyrie mkfs`, or check the spelling";
            return Failure::new("cannot open the volume", text::path(volume), why);
        }
        refused("cannot open the volume", volume, &error)
    })
}

/// The failure of a volume, whose error often names the place already.
fn refused(what: &str, volume: &Path, error: &eyrie::Error) -> Failure {
    let place = text::path(volume);
    let why = crate::failure::reason(error);
    let why = why.strip_prefix(&format!("{place}: ")).unwrap_or(&why);
    Failure::new(what, place, why)
}

/// Fails with `what` if anything was left out.
fn complete(what: &str, place: impl Display, left_out: u64) -> Result<()> {
    match left_out {
        0 => Ok(()),
        _ => {
            let entries = text::counted(left_out, "entry", "entries");
            Err(Failure::new(what, place, format_args!("{entries} left out, see above")))
        }
    }
}

/// The user of this process, with its umask.
pub fn credentials() -> Credentials {
    // The umask can only be read by setting it; there is one thread yet.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    Credentials::of_process().with_umask(u16::try_from(umask.bits() & 0o777).unwrap_or(0))
}

/// Runs `work` on a volume and closes it, whatever comes of it.
///
/// # Errors
/// Those of `work`, then those of closing.
pub fn with_volume<T>(path: &Path, work: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
    let volume = open(path)?;
    let result = work(&volume);
    let closed = volume.close().doing("close the volume", text::path(path));
    let result = result?;
    closed?;
    Ok(result)
}

/// As [`with_volume`], on its files.
///
/// # Errors
/// As [`with_volume`].
pub fn with_files<T>(path: &Path, work: impl FnOnce(&Files) -> Result<T>) -> Result<T> {
    with_volume(path, |volume| work(&volume.files(credentials())))
}
