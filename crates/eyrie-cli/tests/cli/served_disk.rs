//! Volumes on disks that `eyrie serve` shares, with a page cache of 1 MiB: commands, and killed services.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eyrie::{Credentials, Errno, Kvfs, PosixExt, Volume};

use crate::Sandbox;
use crate::served::{Program, Service, replace_while_nobody_serves};

/// Makes a sandbox with a volume on a disk.
pub fn on_disk(size: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.succeed(["mkfs", "vol", "--size", size, "--medium", "paged"]);
    sandbox
}

#[test]
fn commands_use_a_served_volume_on_a_disk() {
    let sandbox = on_disk("64M");
    let service = Service::start(&sandbox);
    let large: Vec<u8> = (0..4_u32 << 20).flat_map(|n| n.to_le_bytes()).take(5 << 20).collect();
    fs::write(sandbox.path("egg"), &large).unwrap();
    sandbox.succeed(["mkdir", "vol:/nest"]);
    sandbox.succeed(["cp", "egg", "vol:/nest/egg"]);
    sandbox.succeed(["cp", "vol:/nest/egg", "back"]);
    assert!(fs::read(sandbox.path("back")).unwrap() == large);
    sandbox.succeed(["kv", "put", "vol:/nest", "stone", "grey"]);
    assert_eq!(sandbox.succeed(["kv", "get", "vol:/nest", "stone"]).trim_end(), "grey");
    assert_eq!(sandbox.succeed(["ls", "vol:/nest"]), "egg\nstone\n");
    sandbox.succeed(["mv", "vol:/nest/egg", "vol:/egg"]);
    sandbox.succeed(["rm", "-r", "vol:/nest"]);
    assert!(sandbox.succeed(["info", "vol"]).contains("paged"));
    sandbox.fail(8, &["in use"], ["fsck", "vol"]);
    service.stop();
    sandbox.succeed(["cp", "vol:/egg", "again"]);
    assert!(fs::read(sandbox.path("again")).unwrap() == large);
    sandbox.succeed(["fsck", "vol"]);
}

/// Bytes that a client reads in place stay in memory while the client holds a pin. At the same time, another
/// client makes the service evict pages again and again.
#[test]
fn pages_in_use_by_a_client_stay_in_memory() {
    const VALUE: usize = 64 << 10;
    let sandbox = on_disk("64M");
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    let keys = Kvfs::open(&program.files, "/").unwrap();
    for key in 0..8_u8 {
        keys.put([b'a' + key], vec![key + 1; VALUE]).unwrap();
    }
    program.files.write("/large", vec![9; 6 << 20]).unwrap();
    // Nothing but pins keeps synchronised pages in memory.
    program.volume.sync().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = Program::start(&sandbox);
            let start = Instant::now();
            while !is_over.load(Ordering::Relaxed) && start.elapsed().as_secs() < 60 {
                let bytes = other.files.read("/large").unwrap();
                assert!(bytes.len() == 6 << 20 && bytes.iter().all(|&byte| byte == 9));
            }
        });
        for round in 0..400_u32 {
            let key = (round % 8) as u8;
            let pin = keys.pin();
            let value = keys.get_in_place([b'a' + key], &pin).unwrap().unwrap();
            for _ in 0..3 {
                assert!(value.iter().all(|&byte| byte == key + 1), "a page has left memory");
                std::thread::sleep(Duration::from_micros(500));
            }
            drop(pin);
            if round % 100 == 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(keys);
    program.end(service, &sandbox);
}

