//! `eyrie quota`: shows and sets limits for users, groups and trees.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Subcommand};
use eyrie::{
    Files, Posix, PosixProjects, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaReport, QuotaTable,
    Target, Time,
};
use serde_json::{Value, json};

use super::each_file::{Reach, each_file};
use crate::failure::{Doing, Failure, Result};
use crate::output::{Output, table};
use crate::place::Inside;
use crate::times::Zone;
use crate::users::Names;
use crate::volumes::{Purpose, with_files};
use crate::{interrupt, place, text};

/// The action in messages about a tree that cannot be read.
const READING: &str = "read the tree of";
/// The action in messages about limits that cannot be set.
const SETTING: &str = "set the quotas of";

/// Show and set limits for users, groups and directory trees
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  eyrie quota vol                                   # my usage and limits
  eyrie quota report vol                            # those of all users, groups and trees
  eyrie quota set vol --user ada --bytes 900M:1G --files 10000
  eyrie quota set vol --tree /builds --bytes 20G
  eyrie quota set vol --grace 3d
  eyrie quota off vol

A limit is HARD or SOFT:HARD; 0 is no limit. Above a hard limit, calls fail with EDQUOT; above a soft limit, \
they fail after the grace time. Usage has the storage of files and of extended attributes; directories \
count as files without storage. Only root sets limits, and no limit stops root."
)]
pub struct QuotaArgs {
    #[command(flatten)]
    shown: ShownVolume,
    /// The action.
    #[command(subcommand)]
    command: Option<QuotaCommand>,
}

/// The volume of a report.
#[derive(Debug, Args)]
struct ShownVolume {
    /// Volume
    #[arg(value_name = "VOLUME", required = true)]
    volume: Option<PathBuf>,
    /// Print a JSON array, with sizes in bytes and times in seconds since 1970
    #[arg(long)]
    json: bool,
}

/// An action on quotas.
#[derive(Debug, Subcommand)]
enum QuotaCommand {
    /// Show the usage and the limits of all users, groups and trees that you may see
    #[command(after_help = "Examples:\n  eyrie quota report vol\n  eyrie quota report --json vol")]
    Report(ShownVolume),
    /// Set limits, and begin to count usage
    #[command(override_usage = "eyrie quota set [OPTIONS] <--bytes|--files|--grace> <VOLUME>")]
    #[command(after_help = "\
Examples:
  eyrie quota set vol --user ada --bytes 900M:1G
  eyrie quota set vol --group staff --files 50000
  eyrie quota set vol --tree /builds --bytes 20G
  eyrie quota set vol --grace 3d

A tree is a directory and everything below it. New files in it belong to it, too, but files of other trees \
cannot be moved or linked into it (EXDEV).")]
    Set(SetArgs),
    /// Remove all limits, and end the counting of usage
    #[command(after_help = "Examples:\n  eyrie quota off vol")]
    Off {
        /// Volume
        #[arg(value_name = "VOLUME")]
        volume: PathBuf,
    },
}

