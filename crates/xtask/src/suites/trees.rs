//! Suites of whole trees: `git`, `tar` and `rsync`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::XattrFlags;

use super::Context;
use super::content::{bytes, text};
use super::mounted::{Mounted, SuiteMedium};
use super::tool::{assert_same, command, succeed};
use crate::run::Result;

/// Time limit of one program, in seconds.
const LIMIT_S: u64 = 600;
/// Number of files of the repository.
const FILES: u64 = 4000;
/// Number of files of one directory of the repository.
const IN_ONE: u64 = 40;
/// Number of commits after the first, and number of files that each of them changes.
const COMMITS: (u64, u64) = (10, 100);

/// Clones a repository to the mount and checks the clone. Then checks out another commit there, packs all
/// objects, and checks again.
pub fn git(context: &Context) -> Result<String> {
    let mounted = Mounted::new(context, "git", "rw")?;
    let (source, clone) = (mounted.beside().join("source"), mounted.point().join("clone"));
    make_repository(&source)?;
    run_git(
        mounted.beside().as_path(),
        &["clone", "--quiet", "--no-local", "source", &clone.to_string_lossy()],
    )?;
    let check = || -> Result<()> {
        run_git(&clone, &["fsck", "--full", "--strict", "--no-progress"])?;
        assert_same("git status", &run_git(&clone, &["status", "--porcelain"])?, "")
    };
    check()?;
    let mut diff = command("diff");
    diff.args(["-r", "--no-dereference", "--exclude=.git"]);
    assert_same("diff", &succeed(diff.arg(&source).arg(&clone), LIMIT_S)?, "")?;
    run_git(&clone, &["checkout", "--quiet", "HEAD~5"])?;
    check()?;
    run_git(&clone, &["gc", "--quiet", "--prune=now"])?;
    run_git(&clone, &["checkout", "--quiet", "main"])?;
    check()?;
    mounted.finish()?;
    Ok(format!("{FILES} files, {} commits", COMMITS.0 + 1))
}

/// Makes a repository with files of many sizes, programs, links and some history.
pub fn make_repository(path: &Path) -> Result<()> {
    fs::create_dir(path)?;
    run_git(path, &["init", "--quiet"])?;
    for number in 0..FILES {
        let file = path.join(file_of(number));
        fs::create_dir_all(file.parent().unwrap_or(path))?;
        if number % 50 == 49 {
            symlink(Path::new("../..").join(file_of(number - 1)), file)?;
            continue;
        }
        // Sizes from 0 to 64 KiB, most of them small. Every tenth file is binary.
        let length = (number * number % 4096) as usize * if number % 20 == 0 { 16 } else { 1 };
        let contents =
            if number % 10 == 0 { bytes(number, length) } else { text(number, length).into_bytes() };
        fs::write(&file, contents)?;
        if number % 25 == 1 {
            fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
        }
    }
    let commit = |message: &str| -> Result<()> {
        run_git(path, &["add", "--all"])?;
        run_git(path, &["commit", "--quiet", "--message", message]).map(drop)
    };
    commit("first")?;
    for round in 1..=COMMITS.0 {
        for change in 0..COMMITS.1 {
            let number = (round * 379 + change * 37) % FILES;
            let file = path.join(file_of(number));
            if file.is_symlink() || !file.exists() {
                continue;
            }
            match change % 10 {
                0 => fs::remove_file(file)?,
                1 => fs::rename(&file, file.with_extension(format!("moved-{round}")))?,
                _ => fs::write(file, text(number + round * FILES, 3000))?,
            }
        }
        commit(&format!("round {round}"))?;
    }
    Ok(())
}

/// Returns the path of a file in the repository.
fn file_of(number: u64) -> PathBuf {
    PathBuf::from(format!("part-{}/dir-{}/file-{number}.txt", number / IN_ONE % 5, number / IN_ONE))
}

/// Runs git in a directory, without the configuration of the user.
pub fn run_git(directory: &Path, arguments: &[&str]) -> Result<String> {
    let mut git = command("git");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", "/nonexistent");
    for (name, value) in [("NAME", "Eyrie"), ("EMAIL", "eyrie@example.com"), ("DATE", "2026-01-01T00:00:00Z")]
    {
        git.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
    }
    succeed(git.current_dir(directory).args(["-c", "init.defaultBranch=main"]).args(arguments), LIMIT_S)
}

/// Copies a tree to the mount with tar, and back.
pub fn tar(context: &Context) -> Result<String> {
    there_and_back(context, "tar", tar_copy)
}

/// Packs the contents of `from` in an archive, and unpacks it in `to`.
pub fn tar_copy(from: &Path, to: &Path, archive: &Path) -> Result<()> {
    let mut pack = command("tar");
    pack.args(["--xattrs", "--sparse", "--create", "--file"]).arg(archive);
    succeed(pack.arg("--directory").arg(from).arg("."), LIMIT_S)?;
    let mut unpack = command("tar");
    unpack.args(["--xattrs", "--same-permissions", "--numeric-owner", "--extract", "--file"]).arg(archive);
    succeed(unpack.arg("--directory").arg(to), LIMIT_S)?;
    Ok(fs::remove_file(archive)?)
}

/// Copies a tree to the mount with rsync, and back.
pub fn rsync(context: &Context) -> Result<String> {
    there_and_back(context, "rsync", |from, to, _| rsync_copy(from, to))
}

