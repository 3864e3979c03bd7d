//! Tests of copies through a mount that share storage.

use std::fs;

use eyrie::Posix;
use rustix::fs::{copy_file_range, ioctl_ficlone};
use rustix::io::Errno;

use super::fixture;

#[test]
fn copy_through_a_mount_shares_storage() {
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount();
    let data = vec![7; 4 << 20];
    fs::write(fixture.point.join("file"), &data).unwrap();
    let used = || {
        let space = fixture.files.statvfs("/".into()).unwrap();
        (space.blocks - space.blocks_free) * space.block_size
    };
    let before = used();
    let from = fs::File::open(fixture.point.join("file")).unwrap();
    let to = fs::File::create(fixture.point.join("copy")).unwrap();
    let copied = copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), data.len()).unwrap();
    assert_eq!(copied, data.len());
    assert!(used() - before < 1 << 20, "{} bytes", used() - before);
    assert!(fs::read(fixture.point.join("copy")).unwrap() == data);
    // The kernel does not pass this call on.
    assert_eq!(ioctl_ficlone(&to, &from), Err(Errno::OPNOTSUPP));
    drop((from, to));
    crate::unmount_idle(&mut mount);
    assert!(fixture.volume.check().unwrap().findings.is_empty());
}
