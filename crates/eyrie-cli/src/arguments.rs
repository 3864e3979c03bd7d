//! The command line.

mod archive;
pub mod explore;
mod kv;
mod list;
mod script;
mod search;
#[cfg(test)]
mod tests;
mod volume;
mod xattr;

pub use archive::{Dump, Load};
pub use explore::{Explore, Replay, Trace};
pub use kv::{Kv, KvCommand};
pub use list::{Ls, Tree};
pub use script::Run;
pub use search::{Du, Find};
pub use volume::{Fsck, Mkfs, Resize};
pub use xattr::{Owner as XattrOwner, Xattr, XattrCommand};

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::place::Place;
use crate::text;

/// How places are written; shown in several helps.
const PLACES: &str = "\
Places:
  VOLUME:/path  a path inside the volume VOLUME (cut at the first ':/'; VOLUME: is its root)
  path          a path of the host; write ./a:b for a name with a colon in it";

/// Eyrie: files in memory-mapped storage, read without system calls.
#[derive(Debug, Parser)]
#[command(
    name = "eyrie",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  eyrie tour                          # see it all, on a copy of /usr/share
  eyrie mkfs /dev/shm/vol --size 4G
  eyrie import /usr/share /dev/shm/vol:/share
  eyrie ls -l /dev/shm/vol:/share
  eyrie fsck /dev/shm/vol