/// Makes `to` a copy of `from`.
pub fn rsync_copy(from: &Path, to: &Path) -> Result<()> {
    succeed(&mut rsync_command(&[], from, to), LIMIT_S).map(drop)
}

/// Returns the command that makes `to` a copy of `from`, with all attributes.
fn rsync_command(options: &[&str], from: &Path, to: &Path) -> Command {
    let mut rsync = command("rsync");
    rsync.args(["-aHAX", "--checksum", "--numeric-ids", "--delete"]).args(options);
    // With a slash at its end, the path means the contents of the directory.
    rsync.arg(from.join("")).arg(to.join(""));
    rsync
}

/// Copies a tree to a mount, and from there to the host, and compares after each copy. `copy` gets the
/// source, the target (an empty directory), and the path of a file that it may use.
fn there_and_back(
    context: &Context,
    name: &str,
    copy: impl Fn(&Path, &Path, &Path) -> Result<()>,
) -> Result<String> {
    let source = source_tree(context)?;
    let mut mounted = Mounted::new(context, name, "suid")?;
    // The source is on a disk, and so is the second copy, because not every tmpfs has extended attributes.
    let (there, back) =
        (mounted.point().join("tree"), context.scratch(SuiteMedium::Disk).join(format!("{name}-back")));
    let archive = mounted.beside().join("archive");
    for directory in [&there, &back] {
        fs::create_dir(directory)?;
    }
    copy(&source, &there, &archive)?;
    compare(&source, &there)?;
    // After the remount, all bytes come from the volume.
    mounted.remount()?;
    compare(&source, &there)?;
    copy(&there, &back, &archive)?;
    compare(&source, &back)?;
    fs::remove_dir_all(back)?;
    mounted.finish()?;
    Ok(format!("{} entries, there and back", count_entries(&source)?))
}

/// Compares the contents of two trees with diff, and their contents and attributes with rsync.
fn compare(one: &Path, other: &Path) -> Result<()> {
    let mut diff = command("diff");
    diff.args(["-r", "--no-dereference"]);
    // Only rsync compares the FIFO, because diff reports every FIFO as a difference.
    let differences = succeed(diff.arg("--exclude=fifo").arg(one).arg(other), LIMIT_S)?;
    assert_same("diff", &differences, "")?;
    compare_attributes(one, other)
}

/// Compares the contents and attributes of two trees with rsync.
pub fn compare_attributes(one: &Path, other: &Path) -> Result<()> {
    let changes = succeed(&mut rsync_command(&["--dry-run", "--itemize-changes"], one, other), LIMIT_S)?;
    assert_same("rsync --dry-run", &changes, "")
}

/// Returns a tree on the disk with libraries of the toolchain, the documents of the host, and files with
/// unusual names, kinds and attributes. The first call makes the tree.
pub fn source_tree(context: &Context) -> Result<PathBuf> {
    let tree = context.scratch(SuiteMedium::Disk).join("tree");
    if tree.exists() {
        return Ok(tree);
    }
    let aside = tree.with_extension("new");
    fs::create_dir(&aside)?;
    let root = succeed(command("rustc").args(["--print", "sysroot"]), LIMIT_S)?;
    let real = [Path::new(root.trim()).join("lib/rustlib"), PathBuf::from("/usr/share/doc")];
    for from in real.iter().filter(|from| from.exists()) {
        succeed(command("cp").arg("-a").arg(from).arg(&aside), LIMIT_S)?;
    }
    let unusual = aside.join("unusual");
    fs::create_dir_all(unusual.join("empty directory"))?;
    fs::write(unusual.join("one"), bytes(1, 100_000))?;
    fs::hard_link(unusual.join("one"), unusual.join("same"))?;
    fs::hard_link(unusual.join("one"), unusual.join("empty directory/../third"))?;
    symlink("one", unusual.join("link"))?;
    symlink("/no/such/target", unusual.join("dangling"))?;
    for name in [&b"line\nbreak"[..], "später".as_bytes(), b"not-utf8-\xff", b"-dash", &[b'n'; 255]] {
        fs::write(unusual.join(OsStr::from_bytes(name)), name)?;
    }
    let sparse = fs::File::create(unusual.join("sparse"))?;
    sparse.set_len(64 << 20)?;
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 40 << 20)?;
    succeed(command("mkfifo").arg(unusual.join("fifo")), LIMIT_S)?;
    for (name, value) in
        [("user.small", bytes(2, 10)), ("user.large", bytes(3, 1500)), ("user.empty", vec![])]
    {
        rustix::fs::setxattr(unusual.join("one"), name, &value, XattrFlags::empty())?;
    }
    rustix::fs::setxattr(unusual.join("empty directory"), "user.directory", b"x", XattrFlags::empty())?;
    fs::write(unusual.join("owned"), "owned")?;
    std::os::unix::fs::chown(unusual.join("owned"), Some(1234), Some(4321))?;
    fs::set_permissions(unusual.join("owned"), fs::Permissions::from_mode(0o4751))?;
    fs::rename(aside, &tree)?;
    Ok(tree)
}

pub fn count_entries(tree: &Path) -> Result<usize> {
    let mut count = 0;
    let mut pending = vec![tree.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            count += 1;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    Ok(count)
}
