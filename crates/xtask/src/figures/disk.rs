//! Compares a volume on a disk with the file system on that disk. Measurements of both sides alternate.

use std::fs::File;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use eyrie::{Credentials, Host, MediumChoice, Posix, PosixExt, Volume};

use super::figure::{Figure, Measured, median};
use crate::run::{Result, eyrie_command, output};

/// Number of calls of each kind. Each call is made durable before the next call.
const CALLS: usize = 150;
const BLOCK: usize = 4096;
/// Size of the file that is overwritten, in bytes.
const LARGE_BYTES: u64 = 64 << 20;
/// The file that is read while it is not in memory, and its size in bytes.
pub(super) const COLD_FILE: &str = "/cold";
pub(super) const COLD_BYTES: u64 = 512 << 20;
/// Number of bytes of one read of [`COLD_FILE`].
const READ_BYTES: usize = 128 << 10;
/// Number of bytes that are written and compared at once.
const PIECE_BYTES: usize = 1 << 20;
const ROUNDS: usize = 5;
/// Number of rounds of reading. Both sides are as fast as the disk, so noise would decide the result of a few
/// rounds.
const COLD_ROUNDS: usize = 15;
const VOLUME_BYTES: u64 = 4 << 30;
const TREE: &str = "/usr/share";

/// Minimum speed of a cold sequential read, and of a second read from memory, relative to the host.
const COLD_READ: f64 = 1.2;
const WARM_READ: f64 = 1.0;

/// The cost of a call.
struct Cost {
    /// The median time of each round, in µs.
    rounds: Vec<f64>,
    /// The number of bytes that the disk wrote for each changed byte.
    written: f64,
}

impl Cost {
    fn us(&self) -> f64 {
        median(&self.rounds)
    }
}

/// Measures both sides in the directory `disk`.
pub fn measure(disk: &Path) -> Result<Vec<Figure>> {
    let volume_path = disk.join("volume");
    let host_path = disk.join("host");
    for path in [&volume_path, &host_path] {
        if path.exists() {
            std::fs::remove_dir_all(path)?;
        }
    }
    std::fs::create_dir(&host_path)?;
    let figures = compare(&volume_path, &host_path)?;
    std::fs::remove_dir_all(&volume_path)?;
    std::fs::remove_dir_all(&host_path)?;
    Ok(figures)
}

/// Measures all figures of a disk.
fn compare(volume_path: &Path, host_path: &Path) -> Result<Vec<Figure>> {
    let options = Volume::options().size(VOLUME_BYTES).medium(MediumChoice::Paged);
    let volume = options.create(volume_path)?;
    let host = Host::new(host_path)?;
    let mut figures = durable_calls(volume, &host, host_path)?;
    let volume = Volume::open(volume_path)?;
    make_cold_file(&volume.files(Credentials::of_process()))?;
    volume.close()?;
    make_cold_file(&host)?;
    figures.extend(reads(volume_path, host_path)?);
    figures.push(import(volume_path, host_path)?);
    Ok(figures)
}

/// Measures calls that are made durable one by one. Also measures the number of bytes that each side writes
/// in these calls and after them: in the closing of the volume, and in a `syncfs` of the host.
fn durable_calls(volume: Volume, host: &Host, host_path: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let device = Device::of(host_path)?;
    let mut written = [0.0, 0.0];
    // The dirty pages of other programs are written first, so that their bytes do not count.
    rustix::fs::syncfs(File::open(host_path)?)?;
    {
        let files = volume.files(Credentials::of_process());
        let (ours, theirs) = (DiskCalls::new(&files)?, DiskCalls::new(host)?);
        type Call<'a> = (&'static str, &'a dyn Fn(usize) -> Result<()>, &'a dyn Fn(usize) -> Result<()>);
        let calls: [Call<'_>; 3] = [
            ("4 KiB overwrite + fsync", &|number| ours.overwrite(number), &|number| theirs.overwrite(number)),
            ("4 KiB append + fsync", &|_| ours.append(), &|_| theirs.append()),
            ("create of 4 KiB + fsync", &|number| ours.create(number), &|number| theirs.create(number)),
        ];
        for (name, eyrie, host) in calls {
            let (eyrie, host) = alternate(&device, eyrie, host)?;
            let name =
                format!("disk: {name} ({:.0} µs, {:.2} bytes written a byte)", eyrie.us(), eyrie.written);
            let wanted = format!(" × host ({:.0} µs, {:.2} bytes)", host.us(), host.written);
            figures.push(Figure::at_least(
                name,
                1.0,
                Measured::of_ratios(&host.rounds, &eyrie.rounds),
                &wanted,
            ));
            written = [written[0] + eyrie.written, written[1] + host.written];
        }
    }
    // Bytes that a side writes only after its last call also count.
    let before = device.written()?;
    volume.close()?;
    let closed = device.written()?;
    rustix::fs::syncfs(File::open(host_path)?)?;
    let bytes = (CALLS * BLOCK) as f64;
    written = [written[0] + (closed - before) / bytes, written[1] + (device.written()? - closed) / bytes];
    let name = format!(
        "disk: bytes written by these calls and the close ({:.2}, host {:.2})",
        written[0], written[1]
    );
    figures.push(Figure::at_most(name, 1.0, written[0] / written[1], ""));
    Ok(figures)
}

