//! `eyrie chown`: changes the owners and groups of files.

use std::io::Write;

use clap::{ArgAction, Args};
use eyrie::Posix;

use super::each_file::{FilesToChange, VisitedFile};
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::place;
use crate::users::Names;

const WHAT: &str = "change the owner of";

/// Change the owners and groups of files
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  eyrie chown ada vol:/file
  eyrie chown -R ada:staff vol:/home/ada
  eyrie chown :100 vol:/file

OWNER is USER, USER:GROUP, :GROUP, or USER: for the login group of the user. Names come from /etc/passwd and \
/etc/group of the host; a number needs no entry there. Symbolic links are followed, but not with -h or -R."
)]
pub struct ChownArgs {
    /// New user and group
    #[arg(value_name = "OWNER")]
    owner: String,
    #[command(flatten)]
    files: FilesToChange,
    /// Change symbolic links themselves instead of their targets
    #[arg(long, short = 'h')]
    no_dereference: bool,
    /// Print the owner of each file
    #[arg(long, short)]
    verbose: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: (),
}

/// The user and the group to set. `None` keeps the user or the group.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

pub fn run(arguments: &ChownArgs, output: &mut Output) -> Result<()> {
    let names = Names::of_host();
    let owner = Owner::parse(&arguments.owner, &names)?;
    output.need_no_reader();
    arguments.files.each(false, |file| change(arguments, file, &owner, &names, output))
}

impl Owner {
    /// Parses `USER`, `USER:GROUP`, `:GROUP` or `USER:`.
    fn parse(argument: &str, names: &Names) -> Result<Owner> {
        let (user, group) = match argument.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (argument, None),
        };
        let known = |found: Option<u32>, what: &str, name: &str| {
            let why = "use its number, or a name that the host's /etc/passwd or /etc/group has";
            found.ok_or_else(|| Failure::usage(format_args!("unknown {what}"), name, why)).map(Some)
        };
        let uid = if user.is_empty() { None } else { known(names.uid(user), "user", user)? };
        let gid = match (group, uid) {
            (None, None) => {
                let why = "write USER, USER:GROUP, USER: or :GROUP";
                return Err(Failure::usage("no owner", format_args!("'{argument}'"), why));
            }
            // As with GNU chown, `:` keeps the user and the group.
            (None, _) | (Some(""), None) => None,
            (Some(""), Some(_)) => known(names.login_group(user), "login group of user", user)?,
            (Some(group), _) => known(names.gid(group), "group", group)?,
        };
        Ok(Owner { uid, gid })
    }
}

/// Changes the owner of one file.
fn change(
    arguments: &ChownArgs,
    file: &VisitedFile<'_>,
    owner: &Owner,
    names: &Names,
    output: &mut Output,
) -> Result<()> {
    let VisitedFile { files, path, ref place, .. } = *file;
    let target = place::target(path, !arguments.no_dereference && !arguments.files.recursive);
    let stat = files.stat(target).doing(WHAT, place)?;
    files.chown(target, owner.uid, owner.gid).doing(WHAT, place)?;
    if !arguments.verbose {
        return Ok(());
    }
    let shown = |uid, gid| format!("{}:{}", names.user(uid), names.group(gid));
    let (uid, gid) = (owner.uid.unwrap_or(stat.uid), owner.gid.unwrap_or(stat.gid));
    let after = shown(uid, gid);
    if (uid, gid) == (stat.uid, stat.gid) {
        writeln!(output, "ownership of '{place}' retained as {after}")?;
    } else {
        writeln!(output, "changed ownership of '{place}' from {} to {after}", shown(stat.uid, stat.gid))?;
    }
    Ok(())
}
