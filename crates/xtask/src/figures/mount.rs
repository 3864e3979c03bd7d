//! Measures programs on a mounted volume, and on libfuse's `passthrough_ll` over a tmpfs, in alternation.
//!
//! A process with default options serves each of the two file systems, and both keep their bytes in memory.
//! Each row but `open + close` checks its results: the bytes that it read, the sizes of files, or the names.
//! A call that fails ends the run. `git status` and `find` are compared with the tmpfs itself, because the
//! caches of the kernel answer their calls.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use rustix::process::{Resource, getrlimit};

use super::figure::{Figure, Measured, median};
use super::in_scratch;
use crate::packages::{self, Packaged};
use crate::run::{Result, eyrie_command, output, serve};

/// Source of `passthrough_ll` in the Debian package libfuse3-dev.
const PASSTHROUGH_SOURCE: &str = "/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c";
const VOLUME_SIZE: &str = "4G";
/// Number of rounds of the rows of calls, of `git status` and of `find`.
const ROUNDS: usize = 15;
/// Number of rounds of `tar`.
const PROGRAM_ROUNDS: usize = 5;
/// Number of files of the rows of calls.
const FILES: u32 = 2000;
/// Size of the file that is read and written, in bytes.
const LARGE_BYTES: usize = 64 << 20;
/// Number of files that `tar` unpacks, and that git has checked out. `passthrough_ll` keeps a descriptor of
/// each file that the kernel knows, so the tree has fewer files if the limit of descriptors is lower.
const TREE_FILES: u64 = 20_000;
/// Number of descriptors, within the limit, that the files of the tree leave for directories and other files.
const OTHER_DESCRIPTORS: u64 = 500;
/// Number of directories of the tree that `tar` unpacks.
const TREE_DIRECTORIES: u64 = 200;
/// Maximum time of a call on the mount, divided by that on `passthrough_ll`.
const RATIO: f64 = 1.0;
/// The limit of this ratio for rows that the kernel answers from its caches on both sides, with the same
/// code. Only noise makes their ratios differ from 1.
const CACHED_RATIO: f64 = 1.05;
/// Maximum time of `git status` and `find` on the mount, divided by that on tmpfs.
const CHECKOUT_RATIO: f64 = 1.3;

