//! Tests of writes that do not fit.

use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use eyrie::PosixExt;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::{errno, fixture};

const MIB: usize = 1 << 20;
const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();

/// A tmpfs of 16,500 KiB. The drop unmounts it.
pub(crate) struct SmallTmpfs(pub(crate) PathBuf);

impl SmallTmpfs {
    /// Returns `None` if this process may not mount.
    pub(crate) fn new(place: PathBuf) -> Option<SmallTmpfs> {
        fs::create_dir(&place).unwrap();
        let options = CString::new("size=16500k").unwrap();
        let mounted =
            rustix::mount::mount("tmpfs", &place, "tmpfs", MountFlags::empty(), Some(options.as_c_str()));
        mounted.is_ok().then_some(SmallTmpfs(place))
    }
}

impl Drop for SmallTmpfs {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// Writes 1 MiB at a time until an error, and returns the counts before the error. The error is `ENOSPC`, and
/// the file has the bytes that were written.
fn fill(path: &Path) -> Vec<usize> {
    let mut file = fs::File::create(path).unwrap();
    let mut counts = Vec::new();
    let error = loop {
        match file.write(&[7; MIB]) {
            Ok(count) => counts.push(count),
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(ENOSPC), "{}", path.display());
    assert_eq!(fs::read(path).unwrap(), vec![7; counts.iter().sum()]);
    counts
}

#[test]
fn mount_with_short_writes_fills_up_like_a_tmpfs() {
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount_with("short_writes");
    let tmpfs = SmallTmpfs::new(fixture.place.path().join("tmpfs"));
    if tmpfs.is_none() {
        eprintln!("the volume is not compared with a tmpfs: this process may not mount one");
    }
    for place in [Some(&fixture.point), tmpfs.as_ref().map(|tmpfs| &tmpfs.0)].into_iter().flatten() {
        let counts = fill(&place.join("file"));
        let full = counts.iter().take_while(|&&count| count == MIB).count();
        let short = &counts[full..];
        assert!(full > 10 && !short.is_empty(), "{}: {counts:?}", place.display());
        assert!(short.iter().all(|&count| count < MIB && count.is_multiple_of(4096)), "{counts:?}");
        let more = fs::File::options().append(true).open(place.join("file")).unwrap().write(&[7; 4096]);
        assert_eq!(errno(more), Some(ENOSPC));
    }
    crate::unmount_idle(&mut mount);
    assert!(fixture.volume.check().unwrap().findings.is_empty());
}

#[test]
fn mount_writes_all_or_nothing_by_default() {
    let Some(fixture) = fixture() else { return };
    let _mount = fixture.mount();
    assert!(fill(&fixture.point.join("file")).iter().all(|&count| count == MIB));
}

#[test]
fn cached_pages_that_do_not_fit_are_an_error() {
    let Some(fixture) = fixture() else { return };
    let _mount = fixture.mount_with("short_writes,writeback_cache");
    // Room for some pages of a write of 1 MiB stays free.
    let files = fixture.files.with_short_writes(true);
    files.write("/room", [7; 600 << 10]).unwrap();
    let rest = files.options().append(true).create(true).open("/rest").unwrap();
    while rest.write_at(&[7; MIB], 0).is_ok() {}
    files.remove_file("/room").unwrap();
    let mut file = fs::File::create(fixture.point.join("file")).unwrap();
    let written = file.write_all(&[7; MIB]).and_then(|()| file.sync_all());
    assert_eq!(errno(written), Some(ENOSPC));
    assert!(fixture.files.metadata("/file").unwrap().size > 300 << 10, "the pages that fit are written");
}