/// Makes batches of calls on both sides in alternation, and returns the costs of both sides.
fn alternate(
    device: &Device,
    eyrie: &dyn Fn(usize) -> Result<()>,
    host: &dyn Fn(usize) -> Result<()>,
) -> Result<(Cost, Cost)> {
    let batch = CALLS / ROUNDS;
    let [mut ours, mut theirs] = [(); 2].map(|()| Cost { rounds: Vec::new(), written: 0.0 });
    for round in 0..ROUNDS {
        for (cost, call) in [(&mut ours, eyrie), (&mut theirs, host)] {
            let before = device.written()?;
            let mut times = Vec::new();
            for number in round * batch..(round + 1) * batch {
                let started = Instant::now();
                call(number)?;
                times.push(started.elapsed().as_secs_f64() * 1e6);
            }
            cost.rounds.push(median(&times));
            cost.written += (device.written()? - before) / (CALLS * BLOCK) as f64;
        }
    }
    Ok((ours, theirs))
}

/// The file system of one side, and the open files for its calls.
pub(super) struct DiskCalls<'a, P: Posix + Clone> {
    fs: &'a P,
    large: eyrie::File<P>,
    growing: eyrie::File<P>,
    block: Vec<u8>,
}

impl<'a, P: Posix + Clone> DiskCalls<'a, P> {
    pub(super) fn new(fs: &'a P) -> Result<DiskCalls<'a, P>> {
        let open = |path: &str| fs.options().read(true).write(true).create(true).open(path);
        let large = open("/large")?;
        let filling = vec![1; 1 << 20];
        for offset in (0..LARGE_BYTES).step_by(filling.len()) {
            large.write_all_at(&filling, offset)?;
        }
        large.sync_all()?;
        fs.create_dir("/new")?;
        Ok(DiskCalls { fs, large, growing: open("/growing")?, block: vec![5; BLOCK] })
    }

    pub(super) fn overwrite(&self, number: usize) -> Result<()> {
        let blocks = LARGE_BYTES / BLOCK as u64;
        let offset = (number as u64 * 7919) % blocks * BLOCK as u64;
        self.large.write_all_at(&self.block, offset)?;
        Ok(self.large.sync_all()?)
    }

    pub(super) fn append(&self) -> Result<()> {
        self.fs.append(self.growing.handle(), &self.block)?;
        Ok(self.growing.sync_all()?)
    }

    pub(super) fn create(&self, number: usize) -> Result<()> {
        let file = self.fs.options().write(true).create_new(true).open(format!("/new/file-{number}"))?;
        file.write_all_at(&self.block, 0)?;
        Ok(file.sync_all()?)
    }
}

/// Returns `bytes` bytes of [`COLD_FILE`] from `offset` on. Both are multiples of 8. No two blocks of the
/// file are equal.
pub(super) fn cold_block(offset: u64, bytes: usize) -> Vec<u8> {
    let words = offset / 8..(offset + bytes as u64) / 8;
    words.flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

/// Makes [`COLD_FILE`].
pub(super) fn make_cold_file(fs: &impl Posix) -> Result<()> {
    fill(fs, COLD_BYTES)
}

fn fill(fs: &impl Posix, bytes: u64) -> Result<()> {
    let file = fs.options().write(true).create(true).open(COLD_FILE)?;
    for offset in (0..bytes).step_by(PIECE_BYTES) {
        file.write_all_at(&cold_block(offset, PIECE_BYTES), offset)?;
    }
    Ok(file.sync_all()?)
}

/// Fails if a byte of [`COLD_FILE`] is wrong. The file has been in memory since its last read, so this
/// function compares the bytes that the read brought there.
pub(super) fn compare_cold_file(fs: &impl Posix) -> Result<()> {
    compare_bytes(fs, COLD_BYTES)
}

fn compare_bytes(fs: &impl Posix, bytes: u64) -> Result<()> {
    let file = fs.options().read(true).open(COLD_FILE)?;
    let mut found = vec![0; PIECE_BYTES];
    for offset in (0..bytes).step_by(PIECE_BYTES) {
        file.read_exact_at(&mut found, offset)?;
        if found != cold_block(offset, PIECE_BYTES) {
            return Err(format!("the file to be read has wrong bytes after {offset}").into());
        }
    }
    Ok(())
}

/// Reads [`COLD_FILE`] from its start to its end, and returns the time in seconds. The caller compares the
/// bytes afterwards, because a comparison between the reads would give the read-ahead time.
pub(super) fn read_through(fs: &impl Posix) -> Result<f64> {
    let started = Instant::now();
    let file = fs.options().read(true).open(COLD_FILE)?;
    let mut buffer = vec![0; READ_BYTES];
    for offset in (0..COLD_BYTES).step_by(READ_BYTES) {
        if file.read_at(&mut buffer, offset)? != READ_BYTES {
            return Err("the file to be read is cut short".into());
        }
    }
    Ok(started.elapsed().as_secs_f64())
}

/// Reads [`COLD_FILE`] twice, and compares its bytes. Returns the times of both reads, in seconds.
fn read_twice(fs: &impl Posix) -> Result<[f64; 2]> {
    let seconds = [read_through(fs)?, read_through(fs)?];
    compare_cold_file(fs)?;
    Ok(seconds)
}

/// Compares sequential reads of a file that is not in memory, and reads of the same file right afterwards.
fn reads(volume_path: &Path, host_path: &Path) -> Result<[Figure; 2]> {
    let read_ours = || -> Result<[f64; 2]> {
        let volume = Volume::open(volume_path)?;
        let seconds = read_twice(&volume.files(Credentials::of_process()))?;
        volume.close()?;
        Ok(seconds)
    };
    let (mut ours, mut theirs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..COLD_ROUNDS {
        make_cold()?;
        let on_ours = read_ours()?;
        make_cold()?;
        let on_theirs = read_twice(&Host::new(host_path)?)?;
        for read in [0, 1] {
            ours[read].push(on_ours[read]);
            theirs[read].push(on_theirs[read]);
        }
    }
    let figure = |name, read: usize, wanted| {
        Figure::at_least(name, wanted, Measured::of_ratios(&theirs[read], &ours[read]), " × host")
    };
    Ok([
        figure("disk: cold sequential read", 0, COLD_READ),
        figure("disk: second read, from memory", 1, WARM_READ),
    ])
}

/// Drops files from memory, and makes the hypervisor provide the memory into which they are read again.
pub(super) fn make_cold() -> Result<()> {
    drop_caches()?;
    // A hypervisor may take free memory from its guests, and return this memory slowly, in up to 10 µs a
    // page. The measurement must not include that time.
    drop(std::hint::black_box(vec![1_u8; 3 * COLD_BYTES as usize]));
    Ok(())
}

/// Makes the kernel drop its caches of files, names and inodes.
fn drop_caches() -> Result<()> {
    output(&mut Command::new("sync"))?;
    let forget = std::fs::write("/proc/sys/vm/drop_caches", "3");
    Ok(forget.map_err(|error| format!("dropping the host's caches (this needs root): {error}"))?)
}

/// Compares the durable import of a directory tree into the volume with a durable copy on the host.
fn import(volume_path: &Path, host_path: &Path) -> Result<Figure> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let eyrie = eyrie_command()?;
    for round in 0..=ROUNDS {
        let started = Instant::now();
        let target = format!("{}:/import-{round}", volume_path.display());
        output(Command::new(&eyrie).args(["import", TREE, &target]))?;
        let imported = started.elapsed().as_secs_f64();
        let started = Instant::now();
        let copy = host_path.join(format!("copy-{round}"));
        output(Command::new("cp").arg("-a").args([Path::new(TREE), &copy]))?;
        rustix::fs::syncfs(File::open(&copy)?)?;
        let copied = started.elapsed().as_secs_f64();
        std::fs::remove_dir_all(&copy)?;
        output(Command::new(&eyrie).args(["rm", "-r", &target]))?;
        // The first round reads the tree from its disk, so the first round does not count.
        if round > 0 {
            ours.push(imported);
            theirs.push(copied);
        }
    }
    let ratio = Measured::of_ratios(&theirs, &ours);
    Ok(Figure::at_least(format!("disk: import of {TREE}"), 1.0, ratio, " × host (cp -a, syncfs)"))
}

/// The disk under a directory: the path of the kernel's counters of this disk.
struct Device(String);

impl Device {
    fn of(path: &Path) -> Result<Device> {
        let device = std::fs::metadata(path)?.st_dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let device = Device(format!("/sys/dev/block/{major}:{minor}/stat"));
        device.written().map_err(|error| format!("{}: {error}: name a directory on a disk", device.0))?;
        Ok(device)
    }

    /// Returns the number of bytes that the disk has written so far.
    fn written(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(&self.0)?;
        let sectors = stat.split_whitespace().nth(6).ok_or("no count of sectors")?;
        Ok(sectors.parse::<f64>()? * 512.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_is_noticed() {
        let place = tempfile::tempdir().expect("a directory");
        let host = Host::new(place.path()).expect("the directory can be opened");
        let bytes = 3 * PIECE_BYTES as u64;
        fill(&host, bytes).expect("the file can be written");
        compare_bytes(&host, bytes).expect("the bytes are right");
        let file = host.options().write(true).open(COLD_FILE).expect("the file exists");
        file.write_all_at(&[1], bytes - 8).expect("the file can be written");
        let error = compare_bytes(&host, bytes).expect_err("a byte is wrong").to_string();
        assert!(error.ends_with("wrong bytes after 2097152"), "{error}");
        file.set_len(bytes - 8).expect("the file can be cut");
        compare_bytes(&host, bytes).expect_err("the file is short");
    }
}