/// A row of calls: its name, the limit of its ratio, and the function that returns the mean time of a call in
/// µs.
type Row = (&'static str, f64, fn(&Path) -> Result<f64>);

const ROWS: [Row; 11] = [
    ("stat, cached", CACHED_RATIO, stat),
    ("open + close, cached", RATIO, open),
    ("read 4 KiB, cached", CACHED_RATIO, |dir| read_cached(dir, 4 << 10)),
    ("read 128 KiB, cached", CACHED_RATIO, |dir| read_cached(dir, 128 << 10)),
    ("read 4 KiB, sequential", RATIO, |dir| read_first(dir, 4 << 10)),
    ("read 128 KiB, sequential", RATIO, |dir| read_first(dir, 128 << 10)),
    ("read 4 KiB, random", RATIO, read_random),
    ("write 4 KiB", RATIO, |dir| write(dir, 4 << 10)),
    ("write 128 KiB", RATIO, |dir| write(dir, 128 << 10)),
    ("create + close", RATIO, create),
    ("unlink", RATIO, unlink),
];

/// A mounted file system, and the process that serves it. A drop unmounts the file system. If the process has
/// not ended then, the drop kills it after 200 ms.
struct Served {
    dir: PathBuf,
    server: Child,
}

impl Served {
    /// Starts a server in the foreground, and waits until `dir` is a mount point.
    fn start(server: &mut Command, dir: &Path) -> Result<Served> {
        Ok(Served { dir: dir.to_owned(), server: serve(server, dir)? })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // This unmount may fail because the server has ended, or because a program still uses the mount. The
        // code below handles both cases.
        let _ = Command::new("umount").arg(&self.dir).status();
        if !matches!(self.server.try_wait(), Ok(Some(_))) {
            std::thread::sleep(Duration::from_millis(200));
            let _ = Command::new("umount").arg("-l").arg(&self.dir).stderr(Stdio::null()).status();
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
    }
}

/// Programs and files that the figures of this module need, and the Debian packages that have them.
const PROGRAMS: [Packaged; 5] = [
    (PASSTHROUGH_SOURCE, "libfuse3-dev"),
    ("pkg-config", "pkg-config"),
    ("cc", "gcc"),
    ("git", "git"),
    ("tar", "tar"),
];

/// Installs missing programs. Fails if this user cannot open `/dev/fuse`. A run calls this function first, so
/// that it does not measure the figures of other groups in vain.
pub fn check_programs() -> Result<()> {
    packages::install(&PROGRAMS)?;
    let device = File::options().read(true).write(true).open("/dev/fuse");
    device.map_err(|error| format!("the group mount needs /dev/fuse: {error}"))?;
    Ok(())
}

/// Measures all rows below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    in_scratch(memory, "mount", compare)
}

fn compare(path: &Path) -> Result<Vec<Figure>> {
    let [ours, theirs, source, plain] =
        ["eyrie", "passthrough", "source", "plain"].map(|name| path.join(name));
    for dir in [&ours, &theirs, &source, &plain] {
        fs::create_dir_all(dir)?;
    }
    let eyrie = eyrie_command()?;
    let volume = path.join("volume");
    output(Command::new(&eyrie).arg("mkfs").arg(&volume).args(["--size", VOLUME_SIZE]))?;
    let mut server = Command::new(&eyrie);
    let on_ours = Served::start(server.args(["mount", "--foreground"]).arg(&volume).arg(&ours), &ours)?;
    let mut server = Command::new(passthrough(path)?);
    let mut option = OsString::from("source=");
    option.push(&source);
    let on_theirs = Served::start(server.args(["-f", "-o"]).arg(&option).arg(&theirs), &theirs)?;

    let mut figures = Vec::new();
    println!("µs a call, Eyrie's mount / passthrough_ll");
    for dir in [&ours, &theirs] {
        prepare(dir)?;
    }
    for (name, limit, row) in ROWS {
        let (on_ours, on_theirs) = alternate(ROUNDS, || row(&ours), || row(&theirs))?;
        figures.push(figure(name, limit, &on_ours, &on_theirs, "passthrough_ll"));
    }
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let files = TREE_FILES.min(descriptors.saturating_sub(OTHER_DESCRIPTORS));
    let archive = make_tree(path, files)?;
    for dir in [&ours, &theirs] {
        fs::remove_dir_all(dir.join("files"))?;
    }
    println!("ms a program, Eyrie's mount / passthrough_ll, then tmpfs");
    let unpacked =
        alternate(PROGRAM_ROUNDS, || unpack(&archive, &ours, files), || unpack(&archive, &theirs, files))?;
    figures.push(figure(
        &format!("tar x of {files} files"),
        RATIO,
        &unpacked.0,
        &unpacked.1,
        "passthrough_ll",
    ));
    for dir in [&ours, &plain] {
        check_out(&archive, dir)?;
    }
    let status = alternate(ROUNDS, || git_status(&ours), || git_status(&plain))?;
    figures.push(figure("git status", CHECKOUT_RATIO, &status.0, &status.1, "tmpfs"));
    let found = alternate(ROUNDS, || find(&ours, files), || find(&plain, files))?;
    figures.push(figure("find", CHECKOUT_RATIO, &found.0, &found.1, "tmpfs"));
    drop((on_ours, on_theirs));
    Ok(figures)
}

/// Compiles `passthrough_ll`. Returns the path of the program.
fn passthrough(path: &Path) -> Result<PathBuf> {
    let flags = output(Command::new("pkg-config").args(["fuse3", "--cflags", "--libs"]))?;
    let program = path.join("passthrough_ll");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-o"]).arg(&program).arg(PASSTHROUGH_SOURCE).args(flags.split_whitespace());
    output(&mut compiler)?;
    Ok(program)
}

/// Measures two sides in alternation, after one round that does not count. Returns the times of both sides.
fn alternate(
    rounds: usize,
    ours: impl Fn() -> Result<f64>,
    theirs: impl Fn() -> Result<f64>,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut on_ours, mut on_theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        // Each side comes first in every second round.
        let (time, other);
        if round % 2 == 0 {
            (time, other) = (ours()?, theirs()?);
        } else {
            other = theirs()?;
            time = ours()?;
        }
        if round > 0 {
            on_ours.push(time);
            on_theirs.push(other);
        }
    }
    Ok((on_ours, on_theirs))
}

