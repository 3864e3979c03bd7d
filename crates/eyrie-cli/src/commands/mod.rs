//! The command line. Each subcommand has a file or a folder with its arguments, its help and its code.

mod bench;
mod cat;
mod chattr;
mod chmod;
mod chown;
mod completions;
mod cp;
mod df;
mod diff;
mod du;
mod dump;
mod each_file;
mod explore;
mod export;
mod find;
mod fsck;
mod groups;
mod import;
mod info;
mod kv;
mod ln;
mod load;
mod ls;
mod lsattr;
mod man;
mod mkdir;
mod mkfs;
mod mount;
mod mv;
mod quota;
mod replay;
mod resize;
mod rm;
mod run;
mod scrub;
mod serve;
mod sessions;
mod stat;
mod stats;
mod sync;
#[cfg(test)]
mod tests;
mod touch;
mod tour;
mod trace;
mod tree;
mod trim;
mod truncate;
mod umount;
mod xattr;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::Result;
use crate::output::Output;
use crate::{text, volumes};

/// Eyrie: a file system in user space, in memory-mapped storage.
#[derive(Debug, Parser)]
#[command(
    name = "eyrie",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  eyrie tour                          # try all features on a copy of /usr/share
  eyrie mkfs /dev/shm/vol --size 4G
  eyrie import /usr/share /dev/shm/vol:/share
  eyrie ls -l /dev/shm/vol:/share
  eyrie fsck /dev/shm/vol

Exit status: 0 success, 1 complete or partial failure, 2 wrong arguments, 3 a file, a volume or a key of the \
arguments does not exist (and nothing else failed), 130 interrupted. See also diff, fsck and scrub."
)]
pub struct Arguments {
    /// Memory for the pages of each volume on a disk, such as 256M or 4G, at least 1M [default: nearly half
    /// of the memory that this process may use]
    #[arg(long, value_name = "SIZE", global = true, env = "EYRIE_MEMORY", hide_env_values = true)]
    #[arg(value_parser = text::parse_memory)]
    memory: Option<u64>,
    /// The subcommand.
    #[command(subcommand)]
    command: Command,
}

/// The subcommands. The module `groups` has their order in the help text.
#[derive(Debug, Subcommand)]
enum Command {
    Mkfs(mkfs::MkfsArgs),
    Mount(mount::MountArgs),
    Umount(umount::UmountArgs),
    Serve(serve::ServeArgs),
    Sessions(sessions::SessionsArgs),
    Info(info::InfoArgs),
    Resize(resize::ResizeArgs),
    Trim(trim::TrimArgs),
    Import(import::ImportArgs),
    Export(export::ExportArgs),
    Dump(dump::DumpArgs),
    Load(load::LoadArgs),
    Ls(ls::LsArgs),
    Tree(tree::TreeArgs),
    Find(find::FindArgs),
    Du(du::DuArgs),
    Cat(cat::CatArgs),
    Stat(stat::StatArgs),
    Diff(diff::DiffArgs),
    Mkdir(mkdir::MkdirArgs),
    Cp(cp::CpArgs),
    Mv(mv::MvArgs),
    Rm(rm::RmArgs),
    Ln(ln::LnArgs),
    Touch(touch::TouchArgs),
    Truncate(truncate::TruncateArgs),
    Chmod(chmod::ChmodArgs),
    Chown(chown::ChownArgs),
    Kv(kv::KvArgs),
    Xattr(xattr::XattrArgs),
    Chattr(chattr::ChattrArgs),
    Lsattr(lsattr::LsattrArgs),
    Run(run::RunArgs),
    Explore(explore::ExploreArgs),
    Trace(trace::TraceArgs),
    Replay(replay::ReplayArgs),
    Fsck(fsck::FsckArgs),
    Scrub(scrub::ScrubArgs),
    Df(df::DfArgs),
    Quota(quota::QuotaArgs),
    Stats(stats::StatsArgs),
    Sync(sync::SyncArgs),
    Tour(tour::TourArgs),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

impl Arguments {
    /// Returns the definition of the command line, with a help text that groups the subcommands.
    pub fn definition() -> clap::Command {
        groups::grouped(Arguments::command())
    }

    /// Parses the arguments of this process.
    ///
    /// # Errors
    /// Fails for wrong arguments, and if the arguments ask for the help or the version.
    pub fn of_process() -> std::result::Result<Arguments, clap::Error> {
        let words = mount::helper_words(std::env::args_os());
        let mut matches = Arguments::definition().try_get_matches_from(words)?;
        Arguments::from_arg_matches_mut(&mut matches)
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Fails with the message to print and the exit status.
pub fn run(arguments: Arguments, output: &mut Output) -> Result<()> {
    if let Some(bytes) = arguments.memory {
        volumes::set_memory(bytes);
    }
    match arguments.command {
        Command::Mkfs(arguments) => mkfs::run(&arguments, output),
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Umount(arguments) => umount::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments, output),
        Command::Sessions(arguments) => sessions::run(&arguments, output),
        Command::Info(arguments) => info::run(&arguments, output),
        Command::Resize(arguments) => resize::run(&arguments, output),
        Command::Trim(arguments) => trim::run(&arguments, output),
        Command::Import(arguments) => import::run(arguments, output),
        Command::Export(arguments) => export::run(arguments, output),
        Command::Dump(arguments) => dump::run(arguments, output),
        Command::Load(arguments) => load::run(arguments, output),
        Command::Ls(arguments) => ls::run(arguments, output),
        Command::Tree(arguments) => tree::run(arguments, output),
        Command::Find(arguments) => find::run(arguments, output),
        Command::Du(arguments) => du::run(arguments, output),
        Command::Cat(arguments) => cat::run(&arguments, output),
        Command::Stat(arguments) => stat::run(arguments, output),
        Command::Diff(arguments) => diff::run(&arguments, output),
        Command::Mkdir(arguments) => mkdir::run(&arguments),
        Command::Cp(arguments) => cp::run(arguments, output),
        Command::Mv(arguments) => mv::run(arguments),
        Command::Rm(arguments) => rm::run(&arguments, output),
        Command::Touch(arguments) => touch::run(arguments),
        Command::Truncate(arguments) => truncate::run(arguments),
        Command::Chmod(arguments) => chmod::run(&arguments, output),
        Command::Chown(arguments) => chown::run(&arguments, output),
        Command::Ln(arguments) => ln::run(arguments, output),
        Command::Kv(arguments) => kv::run(arguments, output),
        Command::Xattr(arguments) => xattr::run(arguments, output),
        Command::Chattr(arguments) => chattr::run(&arguments, output),
        Command::Lsattr(arguments) => lsattr::run(&arguments, output),
        Command::Run(arguments) => run::run(&arguments, output),
        Command::Explore(arguments) => explore::run(&arguments, output),
        Command::Trace(arguments) => trace::run(&arguments, output),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Fsck(arguments) => fsck::run(&arguments, output),
        Command::Scrub(arguments) => scrub::run(&arguments, output),
        Command::Df(arguments) => df::run(&arguments, output),
        Command::Quota(arguments) => quota::run(&arguments, output),
        Command::Stats(arguments) => stats::run(&arguments, output),
        Command::Sync(arguments) => sync::run(&arguments, output),
        Command::Tour(arguments) => tour::run(&arguments, output),
        Command::Bench(arguments) => bench::run(&arguments, output),
        // These two subcommands describe the command line, so they get its definition.
        Command::Completions(arguments) => completions::run(&arguments, Arguments::command(), output),
        Command::Man(arguments) => man::run(&arguments, Arguments::command(), output),
    }
}