/// The arguments of `eyrie quota set`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("account").args(["user", "group", "tree"]))]
#[command(group = ArgGroup::new("change").args(["bytes", "files", "grace"]).multiple(true).required(true))]
struct SetArgs {
    /// Volume
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// User whose limits are set: a name or a number
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Group whose limits are set: a name or a number
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Directory of the volume whose tree gets limits
    #[arg(long, value_name = "PATH")]
    tree: Option<PathBuf>,
    /// Limits of storage, such as 900M:1G or 1G
    #[arg(long, value_name = "SOFT:HARD", value_parser = |text: &str| parse_limit(text, text::parse_bytes))]
    #[arg(requires = "account")]
    bytes: Option<QuotaLimit>,
    /// Limits of the number of files, such as 9000:10000 or 10000
    #[arg(long, value_name = "SOFT:HARD", value_parser = |text: &str| parse_limit(text, parse_count))]
    #[arg(requires = "account")]
    files: Option<QuotaLimit>,
    /// Time for which usage may be above soft limits, such as 7d, 12h, 30m or 90s
    #[arg(long, value_name = "TIME", value_parser = parse_grace)]
    grace: Option<u64>,
    /// Print the kind and the number of the account as JSON
    #[arg(long)]
    json: bool,
    /// Do not print the number of the tree
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

impl SetArgs {
    /// Returns the place of the directory `path` of the volume.
    fn inside(&self, path: &Path) -> Inside {
        Inside { volume: self.volume.clone(), path: place::join(Path::new("/"), path) }
    }
}

/// Parses `HARD` or `SOFT:HARD`.
fn parse_limit(
    argument: &str,
    number: fn(&str) -> std::result::Result<u64, String>,
) -> std::result::Result<QuotaLimit, String> {
    let (soft, hard) = argument.split_once(':').unwrap_or(("0", argument));
    let part = |text: &str| if text.is_empty() { Ok(0) } else { number(text) };
    let limit = QuotaLimit { soft: part(soft)?, hard: part(hard)?, deadline: 0 };
    if limit.hard != 0 && limit.soft > limit.hard {
        return Err("the soft limit is above the hard limit".to_owned());
    }
    Ok(limit)
}

fn parse_count(text: &str) -> std::result::Result<u64, String> {
    text.parse().map_err(|_| "write a number of files, such as 10000".to_owned())
}

fn parse_grace(text: &str) -> std::result::Result<u64, String> {
    let wrong = || "write a time such as 7d, 12h, 30m or 90s".to_owned();
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let (number, seconds) = units
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .ok_or_else(wrong)?;
    number.parse::<u32>().map(|number| u64::from(number) * seconds).map_err(|_| wrong())
}

pub fn run(arguments: &QuotaArgs, output: &mut Output) -> Result<()> {
    match &arguments.command {
        None => show(&arguments.shown, false, output),
        Some(QuotaCommand::Report(shown)) => show(shown, true, output),
        Some(QuotaCommand::Set(set)) => {
            interrupt::install();
            let account = with_files(&set.volume, Purpose::Change, |files| change(files, set))?;
            print_account(set, account, output)
        }
        Some(QuotaCommand::Off { volume }) => with_files(volume, Purpose::Change, |files| {
            if files.quota_table().doing("read the quotas of", text::path(volume))?.is_none() {
                return Ok(());
            }
            files.set_quota_table(None).doing("end the quotas of", text::path(volume))
        }),
    }
}

/// Shows accounts: all that this user may see, or only those of this user and this user's groups.
fn show(shown: &ShownVolume, all: bool, output: &mut Output) -> Result<()> {
    // clap requires the volume.
    let volume = shown.volume.as_deref().unwrap_or(Path::new(""));
    let reports = with_files(volume, Purpose::Read, |files| {
        let reports = files.quotas().doing("read the quotas of", text::path(volume))?;
        let mut reports = reports.ok_or_else(|| no_quotas(volume))?;
        let who = files.credentials();
        reports.retain(|report| match report.id.kind {
            QuotaKind::User => all || report.id.number == who.uid(),
            QuotaKind::Group => all || who.in_group(report.id.number),
            QuotaKind::Tree => all,
        });
        Ok(reports)
    })?;
    let names = Names::of_host();
    if shown.json {
        return output.json(&Value::Array(reports.iter().map(|report| json(report, &names)).collect()));
    }
    let header = ["Account", "Used", "Soft", "Hard", "Until", "Files", "Soft", "Hard", "Until"];
    let mut rows = table(&header, &[1, 2, 3, 5, 6, 7]);
    let zone = Zone::of_host();
    reports.iter().for_each(|report| _ = rows.add_row(row(report, &names, &zone)));
    Ok(output.table(&rows)?)
}

fn no_quotas(volume: &Path) -> Failure {
    let why = "set a limit first: see `eyrie quota set --help`";
    Failure::new("the volume has no quotas", text::path(volume), why)
}

fn kind_name(kind: QuotaKind) -> &'static str {
    match kind {
        QuotaKind::User => "user",
        QuotaKind::Group => "group",
        QuotaKind::Tree => "tree",
    }
}

fn name(id: QuotaId, names: &Names) -> String {
    match id.kind {
        QuotaKind::User => names.user(id.number),
        QuotaKind::Group => names.group(id.number),
        QuotaKind::Tree => id.number.to_string(),
    }
}

