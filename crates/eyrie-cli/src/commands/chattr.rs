//! `eyrie chattr`: changes the inode flags of files and directories.

use std::io::Write;

use clap::Args;
use eyrie::InodeFlags;

use super::each_file::{FilesToChange, VisitedFile};
use super::lsattr::{letters, open};
use crate::failure::{Doing, Result};
use crate::output::Output;

const WHAT: &str = "change the inode flags of";

/// Change the inode flags of files and directories
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie chattr +i vol:/etc/passwd
  eyrie chattr -R -i vol:/etc
  eyrie chattr =a vol:/log

i: a file or directory, its attributes, its names and its entries cannot change. a: a file can only be \
appended to, a directory can only get new entries, and attributes and names cannot change. Root must \
obey these flags, too, and only root can change them. `dump` and `load` keep them; copies have none.")]
pub struct ChattrArgs {
    /// + to add, - to remove or = to set the flags, which are i, a, both or none
    #[arg(value_name = "+-=[ia]", value_parser = FlagChange::parse, allow_hyphen_values = true)]
    change: FlagChange,
    #[command(flatten)]
    files: FilesToChange,
    /// Print the flags of each file
    #[arg(long, short)]
    verbose: bool,
}

/// A change of inode flags: the flags that keep their values, and the flags that are set. All other flags are
/// removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FlagChange {
    kept: InodeFlags,
    set: InodeFlags,
}

impl FlagChange {
    fn parse(text: &str) -> std::result::Result<FlagChange, String> {
        let wrong = || format!("'{text}' is not +, - or = with the flags i and a");
        let mut letters = text.chars();
        let sign = letters.next();
        let named = letters.try_fold(InodeFlags::empty(), |flags, letter| match letter {
            'i' => Some(flags | InodeFlags::IMMUTABLE),
            'a' => Some(flags | InodeFlags::APPEND_ONLY),
            _ => None,
        });
        let named = named.ok_or_else(wrong)?;
        match sign {
            Some('+') => Ok(FlagChange { kept: InodeFlags::all(), set: named }),
            Some('-') => Ok(FlagChange { kept: InodeFlags::all() - named, set: InodeFlags::empty() }),
            Some('=') => Ok(FlagChange { kept: InodeFlags::empty(), set: named }),
            _ => Err(wrong()),
        }
    }
}

pub fn run(arguments: &ChattrArgs, output: &mut Output) -> Result<()> {
    output.need_no_reader();
    arguments.files.each(true, |target| change(arguments, target, output))
}

/// Changes the flags of one file. With `-R`, leaves out objects that cannot have flags, such as devices.
fn change(arguments: &ChattrArgs, target: &VisitedFile<'_>, output: &mut Output) -> Result<()> {
    let Some(file) = open(target, arguments.files.recursive).doing(WHAT, &target.place)? else {
        return Ok(());
    };
    let FlagChange { kept, set } = arguments.change;
    let flags = file.inode_flags().doing(WHAT, &target.place)? & kept | set;
    file.set_inode_flags(flags).doing(WHAT, &target.place)?;
    if arguments.verbose {
        writeln!(output, "flags of '{}' set as {}", target.place, letters(flags))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_flags_are_read_like_those_of_chattr() {
        let all = InodeFlags::all();
        let set = |kept, set| Ok(FlagChange { kept, set });
        assert_eq!(FlagChange::parse("+ia"), set(all, all));
        assert_eq!(FlagChange::parse("-i"), set(InodeFlags::APPEND_ONLY, InodeFlags::empty()));
        assert_eq!(FlagChange::parse("=a"), set(InodeFlags::empty(), InodeFlags::APPEND_ONLY));
        assert_eq!(FlagChange::parse("="), set(InodeFlags::empty(), InodeFlags::empty()));
        for wrong in ["", "i", "+j", "+i-a"] {
            assert!(FlagChange::parse(wrong).is_err(), "{wrong}");
        }
    }
}
