//! Tests of a service and its clients. Each client is a thread of this process with a session of its own.
//! Tests of the command `eyrie serve` have clients in other processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cached_paths;
mod deferred;
#[macro_use]
mod disk;
mod forged;
mod histories;
mod hostile;
mod interfaces;
mod locks;
#[cfg(feature = "mutants")]
mod mutants;
mod nodes;
mod quotas;
mod refusals;
mod scribbles;
mod watches;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use eyrie::{
    AccessTimes, Credentials, Files, Kvfs, MediumChoice, OpenFlags, PagedOptions, Posix, PosixExt, Pxfs,
    SetTime, Time, Volume,
};
use eyrie_client::Client;
use eyrie_engine::{Engine, Errno};
use eyrie_service::{ServeOptions, Service, Stopper};

std::thread_local! {
    /// True in a test whose volumes are on a disk (`disk`).
    static ON_DISK: Cell<bool> = const { Cell::new(false) };
}

/// A volume that a thread serves.
struct Served {
    path: PathBuf,
    socket: PathBuf,
    stopper: Stopper,
    thread: Option<JoinHandle<eyrie_engine::Result<()>>>,
    _place: tempfile::TempDir,
}

/// Options with a page cache that is smaller than the data of many tests.
fn small_cache() -> ServeOptions {
    let mut options = ServeOptions::default();
    options.paged.memory_bytes = PagedOptions::MIN_MEMORY_BYTES;
    options
}

impl Served {
    fn new(bytes: u64) -> Served {
        let medium = if ON_DISK.get() { MediumChoice::Paged } else { MediumChoice::Auto };
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("volume");
        Volume::options().size(bytes).medium(medium).create(&path).unwrap().close().unwrap();
        let socket = place.path().join("socket");
        let service = Service::start(&path, &socket, small_cache()).unwrap();
        let stopper = service.stopper();
        let thread = Some(std::thread::spawn(move || service.run()));
        Served { path, socket, stopper, thread, _place: place }
    }

    /// Makes a served volume of this size, and the files of two clients.
    fn with_clients(bytes: u64) -> (Served, [Pxfs<Client>; 2]) {
        let served = Served::new(bytes);
        let clients = [served.files(), served.files()];
        (served, clients)
    }

    fn client(&self) -> Arc<Client> {
        Arc::new(Client::connect(&self.socket, false).unwrap())
    }

    fn files(&self) -> Pxfs<Client> {
        Pxfs::new(self.client(), Credentials::of_process())
    }

    /// Stops the service.
    fn end(&mut self) {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }

    /// Opens the volume in this process between two services, and changes it.
    fn change(&self, change: impl FnOnce(&Files)) {
        let volume = Volume::open(&self.path).unwrap();
        change(&volume.files(Credentials::of_process()));
        volume.close().unwrap();
    }

    /// Starts a service again.
    fn start(&mut self) {
        let service = Service::start(&self.path, &self.socket, small_cache()).unwrap();
        self.stopper = service.stopper();
        self.thread = Some(std::thread::spawn(move || service.run()));
    }

    /// Stops the service, makes a change, and starts the next service. The ids that the change frees belong
    /// to some of the new files `/new-0` to `/new-499`, which have the bytes "mine".
    fn restart_with_new_files(&mut self, change: impl FnOnce(&Files)) {
        self.end();
        self.change(change);
        // After an open, the engine first gives out the ids that are free.
        self.change(|owner| {
            for number in 0..500 {
                owner.write(format!("/new-{number}"), "mine").unwrap();
            }
        });
        self.start();
    }

