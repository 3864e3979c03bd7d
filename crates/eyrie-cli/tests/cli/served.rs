//! Volumes that `eyrie serve` shares: clients and services in processes of their own, which are killed.

use std::cell::RefCell;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use eyrie::{Credentials, Errno, File, Files, Kvfs, LockKind, LockWait, PosixExt, Volume};
use eyrie_medium::host::{self, HostObserver};
use eyrie_medium::{Caller, SiteKind};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::Sandbox;
use crate::served_disk::on_disk;

/// A service in the foreground. A drop kills it.
pub struct Service(Child);

impl Service {
    pub fn start(sandbox: &Sandbox) -> Service {
        // A volume on a disk gets a small page cache.
        Service::start_with(sandbox, &["--memory", "1M"])
    }

    /// Starts a service with these further arguments.
    pub fn start_with(sandbox: &Sandbox, arguments: &[&str]) -> Service {
        let mut command = sandbox.command(["serve", "--foreground"]);
        command.args(arguments).arg("vol");
        let service = Service(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        // The socket of a service that was killed may still be there.
        eventually(|| sandbox.command(["sessions", "vol"]).output().unwrap().status.success());
        service
    }

    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Suspends the service until [`Service::resume`].
    pub fn suspend(&self) {
        signal(&self.0, Signal::STOP);
        let status = waitpid(Some(Pid::from_child(&self.0)), WaitOptions::UNTRACED).unwrap();
        assert!(status.unwrap().1.stopped());
    }

    pub fn resume(&self) {
        signal(&self.0, Signal::CONT);
    }

    /// Stops the service as a service manager does.
    pub fn stop(mut self) {
        signal(&self.0, Signal::TERM);
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process of the test, as a program that has the served volume open.
pub struct Program {
    pub volume: Volume,
    pub files: Files,
}

impl Program {
    pub fn start(sandbox: &Sandbox) -> Program {
        let volume = Volume::open(sandbox.path("vol")).unwrap();
        let files = volume.files(Credentials::of_process());
        Program { volume, files }
    }

    /// Ends the program, stops the service, and checks the volume.
    pub fn end(self, service: Service, sandbox: &Sandbox) {
        drop(self.files);
        self.volume.close().unwrap();
        service.stop();
        sandbox.succeed(["fsck", "vol"]);
    }

    /// Works as [`Program::end`] for a program whose changes were lost, so that its close fails.
    pub fn end_after_loss(self, service: Service, sandbox: &Sandbox) {
        drop(self.files);
        let error = self.volume.close().unwrap_err();
        assert_eq!(error.errno(), Errno::IO, "{error}");
        drop(error);
        service.stop();
        sandbox.succeed(["fsck", "vol"]);
    }
}

/// Kills the service, and moves `/nest` with the open file `egg` away. Another file then gets the path
/// `/nest/egg`. Checks the reads of a client, before and after the start of the next service. Returns the
/// next service.
pub fn replace_while_nobody_serves(
    service: Service,
    sandbox: &Sandbox,
    files: &Files,
    egg: &File<Files>,
) -> Service {
    service.kill();
    fs::write(sandbox.path("stone"), "green").unwrap();
    sandbox.succeed(["mv", "vol:/nest", "vol:/old"]);
    sandbox.succeed(["mkdir", "vol:/nest"]);
    sandbox.succeed(["cp", "stone", "vol:/nest/egg"]);
    // The client still maps the bytes. But the read must fail, because another process may have reused their
    // storage while no service ran.
    let mut bytes = [0; 4];
    assert_eq!(egg.read_at(&mut bytes, 0).unwrap_err().errno(), Errno::NOTCONN);
    let service = Service::start(sandbox);
    assert_eq!(files.read("/nest/egg").unwrap(), b"green");
    egg.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes, files.read("/old/egg").unwrap()), (b"blue", b"blue".to_vec()));
    service
}

pub fn eventually(mut is_so: impl FnMut() -> bool) {
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
fn volume_in_use_is_not_served() {
    let sandbox = Sandbox::with_volume("8M");
    let service = Service::start(&sandbox);
    sandbox.fail(1, &["in use by process"], ["serve", "vol"]);
    service.stop();
    sandbox.fail(2, &["no such user"], ["serve", "--allow-user", "nobody-of-that-name", "vol"]);
    sandbox.fail(1, &["sessions"], ["sessions", "vol"]);
}

/// Clients change a volume while its service is killed again and again. At the end, the volume has every
/// change whose command succeeded.
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
fn syncs_in_memory_need_no_service() {
    let sandbox = Sandbox::with_volume("8M");
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    program.files.write("/egg", "blue").unwrap();
    let egg = program.files.options().read(true).write(true).open("/egg").unwrap();
    let nest = program.files.options().read(true).open("/").unwrap();
    without_the_service(&service, || {
        egg.sync_all().unwrap();
        nest.sync_all().unwrap();
        program.volume.sync().unwrap();
    });
    drop((egg, nest));
    program.end(service, &sandbox);
}

/// Requires that `calls` return while the service is suspended.
fn without_the_service(service: &Service, calls: impl FnOnce() + Send) {
    service.suspend();
    std::thread::scope(|scope| {
        let calling = scope.spawn(calls);
        let started = Instant::now();
        while !calling.is_finished() && started.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_finished = calling.is_finished();
        service.resume();
        assert!(is_finished, "a call waits for the service");
    });
}

#[test]
fn look_ups_need_no_service() {
    let sandbox = Sandbox::with_volume("8M");
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    program.files.create_dir_all("/nest/inner").unwrap();
    program.files.write("/nest/egg", "blue").unwrap();
    // A directory of this size has more than eight buckets.
    program.files.create_dir("/many").unwrap();
    (0..150).for_each(|number| program.files.write(format!("/many/{number}"), "").unwrap());
    // The service applies all logged changes before it answers.
    program.volume.stats();
    without_the_service(&service, || {
        let nest = program.files.metadata("/nest").unwrap();
        assert_eq!((nest.links, nest.size), (3, 2));
        assert_eq!(program.files.metadata("/many").unwrap().size, 150);
        assert_eq!(program.files.metadata("/nest/egg").unwrap().size, 4);
        assert_eq!(program.files.read("/nest/egg").unwrap(), b"blue");
        assert_eq!(program.files.read_dir("/nest").unwrap().count(), 2);
    });
    program.end(service, &sandbox);
}

#[test]
fn killed_clients_disturb_nobody() {
    kill_clients(&Sandbox::with_volume("256M"));
}

#[test]
fn killed_clients_of_a_volume_on_a_disk_disturb_nobody() {
    kill_clients(&on_disk("256M"));
}

fn kill_clients(sandbox: &Sandbox) {
    let service = Service::start(sandbox);
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

/// Threads of one client change a volume while its service is killed and started again. No call fails, and
/// each change is made once.
#[test]
fn each_change_is_made_once_although_services_are_killed() {
    const KILLS: u64 = 40;
    let sandbox = Sandbox::with_volume("64M");
    let mut service = Some(Service::start(&sandbox));
    let program = Program::start(&sandbox);
    let files = &program.files;
    let (log, is_over) =
        (files.options().append(true).create(true).open("/log").unwrap(), AtomicBool::new(false));
    for dir in ["/names", "/keys", "/dirs"] {
        files.create_dir(dir).unwrap();
    }
    let keys = Kvfs::open(files, "/keys").unwrap();
    let names = |number: u64| {
        let (old, new) = (format!("/names/{number}"), format!("/names/{number}-moved"));
        files.write(&old, &old).unwrap();
        files.rename(&old, &new).unwrap();
        files.hard_link(&new, &old).unwrap();
        assert_eq!(files.read(&old).unwrap(), old.as_bytes());
        files.remove_file(&new).unwrap();
        if !number.is_multiple_of(64) {
            files.remove_file(&old).unwrap();
        }
    };
    let values = |number: u64| {
        assert!(keys.put(number.to_string(), "new").unwrap(), "the put creates the key");
        assert!(!keys.put(number.to_string(), "other").unwrap(), "the put replaces the value");
        if !number.is_multiple_of(64) {
            assert!(keys.erase(number.to_string()).unwrap(), "the key was there");
        }
    };
    let directories = |number: u64| {
        let (old, new) = (format!("/dirs/{number}"), "/dirs/moved");
        files.create_dir(&old).unwrap();
        files.rename(&old, new).unwrap();
        files.remove_dir(new).unwrap();
    };
    let append = |number: u64| {
        assert_eq!(log.append(&number.to_le_bytes()).unwrap(), 8);
    };
    let changes: [&(dyn Fn(u64) + Sync); 4] = [&names, &values, &directories, &append];
    let counts = std::thread::scope(|scope| {
        let is_over = &is_over;
        let threads = changes.map(|change| {
            scope.spawn(move || {
                (0..)
                    .take_while(|&number| {
                        change(number);
                        !is_over.load(Ordering::Relaxed)
                    })
                    .count() as u64
                    + 1
            })
        });
        for round in 0..KILLS {
            std::thread::sleep(Duration::from_micros(1700 * (round % 16)));
            service.take().expect("it runs").kill();
            service = Some(Service::start(&sandbox));
        }
        is_over.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().unwrap())
    });
    let [named, stored, _, appended] = counts;
    assert!(counts.iter().all(|&count| count > KILLS / 8), "changes were made between the kills: {counts:?}");
    let bytes = files.read("/log").unwrap();
    let numbers: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    assert_eq!(numbers, (0..appended).collect::<Vec<_>>());
    assert_eq!(files.read_dir("/names").unwrap().count() as u64, named.div_ceil(64));
    assert_eq!(keys.len().unwrap(), stored.div_ceil(64));
    assert_eq!(files.read_dir("/dirs").unwrap().count(), 0);
    drop((log, keys));
    program.end(service.expect("it runs"), &sandbox);
}

/// Acts when the client is about to check that its service is alive: lets the suspended service answer the
/// request, kills the service, and starts the next one.
struct AnswerAndDie {
    sandbox: Rc<Sandbox>,
    suspended: RefCell<Option<Service>>,
    next: RefCell<Option<Service>>,
}

impl HostObserver for AnswerAndDie {
    fn before_call(&self, _: SiteKind, caller: Caller) -> Result<(), rustix::io::Errno> {
        if caller.file().ends_with("channel.rs")
            && let Some(service) = self.suspended.take()
        {
            service.resume();
            // The service answers one request after the other. So before the service makes this directory, it
            // has answered the request of the client, and has removed the record of this request from the
            // volume. The next service cannot find out the outcome.
            self.sandbox.succeed(["mkdir", "vol:/after"]);
            service.kill();
            self.next.replace(Some(Service::start(&self.sandbox)));
        }
        Ok(())
    }
}

/// A client sees the end of its service before it has seen the answer.
#[test]
fn answer_of_a_killed_service_counts() {
    let sandbox = Rc::new(Sandbox::with_volume("16M"));
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    let log = program.files.options().append(true).create(true).open("/log").unwrap();
    service.suspend();
    let suspended = RefCell::new(Some(service));
    let observer =
        Rc::new(AnswerAndDie { sandbox: Rc::clone(&sandbox), suspended, next: RefCell::default() });
    host::observed_by(observer.clone(), || assert_eq!(log.append(b"egg").unwrap(), 3));
    let service = observer.next.take().expect("the client looked if its service lives");
    assert_eq!(program.files.read("/log").unwrap(), b"egg");
    drop(log);
    program.end(service, &sandbox);
}

/// A client whose pin keeps old storage does not fill the volume for others, because the service expels this
/// client. The client joins again, and continues to read.
#[test]
fn client_that_keeps_storage_in_a_full_volume_is_expelled() {
    let sandbox = Sandbox::with_volume("16M");
    let service = Service::start(&sandbox);
    fs::write(sandbox.path("egg"), vec![1; 9 << 20]).unwrap();
    sandbox.succeed(["cp", "egg", "vol:/egg"]);
    let program = Program::start(&sandbox);
    let files = &program.files;
    let pin = files.pin();
    assert_eq!(files.metadata("/egg").unwrap().size, 9 << 20);
    fs::write(sandbox.path("egg"), vec![2; 9 << 20]).unwrap();
    sandbox.succeed(["rm", "vol:/egg"]);
    sandbox.succeed(["cp", "egg", "vol:/egg"]);
    drop(pin);
    let bytes = files.read("/egg").unwrap();
    assert!(bytes.len() == 9 << 20 && bytes.iter().all(|&byte| byte == 2));
    files.write("/stone", "grey").unwrap();
    program.end(service, &sandbox);
}

/// Other processes open and change a volume after the kill of its service. In a client of the killed service,
/// a read fails while no service runs. When the next service runs, a read has the changed contents.
#[test]
fn changes_after_the_kill_of_a_service_reach_its_clients() {
    let sandbox = Sandbox::with_volume("64M");
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    let files = &program.files;
    files.create_dir("/nest").unwrap();
    files.write("/nest/egg", "blue").unwrap();
    let egg = files.options().read(true).write(true).open("/nest/egg").unwrap();
    for _ in 0..3 {
        assert_eq!(files.read("/nest/egg").unwrap(), b"blue");
    }
    let service = replace_while_nobody_serves(service, &sandbox, files, &egg);
    let inode = files.metadata("/old/egg").unwrap().inode;
    service.kill();
    // The id of the open file goes to another file.
    sandbox.succeed(["rm", "vol:/old/egg"]);
    let names: Vec<String> = (0..40).map(|number| format!("vol:/new-{number}")).collect();
    sandbox.succeed(std::iter::once("touch").chain(names.iter().map(String::as_str)));
    for number in 0..20 {
        fs::create_dir_all(sandbox.path("tree")).unwrap();
        fs::write(sandbox.path(format!("tree/{number}")), "mine").unwrap();
    }
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    let service = Service::start(&sandbox);
    let found = (0..40).map(|number| files.metadata(format!("/new-{number}")).unwrap().inode);
    assert!(found.collect::<Vec<_>>().contains(&inode), "a new file has the id");
    assert_eq!(egg.write_at(b"lost", 0).unwrap_err().errno(), Errno::STALE);
    for number in 0..20 {
        assert_eq!(files.read(format!("/tree/{number}")).unwrap(), b"mine");
    }
    drop(egg);
    program.end(service, &sandbox);
}

/// Clients that fill a volume together get `ENOSPC`, and none of them is expelled.
#[test]
fn writers_of_a_full_volume_keep_their_sessions() {
    let sandbox = Sandbox::with_volume("16M");
    let service = Service::start(&sandbox);
    let volumes = [(); 3].map(|()| Volume::open(sandbox.path("vol")).unwrap());
    let files = volumes.each_ref().map(|volume| volume.files(Credentials::of_process()));
    files[2].write("/egg", "blue").unwrap();
    let egg = files[2].open_file("/egg").unwrap();
    files[0].remove_file("/egg").unwrap();
    std::thread::scope(|scope| {
        for (writer, files) in files[..2].iter().enumerate() {
            scope.spawn(move || {
                let mut refused = 0;
                for number in 0..300 {
                    let name = format!("/{writer}-{}", number % 8);
                    match files.write(&name, vec![1; 2 << 20]) {
                        Ok(()) => {}
                        Err(error) => {
                            assert_eq!(error.errno(), Errno::NOSPC, "{error}");
                            refused += 1;
                        }
                    }
                }
                assert!(refused > 0, "the volume is too small");
            });
        }
        for _ in 0..300 {
            let mut bytes = [0; 4];
            egg.read_exact_at(&mut bytes, 0).expect("a client that is expelled loses this file");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    drop((egg, files));
    volumes.into_iter().for_each(|volume| volume.close().unwrap());
    service.stop();
    sandbox.succeed(["fsck", "vol"]);
}

/// Another process, which the test starts from its own program, locks a file of the volume. The kill of that
/// process ends its locks.
#[test]
fn locks_of_a_killed_client_are_released() {
    const LOCKER: &str = "EYRIE_TEST_LOCKER";
    let open = |files: &Files| files.options().read(true).write(true).open("/egg").unwrap();
    if let Some(path) = std::env::var_os(LOCKER) {
        let volume = Volume::open(path).unwrap();
        let egg = open(&volume.files(Credentials::of_process()));
        egg.lock_range(10..20, LockKind::Exclusive, LockWait::FOREVER).unwrap();
        egg.lock().unwrap();
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    let sandbox = Sandbox::with_volume("8M");
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    program.files.write("/egg", "blue").unwrap();
    let egg = open(&program.files);
    let mut locker = Command::new(std::env::current_exe().unwrap())
        .args(["served::locks_of_a_killed_client_are_released", "--exact"])
        .env(LOCKER, sandbox.path("vol"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually(|| egg.try_lock_shared().is_err() || egg.unlock().is_err());
    assert!(egg.find_range_lock(.., LockKind::Shared).unwrap().is_some());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| egg.lock());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        locker.kill().unwrap();
        waiting.join().unwrap().unwrap();
    });
    locker.wait().unwrap();
    egg.lock_range(.., LockKind::Exclusive, LockWait::NO).unwrap();
    drop(egg);
    program.end(service, &sandbox);
}

pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A command in the foreground, as a service manager starts it. A drop kills it.
pub struct Managed {
    pub child: Child,
    socket: UnixDatagram,
}

impl Managed {
    /// Starts a command, and waits until it has told its manager that it is ready.
    pub fn start<const N: usize>(sandbox: &Sandbox, arguments: [&str; N]) -> Managed {
        let path = sandbox.path("notify");
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut command = sandbox.command(arguments);
        let command = command.env("NOTIFY_SOCKET", path).stdout(Stdio::piped()).stderr(Stdio::piped());
        let managed = Managed { child: command.spawn().unwrap(), socket };
        assert_eq!(managed.next_state(), b"READY=1");
        managed
    }

    fn next_state(&self) -> Vec<u8> {
        let mut state = [0; 32];
        let length = self.socket.recv(&mut state).unwrap();
        state[..length].to_vec()
    }

    /// Stops the command as a service manager does. Returns its output.
    fn stop(mut self) -> String {
        signal(&self.child, Signal::TERM);
        assert_eq!(self.next_state(), b"STOPPING=1");
        assert!(self.child.wait().unwrap().success());
        std::io::read_to_string(self.child.stdout.take().unwrap()).unwrap()
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn service_in_the_foreground_tells_its_manager_and_its_user() {
    let sandbox = Sandbox::with_volume("8M");
    let told = Managed::start(&sandbox, ["serve", "--foreground", "vol"]).stop();
    assert!(told.starts_with("serving vol: ") && told.contains("not against their malice"), "{told}");
}

#[test]
fn socket_at_another_place_stands_for_the_volume() {
    let sandbox = Sandbox::with_volume("8M");
    let arguments = ["serve", "--foreground", "--quiet", "--socket", "sock", "vol"];
    let service = Managed::start(&sandbox, arguments);
    fs::write(sandbox.path("egg"), "blue").unwrap();
    sandbox.succeed(["cp", "egg", "sock:/egg"]);
    assert_eq!(sandbox.succeed(["cat", "sock:/egg"]), "blue");
    let volume = Volume::open(sandbox.path("sock")).unwrap();
    let files = volume.files(Credentials::of_process());
    let bytes = files.read("/egg").unwrap();
    let sessions = sandbox.succeed(["sessions", "--json", "sock"]);
    let sessions: serde_json::Value = serde_json::from_str(&sessions).unwrap();
    let own = &sessions["sessions"][0];
    let user = rustix::process::geteuid().as_raw();
    assert_eq!((&own["process"], &own["user"]), (&std::process::id().into(), &user.into()), "{sessions}");
    assert_eq!((&own["state"], &own["pending"]), (&"open".into(), &0.into()), "{sessions}");
    let table = sandbox.succeed(["sessions", "sock"]);
    assert!(table.contains("state") && table.contains("open"), "{table}");
    assert_eq!(bytes, b"blue");
    drop(files);
    volume.close().unwrap();
    assert_eq!(service.stop(), "");
    assert_eq!(sandbox.succeed(["cat", "vol:/egg"]), "blue");
}

#[test]
fn user_who_may_not_enter_the_directory_learns_the_reason() {
    let sandbox = Sandbox::with_volume("8M");
    let service = Service::start(&sandbox);
    fs::set_permissions(sandbox.path("."), Permissions::from_mode(0o755)).unwrap();
    let mut command = sandbox.command(["sessions", "vol"]);
    let Ok(output) = command.uid(65_534).gid(65_534).output() else {
        eprintln!("NOT TESTED: this user cannot run the command as another user");
        return service.stop();
    };
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("permission denied: ask the user of the service for `--allow-user`"), "{told}");
    service.stop();
}
