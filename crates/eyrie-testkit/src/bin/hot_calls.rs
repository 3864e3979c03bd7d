//! Makes the hot calls one kind at a time, so that `cargo xtask instructions` can count their instructions.
//!
//! ```sh
//! cargo run --release -p eyriefs-testkit --bin hot_calls -- prepare DIR
//! cargo run --release -p eyriefs-testkit --bin hot_calls -- CALL DIR
//! ```
//!
//! `prepare` makes a volume with files. The volume is in the directory DIR, and its hash seed is a constant.
//! CALL is one of `open`, `stat`, `read`, `overwrite`, `append`, `create`, `unlink`, `rename`, `mkdir`,
//! `rmdir`, `get`, `put`.
//!
//! Time stamps are constants, because callgrind, which counts the instructions, cannot run the clock of the
//! vDSO.

use std::path::Path;
use std::process::ExitCode;

use eyrie::{Credentials, Kvfs, MediumChoice, OpenFlags, Posix, PosixExt, RenameMode, Time, Volume};
use eyrie_engine::Owner;
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::Options;
use eyrie_sim::explore::fixed_options;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Number of calls of a run.
const CALLS: usize = 2000;
const DIR: &str = "/one/two";
const BLOCK: usize = 4096;

fn path(kind: &str, number: usize) -> String {
    format!("{DIR}/{kind}-{number:05}")
}

fn prepare(dir: &Path) -> Result<()> {
    let (place, now) = (dir.join("volume"), Time::new(1_000_000_000, 0));
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // The hash seed decides which pages of a directory split, so every volume gets the same seed.
    let options = Options { medium: MediumChoice::Dram, ..fixed_options(64 << 20, now) };
    drop(Scm::create(&place, Some(256 << 20), &options, Owner { mode: 0o755, uid, gid }, now)?);
    let volume = Volume::open(place)?;
    let files = volume.files(Credentials::of_process());
    files.create_dir_all(DIR)?;
    for number in 0..CALLS {
        for kind in ["file", "removed", "moved"] {
            files.write(path(kind, number), [1; 100])?;
        }
    }
    files.write("/large", vec![1; 64 * BLOCK])?;
    files.create_dir("/store")?;
    let store = volume.store("/store", Credentials::of_process())?;
    for number in 0..CALLS {
        store.put(format!("key-{number:05}"), [1; 100])?;
    }
    drop((files, store));
    Ok(volume.close()?)
}

/// Makes all calls. The command `cargo xtask instructions` counts only the instructions from the entry of
/// this function to its return.
#[inline(never)]
fn counted(call: &mut dyn FnMut(usize) -> Result<()>) -> Result<()> {
    (0..CALLS).try_for_each(call)
}

fn run(call: &str, dir: &Path) -> Result<()> {
    let volume = Volume::open(dir.join("volume"))?;
    let files = volume.files(Credentials::of_process()).with_clock(|| Time::new(1_000_000_000, 0));
    let store = Kvfs::open(&files, "/store")?;
    let names = |kind| (0..CALLS).map(|number| path(kind, number)).collect::<Vec<_>>();
    let keys: Vec<_> = (0..CALLS).map(|number| format!("key-{number:05}")).collect();
    let (old, removed, moved, new) = (names("file"), names("removed"), names("moved"), names("new"));
    let large = files.open("/large".into(), OpenFlags::READ | OpenFlags::WRITE, 0)?;
    let offset = |number: usize| (number * 7 % 64 * BLOCK) as u64;
    let create = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    let (mut page, mut value) = ([0; BLOCK], Vec::new());
    // The thread's caches and magazines are filled before the count.
    files.write(format!("{DIR}/warm"), [1; 100])?;
    old.iter().try_for_each(|path| files.stat(path.into()).map(drop))?;
    files.read_at(&large, &mut page, 0)?;
    match call {
        "open" => counted(&mut |number| {
            let handle = files.open((&old[number]).into(), OpenFlags::READ, 0)?;
            Ok(files.close(handle)?)
        })?,
        "stat" => counted(&mut |number| Ok(files.stat((&old[number]).into()).map(drop)?))?,
        "read" => counted(&mut |number| Ok(files.read_at(&large, &mut page, offset(number)).map(drop)?))?,
        "overwrite" => {
            counted(&mut |number| Ok(files.write_at(&large, &page, offset(number)).map(drop)?))?;
        }
        "append" => counted(&mut |_| Ok(files.append(&large, &[1; 100]).map(drop)?))?,
        "create" => counted(&mut |number| {
            let handle = files.open((&new[number]).into(), create, 0o644)?;
            Ok(files.close(handle)?)
        })?,
        "unlink" => counted(&mut |number| Ok(files.unlink((&removed[number]).into())?))?,
        "rename" => counted(&mut |number| {
            Ok(files.rename_with((&moved[number]).into(), (&new[number]).into(), RenameMode::Replace)?)
        })?,
        "mkdir" => counted(&mut |number| Ok(files.mkdir((&new[number]).into(), 0o755)?))?,
        "rmdir" => {
            for path in &new {
                files.mkdir(path.into(), 0o755)?;
            }
            counted(&mut |number| Ok(files.rmdir((&new[number]).into())?))?;
        }
        "get" => counted(&mut |number| Ok(store.get_into(&keys[number], &mut value).map(drop)?))?,
        "put" => counted(&mut |number| Ok(store.put(&keys[number], [2; 100]).map(drop)?))?,
        _ => return Err(format!("there is no call {call:?}").into()),
    }
    Ok(files.close(large)?)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["prepare", dir] => prepare(Path::new(dir)),
        [call, dir] => run(call, Path::new(dir)),
        _ => Err("usage: hot_calls prepare|CALL DIR".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hot_calls: {error}");
            ExitCode::FAILURE
        }
    }
}
