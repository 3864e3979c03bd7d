//! `eyrie chmod`: changes the modes of files.

mod mode;

use std::io::Write;

use clap::Args;
use eyrie::{Credentials, Posix};

use self::mode::ModeChange;
use super::each_file::{FilesToChange, VisitedFile};
use crate::failure::{Doing, Result};
use crate::output::Output;
use crate::text;

const WHAT: &str = "change the mode of";

/// Change the modes of files
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie chmod 644 vol:/file
  eyrie chmod u+x,go-w vol:/bin/tool
  eyrie chmod -R a+rX vol:/share

As with GNU chmod, a directory keeps its set-id bits unless the mode names them. The umask limits a clause \
that names none of u, g, o and a, such as +w. It does not limit an octal number. Symbolic links are \
followed, but not below a directory with -R.")]
pub struct ChmodArgs {
    /// Octal number, or symbolic clauses such as u+rwX,go-w
    #[arg(value_name = "MODE", value_parser = ModeChange::parse, allow_hyphen_values = true)]
    mode: ModeChange,
    #[command(flatten)]
    files: FilesToChange,
    /// Print the mode of each file
    #[arg(long, short)]
    verbose: bool,
    /// Print the mode of each file whose mode changes
    #[arg(long, short)]
    changes: bool,
}

pub fn run(arguments: &ChmodArgs, output: &mut Output) -> Result<()> {
    let umask = Credentials::of_process().umask();
    output.need_no_reader();
    arguments.files.each(true, |target| change(arguments, target, umask, output))
}

/// Changes the mode of one file.
fn change(arguments: &ChmodArgs, target: &VisitedFile<'_>, umask: u16, output: &mut Output) -> Result<()> {
    // A link has no mode of its own.
    if target.is_link_below {
        return Ok(());
    }
    let place = &target.place;
    let stat = target.files.stat(target.path.into()).doing(WHAT, place)?;
    let mode = arguments.mode.apply(stat.mode, stat.is_dir(), umask);
    target.files.chmod(target.path.into(), mode).doing(WHAT, place)?;
    let shown = |mode| format!("{mode:04o} ({})", &text::mode(stat.kind, mode)[1..]);
    if mode != stat.mode && (arguments.verbose || arguments.changes) {
        writeln!(output, "mode of '{place}' changed from {} to {}", shown(stat.mode), shown(mode))?;
    } else if arguments.verbose {
        writeln!(output, "mode of '{place}' retained as {}", shown(mode))?;
    }
    Ok(())
}