Exit status: 0 done, 1 not (all) done, 2 wrong arguments, 130 interrupted; fsck has more."
)]
pub struct Arguments {
    /// Memory for pages of each volume on a disk, at least 1M, such as 256M or 4G (nearly half of what there is, if not given)
    #[arg(long, value_name = "SIZE", global = true, env = "EYRIE_MEMORY", hide_env_values = true)]
    #[arg(value_parser = text::parse_memory)]
    pub memory: Option<u64>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a volume
    #[command(after_help = "\
Examples:
  eyrie mkfs /dev/shm/vol --size 4G
  eyrie mkfs vol --size 512M
  eyrie mkfs /mnt/pmem/vol --size 4G --medium pmem
  eyrie mkfs /srv/vol --size 64G --medium paged
  eyrie mkfs /dev/vdb

The volume is a directory, and nothing may be there yet; storage is taken as files need it. Or it is a block device, of \
which it takes all.")]
    Mkfs(Mkfs),
    /// Tell what a volume is
    #[command(after_help = "Examples:\n  eyrie info /dev/shm/vol\n  eyrie info --json /dev/shm/vol")]
    Info(VolumeJson),
    /// Make a volume larger or smaller
    #[command(after_help = "\
Examples:
  eyrie resize /dev/shm/vol 8G
  eyrie resize vol 300M
  eyrie resize /dev/vdb
  eyrie resize /dev/vdb 64G

Nobody may have it open. Nothing in it moves: it gets no smaller than what is used last in it allows. On a block device it \
gets no larger than that has room for. When the device was made larger, resize takes the room; before the device is made \
smaller, resize gives it up, and `eyrie info` tells how much of the device is needed.")]
    Resize(Resize),
    /// Give what a volume does not need back to the host
    #[command(after_help = "\
Examples:
  eyrie trim /dev/shm/vol
  eyrie trim --json vol

What comes back is in whole allocation groups (64 MiB) in which nothing is. Whoever closes a volume gives back what became \
free since it was opened. A block device discards the blocks of all free groups; it does not tell how many it had.")]
    Trim(VolumeJson),
    /// Copy a directory tree of the host into a volume
    #[command(after_help = "\
Examples:
  eyrie import /usr/share /dev/shm/vol:/share
  eyrie import -v . vol:/backup > done.txt
  eyrie import --json /etc vol:/etc

Modes, owners, times, links, holes and extended attributes are kept. What cannot be read is reported, and the exit \
status is then 1; extended attributes that cannot be kept are counted.")]
    Import(Import),
    /// Copy a directory tree of a volume to the host
    #[command(after_help = "\
Examples:
  eyrie export /dev/shm/vol:/share /tmp/share
  eyrie export --json vol:/ everything

Modes, owners (as root), times, links, holes and extended attributes are kept. The new directory must not exist.")]
    Export(Export),
    /// Write a directory tree of a volume as an archive of `tar`
    #[command(after_help = "\
Examples:
  eyrie dump vol:/share -o share.tar
  eyrie dump vol:/ | gzip > vol.tar.gz
  eyrie dump vol:/share | tar -t
  eyrie dump old:/ | eyrie load new:/

Modes, owners, times, links, holes and extended attributes are kept, and GNU tar can extract it (as root to keep owners \
and devices; holes need no option, extended attributes --xattrs). Sockets cannot be in an archive; they are reported, and the exit status is then 1. FILE is replaced.")]
    Dump(Dump),
    /// Make a directory tree of a volume from an archive of `tar`
    #[command(after_help = "\
Examples:
  eyrie load vol:/share -i share.tar
  eyrie load new:/ < vol.tar
  gzip -dc linux.tar.gz | eyrie load vol:/linux
  tar -c -C /etc . | eyrie load vol:/etc

The directory must be new or empty. Modes, owners (by number), times, links, holes and extended attributes are kept. Names that begin with \
`/` begin in the directory, and those with `..` are refused: nothing is made outside of it. What cannot be loaded is \
reported, and the exit status is then 1; what is loaded stays.")]
    Load(Load),
    /// List directories
    #[command(after_help = "\
Examples:
  eyrie ls vol:/
  eyrie ls -la vol:/share/doc
  eyrie ls -R --json vol:/share")]
    Ls(Ls),
    /// Show a directory tree
    #[command(after_help = "\
Examples:
  eyrie tree vol:/share
  eyrie tree --depth 2 -a vol:/
  eyrie tree --canonical vol:/ > before.txt

The canonical text has a line for each name with all that is to be known of it, and is the same for the same contents: two \
of them are compared with diff(1).")]
    Tree(Tree),
    /// Find files by name, type, size or time
    #[command(after_help = "\
Examples:
  eyrie find vol:/ --name '*.rs'
  eyrie find vol:/share --type f --size +1M
  eyrie find vol:/ --type d --empty
  eyrie find vol:/ --path '*/doc/*' --mtime -7 --json
  eyrie find vol:/tmp --type f --mtime +30 -0 | xargs -0 eyrie rm

What fits all conditions is shown. A GLOB fits a whole name (--name) or path in the volume (--path): * any bytes, ? one \
byte, [a-z] one of these, {a,b} one of those, \\ takes its meaning from the next. N is exactly N, +N more, -N less.")]
    Find(Find),
    /// Show the space that files take
    #[command(
        disable_help_flag = true,
        after_help = "\
Examples:
  eyrie du -h vol:/
  eyrie du -sh vol:/share vol:/home
  eyrie du -d 1 -c one:/ two:/
  eyrie du -a --apparent-size --json vol:/share

Counts are in KiB, rounded up, of a directory with all that is in it. What has several names counts once."
    )]
    Du(Du),
    /// Write files to standard output
    #[command(
        after_help = "Examples:\n  eyrie cat vol:/share/dict/words | head\n  eyrie cat vol:/a vol:/b > both"
    )]
    Cat(Places),
    /// Show the attributes of files
    #[command(after_help = "Examples:\n  eyrie stat vol:/share\n  eyrie stat --json vol:/share/dict/words")]
    Stat(PlacesJson),
    /// Make directories
    #[command(after_help = "Examples:\n  eyrie mkdir vol:/new\n  eyrie mkdir -p vol:/a/b/c")]
    Mkdir(Mkdir),
    /// Copy files between host and volume, inside a volume, or between volumes
    #[command(after_help = format!("\
Examples:
  eyrie cp notes.txt vol:/notes.txt
  eyrie cp -r vol:/share/doc ./doc
  eyrie cp -r one:/data two:/data

Copies keep modes, owners (as root), times, links, holes and extended attributes, as `cp -a` does; symbolic links are \
copied, not followed.
Into an existing directory things are copied under their own names. Files are replaced, directories are not.

{PLACES}"))]
    Cp(Copy),
    /// Rename or move files
    #[command(after_help = format!("\
Examples:
  eyrie mv vol:/a vol:/b
  eyrie mv vol:/a vol:/dir
  eyrie mv report.txt vol:/reports/

Inside a volume it is one step; otherwise things are copied and then removed.

{PLACES}"))]
    Mv(Move),
    /// Remove files
    #[command(after_help = "Examples:\n  eyrie rm vol:/a vol:/b\n  eyrie rm -rf vol:/share")]
    Rm(Remove),
    /// Make hard or symbolic links
    #[command(after_help = "Examples:\n  eyrie ln vol:/a vol:/same\n  eyrie ln -s ../a vol:/dir/link")]
    Ln(Link),
    /// Use a directory as keys and values
    #[command(after_help = "\
