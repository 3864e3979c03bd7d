//! `eyrie touch`: sets times of files, and makes files that are missing.

use clap::{ArgAction, Args};
use eyrie::{Errno, Files, Posix, PosixExt, SetTime, Time};

use crate::failure::{Doing, Result};
use crate::opened::{volumes_of, with_volumes};
use crate::place::{self, Inside, Place};
use crate::times;

/// Set times of files, and make files that are missing
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  eyrie touch vol:/new
  eyrie touch -c -m -d '2026-11-20 10:14' vol:/a vol:/b
  eyrie touch -d @1795000000.5 vol:/a
  eyrie touch -t 202611201014.30 vol:/a
  eyrie touch -r notes.txt vol:/a

Without -a or -m both times are set."
)]
pub struct TouchArgs {
    /// Files to touch
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// Set only the time of the last access
    #[arg(short = 'a')]
    accessed: bool,
    /// Set only the time of the last modification
    #[arg(short = 'm')]
    modified: bool,
    /// Do not make missing files
    #[arg(long, short = 'c')]
    no_create: bool,
    /// Time to set, such as '2026-11-20 10:14' (local), 2026-11-20T10:14Z or @1795000000 [default: now]
    #[arg(long, short, value_name = "TIME", value_parser = times::parse, allow_hyphen_values = true)]
    date: Option<Time>,
    /// Time to set, in digits as for touch(1) (local)
    #[arg(short = 't', value_name = "[[CC]YY]MMDDhhmm[.ss]", value_parser = times::parse_stamp)]
    #[arg(conflicts_with = "date")]
    stamp: Option<Time>,
    /// Use the times of the file PLACE of a volume or of the host
    #[arg(long, short, value_name = "PLACE", value_parser = Place::parser())]
    #[arg(conflicts_with_all = ["date", "stamp"])]
    reference: Option<Place>,
    /// Set the times of symbolic links themselves instead of their targets, and do not make missing files
    #[arg(long, short = 'h')]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: (),
}

pub fn run(arguments: TouchArgs) -> Result<()> {
    let places = place::all_inside(&arguments.places)?;
    let given = arguments.date.or(arguments.stamp).map_or(SetTime::Now, SetTime::To);
    with_volumes(volumes_of(&places), |volumes| {
        let (accessed, modified) = match &arguments.reference {
            None => (given, given),
            Some(place) => {
                let stat = volumes.stat(place)?;
                (SetTime::To(stat.accessed), SetTime::To(stat.modified))
            }
        };
        let chosen = |this: bool, other: bool, time| if this || !other { time } else { SetTime::Omit };
        let times = Times {
            accessed: chosen(arguments.accessed, arguments.modified, accessed),
            modified: chosen(arguments.modified, arguments.accessed, modified),
            follow: !arguments.no_dereference,
        };
        volumes.for_each(&places, |files, inside| touch(files, inside, &times, arguments.no_create))
    })
}

/// The times to set.
struct Times {
    accessed: SetTime,
    modified: SetTime,
    /// True if symbolic links are followed.
    follow: bool,
}

impl Times {
    fn set(&self, files: &Files, inside: &Inside) -> eyrie::Result<()> {
        files.utimens(place::target(&inside.path, self.follow), self.accessed, self.modified)
    }
}

fn touch(files: &Files, inside: &Inside, times: &Times, no_create: bool) -> Result<()> {
    match times.set(files, inside) {
        Err(error) if error.errno() == Errno::NOENT && no_create => Ok(()),
        Err(error) if error.errno() == Errno::NOENT && times.follow => {
            let options = files.options().write(true).create(true).mode(0o666);
            options.open(&inside.path).and_then(|file| file.close()).doing("make", inside)?;
            times.set(files, inside).doing("set the times of", inside)
        }
        result => result.doing("set the times of", inside),
    }
}
