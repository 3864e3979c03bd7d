//! Tests on a host file system that is full.

use super::*;

/// A tmpfs of a limited size.
pub struct Mount(pub PathBuf);

impl Mount {
    /// Mounts a tmpfs at `path`. Returns `None` if this user may not.
    pub fn new(path: PathBuf, mib: u32) -> Option<Mount> {
        fs::create_dir(&path).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"])
            .arg(&path)
            .output();
        mount.is_ok_and(|output| output.status.success()).then_some(Mount(path))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // If the unmount fails, the mount stays. The removal of the temporary directory then removes the
        // files of the mount.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn full_host_is_an_error_and_the_volume_goes_on() {
    let _alone = alone();
    [MediumChoice::Dram, MediumChoice::Paged].into_iter().for_each(fill_a_host);
}

fn fill_a_host(medium: MediumChoice) {
    let place = Place::new();
    let Some(mount) = Mount::new(place.0.path().join("small"), 16) else {
        eprintln!("skipped: only root can mount a small file system");
        return;
    };
    let path = mount.0.join("vol");
    let volume = Volume::options().size(64 * MIB).group_size(MIB).medium(medium).create(&path).unwrap();
    let fs = root(&volume);
    fs.write("/before", "kept").unwrap();
    fill(&fs);
    assert_eq!(fs.read("/before").unwrap(), b"kept");
    assert_sound(&volume);
    for entry in fs.read_dir("/").unwrap().collect::<Result<Vec<_>>>().unwrap() {
        fs.remove_file(entry.path()).unwrap();
    }
    fs.write("/after", vec![1; 100_000]).unwrap();

    // The trim gives free groups back to the host, and the volume still counts these groups as free space.
    // Another file of the host then takes the memory of these groups.
    assert!(volume.trim().unwrap() > 0, "{medium:?}");
    let greedy = mount.0.join("greedy");
    let error = std::fs::write(&greedy, vec![1; 32 << 20]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    fill(&fs);
    assert_sound(&volume);
    std::fs::remove_file(&greedy).unwrap();
    fs.write("/more", vec![2; 3 << 20]).unwrap();
    assert_eq!(fs.read("/more").unwrap(), vec![2; 3 << 20]);
    drop(fs);
    volume.close().unwrap();
    assert_sound(&Volume::open(&path).unwrap());
}

#[test]
fn growth_uses_the_host_to_its_last_step() {
    let _alone = alone();
    let place = Place::new();
    let Some(mount) = Mount::new(place.0.path().join("small"), 48) else {
        eprintln!("skipped: only root can mount a small file system");
        return;
    };
    let path = mount.0.join("vol");
    let volume = Volume::options()
        .size(256 * MIB)
        .group_size(8 * MIB)
        .medium(MediumChoice::Dram)
        .create(&path)
        .unwrap();
    let fs = root(&volume);
    for _ in 0..3 {
        let file = fs.create_file("/growing").unwrap();
        let mut written = 0;
        let error = loop {
            match fs.append(file.handle(), &[7; 65536]) {
                Ok(_) => written += 65536,
                Err(error) => break error,
            }
        };
        assert_eq!(error.errno(), Errno::NOSPC);
        let host = rustix::fs::statvfs(&mount.0).unwrap();
        // The volume takes memory of the host in steps of 256 KiB, so less than one step is left.
        assert!(host.f_bavail * host.f_bsize < 256 << 10, "{} blocks are left", host.f_bavail);
        assert!(written > 44 * MIB, "{written}");
        assert_sound(&volume);
        file.close().unwrap();
        fs.remove_file("/growing").unwrap();
        assert!(volume.trim().unwrap() > 0);
        let host = rustix::fs::statvfs(&mount.0).unwrap();
        assert!(host.f_bavail * host.f_bsize > 30 * MIB, "{} blocks came back", host.f_bavail);
    }
}