    /// Stops the service, and checks the volume.
    fn stop(&mut self) {
        self.end();
        let report = Volume::open(&self.path).unwrap().check().unwrap();
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn clients_see_the_changes_of_each_other() {
    let (mut served, [one, other]) = Served::with_clients(64 << 20);
    one.create_dir_all("/a/b").unwrap();
    one.write("/a/b/egg", "blue").unwrap();
    assert_eq!(other.read("/a/b/egg").unwrap(), b"blue");
    other.rename("/a/b/egg", "/a/stone").unwrap();
    assert_eq!(one.read("/a/stone").unwrap(), b"blue");
    assert_eq!(one.read("/a/b/egg").unwrap_err().errno(), Errno::NOENT);
    assert_eq!(one.read_dir("/a").unwrap().count(), 2);
    assert_eq!(one.metadata("/a").unwrap().links, 3);
    drop((one, other));
    served.stop();
}

#[test]
fn reads_of_clients_set_access_times() {
    let (mut served, [files, other]) = Served::with_clients(64 << 20);
    let relative = |files: &Pxfs<Client>| files.with_access_times(AccessTimes::Relative);
    let files = relative(&files);
    files.write("/egg", "blue").unwrap();
    let written = files.metadata("/egg").unwrap();
    let nodes = other.nodes().watching(10);
    assert_eq!(files.read("/egg").unwrap(), b"blue");
    let read = other.metadata("/egg").unwrap();
    assert!(read.accessed > written.accessed && read.changed == written.changed);
    let notice = nodes.next_notice(std::time::Duration::from_secs(20));
    assert!(matches!(notice, Some(eyrie::Notice::Access(_))), "{notice:?}");
    other.read("/egg").unwrap();
    let reading = Pxfs::new(Arc::new(Client::connect(&served.socket, true).unwrap()), Credentials::root());
    let strict = reading.with_access_times(AccessTimes::Always);
    assert_eq!(strict.read("/egg").unwrap(), b"blue", "a session that only reads");
    assert_eq!(other.metadata("/egg").unwrap(), read);
    drop((nodes, files, other, reading, strict));
    served.stop();
}

/// A client and its service read different clocks. The present in a call of a client is that of the service.
#[test]
fn touched_file_is_not_older_than_an_earlier_change() {
    let mut served = Served::new(8 << 20);
    let files = served.files();
    let modified = |name: &[u8]| {
        // `stat` would make the next stamp a fine one.
        let _pin = files.pin();
        let engine = files.engine();
        let id = engine.lookup(engine.root(), name).unwrap().unwrap();
        engine.attributes(id).unwrap().modified
    };
    files.write("/touched", "blue").unwrap();
    for round in 0..50 {
        files.write("/written", [round]).unwrap();
        files.utimens("/touched".into(), SetTime::Omit, SetTime::Now).unwrap();
        let (written, touched) = (modified(b"written"), modified(b"touched"));
        assert!(touched >= written, "round {round}: {touched:?} after {written:?}");
    }
    // A time that the caller has named stays, even if it is the stamp of the call.
    let late = || Time::new(5_000_000_000, 7);
    let stopped = files.with_clock(late);
    stopped.utimens("/touched".into(), SetTime::Now, SetTime::To(late())).unwrap();
    assert_eq!(modified(b"touched"), late());
    drop((stopped, files));
    served.stop();
}

#[test]
fn files_and_keys_of_one_directory_agree() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    files.create_dir("/store").unwrap();
    let keys = Kvfs::open(&served.files(), "/store").unwrap();
    keys.put("egg", "blue").unwrap();
    assert_eq!(files.read("/store/egg").unwrap(), b"blue");
    files.write("/store/stone", "grey").unwrap();
    assert_eq!(keys.get("stone").unwrap().as_deref(), Some(&b"grey"[..]));
    {
        let pin = keys.pin();
        assert_eq!(&keys.get_in_place("egg", &pin).unwrap().unwrap()[..], b"blue");
    }
    let (_, version) = keys.get_with_version("egg").unwrap().unwrap();
    keys.put("egg", "green").unwrap();
    let stale = keys.put_if("egg", "red", eyrie::Condition::Version(version)).unwrap();
    assert_eq!(stale, eyrie::Outcome::ConditionFailed);
    drop((files, keys));
    served.stop();
}

#[test]
fn unlinked_file_stays_readable_until_its_last_close() {
    let (mut served, [reader, remover]) = Served::with_clients(64 << 20);
    reader.write("/egg", vec![7; 1 << 20]).unwrap();
    let file = reader.open_file("/egg").unwrap();
    let before = reader.engine().space().objects;
    remover.remove_file("/egg").unwrap();
    let mut bytes = vec![0; 1 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 7));
    assert_eq!(reader.engine().space().objects, before);
    drop(file);
    assert_eq!(reader.engine().space().objects, before - 1);
    drop((reader, remover));
    served.stop();
}