/// Prints the median times of both sides. Returns the figure, which is the median of the ratios of the
/// rounds.
fn figure(name: &str, limit: f64, ours: &[f64], theirs: &[f64], against: &str) -> Figure {
    let ratio = Measured::of_ratios(ours, theirs);
    let (ours, theirs) = (median(ours), median(theirs));
    println!("{name:28}{:>18}", format!("{ours:.2} / {theirs:.2}"));
    Figure::at_most(format!("mount: {name}"), limit, ratio, &format!(" × {against}"))
}

/// Makes the files that the rows of calls use.
fn prepare(dir: &Path) -> Result<()> {
    fs::create_dir(dir.join("files"))?;
    for number in 0..FILES {
        fs::write(small(dir, number), number.to_le_bytes())?;
    }
    let bytes: Vec<u8> =
        (0..LARGE_BYTES).step_by(8).flat_map(|offset| (offset as u64).to_le_bytes()).collect();
    Ok(fs::write(dir.join("large"), bytes)?)
}

fn small(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("files/file-{number:06}"))
}

/// Runs `work`, which makes `calls` calls. Returns the mean time of a call in microseconds.
fn per_call(calls: usize, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64() * 1e6 / calls as f64)
}

/// Calls `call` for each small file, ten times.
fn each_small(dir: &Path, call: impl Fn(&Path) -> Result<()>) -> Result<f64> {
    let paths: Vec<PathBuf> = (0..FILES).map(|number| small(dir, number)).collect();
    per_call(paths.len() * 10, || (0..10).try_for_each(|_| paths.iter().try_for_each(|path| call(path))))
}

fn stat(dir: &Path) -> Result<f64> {
    each_small(dir, |path| match fs::metadata(path)?.len() {
        4 => Ok(()),
        size => Err(format!("{} has {size} bytes", path.display()).into()),
    })
}

fn open(dir: &Path) -> Result<f64> {
    each_small(dir, |path| {
        File::open(path)?;
        Ok(())
    })
}

/// Fails if `bytes` are not those of the large file at `offset`.
fn check_large(bytes: &[u8], offset: usize) -> Result<()> {
    let (first, last) = (offset as u64, (offset + bytes.len() - 8) as u64);
    if bytes.starts_with(&first.to_le_bytes()) && bytes.ends_with(&last.to_le_bytes()) {
        return Ok(());
    }
    Err(format!("wrong bytes at {offset}").into())
}

/// Reads the large file in order.
fn read_all(file: &File, buffer: &mut [u8]) -> Result<()> {
    for offset in (0..LARGE_BYTES).step_by(buffer.len()) {
        file.read_exact_at(buffer, offset as u64)?;
        check_large(buffer, offset)?;
    }
    Ok(())
}

fn read_cached(dir: &Path, size: usize) -> Result<f64> {
    let (file, mut buffer) = (File::open(dir.join("large"))?, vec![0; size]);
    read_all(&file, &mut buffer)?;
    per_call(LARGE_BYTES / size, || read_all(&file, &mut buffer))
}

/// Reads the large file in order, after the kernel has dropped it from its cache.
fn read_first(dir: &Path, size: usize) -> Result<f64> {
    let (file, mut buffer) = (File::open(dir.join("large"))?, vec![0; size]);
    fadvise(&file, 0, None, Advice::DontNeed)?;
    per_call(LARGE_BYTES / size, || read_all(&file, &mut buffer))
}

/// Reads 4 KiB at places that the kernel has not cached and does not read ahead.
fn read_random(dir: &Path) -> Result<f64> {
    const BLOCK: usize = 4 << 10;
    const BLOCKS: usize = LARGE_BYTES / BLOCK;
    let (file, mut buffer) = (File::open(dir.join("large"))?, [0; BLOCK]);
    fadvise(&file, 0, None, Advice::DontNeed)?;
    fadvise(&file, 0, None, Advice::Random)?;
    per_call(BLOCKS / 4, || {
        (0..BLOCKS / 4).try_for_each(|number| {
            // The factor is odd, and the number of blocks is a power of two, so no block is read twice.
            let offset = number * 2_654_435_761 % BLOCKS * BLOCK;
            file.read_exact_at(&mut buffer, offset as u64)?;
            check_large(&buffer, offset)
        })
    })
}

