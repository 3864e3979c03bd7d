//! Tests of nodes, with which front-ends use objects instead of paths.

use std::time::Duration;

use eyrie::posix::Access;
use eyrie::{
    Capabilities, Credentials, Errno, FallocateMode, Kind, Node, Notice, ObjectId, OpenFlags, Posix,
    PosixExt, RenameMode, SetAttributes, SetTime, Target, Time, Volume, VolumeNodes, Whence, XattrMode,
};

use crate::errno;

fn volume() -> (tempfile::TempDir, Volume) {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let volume = Volume::create(place.path().join("volume"), 64 << 20).unwrap();
    (place, volume)
}

fn root() -> Credentials {
    Credentials::root()
}

fn ada() -> Credentials {
    Credentials::new(1, 1, &[])
}

fn make(nodes: &VolumeNodes, name: &str, kind: Kind) -> Node {
    nodes.make(&root(), nodes.root(), name.as_bytes(), kind, 0o755, 0).unwrap()
}

fn names(nodes: &VolumeNodes, dir: ObjectId) -> Vec<String> {
    let mut names = Vec::new();
    nodes
        .list(dir, 0, false, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        })
        .unwrap();
    names.sort();
    names
}

#[test]
fn calls_on_nodes_do_what_calls_on_paths_do() {
    let _tests = crate::side_by_side();
    let (_place, volume) = volume();
    let (nodes, files, root) = (volume.nodes(), volume.files(root()), root());
    let dir = make(&nodes, "dir", Kind::Directory);
    let (file, handle) =
        nodes.create(&root, dir.id, b"file", OpenFlags::READ | OpenFlags::WRITE, 0o640).unwrap();
    nodes.write(&root, file.id, 0, b"0123456789").unwrap();
    assert_eq!(nodes.append(&root, file.id, b"ab").unwrap(), 10..12);
    let mut bytes = [0; 20];
    assert_eq!(nodes.read(file.id, 0, &mut bytes).unwrap(), 12);
    assert_eq!(&bytes[..12], files.read("/dir/file").unwrap());
    assert_eq!(nodes.copy(&root, (file.id, 2), (file.id, 100), 50).unwrap(), 10);
    assert_eq!(&files.read("/dir/file").unwrap()[100..], b"23456789ab");
    nodes.fallocate(&root, file.id, FallocateMode::PunchHole, 0..4).unwrap();
    assert_eq!(nodes.seek(file.id, 0, Whence::Data).unwrap(), 0);
    assert_eq!(errno(nodes.fallocate(&root, file.id, FallocateMode::PunchHole, 4..4)), Some(Errno::INVAL));
    nodes.close(handle).unwrap();
    let link = nodes.symlink(&root, dir.id, b"link", b"file").unwrap();
    assert_eq!(nodes.readlink(link.id).unwrap(), b"file");
    assert_eq!(errno(nodes.readlink(file.id)), Some(Errno::INVAL));
    let second = nodes.link(&root, file.id, nodes.root(), b"second").unwrap();
    assert_eq!((second.id, second.stat.links), (file.id, 2));
    nodes.rename(&root, (dir.id, b"file"), (nodes.root(), b"third"), RenameMode::Replace).unwrap();
    assert_eq!(names(&nodes, nodes.root()), ["dir", "second", "third"]);
    nodes.unlink(&root, nodes.root(), b"third").unwrap();
    assert_eq!(nodes.node(file.id).unwrap().stat.links, 1);
    nodes.setxattr(&root, file.id, b"user.x", b"y", XattrMode::Set).unwrap();
    assert_eq!(nodes.getxattr(&root, file.id, b"user.x", &mut []).unwrap(), 1);
    assert_eq!(nodes.listxattr(&root, file.id, &mut []).unwrap(), 7);
    nodes.removexattr(&root, file.id, b"user.x").unwrap();
    assert_eq!(errno(nodes.rmdir(&root, nodes.root(), b"dir")), Some(Errno::NOTEMPTY));
    nodes.unlink(&root, dir.id, b"link").unwrap();
    nodes.rmdir(&root, nodes.root(), b"dir").unwrap();
    nodes.fsync(file.id).unwrap();
    assert!(nodes.statvfs(nodes.root()).unwrap().blocks > 0);
    assert_eq!(nodes.parent(nodes.root()).unwrap(), nodes.root());
}