/// A thread closes the last handle of an unlinked file under a pin of an earlier session.
#[test]
fn close_under_an_old_pin_frees_an_unlinked_file() {
    let (mut served, [one, other]) = Served::with_clients(8 << 20);
    one.write("/egg", "blue").unwrap();
    let egg = one.open_file("/egg").unwrap();
    let pin = one.pin();
    assert!(one.engine().lookup(one.engine().root(), b"egg").unwrap().is_some());
    served.end();
    served.start();
    std::thread::scope(|scope| {
        // Only the pin of this test's thread is an old one.
        let removing = scope.spawn(|| {
            assert_eq!(one.read("/egg").unwrap(), b"blue");
            other.remove_file("/egg").unwrap();
        });
        removing.join().unwrap();
    });
    let before = other.engine().space().objects;
    drop(egg);
    drop(pin);
    assert_eq!(other.engine().space().objects, before - 1);
    drop((one, other));
    served.stop();
}

#[test]
fn end_of_a_client_frees_its_orphans_and_reservations() {
    let (mut served, [lost, other]) = Served::with_clients(64 << 20);
    lost.write("/egg", "blue").unwrap();
    let engine = Arc::clone(lost.engine());
    let file = engine.lookup(engine.root(), b"egg").unwrap().unwrap();
    engine.open(file).unwrap();
    other.remove_file("/egg").unwrap();
    // The end of the connection is all that the service sees of a killed client.
    drop((engine, lost));
    let start = std::time::Instant::now();
    // The root and the ids that the other client has reserved remain.
    let is_all = |reserved: u64| other.engine().space().objects == 1 + reserved;
    while !matches!(&Client::sessions(&served.socket).unwrap()[..], [other] if is_all(other.reserved.into()))
    {
        assert!(start.elapsed().as_secs() < 20, "an orphan or a reservation stays");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(other);
    served.stop();
}

#[test]
fn threads_of_clients_change_one_directory() {
    const FILES: usize = 200;
    let mut served = Served::new(256 << 20);
    let clients = [served.files(), served.files()];
    std::thread::scope(|scope| {
        for (client, files) in clients.iter().enumerate() {
            for thread in 0..2 {
                scope.spawn(move || {
                    for number in 0..FILES {
                        let path = format!("/{client}-{thread}-{number}");
                        files.write(&path, &path).unwrap();
                        assert_eq!(files.read(&path).unwrap(), path.as_bytes());
                        if number % 2 == 0 {
                            files.rename(&path, format!("{path}-moved")).unwrap();
                        }
                    }
                });
            }
        }
    });
    let count = clients[0].read_dir("/").unwrap().count();
    assert_eq!((count, clients[1].metadata("/").unwrap().size), (4 * FILES, 4 * FILES as u64));
    drop(clients);
    served.stop();
}

#[test]
fn growth_and_large_values_reach_a_client() {
    let (mut served, [writer, reader]) = Served::with_clients(512 << 20);
    // The groups of a new volume are taken into use as it grows. The reader knows only the first ones.
    assert_eq!(reader.read_dir("/").unwrap().count(), 0);
    for number in 0..10_u8 {
        writer.write(format!("/large-{number}"), vec![number; 20 << 20]).unwrap();
    }
    for number in 0..2000 {
        writer.write(format!("/small-{number}"), number.to_string()).unwrap();
    }
    for number in 0..10_u8 {
        let bytes = reader.read(format!("/large-{number}")).unwrap();
        assert!(bytes.len() == 20 << 20 && bytes.iter().all(|&byte| byte == number));
    }
    for number in 0..2000 {
        assert_eq!(reader.read(format!("/small-{number}")).unwrap(), number.to_string().as_bytes());
    }
    drop((writer, reader));
    served.stop();
}

#[test]
fn full_volume_is_the_error_of_the_call() {
    let mut served = Served::new(2 << 20);
    let files = served.files();
    let error = files.write("/large", vec![1; 3 << 20]).unwrap_err();
    assert_eq!(error.errno(), Errno::NOSPC);
    files.write("/small", "fits").unwrap();
    drop(files);
    served.stop();
}

#[test]
fn reading_session_refuses_changes() {
    let mut served = Served::new(8 << 20);
    served.files().write("/egg", "blue").unwrap();
    let reader = Arc::new(Client::connect(&served.socket, true).unwrap());
    let files = Pxfs::new(reader, Credentials::of_process());
    assert_eq!(files.read("/egg").unwrap(), b"blue");
    assert_eq!(files.remove_file("/egg").unwrap_err().errno(), Errno::ROFS);
    assert_eq!(files.create_dir("/dir").unwrap_err().errno(), Errno::ROFS);
    let reserved = loop {
        // The service soon notices the end of the first client.
        if let [reading] = Client::sessions(&served.socket).unwrap()[..] {
            break reading.reserved;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    assert_eq!(reserved, 0, "the reader has reserved ids");
    let (writer, egg) = (served.client(), files.open_file("/egg").unwrap());
    {
        let pin = files.pin();
        assert_eq!(&egg.view(.., &pin).unwrap()[..], b"blue");
        let id = writer.lookup(writer.root(), b"egg").unwrap().unwrap();
        assert!(writer.view(id, (0, 4), &pin).unwrap().is_none(), "the reader has sealed the file");
    }
    drop((writer, egg, files));
    served.stop();
}

#[test]
fn stopped_service_is_an_error_and_its_changes_remain() {
    let mut served = Served::new(8 << 20);
    let files = served.files();
    files.write("/egg", "blue").unwrap();
    served.stop();
    assert_eq!(files.write("/stone", "grey").unwrap_err().errno(), Errno::NOTCONN);
    drop(files);
    served.change(|owner| assert_eq!(owner.read("/egg").unwrap(), b"blue"));
}

/// The calls of a client wait for the next service. The open files and the caches of the client stay valid.
#[test]
fn clients_go_on_with_the_next_service() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    files.create_dir("/nest").unwrap();
    files.write("/nest/egg", "blue").unwrap();
    let egg = files.open_file("/nest/egg").unwrap();
    for round in 0..5 {
        served.end();
        let (changed, listed) = std::thread::scope(|scope| {
            let changing = scope.spawn(|| files.write(format!("/nest/{round}"), "grey"));
            let listing = scope.spawn(|| files.read_dir("/nest").map(Iterator::count));
            std::thread::sleep(std::time::Duration::from_millis(50));
            served.start();
            (changing.join().unwrap(), listing.join().unwrap())
        });
        changed.unwrap();
        assert!([round + 1, round + 2].contains(&listed.unwrap()));
        let mut bytes = [0; 4];
        egg.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"blue");
        // A path that the client cached under the previous service leads to the object that the path names
        // now.
        let other = served.files();
        other.rename("/nest", format!("/nest-{round}")).unwrap();
        assert_eq!(files.read("/nest/egg").unwrap_err().errno(), Errno::NOENT);
        other.rename(format!("/nest-{round}"), "/nest").unwrap();
        assert_eq!(files.read(format!("/nest/{round}")).unwrap(), b"grey");
    }
    drop((egg, files));
    served.stop();
}

/// This process owns the volume between two services, and changes it.
#[test]
fn client_notices_another_owner() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    files.write("/egg", "blue").unwrap();
    let egg = files.open_file("/egg").unwrap();
    served.end();
    let volume = Volume::open(&served.path).unwrap();
    volume.files(Credentials::of_process()).write("/egg", "green").unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut bytes = [0; 5];
            egg.read_exact_at(&mut bytes, 0).map(|()| bytes)
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!reading.is_finished(), "no service protects this read");
        volume.close().unwrap();
        served.start();
        assert_eq!(&reading.join().unwrap().unwrap(), b"green");
    });
    drop((egg, files));
    served.stop();
}