Examples:
  eyrie kv put vol:/store colour green
  eyrie kv get vol:/store colour
  eyrie kv scan vol:/store col")]
    Kv(Kv),
    /// Show and change the extended attributes of files
    #[command(after_help = "\
Examples:
  eyrie xattr set vol:/photo user.author Ada
  eyrie xattr get vol:/photo user.author
  eyrie xattr list vol:/photo
  eyrie xattr rm vol:/photo user.author

Names are user.NAME, of files and directories only, and trusted.NAME and security.NAME, which root sets.")]
    Xattr(Xattr),
    /// Run a script of calls on a volume
    #[command(after_help = "\
Examples:
  eyrie run calls.txt vol
  eyrie run --keep-going calls.txt /dev/shm/vol
  printf 'mkdir /a 0700\\ncreat /a/b\\n' | eyrie run - vol

A script is text with one call a line: mkdir PATH [MODE], write PATH OFFSET LENGTH SEED, rename FROM TO, fsync PATH and so \
on; docs/crash-model.md has all of them. All of it is checked first. Each call is then printed with what it gave. Nothing is \
synchronised that the script does not say; the volume is closed at the end.

Exit status: 0 every call succeeded, 1 one failed, 2 it is not a script.")]
    Run(Run),
    /// Let power fail everywhere in a script, and look at what every crash leaves
    #[command(after_help = explore::EXPLORE_HELP)]
    Explore(Explore),
    /// Write down what a script does to its volume
    #[command(after_help = "\
Examples:
  eyrie trace calls.txt -o calls.trace
  eyrie trace calls.txt | grep -c fence

One line an event, after the volume's first bytes: store THREAD OFFSET BYTES, fence THREAD FILE:LINE, mark NUMBER CALL when a \
call has returned. docs/crash-model.md describes them.")]
    Trace(Trace),
    /// Make the volume that a crash in a trace leaves
    #[command(after_help = "\
Examples:
  eyrie replay calls.trace --until 57 -o crashed
  eyrie replay calls.trace --until 57 --drop 0x3c140,0x4000:1 -o crashed

Everything that was stored in the first EVENTS events is there, but for what is dropped: of a line of 64 bytes what was stored \
since the last fence, or all of that but the first KEPT stores.")]
    Replay(Replay),
    /// Check a volume, and repair it
    #[command(after_help = "\
Examples:
  eyrie fsck /dev/shm/vol
  eyrie fsck --json vol && echo sound
  eyrie fsck --repair vol                     # the damaged one is then vol.damaged
  eyrie fsck --repair --into /mnt/new /dev/sdb1

Without --repair nothing is changed: what opening a volume that was not closed would recover is recovered in memory only. \
With it everything that can still be read goes into a new volume, which takes the place of the damaged one when it is \
complete and sound. Each path of which something is lost is printed, with the reason. What has no name any more goes to \
/lost+found.

Exit status, as of fsck(8): 0 sound, 1 repaired, 4 broken and left so, 8 cannot be read or checked, 16 wrong arguments.")]
    Fsck(Fsck),
    /// Show the space of volumes
    #[command(after_help = "Examples:\n  eyrie df vol\n  eyrie df --json vol /dev/shm/other")]
    Df(Df),
    /// Make a volume, fill it, verify it and measure it against the host's file system
    #[command(after_help = "\
Examples:
  eyrie tour
  eyrie tour ~/src
  eyrie tour --json /usr/include > tour.json
  eyrie tour --remove --volume /mnt/pmem/tour /usr/share

The volume goes to /dev/shm if there is room, else to the temporary directory, and stays unless --remove is given.")]
    Tour(Tour),
    /// Write what a shell needs to complete this command
    #[command(after_help = "\
Examples:
  eyrie completions bash > ~/.local/share/bash-completion/completions/eyrie
  eyrie completions zsh > ~/.zfunc/_eyrie
  eyrie completions fish > ~/.config/fish/completions/eyrie.fish")]
    Completions(Completions),
    /// Write the pages of the manual
    #[command(after_help = "\
Examples:
  eyrie man ~/.local/share/man/man1
  eyrie man | man -l -

A page for each command goes into DIR, which is made if need be; without DIR all go to standard output.")]
    Man(Man),
}