#[test]
fn names_and_callers_are_checked() {
    let _tests = crate::side_by_side();
    let (_place, volume) = volume();
    let (nodes, ada) = (volume.nodes(), ada());
    let dir = make(&nodes, "dir", Kind::Directory);
    let file = make(&nodes, "file", Kind::File);
    for (name, expected) in [
        (&b""[..], Errno::NOENT),
        (b"a/b", Errno::INVAL),
        (b"a\0", Errno::INVAL),
        (b"missing", Errno::NOENT),
        (&[b'a'; 256], Errno::NAMETOOLONG),
    ] {
        assert_eq!(errno(nodes.lookup(&ada, dir.id, name)), Some(expected), "{name:?}");
    }
    assert_eq!(nodes.lookup(&ada, dir.id, b".").unwrap().id, dir.id);
    assert_eq!(nodes.lookup(&ada, dir.id, b"..").unwrap().id, nodes.root());
    assert_eq!(errno(nodes.lookup(&ada, file.id, b"x")), Some(Errno::NOTDIR));
    assert_eq!(errno(nodes.make(&ada, dir.id, b"x", Kind::File, 0o600, 0)), Some(Errno::ACCESS));
    assert_eq!(errno(nodes.make(&ada, dir.id, b".", Kind::File, 0o600, 0)), Some(Errno::EXIST));
    assert_eq!(errno(nodes.open(&ada, file.id, OpenFlags::WRITE)), Some(Errno::ACCESS));
    assert_eq!(errno(nodes.access(&ada, file.id, Access::WRITE)), Some(Errno::ACCESS));
    nodes.access(&ada, file.id, Access::READ).unwrap();
    let secret = nodes.make(&root(), nodes.root(), b"secret", Kind::Directory, 0o700, 0).unwrap();
    assert_eq!(errno(nodes.lookup(&ada, secret.id, b"x")), Some(Errno::ACCESS));
    let searcher = ada.with_capabilities(Capabilities::DAC_READ_SEARCH);
    assert_eq!(errno(nodes.lookup(&searcher, secret.id, b"x")), Some(Errno::NOENT));
    assert_eq!(errno(nodes.unlink(&searcher, nodes.root(), b"file")), Some(Errno::ACCESS));
    let bare = root().with_capabilities(Capabilities::empty());
    assert_eq!(errno(nodes.make(&bare, nodes.root(), b"tty", Kind::CharDevice, 0o600, 5)), Some(Errno::PERM));
    nodes.make(&root(), nodes.root(), b"tty", Kind::CharDevice, 0o600, 5).unwrap();
}

#[test]
fn attributes_are_set_in_one_step() {
    let _tests = crate::side_by_side();
    let (_place, volume) = volume();
    let (nodes, root, ada) = (volume.nodes(), root(), ada());
    let file = make(&nodes, "file", Kind::File);
    nodes.write(&root, file.id, 0, &[1; 10_000]).unwrap();
    let before = nodes.node(file.id).unwrap();
    assert_eq!(nodes.set(&ada, file.id, None, &SetAttributes::default()).unwrap(), before);
    let mut all = SetAttributes::default();
    (all.mode, all.uid, all.gid, all.size) = (Some(0o6711), Some(1), Some(2), Some(5000));
    (all.accessed, all.modified) = (SetTime::Now, Time::new(7, 8).into());
    let after = nodes.set(&root, file.id, None, &all).unwrap();
    let stat = after.stat;
    assert_eq!((stat.mode, stat.uid, stat.gid, stat.size), (0o6711, 1, 2, 5000));
    assert_eq!((stat.modified, stat.changed), (Time::new(7, 8), stat.accessed));
    assert_eq!((after.generation, after.created), (before.generation, before.created));
    // A call that may not make one of the changes makes none.
    let mut half = SetAttributes::default();
    (half.size, half.uid) = (Some(1), Some(3));
    assert_eq!(errno(nodes.set(&ada, file.id, None, &half)), Some(Errno::PERM));
    assert_eq!(nodes.node(file.id).unwrap(), after);
    // The owner may not write after a change of the mode, but an open handle may.
    let handle = nodes.open(&ada, file.id, OpenFlags::WRITE).unwrap();
    let mut mode = SetAttributes::default();
    mode.mode = Some(0o4455);
    nodes.set(&ada, file.id, None, &mode).unwrap();
    let mut size = SetAttributes::default();
    size.size = Some(20);
    assert_eq!(errno(nodes.set(&ada, file.id, None, &size)), Some(Errno::ACCESS));
    let truncated = nodes.set(&ada, file.id, Some(&handle), &size).unwrap().stat;
    assert_eq!((truncated.size, truncated.mode), (20, 0o455), "a truncation removes the set-user-id bit");
    size.size = Some(1 << 63);
    assert_eq!(errno(nodes.set(&ada, file.id, Some(&handle), &size)), Some(Errno::INVAL));
    nodes.close(handle).unwrap();
    assert_eq!(errno(nodes.set(&root, file.id, None, &size)), Some(Errno::INVAL));
    let dir = make(&nodes, "dir", Kind::Directory);
    assert_eq!(errno(nodes.set(&root, dir.id, None, &size)), Some(Errno::INVAL));
}

