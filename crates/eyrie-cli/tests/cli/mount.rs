//! Tests of `eyrie mount` and `eyrie umount`. They need root and `/dev/fuse`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use eyrie::{LockKind, LockWait, PosixExt};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::Signal;

use super::Sandbox;
use super::served::{Managed, Program, Service, eventually, signal};

/// Returns a sandbox with a volume and a mount point. If this user cannot mount here, prints a line that says
/// so, and returns `None`.
fn sandbox() -> Option<Sandbox> {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if device.is_err() || !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: only root tests mounts, with /dev/fuse");
        return None;
    }
    let sandbox = Sandbox::with_volume("32M");
    fs::create_dir(sandbox.path("mnt")).unwrap();
    Some(sandbox)
}

/// Runs a command that must fail. Returns its exit status and its line on standard error.
fn fail<const N: usize>(sandbox: &Sandbox, arguments: [&str; N]) -> (Option<i32>, String) {
    let output = sandbox.run(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Serves a mount in the foreground, and waits until it can be used.
fn serve(sandbox: &Sandbox, point: &str) -> Managed {
    Managed::start(sandbox, ["mount", "--foreground", "vol", point])
}

fn ends(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the server goes on");
}

/// If both paths counted as two files, a move would copy the file over itself, and then remove it.
#[test]
fn regression_file_of_a_mount_does_not_replace_itself() {
    let Some(sandbox) = sandbox() else { return };
    let service = Service::start(&sandbox);
    fs::write(sandbox.path("egg"), "blue").unwrap();
    sandbox.succeed(["mkdir", "vol:/nest"]);
    sandbox.succeed(["cp", "egg", "vol:/nest/egg"]);
    sandbox.succeed(["mount", "vol", "mnt"]);
    for [from, to] in [["mnt/nest/egg", "vol:/nest/egg"], ["vol:/nest/egg", "mnt/nest/egg"]] {
        sandbox.fail(1, &[from, "same file"], ["mv", from, to]);
        sandbox.fail(1, &[from, "same file"], ["cp", from, to]);
    }
    sandbox.fail(1, &["mnt/nest/egg", "same file"], ["cp", "-r", "mnt/nest", "vol:/"]);
    assert_eq!(sandbox.succeed(["ls", "-a", "vol:/nest"]), "egg\n");
    assert_eq!(sandbox.succeed(["cat", "vol:/nest/egg"]), "blue");
    sandbox.succeed(["umount", "mnt"]);
    service.stop();
}

/// The files of the two volumes have the same inode numbers and times.
#[test]
fn regression_files_of_a_mounted_copy_replace_those_of_the_volume() {
    let Some(sandbox) = sandbox() else { return };
    fs::write(sandbox.path("egg"), "blue").unwrap();
    sandbox.succeed(["mkdir", "vol:/nest"]);
    sandbox.succeed(["cp", "egg", "vol:/nest/egg"]);
    let copied = Command::new("cp").arg("-r").args([sandbox.path("vol"), sandbox.path("copy")]).status();
    assert!(copied.unwrap().success());
    sandbox.succeed(["mount", "copy", "mnt"]);
    sandbox.succeed(["cp", "mnt/nest/egg", "vol:/nest/egg"]);
    sandbox.succeed(["cp", "-r", "mnt/nest", "vol:/"]);
    sandbox.succeed(["mv", "mnt/nest/egg", "vol:/nest"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/nest/egg"]), "blue");
    sandbox.succeed(["umount", "mnt"]);
}

#[test]
fn fake_mount_mounts_nothing() {
    let sandbox = Sandbox::with_volume("32M");
    fs::create_dir(sandbox.path("mnt")).unwrap();
    sandbox.succeed(["mount", "--fake", "vol", "mnt"]);
    sandbox.succeed(["touch", "vol:/file"]);
    assert_eq!(fs::read_dir(sandbox.path("mnt")).unwrap().count(), 0);
}

#[test]
fn volume_is_mounted_in_the_background_until_umount() {
    let Some(sandbox) = sandbox() else { return };
    sandbox.succeed(["mount", "vol", "mnt"]);
    fs::write(sandbox.path("mnt/egg"), "blue").unwrap();
    let (status, line) = fail(&sandbox, ["mount", "vol", "mnt"]);
    assert!(status == Some(1) && line.contains("in use"), "{line}");
    let (_, line) = fail(&sandbox, ["ls", "vol:/"]);
    assert!(line.contains("in use"), "{line}");
    let open = fs::File::open(sandbox.path("mnt/egg")).unwrap();
    let (status, line) = fail(&sandbox, ["umount", "mnt"]);
    assert!(status == Some(1) && line.contains("busy") && line.contains("--lazy"), "{line}");
    drop(open);
    sandbox.succeed(["umount", "mnt"]);
    // The volume can be used at once.
    assert_eq!(sandbox.succeed(["cat", "vol:/egg"]), "blue");
    sandbox.succeed(["fsck", "--quiet", "vol"]);
    sandbox.succeed(["mount", "-o", "ro", "vol", "mnt"]);
    assert_eq!(fs::read(sandbox.path("mnt/egg")).unwrap(), b"blue");
    assert!(fs::write(sandbox.path("mnt/egg"), "red").is_err());
    assert_eq!(sandbox.succeed(["cat", "vol:/egg"]), "blue", "readers run side by side");
    sandbox.succeed(["umount", "mnt"]);
}

#[test]
fn bad_mounts_fail_and_leave_nothing_mounted() {
    let Some(sandbox) = sandbox() else { return };
    fs::write(sandbox.path("file"), "").unwrap();
    for (arguments, status, text) in [
        (["mount", "-oro", "missing", "mnt"], 3, "no volume is there"),
        (["mount", "-oro", "vol", "missing"], 3, "No such file or directory"),
        (["mount", "-oro", "vol", "file"], 1, "Not a directory"),
        (["mount", "-ocolour", "vol", "mnt"], 2, "unknown"),
        (["mount", "-oro", "vol", "/dev/shm"], 1, "another file system is mounted there"),
        (["mount", "-oro", "mnt", "mnt"], 1, "mnt"),
        (["mount", "-oro", "vol", "./vol"], 1, "this is the volume's own storage"),
        (["umount", "--lazy", "--", "mnt"], 1, "no volume of Eyrie is mounted there"),
    ] {
        let (code, line) = fail(&sandbox, arguments);
        assert!(code == Some(status) && line.contains(text), "{arguments:?}: {code:?} {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(sandbox.path("mnt").to_str().unwrap()));
    sandbox.succeed(["fsck", "--quiet", "vol"]);
}

#[test]
fn signal_unmounts_and_saves_the_volume() {
    let Some(sandbox) = sandbox() else { return };
    for in_use in [false, true] {
        let mut server = serve(&sandbox, "mnt");
        fs::write(sandbox.path("mnt/egg"), if in_use { "red" } else { "blue" }).unwrap();
        let open = in_use.then(|| fs::File::open(sandbox.path("mnt/egg")).unwrap());
        signal(&server.child, Signal::TERM);
        assert_eq!(ends(&mut server.child), Some(0));
        drop(open);
        assert_eq!(fs::read_dir(sandbox.path("mnt")).unwrap().count(), 0);
        let json = sandbox.succeed(["info", "--json", "vol"]);
        assert!(json.contains("\"recovered\": false"), "{json}");
    }
    assert_eq!(sandbox.succeed(["cat", "vol:/egg"]), "red");
}

#[test]
fn killed_server_leaves_a_sound_volume() {
    let Some(sandbox) = sandbox() else { return };
    let mut server = serve(&sandbox, "mnt");
    for number in 0..100 {
        fs::write(sandbox.path(format!("mnt/{number}")), number.to_string()).unwrap();
    }
    signal(&server.child, Signal::KILL);
    assert_eq!(ends(&mut server.child), None);
    // The mount point needs an unmount before the next mount.
    let (_, line) = fail(&sandbox, ["mount", "vol", "mnt"]);
    assert!(line.contains("mount"), "{line}");
    sandbox.succeed(["umount", "mnt"]);
    sandbox.succeed(["fsck", "--quiet", "vol"]);
    sandbox.succeed(["mount", "vol", "mnt"]);
    for number in 0..100 {
        assert_eq!(fs::read_to_string(sandbox.path(format!("mnt/{number}"))).unwrap(), number.to_string());
    }
    sandbox.succeed(["umount", "mnt"]);
}

#[test]
fn mount_at_a_limit_of_descriptors_works_or_fails() {
    let Some(sandbox) = sandbox() else { return };
    let (mut mounted, mut refused) = (0, 0);
    for limit in 3..40 {
        let program = sandbox.command(["mount"]).get_program().to_owned();
        let script = format!("ulimit -n {limit} && exec \"$0\" mount -o threads=4 vol mnt");
        let mut limited = Command::new("sh");
        limited.args(["-c", &script]).arg(program).current_dir(sandbox.path(""));
        let mut child = limited.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        if ends(&mut child) == Some(0) {
            mounted += 1;
            fs::write(sandbox.path("mnt/file"), "nest").unwrap();
            sandbox.succeed(["umount", "mnt"]);
        } else {
            refused += 1;
        }
        assert_eq!(fs::read_dir(sandbox.path("mnt")).unwrap().count(), 0, "mounted at a limit of {limit}");
    }
    assert!(mounted > 0 && refused > 0, "{mounted} mounts, {refused} refusals");
}

fn mount_tmpfs(place: &Path) {
    rustix::mount::mount("tmpfs", place, "tmpfs", MountFlags::empty(), None).unwrap();
}

/// Mounts a tmpfs, and returns its place and those of two directories in it. The tmpfs is private, because
/// the kernel moves no mount out of a shared one.
fn stage(sandbox: &Sandbox) -> [PathBuf; 3] {
    let [stage, from, to] = ["stage", "stage/from", "stage/to"].map(|name| sandbox.path(name));
    fs::create_dir(&stage).unwrap();
    mount_tmpfs(&stage);
    rustix::mount::mount_change(&stage, MountPropagationFlags::PRIVATE).unwrap();
    [&from, &to].into_iter().for_each(|place| fs::create_dir(place).unwrap());
    [stage, from, to]
}

#[test]
fn umount_does_not_wait_for_a_bind_mount() {
    let Some(sandbox) = sandbox() else { return };
    let [stage, from, to] = stage(&sandbox);
    sandbox.succeed(["mount", "vol", "stage/from"]);
    rustix::mount::mount_bind(&from, &to).unwrap();
    let mut umount = sandbox.command(["umount", "stage/from"]).spawn().unwrap();
    assert_eq!(ends(&mut umount), Some(0));
    fs::write(to.join("egg"), "blue").unwrap();
    sandbox.succeed(["umount", "stage/to"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/egg"]), "blue");
    rustix::mount::unmount(&stage, UnmountFlags::DETACH).unwrap();
}

#[test]
fn umount_finds_a_mount_that_was_moved_over_a_later_one() {
    let Some(sandbox) = sandbox() else { return };
    let [stage, from, to] = stage(&sandbox);
    sandbox.succeed(["mount", "vol", "stage/from"]);
    mount_tmpfs(&to);
    fs::write(to.join("below"), "").unwrap();
    rustix::mount::mount_move(&from, &to).unwrap();
    let (_, line) = fail(&sandbox, ["umount", "stage/from"]);
    assert!(line.contains("no volume of Eyrie is mounted there"), "{line}");
    sandbox.succeed(["umount", "stage/to"]);
    assert!(to.join("below").exists());
    rustix::mount::unmount(&stage, UnmountFlags::DETACH).unwrap();
    sandbox.succeed(["fsck", "--quiet", "vol"]);
}

/// Runs flock(1) of util-linux without a wait. Returns true if it gets the lock.
fn locks(sandbox: &Sandbox, egg: &str) -> bool {
    let mut flock = Command::new("flock");
    let status = flock.args(["-n", "-E", "7"]).arg(sandbox.path(egg)).arg("true").status().unwrap();
    assert!([Some(0), Some(7)].contains(&status.code()), "{status}");
    status.success()
}

#[test]
fn mounts_of_a_served_volume_lock_against_each_other() {
    let Some(sandbox) = sandbox() else { return };
    fs::create_dir(sandbox.path("second")).unwrap();
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    program.files.write("/egg", "blue").unwrap();
    let mut servers = ["mnt", "second"].map(|point| serve(&sandbox, point));
    let egg = program.files.options().read(true).write(true).open("/egg").unwrap();

    // A program in the first mount has the lock, and another one in the second mount waits for it.
    let held = fs::File::open(sandbox.path("mnt/egg")).unwrap();
    held.try_lock().unwrap();
    assert!(!locks(&sandbox, "second/egg") && egg.try_lock().is_err());
    let mut waiter = Command::new("flock").arg(sandbox.path("second/egg")).arg("true").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(waiter.try_wait().unwrap().is_none());
    held.unlock().unwrap();
    assert_eq!(ends(&mut waiter), Some(0));
    eventually(|| locks(&sandbox, "mnt/egg") && locks(&sandbox, "second/egg"));

    // The library and a mount lock against each other.
    egg.lock_range(0..1, LockKind::Exclusive, LockWait::NO).unwrap();
    egg.lock().unwrap();
    assert!(!locks(&sandbox, "mnt/egg"));
    egg.unlock().unwrap();
    egg.unlock_range(..).unwrap();

    // A waiting program can be killed.
    egg.lock().unwrap();
    let mut waiter = Command::new("flock").arg(sandbox.path("second/egg")).arg("true").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    signal(&waiter, Signal::KILL);
    assert_eq!(ends(&mut waiter), None);
    egg.unlock().unwrap();

    // The locks of a killed mount end.
    held.try_lock().unwrap();
    assert!(!locks(&sandbox, "second/egg"));
    signal(&servers[0].child, Signal::KILL);
    assert_eq!(ends(&mut servers[0].child), None);
    eventually(|| locks(&sandbox, "second/egg"));
    drop((held, egg));
    sandbox.succeed(["umount", "mnt"]);
    signal(&servers[1].child, Signal::TERM);
    assert_eq!(ends(&mut servers[1].child), Some(0));
    program.end(service, &sandbox);
}
