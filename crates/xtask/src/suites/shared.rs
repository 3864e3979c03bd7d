//! A volume that a service shares: two mounts and a program that reads through the library use it at the same
//! time. The volume is first in memory and then on a disk. On the disk, the page cache of its service is
//! smaller than the data.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use eyrie::{Credentials, Errno, Kind, PosixExt, Volume, WalkStep};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};

use super::mounted::SuiteMedium;
use super::tool::{assert_same, command, succeed, wait};
use super::trees::{make_repository, run_git};
use super::{Context, mounted};
use crate::run::{Result, serve, start_service};

/// Time limit of one program, in seconds.
const LIMIT_S: u64 = 120;
/// Time limit for the start and for the end of a service.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time in which a mount learns of changes that other programs make to the volume.
const NOTICE: Duration = Duration::from_millis(500);
/// Number of writes whose delay is measured: the time until the other mount shows the write.
const WRITES: u64 = 2000;
/// Limit of the page cache of a service of a disk.
const CACHE: &str = "4M";
/// Number of files that `make` makes from other files.
const PARTS: u32 = 300;

/// A volume, its service, and two mounts. A drop ends all of them, also after a failure.
struct SharedVolume<'a> {
    eyrie: &'a Path,
    medium: SuiteMedium,
    directory: PathBuf,
    service: Option<Child>,
    mounts: Vec<Child>,
}

impl SharedVolume<'_> {
    fn volume(&self) -> PathBuf {
        self.directory.join("volume")
    }

    fn point(&self, number: usize) -> PathBuf {
        self.directory.join(format!("mnt-{number}"))
    }

    fn eyrie(&self, word: &str) -> Command {
        mounted::eyrie(self.eyrie, word)
    }

    /// Starts the service, and waits until programs can connect.
    fn start(&mut self) -> Result<()> {
        let mut service = self.eyrie("serve");
        if self.medium == SuiteMedium::Disk {
            service.args(["--memory", CACHE]);
        }
        self.service = Some(start_service(self.eyrie, service, &self.volume())?);
        Ok(())
    }

    fn mount(&mut self, number: usize) -> Result<()> {
        fs::create_dir(self.point(number))?;
        let mut mount = self.eyrie("mount");
        mount.arg("--foreground").arg(self.volume()).arg(self.point(number)).stdout(Stdio::null());
        self.mounts.push(serve(&mut mount, &self.point(number))?);
        Ok(())
    }

    /// Kills the service with SIGKILL, and starts the next one.
    fn kill(&mut self) -> Result<()> {
        if let Some(mut service) = self.service.take() {
            mounted::kill(&mut service, "eyrie serve")?;
        }
        self.start()
    }

    /// Ends the service while programs use the volume, and starts the next one. The service of a disk is
    /// stopped, because a kill would undo changes on which these programs rely. The service of a volume in
    /// memory is killed.
    fn replace(&mut self) -> Result<()> {
        match self.medium {
            SuiteMedium::Memory => self.kill(),
            SuiteMedium::Disk => {
                self.stop()?;
                self.start()
            }
        }
    }

    /// Stops the service with SIGTERM.
    fn stop(&mut self) -> Result<()> {
        let mut service = self.service.take().ok_or("no service")?;
        kill_process(Pid::from_child(&service), Signal::TERM)?;
        mounted::ended_well(&mut service, "eyrie serve")
    }

    /// Unmounts the volume, stops the service, and checks the volume.
    fn finish(mut self) -> Result<()> {
        for (number, mut mount) in std::mem::take(&mut self.mounts).into_iter().enumerate() {
            mounted::unmount(self.eyrie, &self.point(number), &mut mount)?;
        }
        self.stop()?;
        succeed(self.eyrie("fsck").arg("--quiet").arg(self.volume()), LIMIT_S).map(drop)
    }
}

