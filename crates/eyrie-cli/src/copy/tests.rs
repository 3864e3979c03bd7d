//! Tests of copies from the host to the host.

use std::os::unix::fs::symlink;
use std::path::Path;

use eyrie::Host;
use eyrie_testkit::tree_fixture::{Manifest, grow};

use super::{Job, Reflink, Reporter, Tally, copy_tree};
use crate::failure::Result;

/// Makes a directory, in `/dev/shm` if possible, because that file system keeps holes, times and devices.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn copy(from: &Path, to: &Path, except: Option<&Path>) -> Result<Tally> {
    let host = Host::new("/").unwrap();
    let reflink = Reflink::Auto;
    copy_tree(&Job { source: &host, from, target: &host, to, except, reflink, reporter: &Reporter::silent() })
}

#[test]
fn copy_keeps_every_attribute() {
    let dir = scratch();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::create_dir(&from).unwrap();
    grow(&from).unwrap();
    let before = Manifest::of(&from).unwrap();
    let tally = copy(&from, &to, None).unwrap();
    assert_eq!(tally.failed(), 0);
    assert_eq!(tally.entries(), before.len() as u64);
    let differences = before.differences(&Manifest::of(&to).unwrap());
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn single_file_and_single_link_are_copied() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("file"), b"bytes").unwrap();
    symlink("nowhere", at("link")).unwrap();
    for name in ["file", "link"] {
        let copied = copy(&at(name), &at(&format!("{name}-copy")), None).unwrap();
        assert_eq!((copied.entries(), copied.failed()), (1, 0));
    }
    assert_eq!(std::fs::read(at("file-copy")).unwrap(), b"bytes");
    assert_eq!(std::fs::read_link(at("link-copy")).unwrap(), Path::new("nowhere"));
}

#[test]
fn existing_target_is_kept() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("from")).unwrap();
    std::fs::create_dir(at("to")).unwrap();
    std::fs::write(at("to/kept"), b"").unwrap();
    let failure = copy(&at("from"), &at("to"), None).unwrap_err();
    assert!(failure.to_string().contains("File exists"), "{failure}");
    assert!(at("to/kept").exists());
}

#[test]
fn excepted_directory_is_left_out() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("from/out/in")).unwrap();
    std::fs::create_dir_all(at("from/in/out")).unwrap();
    copy(&at("from"), &at("to"), Some(&at("from/out"))).unwrap();
    assert!(at("to/in/out").exists() && !at("to/out").exists());
}

#[test]
fn kernel_file_of_size_zero_is_copied() {
    let dir = scratch();
    let to = dir.path().join("version");
    copy(Path::new("/proc/version"), &to, None).unwrap();
    assert_eq!(std::fs::read(to).unwrap(), std::fs::read("/proc/version").unwrap());
}