/// A program appends numbers to a file and synchronises the file, while services are killed. The file keeps
/// each number whose sync has succeeded.
#[test]
fn synced_changes_outlive_the_kill_of_their_service() {
    let sandbox = on_disk("32M");
    let mut there = 0;
    for round in 0..6 {
        let service = Service::start(&sandbox);
        let program = Program::start(&sandbox);
        let log = program.files.options().append(true).create(true).open("/log").unwrap();
        let (first, synced) = (there, AtomicU64::new(there));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in first.. {
                    // The calls fail when no service is left.
                    if log.append(&number.to_le_bytes()).is_err() || log.sync_all().is_err() {
                        break;
                    }
                    synced.store(number + 1, Ordering::SeqCst);
                }
            });
            std::thread::sleep(Duration::from_millis(20 + 3 * round));
            service.kill();
            sandbox.succeed(["ls", "vol:/"]);
            let service = Service::start(&sandbox);
            std::thread::sleep(Duration::from_millis(10));
            service.kill();
            let volume = Volume::open(sandbox.path("vol")).unwrap();
            let bytes = volume.files(Credentials::of_process()).read("/log").unwrap();
            let numbers: Vec<u64> =
                bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            there = numbers.len() as u64;
            assert!(there >= synced.load(Ordering::SeqCst), "{there} of {synced:?}");
            assert_eq!(numbers, (0..there).collect::<Vec<_>>());
            volume.close().unwrap();
        });
    }
    assert!(there > 6, "{there}");
    sandbox.succeed(["fsck", "vol"]);
}

/// The service is killed or stopped before its first background drain.
#[test]
fn close_of_a_client_makes_its_changes_durable() {
    let sandbox = on_disk("16M");
    let write = |text: &str| {
        let program = Program::start(&sandbox);
        program.files.write("/egg", text).unwrap();
        drop(program.files);
        program.volume
    };
    let service = Service::start(&sandbox);
    write("blue").close().unwrap();
    service.kill();
    assert_eq!(sandbox.succeed(["cat", "vol:/egg"]), "blue");
    let service = Service::start(&sandbox);
    let volume = write("green");
    service.stop();
    let start = Instant::now();
    volume.close().unwrap();
    assert!(
        start.elapsed().as_secs() < 4,
        "a close waits for no service if the last one has saved the volume"
    );
    assert_eq!(sandbox.succeed(["cat", "vol:/egg"]), "green");
}

#[test]
fn sync_after_a_kill_tells_of_lost_changes() {
    let sandbox = on_disk("16M");
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    let files = &program.files;
    files.write("/egg", "blue").unwrap();
    let egg = files.options().read(true).write(true).open("/egg").unwrap();
    egg.sync_all().unwrap();
    service.kill();
    let service = Service::start(&sandbox);
    // The sync before the kill made every change durable, so the next sync succeeds.
    assert_eq!(files.read("/egg").unwrap(), b"blue");
    egg.sync_all().unwrap();
    service.kill();
    // The start of a service makes only numbers of the volume durable, such as the number of owners. No sync
    // follows the write, so the kill undoes the write.
    let service = Service::start(&sandbox);
    egg.write_all_at(b"grey", 0).unwrap();
    service.kill();
    let service = Service::start(&sandbox);
    assert_eq!(files.read("/egg").unwrap(), b"blue");
    for _ in 0..2 {
        let error = egg.sync_all().unwrap_err();
        assert_eq!(error.errno(), Errno::IO);
        assert!(error.to_string().contains("the service was killed"), "{error}");
        program.volume.sync().unwrap_err();
    }
    let again = Program::start(&sandbox);
    again.files.write("/egg", "green").unwrap();
    again.volume.sync().unwrap();
    drop((egg, again.files));
    again.volume.close().unwrap();
    program.end_after_loss(service, &sandbox);
}

#[test]
fn changes_after_the_kill_of_a_disk_service_reach_its_clients() {
    let sandbox = on_disk("16M");
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    let files = &program.files;
    files.create_dir("/nest").unwrap();
    files.write("/nest/egg", "blue").unwrap();
    program.volume.sync().unwrap();
    let egg = files.open_file("/nest/egg").unwrap();
    assert_eq!(files.read("/nest/egg").unwrap(), b"blue");
    let service = replace_while_nobody_serves(service, &sandbox, files, &egg);
    drop(egg);
    program.end(service, &sandbox);
}

