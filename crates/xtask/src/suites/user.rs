//! The suite of a user without privileges, who mounts with `fusermount3`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use super::Context;
use super::tool::{assert_same, command, succeed};
use crate::run::Result;

/// Number of the account `nobody`. `fusermount3` wants a user with a name.
const USER: u32 = 65_534;
/// Time limit of one program, in seconds.
const LIMIT_S: u64 = 60;

/// The device of FUSE, which all users may open while this value lives, as on most systems. A drop restores
/// the old mode of the device.
struct OpenDevice {
    old: fs::Permissions,
}

impl OpenDevice {
    const PATH: &str = "/dev/fuse";

    fn new() -> Result<OpenDevice> {
        let old = fs::metadata(OpenDevice::PATH)?.permissions();
        fs::set_permissions(OpenDevice::PATH, fs::Permissions::from_mode(0o666))?;
        Ok(OpenDevice { old })
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        // This process was allowed to change the mode, so it can do so again.
        let _ = fs::set_permissions(OpenDevice::PATH, self.old.clone());
    }
}

/// Makes, mounts, uses and unmounts a volume as a user. Root and other users must not see its files.
pub fn user(context: &Context) -> Result<String> {
    let home = context.memory.join("user");
    let point = home.join("mnt");
    fs::create_dir_all(&point)?;
    // The user needs a copy of the program, because the directory of the build may be closed to others.
    fs::copy(&context.eyrie, home.join("eyrie"))?;
    for path in [&context.memory, &home, &point] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        chown(path, Some(USER), Some(USER))?;
    }
    let _device = OpenDevice::new()?;
    let used = use_mount(&home, &point);
    if used.is_err() {
        // This call fails if nothing is mounted.
        let _ = succeed(command("umount").arg("-l").arg(&point), LIMIT_S);
    }
    used.map(|()| format!("user {USER}, by fusermount3"))
}

/// Returns a program that runs as a user.
fn of_user(user: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut setpriv = command("setpriv");
    let user = user.to_string();
    setpriv.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(program);
    setpriv
}

fn use_mount(home: &Path, point: &Path) -> Result<()> {
    let (eyrie, volume) = (home.join("eyrie"), home.join("volume"));
    let by_user = |program: &Path| of_user(USER, program);
    let shell = |user: u32, script: &str| {
        let mut shell = of_user(user, "sh");
        shell.args(["-e", "-c", script]).current_dir("/").env("MNT", point);
        shell
    };
    succeed(by_user(&eyrie).args(["mkfs", "--quiet", "--size", "64M"]).arg(&volume), LIMIT_S)?;
    succeed(by_user(&eyrie).arg("mount").arg(&volume).arg(point), LIMIT_S)?;
    let files =
        "mkdir $MNT/d; echo egg > $MNT/d/nest; mv $MNT/d/nest $MNT/d/f; chmod 640 $MNT/d/f; cat $MNT/d/f";
    assert_same("a file of the user", &succeed(&mut shell(USER, files), LIMIT_S)?, "egg\n")?;
    // The mount of a user has the option `default_permissions`, so the kernel checks permissions.
    let closed = "chmod 0 $MNT/d/f; if cat $MNT/d/f 2>/dev/null; then exit 1; fi; chmod 640 $MNT/d/f";
    succeed(&mut shell(USER, closed), LIMIT_S)?;
    for (who, path) in [(0, "$MNT/d"), (1, "$MNT/d")] {
        let refused = format!("if ls {path} 2>/dev/null; then exit 1; fi");
        succeed(&mut shell(who, &refused), LIMIT_S)
            .map_err(|error| format!("user {who} sees the mount: {error}"))?;
    }
    succeed(by_user(&eyrie).arg("umount").arg(point), LIMIT_S)?;
    assert_same("the mount point", &succeed(command("ls").arg(point), LIMIT_S)?, "")?;
    succeed(by_user(&eyrie).args(["fsck", "--quiet"]).arg(&volume), LIMIT_S)?;
    let mut cat = by_user(&eyrie);
    cat.arg("cat").arg(format!("{}:/d/f", volume.display()));
    assert_same("the file in the volume", &succeed(&mut cat, LIMIT_S)?, "egg\n")
}