/// A volume, and how to print.
#[derive(Debug, Args)]
pub struct VolumeJson {
    /// The volume
    #[arg(value_name = "VOLUME")]
    pub volume: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// See [`Command::Import`].
#[derive(Debug, Args)]
pub struct Import {
    /// The directory to copy
    #[arg(value_name = "DIR")]
    pub from: PathBuf,
    /// The new directory
    #[arg(value_name = "VOLUME:/new", value_parser = place())]
    pub to: Place,
    /// Print each path when all of it is in the volume
    #[arg(long, short, conflicts_with = "json")]
    pub verbose: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// See [`Command::Export`].
#[derive(Debug, Args)]
pub struct Export {
    /// The directory to copy
    #[arg(value_name = "VOLUME:/dir", value_parser = place())]
    pub from: Place,
    /// The new directory
    #[arg(value_name = "NEW")]
    pub to: PathBuf,
    /// Print each path when it is complete
    #[arg(long, short, conflicts_with = "json")]
    pub verbose: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// Places inside volumes.
#[derive(Debug, Args)]
pub struct Places {
    /// The files
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = place())]
    pub places: Vec<Place>,
}

/// Places inside volumes, and how to print.
#[derive(Debug, Args)]
pub struct PlacesJson {
    /// The files
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = place())]
    pub places: Vec<Place>,
    /// Show what a symbolic link leads to
    #[arg(long, short = 'L')]
    pub dereference: bool,
    /// Print JSON, one array
    #[arg(long)]
    pub json: bool,
}

/// See [`Command::Mkdir`].
#[derive(Debug, Args)]
pub struct Mkdir {
    /// The directories
    #[arg(value_name = "VOLUME:/dir", required = true, value_parser = place())]
    pub places: Vec<Place>,
    /// Make those above too, and be content with those that exist
    #[arg(long, short)]
    pub parents: bool,
}

/// See [`Command::Cp`].
#[derive(Debug, Args)]
pub struct Copy {
    /// What to copy
    #[arg(value_name = "SOURCE", required = true, value_parser = place())]
    pub sources: Vec<Place>,
    /// Where to
    #[arg(value_name = "TARGET", value_parser = place())]
    pub target: Place,
    /// Directories with all that is in them
    #[arg(long, short)]
    pub recursive: bool,
}

/// See [`Command::Mv`].
#[derive(Debug, Args)]
pub struct Move {
    /// What to move
    #[arg(value_name = "SOURCE", required = true, value_parser = place())]
    pub sources: Vec<Place>,
    /// Where to
    #[arg(value_name = "TARGET", value_parser = place())]
    pub target: Place,
}

/// See [`Command::Rm`].
#[derive(Debug, Args)]
pub struct Remove {
    /// What to remove
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = place())]
    pub places: Vec<Place>,
    /// Directories with all that is in them
    #[arg(long, short)]
    pub recursive: bool,
    /// Be content with what is not there
    #[arg(long, short)]
    pub force: bool,
}

/// See [`Command::Ln`].
#[derive(Debug, Args)]
pub struct Link {
    /// The existing file (VOLUME:/path), or with -s the text of the link
    #[arg(value_name = "EXISTING")]
    pub existing: OsString,
    /// The new name
    #[arg(value_name = "VOLUME:/new", value_parser = place())]
    pub new: Place,
    /// A symbolic link
    #[arg(long, short)]
    pub symbolic: bool,
}

/// See [`Command::Df`].
#[derive(Debug, Args)]
pub struct Df {
    /// The volumes
    #[arg(value_name = "VOLUME", required = true)]
    pub volumes: Vec<PathBuf>,
    /// Print JSON, one array
    #[arg(long)]
    pub json: bool,
}

/// See [`Command::Tour`].
#[derive(Debug, Args)]
pub struct Tour {
    /// The directory to fill the volume with
    #[arg(value_name = "DIR", default_value = "/usr/share")]
    pub directory: PathBuf,
    /// Where to make the volume
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<PathBuf>,
    /// Remove the volume at the end
    #[arg(long)]
    pub remove: bool,
    /// Seconds for the measurements; fewer than 10 leave out those in large directories
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// See [`Command::Completions`].
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// See [`Command::Man`].
#[derive(Debug, Args)]
pub struct Man {
    /// Where to
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Parses places from any bytes.
fn place() -> impl TypedValueParser<Value = Place> {
    OsStringValueParser::new().map(|argument| Place::parse(&argument))
}
