//! Tests of `export`, `dump`, `load` and `fsck` with the largest names, links, attributes and times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use eyrie::{
    Credentials, Files, Kind, Posix, PosixExt, SetTime, Stat, Target, Time, Volume, WalkStep, XattrMode,
};

use crate::{Sandbox, is_root};

/// Returns the longest name that begins with `first`.
fn long(first: char) -> String {
    first.to_string().repeat(255)
}

fn no_follow(path: &str) -> Target<'_, <Files as Posix>::Handle> {
    Target::NoFollow(path.into())
}

/// Makes objects with the largest names, links, modes, owners, devices, attributes and times.
fn fill(files: &Files) {
    files.create_dir("/tree").unwrap();
    let deep = format!("/tree/{}/{}", long('d'), long('e'));
    files.create_dir_all(&deep).unwrap();
    let mut names = vec![format!("/tree/{}", long('d')), deep.clone()];
    let mut add = |name: String, kind: Kind, device: u64| {
        files.mknod((&name).into(), kind, 0o600, device).unwrap();
        names.push(name);
    };
    add(format!("{deep}/{}", long('f')), Kind::File, 0);
    add("/tree/char".to_owned(), Kind::CharDevice, u64::from(u32::MAX));
    add("/tree/block".to_owned(), Kind::BlockDevice, u64::from(u32::MAX));
    add(format!("/tree/{}", long('p')), Kind::Fifo, 0);
    let file = &names[2];
    files.write(file, [7; 5000]).unwrap();
    files.setxattr(no_follow(file), b"user.large", &[9; 64 << 10], XattrMode::Set).unwrap();
    let name = [&b"user."[..], &[b'x'; 250]].concat();
    files.setxattr(no_follow(&names[0]), &name, b"", XattrMode::Set).unwrap();
    let link = format!("/tree/{}", long('l'));
    files.symlink("/target".repeat(585).as_ref(), (&link).into()).unwrap();
    assert_eq!(files.stat(no_follow(&link)).unwrap().size, 4095);
    names.push(link);
    let first = Time::new(i64::MIN, 0);
    let last = Time::new(i64::MAX, 999_999_999);
    for (index, name) in names.iter().enumerate() {
        files.chown(no_follow(name), Some(u32::MAX - 1), Some(u32::MAX - 1)).unwrap();
        if !name.ends_with(&long('l')) {
            files.chmod(name.into(), 0o7777).unwrap();
        }
        let time = if index % 2 == 0 { first } else { last };
        files.utimens(no_follow(name), SetTime::To(time), SetTime::To(time)).unwrap();
    }
}

/// Returns the parts of a `Stat` that an archive keeps: mode, owner, size, device and modification time.
fn kept(stat: &Stat) -> (u16, u32, u32, u64, u64, Time) {
    let size = if stat.is_dir() { 0 } else { stat.size };
    (stat.mode, stat.uid, stat.gid, size, stat.device, stat.modified)
}

/// Returns a description of each object below a directory, by path.
fn tree(files: &Files, root: &str) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for step in files.walk(Path::new(root)).unwrap() {
        let WalkStep::Entry(entry) = step else { continue };
        let path = Path::new(root).join(&entry.relative);
        let stat = entry.stat().unwrap();
        let xattrs: Vec<_> = files.symlink_xattr_names(&path).unwrap();
        let values = xattrs.iter().map(|name| files.symlink_xattr(&path, name).unwrap());
        let values: Vec<_> = values.map(|value| (value.len(), value.first().copied())).collect();
        let target = if stat.is_symlink() { files.readlink((&path).into()).unwrap() } else { Vec::new() };
        found.insert(
            entry.relative.clone(),
            format!("{:?} {:?} {xattrs:?} {values:?} {}", stat.kind, kept(&stat), target.escape_ascii()),
        );
    }
    found
}

#[test]
fn extremes_of_calls_can_be_exported_and_archived() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("16M");
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::root());
    fill(&files);
    let before = tree(&files, "/tree");
    assert_eq!(before.len(), 8);
    drop(files);
    volume.close().unwrap();
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));

    // The host may refuse times, devices and attributes. They are then counted, and no entry is left out.
    let exported = sandbox.run(["export", "--json", "vol:/tree", "out"]);
    assert!(exported.status.success(), "{exported:?}");
    let told: serde_json::Value = serde_json::from_slice(&exported.stdout).unwrap();
    assert_eq!((&told["entries"], &told["failed"]), (&before.len().into(), &0.into()), "{told}");

    sandbox.succeed(["dump", "-q", "vol:/tree", "-o", "tree.tar"]);
    sandbox.succeed(["mkfs", "two", "--size", "16M"]);
    sandbox.succeed(["load", "-q", "two:/tree", "-i", "tree.tar"]);
    assert!(sandbox.succeed(["fsck", "two"]).contains("sound"));
    let volume = Volume::open(sandbox.path("two")).unwrap();
    let files = volume.files(Credentials::root());
    let after = tree(&files, "/tree");
    for (path, node) in &before {
        assert_eq!(after.get(path), Some(node), "{}", path.display());
    }
    drop(files);
    volume.close().unwrap();
}