/// Between two services an owner of the volume removes an open file, and the id goes to a new file.
#[test]
fn handle_of_a_file_that_is_gone_is_stale() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    files.write("/egg", "blue").unwrap();
    files.create_dir("/keys").unwrap();
    let egg = files.options().read(true).write(true).open("/egg").unwrap();
    let keys = Kvfs::open(&files, "/keys").unwrap();
    keys.put("stone", "grey").unwrap();
    let kept = files.open_file("/keys/stone").unwrap();
    served.restart_with_new_files(|owner| {
        owner.remove_file("/egg").unwrap();
        owner.rename("/keys", "/moved").unwrap();
    });
    let mut bytes = [0; 4];
    assert_eq!(egg.write_at(b"lost", 0).unwrap_err().errno(), Errno::STALE);
    assert_eq!(egg.read_at(&mut bytes, 0).unwrap_err().errno(), Errno::STALE);
    kept.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"grey");
    // The store keeps its directory, although the directory has moved.
    assert!(keys.put("leaf", "green").unwrap());
    assert_eq!(files.read("/moved/leaf").unwrap(), b"green");
    for number in 0..500 {
        assert_eq!(files.read(format!("/new-{number}")).unwrap(), b"mine");
    }
    drop((egg, kept, keys, files));
    served.stop();
}