/// Files are lost with their service. Their ids and their storage then belong to other files, and a handle of
/// a lost file must not reach these other files.
#[test]
fn lost_files_are_not_mistaken_for_later_ones() {
    const FILES: usize = 300;
    let sandbox = on_disk("32M");
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    let files = &program.files;
    files.write("/kept", "blue").unwrap();
    program.volume.sync().unwrap();
    let lost: Vec<_> = (0..FILES)
        .map(|number| {
            let open = files.options().read(true).write(true).create(true).open(format!("/lost-{number}"));
            open.unwrap()
        })
        .collect();
    service.kill();
    let names = sandbox.succeed(["ls", "vol:/"]);
    // A drain in the background may have saved the first of these files. At least the last one must be lost.
    let is_lost = |number: &usize| !names.lines().any(|name| name == format!("lost-{number}"));
    assert!(is_lost(&(FILES - 1)), "{names}");
    let tree = sandbox.path("tree");
    fs::create_dir(&tree).unwrap();
    (0..40).for_each(|number| fs::write(tree.join(number.to_string()), "mine").unwrap());
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    // The data of new files fill the storage in which the headers of the lost files were.
    let owner = Volume::open(sandbox.path("vol")).unwrap();
    let of_owner = owner.files(Credentials::of_process());
    // These files are so few that their own headers need none of the places of the lost headers. The first
    // 115 files take 29 of the 32 MiB, and smaller files fill the rest.
    let data = |number: usize| vec![number as u8; if number < 115 { 256 << 10 } else { 64 << 10 }];
    let is_full = |&number: &usize| of_owner.write(format!("/data-{number}"), data(number)).is_err();
    let full = (0..200).find(is_full).unwrap();
    assert!(full > 100, "{full}");
    drop(of_owner);
    owner.close().unwrap();
    let service = Service::start(&sandbox);
    for number in (0..FILES).filter(is_lost) {
        let error = lost[number].write_at(b"lost", 0).unwrap_err();
        assert!([Errno::STALE, Errno::IO].contains(&error.errno()), "{error}");
    }
    for number in 0..40 {
        assert_eq!(files.read(format!("/tree/{number}")).unwrap(), b"mine");
    }
    for number in 0..full {
        assert!(files.read(format!("/data-{number}")).unwrap() == data(number), "{number}");
    }
    assert_eq!(files.read("/kept").unwrap(), b"blue");
    drop(lost);
    program.end_after_loss(service, &sandbox);
}

/// A service is killed before its first files are durable. At the time of the kill, the only durable limit of
/// generations is the limit from the start of the service. The next owner makes files with the same ids, and
/// these files must have other generations.
#[test]
fn generations_of_lost_files_are_not_given_to_later_ones() {
    assert!((0..10).any(|_| lose_files_and_reuse_their_ids()), "a drain came before each kill");
}

/// Returns false without a check if a drain has made one of the files durable before the kill.
fn lose_files_and_reuse_their_ids() -> bool {
    const FILES: usize = 64;
    let sandbox = on_disk("16M");
    let service = Service::start(&sandbox);
    let program = Program::start(&sandbox);
    let files = &program.files;
    let open = |number: usize| files.options().write(true).create(true).open(format!("/lost-{number}"));
    let lost: Vec<_> = (0..FILES).map(|number| open(number).unwrap()).collect();
    service.kill();
    let owner = Volume::open(sandbox.path("vol")).unwrap();
    let of_owner = owner.files(Credentials::of_process());
    if (0..FILES).any(|number| of_owner.exists(format!("/lost-{number}")).unwrap()) {
        return false;
    }
    let mine = |number: usize| format!("/mine-{number}");
    (0..FILES).for_each(|number| of_owner.write(mine(number), "mine").unwrap());
    let inode = |number| of_owner.metadata(mine(number)).unwrap().inode;
    let taken: Vec<u64> = (0..FILES).map(inode).collect();
    let shared = lost.iter().filter(|lost| taken.contains(&lost.handle().id().raw())).count();
    assert!(shared > FILES / 2, "{shared} files have the id of a lost one");
    drop(of_owner);
    owner.close().unwrap();
    let service = Service::start(&sandbox);
    for lost in &lost {
        let error = lost.write_at(b"lost", 0).unwrap_err();
        assert!([Errno::STALE, Errno::IO].contains(&error.errno()), "{error}");
    }
    (0..FILES).for_each(|number| assert_eq!(files.read(mine(number)).unwrap(), b"mine"));
    drop(lost);
    program.end_after_loss(service, &sandbox);
    true
}
