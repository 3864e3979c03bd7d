//! Change logs that a killed service has left on a full host.

use std::fs;
use std::io::Write;
use std::process::Command;

use eyrie::PosixExt;

use crate::Sandbox;
use crate::deferred::suspend_beside_grant;
use crate::errors::Mount;
use crate::served::{Program, Service};

/// The host is full when a command finds a log. The command fails, and a later command makes every change.
#[test]
fn full_host_keeps_the_changes_of_a_killed_service() {
    let sandbox = Sandbox::new();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(sandbox.path("."));
    if !crate::is_root() || !mount.output().is_ok_and(|output| output.status.success()) {
        eprintln!("NOT TESTED: this user cannot mount a small file system");
        return;
    }
    let _mount = Mount(sandbox.dir.path());
    sandbox.succeed(["mkfs", "vol", "--size", "256M"]);
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    suspend_beside_grant(&sandbox, &service, &program);
    let file = program.files.options().write(true).open("/scratch").unwrap();
    (0..24).for_each(|part| file.write_all_at(&[7; 64 << 10], part * (64 << 10)).unwrap());
    service.kill();
    drop((file, program));
    let filler = fs::File::create(sandbox.path("filler")).unwrap();
    for (length, byte) in [(1 << 20, 1), (4096, 2)] {
        while (&filler).write_all(&vec![byte; length]).is_ok() {}
    }
    drop(filler);
    sandbox.fail(1, &["vol", "full"], ["touch", "vol:/touched"]);
    fs::remove_file(sandbox.path("filler")).unwrap();
    sandbox.succeed(["touch", "vol:/touched"]);
    assert!(sandbox.run(["cat", "vol:/scratch"]).stdout == [7; 24 * (64 << 10)]);
    sandbox.succeed(["fsck", "vol"]);
}