/// An id belongs to the session in which the thread made its first call under its pin, although another
/// thread has joined the next service meanwhile.
#[test]
fn ids_of_a_pin_end_with_its_session() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    files.write("/egg", "blue").unwrap();
    let engine = files.engine();
    let look_up = || engine.lookup(engine.root(), b"egg");
    let pin = files.pin();
    let id = look_up().unwrap().unwrap();
    served.end();
    served.start();
    std::thread::scope(|scope| {
        let joining = scope.spawn(|| files.read("/egg").unwrap());
        assert_eq!(joining.join().unwrap(), b"blue");
    });
    let set_size = eyrie_engine::Op::SetSize {
        id,
        size: 0,
        set_ids: eyrie_engine::SetIds::Keep,
        time: eyrie_engine::Time::default(),
    };
    // A call of another client under the same pin does not move the calls of the first client to the new
    // session: the ids of the first client stay stale.
    let other = served.client();
    assert!(other.lookup(other.root(), b"egg").unwrap().is_some());
    assert!(matches!(engine.attributes(id), Err(eyrie_engine::Error::Stale)));
    assert!(matches!(engine.apply(&set_size), Err(eyrie_engine::Error::Stale)));
    assert!(matches!(look_up(), Err(eyrie_engine::Error::Stale)));
    drop(pin);
    assert_eq!(look_up().unwrap(), Some(id));
    assert_eq!(files.read("/egg").unwrap(), b"blue");
    drop((files, other));
    served.stop();
}

/// The next service reserves the same ids for another thread.
#[test]
fn regression_reserved_id_ends_with_its_session() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    let engine = files.engine();
    let reserve = || engine.reserve(eyrie_engine::Kind::File);
    let pin = files.pin();
    let id = reserve().unwrap();
    served.end();
    served.start();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            files.write("/egg", "blue").unwrap();
            std::iter::repeat_with(|| reserve().unwrap()).take(50).collect::<Vec<_>>()
        });
        let mut ids = other.join().unwrap();
        assert!(matches!(reserve(), Err(eyrie_engine::Error::Stale)), "the pin is of the old session");
        engine.unreserve(id);
        drop(pin);
        ids.extend(std::iter::repeat_with(|| reserve().unwrap()).take(50));
        ids.push(engine.lookup(engine.root(), b"egg").unwrap().unwrap());
        assert!(ids.contains(&id), "the test needs a service that gives out the same ids");
        let different: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(different.len(), ids.len());
    });
    drop(files);
    served.stop();
}

/// The first call under the next service uses no path that was cached under the previous service.
#[test]
fn cached_path_ends_with_its_service() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    files.create_dir("/nest").unwrap();
    files.write("/nest/egg", "blue").unwrap();
    for _ in 0..3 {
        assert_eq!(files.read("/nest/egg").unwrap(), b"blue");
    }
    served.end();
    served.change(|owner| {
        owner.rename("/nest", "/old").unwrap();
        owner.create_dir("/nest").unwrap();
        owner.write("/nest/egg", "green").unwrap();
    });
    served.start();
    files.remove_file("/nest/egg").unwrap();
    assert_eq!(files.read("/old/egg").unwrap(), b"blue");
    assert!(!files.exists("/nest/egg").unwrap());
    drop(files);
    served.stop();
}