fn json(report: &QuotaReport, names: &Names) -> Value {
    let QuotaReport { id, usage, limits, .. } = *report;
    let some = |number: u64| (number != 0).then_some(number);
    let until = |limit: QuotaLimit| (limit.deadline != 0).then_some(limit.deadline);
    json!({
        "kind": kind_name(id.kind),
        "number": id.number,
        "name": name(id, names),
        "used_bytes": usage.bytes,
        "soft_bytes": some(limits.bytes.soft),
        "hard_bytes": some(limits.bytes.hard),
        "bytes_grace_until": until(limits.bytes),
        "files": usage.files,
        "soft_files": some(limits.files.soft),
        "hard_files": some(limits.files.hard),
        "files_grace_until": until(limits.files),
    })
}

fn row(report: &QuotaReport, names: &Names, zone: &Zone) -> [String; 9] {
    let QuotaReport { id, usage, limits: QuotaLimits { bytes, files }, .. } = *report;
    let limit = |number: u64, shown: fn(u64) -> String| match number {
        0 => "-".to_owned(),
        number => shown(number),
    };
    let until = |limit: QuotaLimit| match limit.deadline {
        0 => "-".to_owned(),
        seconds => zone.minute(Time::new(seconds, 0)),
    };
    [
        format!("{} {}", kind_name(id.kind), name(id, names)),
        text::size(usage.bytes),
        limit(bytes.soft, text::size),
        limit(bytes.hard, text::size),
        until(bytes),
        text::count(usage.files),
        limit(files.soft, text::count),
        limit(files.hard, text::count),
        until(files),
    ]
}

/// Prints the account whose limits were set: as JSON, or as text if the account is a tree, because this
/// command gives a tree its number.
fn print_account(set: &SetArgs, account: Option<QuotaId>, output: &mut Output) -> Result<()> {
    if set.json {
        let (kind, number) = (account.map(|id| kind_name(id.kind)), account.map(|id| id.number));
        let volume = set.volume.to_string_lossy();
        return output.json(&json!({ "volume": volume, "kind": kind, "number": number }));
    }
    match (&set.tree, account) {
        (Some(path), Some(id)) if !set.quiet => {
            Ok(writeln!(output, "{} is tree {}", set.inside(path), id.number)?)
        }
        _ => Ok(()),
    }
}

/// Sets limits and grace times. Returns the account whose limits were set. A command that fails begins no
/// quotas.
fn change(files: &Files, set: &SetArgs) -> Result<Option<QuotaId>> {
    let volume = text::path(&set.volume);
    let before = files.quota_table().doing("read the quotas of", &volume)?;
    let begins = before.is_none() && set.tree.is_some();
    let limits = before.unwrap_or_default();
    if let Some(path) = &set.tree {
        check_directory(files, &set.inside(path))?;
    }
    if begins {
        // While the volume has quotas, new files inherit the number of their tree. So the quotas begin before
        // the files of the tree get its number, and no file that is made meanwhile is left out.
        files.set_quota_table(Some(&limits)).doing(SETTING, &volume)?;
    }
    let changed = change_limits(files, set, limits);
    if changed.is_err() && begins {
        // The command reports the first error, and ignores an error of this call.
        let _ = files.set_quota_table(None);
    }
    changed
}

/// Changes `limits`, the present limits of the volume, and sets them. If the account is a tree, first gives
/// the number of the tree to its files.
fn change_limits(files: &Files, set: &SetArgs, mut limits: QuotaTable) -> Result<Option<QuotaId>> {
    let account = match &set.tree {
        Some(path) => {
            let number = number_tree(files, &set.inside(path), &limits)?;
            Some(QuotaId { kind: QuotaKind::Tree, number })
        }
        None => account(set)?,
    };
    if let Some(grace) = set.grace {
        (limits.bytes_grace, limits.files_grace) = (grace, grace);
    }
    if let Some(id) = account {
        set_account(&mut limits, id, set)?;
    }
    files.set_quota_table(Some(&limits)).doing(SETTING, text::path(&set.volume))?;
    Ok(account)
}

/// Returns the user or the group of the arguments.
fn account(set: &SetArgs) -> Result<Option<QuotaId>> {
    let names = Names::of_host();
    let (kind, found, name) = match (&set.user, &set.group) {
        (Some(user), _) => (QuotaKind::User, names.uid(user), user),
        (_, Some(group)) => (QuotaKind::Group, names.gid(group), group),
        (None, None) => return Ok(None),
    };
    let why = "use its number, or a name that the host's /etc/passwd or /etc/group has";
    let unknown = || Failure::usage(format_args!("unknown {}", kind_name(kind)), name, why);
    Ok(Some(QuotaId { kind, number: found.ok_or_else(unknown)? }))
}