#[test]
fn held_object_lives_until_it_is_forgotten() {
    let _tests = crate::side_by_side();
    let (_place, volume) = volume();
    let (nodes, root) = (volume.nodes(), root());
    let objects = || volume.information().objects;
    let before = objects();
    let file = make(&nodes, "file", Kind::File);
    nodes.write(&root, file.id, 0, b"here").unwrap();
    nodes.lookup(&root, nodes.root(), b"file").unwrap();
    nodes.unlink(&root, nodes.root(), b"file").unwrap();
    nodes.forget(file.id, 1);
    let mut bytes = [0; 4];
    assert_eq!(nodes.read(file.id, 0, &mut bytes).unwrap(), 4);
    assert_eq!(nodes.find(file.id.raw(), Some(file.generation)).unwrap().stat.links, 0);
    nodes.forget(file.id, 1);
    assert_eq!(objects(), before + 1);
    nodes.forget(file.id, u64::MAX);
    assert_eq!(objects(), before);
    assert_eq!(errno(nodes.find(file.id.raw(), Some(file.generation))), Some(Errno::STALE));
    // The drop of the nodes forgets all of them.
    let other = make(&nodes, "other", Kind::File);
    nodes.unlink(&root, nodes.root(), b"other").unwrap();
    assert_eq!(nodes.node(other.id).unwrap().stat.links, 0);
    drop(nodes);
    assert_eq!(objects(), before);
}

#[test]
fn numbers_of_no_object_are_stale() {
    let _tests = crate::side_by_side();
    let (_place, volume) = volume();
    let nodes = volume.nodes();
    let file = make(&nodes, "file", Kind::File);
    assert_eq!(nodes.find(file.id.raw(), Some(file.generation)).unwrap().id, file.id);
    assert_eq!(nodes.find(file.id.raw(), None).unwrap().id, file.id);
    assert_eq!(nodes.held(), [file.id]);
    let wrong = [
        (file.id.raw(), file.generation + 1),
        (file.id.raw() + 1, file.generation),
        (0, 0),
        (1, 0),
        (u64::MAX, 0),
        (64 | 1, 0),
        (1 << 62 | 1, 0),
    ];
    for (inode, generation) in wrong {
        assert_eq!(errno(nodes.find(inode, Some(generation))), Some(Errno::STALE), "{inode} {generation}");
    }
    // The next object with this number has another generation.
    nodes.unlink(&root(), nodes.root(), b"file").unwrap();
    nodes.forget(file.id, 10);
    for number in 0..2000 {
        let new = make(&nodes, &number.to_string(), Kind::File);
        assert!(new.id != file.id || new.generation != file.generation);
    }
    assert_eq!(errno(nodes.find(file.id.raw(), Some(file.generation))), Some(Errno::STALE));
}

