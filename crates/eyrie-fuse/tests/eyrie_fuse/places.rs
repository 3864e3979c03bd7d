//! Tests of mounts that other programs move, and mount at further places.

use std::fs;
use std::path::{Path, PathBuf};

use eyrie::{PosixExt, Volume};
use eyrie_fuse::mountinfo::{MountLine, TABLE};
use eyrie_fuse::{Mount, MountOptions};
use rustix::mount::MountPropagationFlags;

use crate::short_writes::SmallTmpfs;
use crate::{Fixture, fixture, unmount_idle};

/// Returns a tmpfs with two directories. The tmpfs is private, because the kernel moves no mount out of a
/// shared one. If this process may not mount here, prints a line that says so, and returns `None`.
fn stage(fixture: &Fixture) -> Option<(SmallTmpfs, [PathBuf; 2])> {
    let Some(stage) = SmallTmpfs::new(fixture.place.path().join("stage")) else {
        eprintln!("NOT TESTED: this process may not mount a tmpfs");
        return None;
    };
    rustix::mount::mount_change(&stage.0, MountPropagationFlags::PRIVATE).unwrap();
    let places = ["from", "to"].map(|name| stage.0.join(name));
    places.iter().for_each(|place| fs::create_dir(place).unwrap());
    Some((stage, places))
}

/// Mounts a volume at a place, changes the mount, and ends it. Does this for both ways to end a mount, and
/// checks that the volume is then mounted nowhere.
fn end_after(change: impl Fn(&Path, &Path)) {
    let Some(fixture) = fixture() else { return };
    let Some((_stage, [from, to])) = stage(&fixture) else { return };
    fixture.files.write("/egg", "blue").unwrap();
    let ends: [fn(Mount); 2] = [
        |mut mount| unmount_idle(&mut mount),
        |mount| {
            mount.unmounter().end();
            let _ = mount.wait();
        },
    ];
    for end in ends {
        let mount = eyrie_fuse::mount(&fixture.volume, &from, &MountOptions::default()).unwrap();
        change(&from, &to);
        assert_eq!(fs::read(to.join("egg")).unwrap(), b"blue");
        end(mount);
        for place in [&from, &to] {
            assert_eq!(fs::read_dir(place).unwrap().count(), 0, "{}", place.display());
        }
    }
}

#[test]
fn moved_mount_is_unmounted_at_its_new_place() {
    end_after(|from, to| rustix::mount::mount_move(from, to).unwrap());
}

#[test]
fn bind_mounts_are_unmounted_with_their_mount() {
    end_after(|from, to| rustix::mount::mount_bind(from, to).unwrap());
}

#[test]
fn mounts_that_the_kernel_unmounts_together_are_no_error() {
    let Some(fixture) = fixture() else { return };
    let Some((_stage, [from, to])) = stage(&fixture) else { return };
    rustix::mount::mount_bind(&from, &from).unwrap();
    rustix::mount::mount_change(&from, MountPropagationFlags::SHARED).unwrap();
    rustix::mount::mount_bind(&from, &to).unwrap();
    let places = [from, to].map(|place| place.join("nest"));
    fs::create_dir(&places[0]).unwrap();
    fixture.files.write("/egg", "blue").unwrap();
    let mut mount = eyrie_fuse::mount(&fixture.volume, &places[0], &MountOptions::default()).unwrap();
    for place in &places {
        // This check opens nothing, so the unmount below is not refused.
        assert!(place.join("egg").exists(), "{}", place.display());
    }
    mount.unmount().unwrap();
    for place in &places {
        assert_eq!(fs::read_dir(place).unwrap().count(), 0, "{}", place.display());
    }
}

#[test]
fn source_of_a_mount_is_the_real_path_of_the_volume() {
    let Some(fixture) = fixture() else { return };
    let name = "a,b\\c d";
    let beside = fixture.place.path().join("beside");
    fs::create_dir(&beside).unwrap();
    let given = beside.join("..").join(name);
    let volume = Volume::create(&given, 4 << 20).unwrap();
    let mut mount = eyrie_fuse::mount(&volume, &fixture.point, &MountOptions::default()).unwrap();
    let table = fs::read(TABLE).unwrap();
    let line = MountLine::all(&table).find(|line| line.point == mount.path()).unwrap();
    assert_eq!(line.source, mount.path().with_file_name(name));
    unmount_idle(&mut mount);
}
