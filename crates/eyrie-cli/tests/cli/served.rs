//! Volumes that `eyrie serve` shares: clients and services in processes of their own, which are killed.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::Sandbox;

/// A service in the foreground. A drop kills it.
struct Service(Child);

impl Service {
    fn start(sandbox: &Sandbox) -> Service {
        let mut command = sandbox.command(["serve", "--foreground", "vol"]);
        let service = Service(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        // The socket of a service that was killed may still be there.
        eventually(|| sandbox.command(["sessions", "vol"]).output().unwrap().status.success());
        service
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Stops the service as a service manager does.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn commands_work_on_a_served_volume() {
    let sandbox = Sandbox::with_volume("64M");
    let service = Service::start(&sandbox);
    fs::write(sandbox.path("egg"), "blue").unwrap();
    sandbox.succeed(["mkdir", "vol:/nest"]);
    sandbox.succeed(["cp", "egg", "vol:/nest/egg"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/nest/egg"]), "blue");
    sandbox.succeed(["kv", "put", "vol:/nest", "stone", "grey"]);
    assert_eq!(sandbox.succeed(["ls", "vol:/nest"]), "egg\nstone\n");
    sandbox.succeed(["mv", "vol:/nest/egg", "vol:/egg"]);
    sandbox.succeed(["rm", "-r", "vol:/nest"]);
    sandbox.fail(8, &["in use"], ["fsck", "vol"]);
    service.stop();
    assert!(!sandbox.path("vol/service.sock").exists());
    assert_eq!(sandbox.succeed(["cat", "vol:/egg"]), "blue");
    sandbox.succeed(["fsck", "vol"]);
}

#[test]
fn volume_in_use_and_volume_on_a_disk_are_not_served() {
    let sandbox = Sandbox::with_volume("8M");
    let service = Service::start(&sandbox);
    sandbox.fail(1, &["in use by process"], ["serve", "vol"]);
    service.stop();
    sandbox.succeed(["mkfs", "disk", "--size", "8M", "--medium", "paged"]);
    sandbox.fail(1, &["only volumes on dram and pmem"], ["serve", "disk"]);
    sandbox.fail(2, &["no such user"], ["serve", "--allow-user", "nobody-of-that-name", "vol"]);
    sandbox.fail(1, &["sessions"], ["sessions", "vol"]);
}

/// Clients change a volume while its service is killed again and again. Every change whose command succeeded
/// is there.
#[test]
fn killed_services_lose_nothing_that_was_done() {
    let sandbox = Sandbox::with_volume("64M");
    let mut done = Vec::new();
    for round in 0..8 {
        let service = Service::start(&sandbox);
        for number in 0..20 {
            let name = format!("vol:/{round}-{number}");
            sandbox.succeed(["mkdir", &name]);
            done.push(format!("{round}-{number}"));
        }
        let mut beside = sandbox.command(["cp", "-r", "/etc", &format!("vol:/copy-{round}")]);
        let mut beside = beside.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(3 * round));
        service.kill();
        // The client ends by itself, with an error or after its last file.
        eventually(|| beside.try_wait().unwrap().is_some());
    }
    sandbox.succeed(["fsck", "vol"]);
    let names = sandbox.succeed(["ls", "vol:/"]);
    assert!(done.iter().all(|name| names.lines().any(|line| line == name)), "{names}");
}

#[test]
fn killed_clients_disturb_nobody() {
    let sandbox = Sandbox::with_volume("256M");
    let service = Service::start(&sandbox);
    for round in 0..20 {
        let mut lost = sandbox.command(["cp", "-r", "/etc", &format!("vol:/copy-{round}")]);
        let mut lost = lost.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(2 * round));
        lost.kill().unwrap();
        lost.wait().unwrap();
        sandbox.succeed(["mkdir", &format!("vol:/after-{round}")]);
    }
    eventually(|| sandbox.succeed(["sessions", "--json", "vol"]).contains("\"sessions\": []"));
    service.stop();
    sandbox.succeed(["fsck", "vol"]);
    assert_eq!(sandbox.succeed(["ls", "vol:/"]).matches("after-").count(), 20);
}