impl Drop for SharedVolume<'_> {
    fn drop(&mut self) {
        for child in self.mounts.iter_mut().chain(&mut self.service) {
            let _ = child.kill();
            let _ = child.wait();
        }
        for number in 0..2 {
            let _ = rustix::mount::unmount(self.point(number), UnmountFlags::DETACH);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Clones a repository in one mount and builds in the other one, while this process reads all files through
/// the library. The service is replaced in the middle of a build. At the end the changes are synchronised,
/// and the service is killed.
pub fn shared(context: &Context) -> Result<String> {
    let mut remarks = Vec::new();
    for medium in SuiteMedium::ALL {
        let remark = share(context, medium).map_err(|error| format!("{}: {error}", medium.name()))?;
        remarks.push(format!("{}: {remark}", medium.name()));
    }
    Ok(format!("git and make in two mounts\n{}", remarks.join("\n")))
}

fn share(context: &Context, medium: SuiteMedium) -> Result<String> {
    let directory = context.scratch(medium).join("shared");
    let (eyrie, service, mounts) = (&context.eyrie, None, Vec::new());
    let mut shared = SharedVolume { eyrie, medium, directory, service, mounts };
    fs::create_dir_all(&shared.directory)?;
    let mut mkfs = shared.eyrie("mkfs");
    mkfs.args(["--quiet", "--size", "2G", "--medium", medium.name()]).arg(shared.volume());
    succeed(&mut mkfs, LIMIT_S)?;
    shared.start()?;
    shared.mount(0)?;
    shared.mount(1)?;
    let delays = delays(&shared)?;
    let source = shared.directory.join("source");
    make_repository(&source)?;
    let (volume, is_done) = (Volume::open(shared.volume())?, AtomicBool::new(false));
    let read = std::thread::scope(|scope| -> Result<u64> {
        let reader = scope.spawn(|| read_all(&volume, &is_done).map_err(|error| error.to_string()));
        let worked = work(&mut shared, &source);
        is_done.store(true, Ordering::Relaxed);
        let read = reader.join().map_err(|_| "a thread has panicked")?;
        worked.and(Ok(read?))
    })?;
    volume.close()?;
    shared.finish()?;
    let at = |part: usize| delays[delays.len() * part / 100].as_micros();
    Ok(format!(
        "{read} files read meanwhile, 2 services replaced; a write is visible in the other mount after {} µs \
         (median), {} µs (p99)",
        at(50),
        at(99)
    ))
}

/// Writes to a file in one mount. Returns the sorted times until each write is visible in the other mount.
fn delays(shared: &SharedVolume<'_>) -> Result<Vec<Duration>> {
    let write = fs::File::create(shared.point(0).join("delays"))?;
    write.write_all_at(&[0; 8], 0)?;
    let read = fs::File::open(shared.point(1).join("delays"))?;
    let mut delays = Vec::new();
    for number in 1..=WRITES {
        write.write_all_at(&number.to_le_bytes(), 0)?;
        let written = Instant::now();
        let mut seen = [0; 8];
        while u64::from_le_bytes(seen) != number {
            if written.elapsed() > PATIENCE {
                return Err("a write never became visible in the other mount".into());
            }
            read.read_exact_at(&mut seen, 0)?;
        }
        delays.push(written.elapsed());
    }
    delays.sort_unstable();
    Ok(delays)
}

fn work(shared: &mut SharedVolume<'_>, source: &Path) -> Result<()> {
    let (here, there) = (shared.point(0).join("clone"), shared.point(1).join("clone"));
    run_git(&shared.directory, &["clone", "--quiet", "--no-local", "source", &here.to_string_lossy()])?;
    std::thread::sleep(NOTICE);
    run_git(&there, &["fsck", "--full", "--strict", "--no-progress"])?;
    assert_same("git status", &run_git(&there, &["status", "--porcelain"])?, "")?;
    let mut diff = command("diff");
    diff.args(["-r", "--no-dereference", "--exclude=.git"]);
    assert_same("diff", &succeed(diff.arg(source).arg(&there), LIMIT_S)?, "")?;
    // Each mount shows the checkout that git makes in the other mount.
    for (one, other) in [(&there, &here), (&here, &there)] {
        run_git(one, &["checkout", "--quiet", if one == &there { "HEAD~5" } else { "main" }])?;
        std::thread::sleep(NOTICE);
        assert_same("git status", &run_git(other, &["status", "--porcelain"])?, "")?;
    }

    let build = shared.point(1).join("build");
    fs::create_dir(&build)?;
    let parts: Vec<String> = (0..PARTS).map(|number| format!("{number}.out")).collect();
    let rules = format!(
        "all: {0}\n\tcat $^ > all\n%.out: %.in\n\tsed s/part/made/ $< > $@.new\n\tmv $@.new $@\n",
        parts.join(" ")
    );
    fs::write(build.join("Makefile"), rules)?;
    for number in 0..PARTS {
        fs::write(build.join(format!("{number}.in")), format!("part {number}\n"))?;
    }
    let mut make = command("make");
    make.args(["--silent", "-j2", "-C"]).arg(&build).stdout(Stdio::null()).stderr(Stdio::inherit());
    let mut make = make.spawn()?;
    while !build.join("20.out").exists() && make.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    if let Some(status) = make.try_wait()? {
        return Err(format!("make has ended before the service was replaced: {status}").into());
    }
    shared.replace()?;
    match wait(&mut make, Duration::from_secs(LIMIT_S))? {
        Some(status) if status.success() => {}
        other => return Err(format!("make: {other:?}").into()),
    }
    std::thread::sleep(NOTICE);
    let wanted: String = (0..PARTS).map(|number| format!("made {number}\n")).collect();
    assert_same("the other mount", &fs::read_to_string(shared.point(0).join("build/all"))?, &wanted)?;

    // A sync in one mount makes the changes of both durable, but each mount must also learn that its own
    // changes are durable. The kernel does not pass `syncfs` on to the server of a mount, so this is an
    // `fsync`.
    for number in 0..2 {
        fs::File::open(shared.point(number))?.sync_all().map_err(|error| format!("fsync: {error}"))?;
    }
    shared.kill()?;
    assert_same("after a kill", &fs::read_to_string(shared.point(0).join("build/all"))?, &wanted)?;
    run_git(&here, &["fsck", "--full", "--strict", "--no-progress"])?;
    let mut diff = command("diff");
    diff.args(["-r", "--no-dereference", "--exclude=.git"]);
    assert_same("diff after a kill", &succeed(diff.arg(source).arg(&here), LIMIT_S)?, "")?;
    for number in 0..2 {
        let path = shared.point(number).join(format!("after-{number}"));
        fs::write(&path, "blue")?;
        let synced = fs::File::open(path)?.sync_all();
        synced.map_err(|error| format!("fsync after the kill in mount {number}: {error}"))?;
    }
    Ok(())
}

/// Reads all files again and again until `is_done` is true. Returns the number of files that it has read.
fn read_all(volume: &Volume, is_done: &AtomicBool) -> Result<u64> {
    let files = volume.files(Credentials::of_process());
    let mut count = 0;
    while !is_done.load(Ordering::Relaxed) {
        for step in files.walk("/")? {
            let read = match step {
                WalkStep::Entry(entry) if entry.kind == Kind::File => {
                    files.read(Path::new("/").join(&entry.relative)).map(|_| 1)
                }
                WalkStep::Failed(_, error) => Err(error),
                _ => Ok(0),
            };
            match read {
                Ok(read) => count += read,
                // The programs in the mounts rename and remove entries that this walk is about to visit.
                Err(error) if [Errno::NOENT, Errno::NOTDIR].contains(&error.errno()) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(count)
}