#[test]
fn many_held_nodes_keep_no_storage_of_others() {
    const MANY: usize = 100_000;
    let _tests = crate::side_by_side();
    let (_place, volume) = volume();
    let (nodes, root) = (volume.nodes(), root());
    let dir = make(&nodes, "dir", Kind::Directory);
    for number in 0..MANY {
        nodes.make(&root, dir.id, number.to_string().as_bytes(), Kind::File, 0o600, 0).unwrap();
    }
    let before = volume.information().objects;
    for number in 0..100 {
        let name = number.to_string();
        let node = nodes.lookup(&root, dir.id, name.as_bytes()).unwrap();
        nodes.unlink(&root, dir.id, name.as_bytes()).unwrap();
        nodes.forget(node.id, 2);
    }
    assert_eq!(volume.information().objects, before - 100);
}

#[test]
fn listing_gives_nodes_and_continues_at_each_cookie() {
    let _tests = crate::side_by_side();
    let (_place, volume) = volume();
    let (nodes, root) = (volume.nodes(), root());
    let dir = make(&nodes, "dir", Kind::Directory);
    for number in 0..300 {
        let node = nodes.make(&root, dir.id, number.to_string().as_bytes(), Kind::File, 0o600, 0).unwrap();
        nodes.forget(node.id, 1);
    }
    let (mut cookie, mut seen) = (0, Vec::new());
    loop {
        let mut taken = 0;
        nodes
            .list(dir.id, cookie, true, &mut |entry| {
                if taken == 7 {
                    return false;
                }
                assert!(entry.next <= i64::MAX as u64 - 2);
                let node = entry.node.expect("nobody removes it");
                assert_eq!((node.id, node.stat.mode), (entry.id, 0o600));
                (taken, cookie) = (taken + 1, entry.next);
                seen.push((String::from_utf8_lossy(entry.name).into_owned(), node.id));
                true
            })
            .unwrap();
        if taken == 0 {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 300);
    // Each entry that was taken is held once, although some entries were listed a second time.
    let objects = volume.information().objects;
    for (name, id) in &seen {
        nodes.unlink(&root, dir.id, name.as_bytes()).unwrap();
        nodes.forget(*id, 1);
    }
    assert_eq!(volume.information().objects, objects - 300);
}

#[test]
fn notices_tell_of_changes_by_others() {
    let _tests = crate::side_by_side();
    let (_place, volume) = volume();
    let nodes = volume.nodes().watching(100);
    let (files, root) = (volume.files(root()), root());
    let next = || nodes.next_notice(Duration::ZERO);
    let own = make(&nodes, "own", Kind::File);
    nodes.write(&root, own.id, 0, b"own").unwrap();
    assert_eq!(next(), None, "its own changes are known");
    files.write("/own", "other").unwrap();
    assert_eq!(next(), Some(Notice::Object(own.id)));
    assert_eq!(next(), None);
    let entry = |notice: Option<Notice>| match notice {
        Some(Notice::Entry { dir, name, before, after, .. }) if dir == nodes.root() => {
            (String::from_utf8(name.into()).unwrap(), before, after)
        }
        other => panic!("{other:?}"),
    };
    files.rename("/own", "/moved").unwrap();
    let Some(Notice::Rename { from_name, to_name, moved, replaced: None, left: None, .. }) = next() else {
        panic!("no rename");
    };
    assert_eq!((&*from_name, &*to_name, moved), (&b"own"[..], &b"moved"[..], own.id));
    files.set_mode("/moved", 0o600).unwrap();
    assert_eq!(next(), Some(Notice::Attributes(own.id)));
    files.truncate(Target::Follow("/moved".into()), 1).unwrap();
    assert_eq!(next(), Some(Notice::Object(own.id)));
    let (name, mode) = (b"user.colour", XattrMode::Replace);
    let missing = files.setxattr(Target::Follow("/moved".into()), name, b"blue", mode);
    assert_eq!(errno(missing), Some(Errno::NODATA));
    assert_eq!(next(), None, "a change that fails gives no notice");
    let store = volume.store("/", root.clone()).unwrap();
    store.put("moved", "value").unwrap();
    assert_eq!(next(), Some(Notice::Object(own.id)));
    store.erase("moved").unwrap();
    assert_eq!(entry(next()), ("moved".to_owned(), Some(own.id), None));
    for number in 0..200 {
        files.create_dir(format!("/{number}")).unwrap();
    }
    assert_eq!(next(), Some(Notice::Everything));
    assert_eq!(next(), None);
    nodes.stop_notices();
    assert_eq!(nodes.next_notice(Duration::from_secs(3600)), None);
}
