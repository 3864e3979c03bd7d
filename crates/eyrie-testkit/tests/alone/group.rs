//! Tests of volumes in a control group with 64 MiB of memory, with the default options for memory.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use eyrie::{Credentials, Files, MediumChoice, PosixExt, Volume};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::alone;

const LIMIT_BYTES: u64 = 64 << 20;
/// Names of the environment variables of a child: the directory of its group, and the path of its volume.
const GROUP: &str = "EYRIE_TEST_GROUP";
const PLACE: &str = "EYRIE_TEST_GROUP_PLACE";

/// A control group with a limit of memory, and without swap if the kernel counts swap. The drop of this value
/// removes the group.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> io::Result<Group> {
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let own =
            |start: &str| groups.lines().find_map(|line| line.split_once(start)).map(|(_, group)| group);
        let first = own(":memory:/").map(first_version);
        let second = || own("0::/").and_then(second_version);
        let parent = first.or_else(second).ok_or(io::Error::other("no control group limits memory"))?;
        let dir = parent.join(format!("eyrie-test-{}-{name}", std::process::id()));
        fs::create_dir(&dir)?;
        let group = Group(dir);
        let limit = LIMIT_BYTES.to_string();
        // Errors about swap are ignored, because some kernels do not count swap.
        if group.0.join("memory.max").exists() {
            group.set("memory.max", &limit)?;
            let _ = group.set("memory.swap.max", "0");
        } else {
            group.set("memory.limit_in_bytes", &limit)?;
            let _ = group.set("memory.memsw.limit_in_bytes", &limit);
        }
        Ok(group)
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        fs::OpenOptions::new().write(true).open(self.0.join(file))?.write_all(value.as_bytes())
    }
}

/// Returns the directory of this process's group in version 1. In a container, the mount may show only the
/// container's group, although `group` is a path from the top of all groups. The function then returns the
/// mount itself.
fn first_version(group: &str) -> PathBuf {
    let mount = Path::new("/sys/fs/cgroup/memory");
    Some(mount.join(group)).filter(|dir| dir.is_dir()).unwrap_or(mount.to_owned())
}

/// Returns the nearest group of version 2 whose children may have limits, from this process's group upwards.
/// The kernel refuses such children in a group with processes, so the function usually returns an ancestor.
fn second_version(group: &str) -> Option<PathBuf> {
    let limits = |dir: &PathBuf| {
        let controllers = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
        controllers.split_whitespace().any(|controller| controller == "memory")
    };
    Path::new(group).ancestors().map(|group| Path::new("/sys/fs/cgroup").join(group)).find(limits)
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Returns a temporary directory. Fails if its file system is a tmpfs, which has its files in memory.
fn disk() -> io::Result<tempfile::TempDir> {
    const TMPFS: u64 = 0x0102_1994;
    let host = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    // The kernel's type of this number is signed on some architectures.
    match rustix::fs::statfs(host.path())?.f_type as u64 {
        TMPFS => Err(io::Error::other("the target directory is in memory")),
        _ => Ok(host),
    }
}

/// Runs `work` on the files of a new volume, in a child process inside a control group. Panics if the child
/// fails or needs more memory than the group has. If the host has no such group or no disk, this function
/// prints a note and returns.
fn in_a_group(test: &str, volume_bytes: u64, work: impl FnOnce(&Files)) {
    if let (Some(group), Some(path)) = (std::env::var_os(GROUP), std::env::var_os(PLACE)) {
        fs::write(Path::new(&group).join("cgroup.procs"), "0").expect("a group for this process");
        let options = Volume::options().size(volume_bytes).medium(MediumChoice::Paged);
        let volume = options.create(path).expect("room");
        let files = volume.files(Credentials::root());
        work(&files);
        drop(files);
        volume.close().expect("the disk is sound");
        println!("{}", fs::read_to_string("/proc/self/status").expect("this process's own"));
        return;
    }
    let _alone = alone();
    let (group, host) = match Group::new(test).and_then(|group| Ok((group, disk()?))) {
        Ok(made) => made,
        Err(why) => {
            // The note is written to the stream itself, because the test harness hides the output of print
            // macros in tests that pass.
            let _ = writeln!(io::stderr(), "{test}: skipped, it needs a control group and a disk: {why}");
            return;
        }
    };
    let child = Command::new(std::env::current_exe().expect("the test knows its program"))
        .args([&format!("group::{test}"), "--exact", "--nocapture"])
        .env(GROUP, &group.0)
        .env(PLACE, host.path().join("volume"))
        .output()
        .expect("the test can be started again");
    let output = String::from_utf8_lossy(&child.stdout);
    assert_ne!(child.status.signal(), Some(9), "the group had not enough memory");
    assert!(child.status.success(), "{output}{}", String::from_utf8_lossy(&child.stderr));
    let most = most_memory(&output).expect("the child prints its status");
    println!("at most {} KiB in memory", most >> 10);
    assert!(most < LIMIT_BYTES, "{most} bytes in memory");
}

/// Returns the peak memory of a process in bytes, from the text of its `/proc` status.
fn most_memory(status: &str) -> Option<u64> {
    let (_, rest) = status.split_once("VmHWM:")?;
    Some(rest.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut content);
    content
}

#[test]
fn files_four_times_their_control_group_are_written_and_read_back() {
    const FILE_BYTES: usize = 1 << 20;
    let count = 4 * LIMIT_BYTES / FILE_BYTES as u64;
    in_a_group("files_four_times_their_control_group_are_written_and_read_back", 5 * LIMIT_BYTES, |files| {
        for number in 0..count {
            files.write(format!("/{number}"), content(number, FILE_BYTES)).expect("room");
        }
        for number in (0..count).chain((0..count).rev()) {
            let read = files.read(format!("/{number}")).expect("sound");
            assert!(read == content(number, FILE_BYTES), "file {number}");
        }
    });
}

#[test]
fn writers_of_small_files_stay_within_their_control_group() {
    const FILE_BYTES: usize = 4096;
    const WRITERS: u64 = 2;
    let count = 3 * LIMIT_BYTES / FILE_BYTES as u64 / WRITERS;
    in_a_group("writers_of_small_files_stay_within_their_control_group", 5 * LIMIT_BYTES, |files| {
        let write_and_read = |writer: u64| {
            let place = |number| format!("/{writer}/{number}");
            files.create_dir(format!("/{writer}")).expect("room");
            for number in 0..count {
                files.write(place(number), content(number, FILE_BYTES)).expect("room");
            }
            for number in 0..count {
                let read = files.read(place(number)).expect("sound");
                assert!(read == content(number, FILE_BYTES), "file {number} of writer {writer}");
            }
        };
        std::thread::scope(|scope| {
            (0..WRITERS).for_each(|writer| drop(scope.spawn(move || write_and_read(writer))));
        });
    });
}