#[test]
fn service_that_shares_another_volume_is_refused() {
    let mut served = Served::new(8 << 20);
    let files = served.files();
    files.write("/egg", "blue").unwrap();
    served.end();
    std::fs::remove_dir_all(&served.path).unwrap();
    Volume::create(&served.path, 8 << 20).unwrap().close().unwrap();
    served.start();
    let error = files.read("/egg").unwrap_err();
    assert!(error.to_string().contains("another volume"), "{error}");
    drop(files);
    served.stop();
}

#[test]
fn volume_opens_through_its_service() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("volume");
    Volume::create(&path, 8 << 20).unwrap().close().unwrap();
    let socket = path.join(eyrie_client::SOCKET_NAME);
    let service = Service::start(&path, &socket, ServeOptions::default()).unwrap();
    let second = Service::start(&path, &socket, ServeOptions::default()).err().unwrap();
    assert_eq!(second.errno(), Errno::BUSY);
    let stopper = service.stopper();
    let thread = std::thread::spawn(move || service.run());
    let volume = Volume::open(&path).unwrap();
    assert!(volume.is_served());
    assert_eq!(volume.information().size_bytes, 8 << 20);
    assert_eq!(volume.check().unwrap_err().errno(), Errno::BUSY);
    let files = volume.files(Credentials::of_process());
    files.write("/egg", "blue").unwrap();
    drop(files);
    volume.close().unwrap();
    stopper.stop();
    thread.join().unwrap().unwrap();
    assert!(!socket.exists());
    assert!(!Volume::open(&path).unwrap().is_served());
}

#[test]
fn socket_of_a_dead_service_is_replaced() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("volume");
    Volume::create(&path, 8 << 20).unwrap().close().unwrap();
    let socket = place.path().join("socket");
    // A socket that nobody listens to, as a killed service leaves it.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(Client::connect(&socket, false).is_err());
    let service = Service::start(&path, &socket, ServeOptions::default()).unwrap();
    assert!(Client::sessions(Path::new("/nowhere")).is_err());
    drop(service);
    // A file that is no socket stays.
    let file = place.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(Service::start(&path, &file, ServeOptions::default()).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
}

#[test]
fn service_that_never_runs_leaves_no_socket() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("volume");
    Volume::create(&path, 8 << 20).unwrap().close().unwrap();
    let socket = place.path().join("socket");
    let service = Service::start(&path, &socket, ServeOptions::default()).unwrap();
    assert!(socket.exists());
    drop(service);
    assert!(!socket.exists());
}

#[test]
fn regression_path_at_a_directory_that_died_with_its_service_is_estale() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    files.create_dir("/dir").unwrap();
    files.create_dir("/kept").unwrap();
    let [dir, kept] = ["/dir", "/kept"].map(|path| files.open(path.into(), OpenFlags::READ, 0).unwrap());
    served.restart_with_new_files(|owner| owner.remove_dir("/dir").unwrap());
    assert_eq!(files.stat((&dir, "egg").into()).unwrap_err().errno(), Errno::STALE);
    assert_eq!(files.stat((&kept, "egg").into()).unwrap_err().errno(), Errno::NOENT);
    files.close(dir).unwrap();
    files.close(kept).unwrap();
    drop(files);
    served.stop();
}

on_disk! {
    clients_see_the_changes_of_each_other files_and_keys_of_one_directory_agree
    unlinked_file_stays_readable_until_its_last_close end_of_a_client_frees_its_orphans_and_reservations
    threads_of_clients_change_one_directory full_volume_is_the_error_of_the_call
    reading_session_refuses_changes stopped_service_is_an_error_and_its_changes_remain
    clients_go_on_with_the_next_service client_notices_another_owner handle_of_a_file_that_is_gone_is_stale
    ids_of_a_pin_end_with_its_session regression_reserved_id_ends_with_its_session
    cached_path_ends_with_its_service service_that_shares_another_volume_is_refused
    regression_path_at_a_directory_that_died_with_its_service_is_estale
}