fn write(dir: &Path, size: usize) -> Result<f64> {
    let path = dir.join("written");
    let file = File::options().create(true).truncate(false).write(true).open(&path)?;
    let buffer = vec![7; size];
    let took = per_call(LARGE_BYTES / size, || {
        let mut offsets = (0..LARGE_BYTES).step_by(size);
        Ok(offsets.try_for_each(|offset| file.write_all_at(&buffer, offset as u64))?)
    })?;
    match fs::metadata(&path)?.len() {
        size if size == LARGE_BYTES as u64 => Ok(took),
        size => Err(format!("{size} bytes written").into()),
    }
}

/// Creates empty files, and removes them again.
fn create_and_unlink(dir: &Path) -> Result<(f64, f64)> {
    let dir = dir.join("created");
    fs::create_dir(&dir)?;
    let paths: Vec<PathBuf> = (0..FILES).map(|number| dir.join(format!("file-{number:06}"))).collect();
    let created =
        per_call(paths.len(), || Ok(paths.iter().try_for_each(|path| File::create(path).map(drop))?))?;
    let listed = fs::read_dir(&dir)?.count();
    let removed = per_call(paths.len(), || Ok(paths.iter().try_for_each(fs::remove_file)?))?;
    // The removal of the directory fails if a file is left.
    fs::remove_dir(&dir)?;
    if listed != paths.len() {
        return Err(format!("{listed} files created").into());
    }
    Ok((created, removed))
}

fn create(dir: &Path) -> Result<f64> {
    Ok(create_and_unlink(dir)?.0)
}

fn unlink(dir: &Path) -> Result<f64> {
    Ok(create_and_unlink(dir)?.1)
}

/// Makes a tree of source files on the tmpfs. Returns an archive of it.
fn make_tree(path: &Path, files: u64) -> Result<PathBuf> {
    let (tree, archive) = (path.join("tree"), path.join("tree.tar"));
    for number in 0..files {
        let dir = tree.join(format!("part-{:03}", number % TREE_DIRECTORIES));
        fs::create_dir_all(&dir)?;
        let text = format!("line of file {number}\n").repeat(number as usize % 300);
        fs::write(dir.join(format!("file-{number:05}.txt")), text)?;
    }
    output(Command::new("tar").arg("cf").arg(&archive).arg("-C").arg(path).arg("tree"))?;
    fs::remove_dir_all(&tree)?;
    Ok(archive)
}

/// Returns the milliseconds of a program, and its output.
fn time(program: &mut Command) -> Result<(f64, String)> {
    let started = Instant::now();
    let printed = output(program)?;
    Ok((started.elapsed().as_secs_f64() * 1e3, printed))
}

fn unpack(archive: &Path, dir: &Path, count: u64) -> Result<f64> {
    let (took, _) = time(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(dir))?;
    let files = output(Command::new("find").arg(dir.join("tree")).args(["-type", "f"]))?.lines().count();
    fs::remove_dir_all(dir.join("tree"))?;
    if files as u64 == count { Ok(took) } else { Err(format!("tar made {files} files").into()) }
}

/// Unpacks the tree, and makes it the checkout of a repository.
fn check_out(archive: &Path, dir: &Path) -> Result<()> {
    output(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(dir))?;
    let git =
        |arguments: &[&str]| output(Command::new("git").arg("-C").arg(dir.join("tree")).args(arguments));
    git(&["init", "--quiet"])?;
    // A garbage collection by git would continue in the background, and move files.
    git(&["config", "gc.auto", "0"])?;
    git(&["add", "."])?;
    let user = ["-c", "user.name=eyrie", "-c", "user.email=eyrie@localhost"];
    git(&[&user[..], &["commit", "--quiet", "-m", "tree"]].concat())?;
    // An index that is as old as its files makes git read their bytes again.
    std::thread::sleep(Duration::from_millis(1100));
    git(&["update-index", "-q", "--refresh"])?;
    Ok(())
}

fn git_status(dir: &Path) -> Result<f64> {
    let mut git = Command::new("git");
    let (took, changed) = time(git.arg("-C").arg(dir.join("tree")).args(["status", "--porcelain"]))?;
    if changed.is_empty() { Ok(took) } else { Err(format!("git sees changes: {changed}").into()) }
}

fn find(dir: &Path, files: u64) -> Result<f64> {
    let mut find = Command::new("find");
    let (took, found) = time(find.arg(dir.join("tree")).args(["-name", "*.txt", "-size", "-1000k"]))?;
    let count = found.lines().count();
    if count as u64 == files { Ok(took) } else { Err(format!("find found {count} files").into()) }
}
