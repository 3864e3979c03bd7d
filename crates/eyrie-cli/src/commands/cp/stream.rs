//! `eyrie cp` with `-`: standard input becomes a file, or a file goes to standard output.

use std::io::{self, Read, StdinLock};

use eyrie::{Errno, File, Files, Posix, PosixExt, RenameMode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::CpArgs;
use crate::commands::cat;
use crate::copy::{Reflink, print_line};
use crate::failure::{Doing, Failure, Result};
use crate::input::STANDARD_INPUT;
use crate::interrupt;
use crate::output::Output;
use crate::place::{self, Inside, Place};
use crate::volumes::{Purpose, with_files};

/// Time between two checks for an interrupt while the input has no bytes.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Returns true if `place` stands for a standard stream.
fn is_stream(place: &Place) -> bool {
    matches!(place, Place::Host(path) if path.as_os_str() == "-")
}

/// Returns true if an argument stands for a standard stream.
pub(super) fn is_named(arguments: &CpArgs) -> bool {
    arguments.sources.iter().chain([&arguments.target]).any(is_stream)
}

/// Copies standard input to a file, or a file to standard output. The flag `-u` has no effect, because
/// standard input is newer than every file.
pub(super) fn run(arguments: &CpArgs, output: &mut Output) -> Result<()> {
    let refuse = |why: &str| Err(Failure::usage("cannot copy", "-", why));
    if arguments.recursive || arguments.archive {
        return refuse("a stream is not a tree: leave out -r and -a");
    }
    if arguments.reflink == Reflink::Always {
        return refuse("a stream has no storage to share: leave out --reflink");
    }
    match &arguments.sources[..] {
        [source] if is_stream(source) && is_stream(&arguments.target) => {
            refuse("source and target are streams: name a file for one of them")
        }
        [source] if is_stream(source) => store(arguments, &arguments.target.clone().inside()?),
        [_] if arguments.verbose => refuse("-v prints to the stream of the copy: leave it out"),
        [source] => cat::print(&[source.clone().inside()?], output),
        _ => refuse("it must be the only source or the target of one source: write ./- for a file"),
    }
}

/// Makes the file `target` from standard input. The file is made under a temporary name, and renamed when the
/// input has ended. So a failure leaves an existing file unchanged.
fn store(arguments: &CpArgs, target: &Inside) -> Result<()> {
    const WHAT: &str = "copy to";
    interrupt::install();
    with_files(&target.volume, Purpose::Change, |files| {
        let path = &target.path;
        if files.stat(path.into()).is_ok_and(|stat| stat.is_dir()) {
            let why = "it is a directory: add the name of the file";
            return Err(Failure::new("cannot copy to", target, why));
        }
        let temporary = place::temporary_name(path);
        let keep = arguments.no_clobber;
        let mode = if keep { RenameMode::NoReplace } else { RenameMode::Replace };
        let options = files.options().write(true).create_new(true).mode(0o666);
        let file = options.open(&temporary).doing(WHAT, target)?;
        let stored = fill(file, target).and_then(|()| {
            match files.rename_with((&temporary).into(), path.into(), mode) {
                Err(error) if keep && error.errno() == Errno::EXIST => Ok(false),
                renamed => renamed.doing(WHAT, target).map(|()| true),
            }
        });
        if !matches!(stored, Ok(true)) {
            // The first error counts, so an error of the removal is ignored.
            let _ = files.unlink((&temporary).into());
        }
        if stored? && arguments.verbose {
            print_line(&format!("'-' -> '{target}'"));
        }
        Ok(())
    })
}

/// Writes standard input to `file`. Messages name `target`.
fn fill(file: File<Files>, target: &Inside) -> Result<()> {
    let mut input = io::stdin().lock();
    let mut buffer = vec![0; cat::CHUNK_BYTES];
    let mut offset = 0;
    loop {
        wait(&input)?;
        // This buffer is larger than the buffer of `input`. So a read leaves no bytes in the buffer of
        // `input`, where `wait` would not see them.
        let count = input.read(&mut buffer).doing("read", STANDARD_INPUT)?;
        if count == 0 {
            return file.close().doing("copy to", target);
        }
        file.write_all_at(&buffer[..count], offset).doing("copy to", target)?;
        offset += count as u64;
    }
}

/// Waits until the input has bytes, or has ended.
///
/// # Errors
/// Fails after an interrupt.
fn wait(input: &StdinLock<'_>) -> Result<()> {
    loop {
        interrupt::check("cp")?;
        match poll(&mut [PollFd::new(input, PollFlags::IN)], Some(&PAUSE)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            // If the input cannot be polled, the read waits, or returns the error.
            _ => return Ok(()),
        }
    }
}