fn set_account(limits: &mut QuotaTable, id: QuotaId, set: &SetArgs) -> Result<()> {
    let before = limits.get(id);
    let (bytes, files) = (set.bytes.unwrap_or(before.bytes), set.files.unwrap_or(before.files));
    let refused = |error: eyrie::EngineError| Failure::usage("cannot set limits", kind_name(id.kind), error);
    limits.set(id, QuotaLimits { bytes, files }).map_err(refused)
}

/// Refuses a tree whose root is missing or is not a directory.
fn check_directory(files: &Files, root: &Inside) -> Result<()> {
    if files.stat((&root.path).into()).doing(READING, root)?.is_dir() {
        return Ok(());
    }
    Err(Failure::usage("not a directory", root, "a tree must begin at a directory"))
}

/// Gives all files of a tree its number, and returns the number. A directory that has no number yet gets a
/// new one.
fn number_tree(files: &Files, root: &Inside, limits: &QuotaTable) -> Result<u32> {
    let (reading, setting) = (READING, "set the tree of");
    let number = match files.project((&root.path).into()).doing(reading, root)? {
        0 => {
            let reports = files.quotas().doing("read the quotas of", root)?.unwrap_or_default();
            let limited = limits.accounts().map(|(id, _)| id);
            let known: BTreeSet<u32> = (reports.iter().map(|report| report.id).chain(limited))
                .filter(|id| id.kind == QuotaKind::Tree)
                .map(|id| id.number)
                .collect();
            (1..).find(|number| !known.contains(number)).unwrap_or(u32::MAX)
        }
        number => number,
    };
    let reach = Reach { recursive: true, follows_argument: true };
    each_file(files, root, reach, |target| {
        interrupt::check("quota set")?;
        let file = || Target::NoFollow(target.path.into());
        if target.files.project(file()).doing(reading, &target.place)? != number {
            target.files.set_project(file(), number).doing(setting, &target.place)?;
        }
        Ok(())
    })?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use eyrie::{Capabilities, Credentials, PosixExt, Volume};

    use super::*;

    #[test]
    fn regression_failed_command_begins_no_quotas() {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let volume = Volume::create(dir.path().join("vol"), 64 << 20).unwrap();
        let root = volume.files(Credentials::root());
        root.create_dir_all("/tree/closed").unwrap();
        root.chmod("/tree/closed".into(), 0).unwrap();
        // This user may set limits, but may not read the closed directory.
        let who = Credentials::new(1000, 1000, &[]).with_capabilities(Capabilities::SYS_ADMIN);
        let files = volume.files(who);
        let set = SetArgs {
            volume: "vol".into(),
            user: None,
            group: None,
            tree: Some("/tree".into()),
            bytes: None,
            files: Some(QuotaLimit { soft: 0, hard: 5, deadline: 0 }),
            grace: None,
            json: false,
            quiet: false,
        };
        assert!(change(&files, &set).is_err());
        assert!(root.quota_table().unwrap().is_none());
        root.chmod("/tree/closed".into(), 0o755).unwrap();
        assert_eq!(change(&files, &set).unwrap().map(|id| id.number), Some(1));
        assert!(root.quota_table().unwrap().is_some());
    }

    #[test]
    fn limits_and_grace_times_are_parsed() {
        let limit = |soft, hard| Ok(QuotaLimit { soft, hard, deadline: 0 });
        assert_eq!(parse_limit("1K:2K", text::parse_bytes), limit(1024, 2048));
        assert_eq!(parse_limit("2K", text::parse_bytes), limit(0, 2048));
        assert_eq!(parse_limit("5:", parse_count), limit(5, 0));
        assert_eq!(parse_limit(":5", parse_count), limit(0, 5));
        assert!(parse_limit("6:5", parse_count).is_err() && parse_limit("1K", parse_count).is_err());
        assert_eq!(parse_grace("7d"), Ok(604_800));
        assert!(parse_grace("7").is_err() && parse_grace("d").is_err() && parse_grace("-1s").is_err());
    }
}
