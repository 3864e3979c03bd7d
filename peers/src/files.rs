//! Calls on files, measured on a volume and on the host in turn.

use std::time::{Duration, Instant};

use eyrie::{File, Posix, PosixExt};

use crate::table::Row;
use crate::values::{Random, value};
use crate::{Result, Rounds};

/// Bytes of a read or a write.
const BLOCK: usize = 4096;
/// Number of calls that are timed together. Their results are kept, and compared afterwards.
const TIMED_CALLS: usize = 16;
/// Files that are opened and examined.
const FILES: usize = 100;

/// The amounts of a run.
#[derive(Clone, Copy)]
pub struct Amounts {
    /// Blocks of the file that is read and overwritten.
    pub blocks: usize,
    /// Calls of each kind in a round.
    pub calls: usize,
    /// Calls of each kind in a round that are made durable one by one.
    pub durable_calls: usize,
    /// True if changes are also measured without a sync. On a disk such a change leaves its work to a later
    /// moment, so the time of the call says little.
    pub unsynced: bool,
    /// Rounds of calls that are not made durable.
    pub rounds: Rounds,
    /// Rounds of calls that are made durable one by one.
    pub durable_rounds: Rounds,
}

#[derive(Clone, Copy)]
enum Call {
    OpenClose,
    Stat,
    Read,
    Overwrite,
    Append,
    Create,
    Rename,
    Unlink,
    OverwriteSync,
    AppendSync,
    CreateSync,
}

/// The calls in the order in which they are measured. Rename and unlink use the files of create.
const CALLS: [(&str, Call); 11] = [
    ("open + close", Call::OpenClose),
    ("stat", Call::Stat),
    ("read 4 KiB of a large file", Call::Read),
    ("overwrite 4 KiB of it", Call::Overwrite),
    ("append 4 KiB", Call::Append),
    ("create + write 4 KiB + close", Call::Create),
    ("rename", Call::Rename),
    ("unlink", Call::Unlink),
    ("overwrite 4 KiB + fsync", Call::OverwriteSync),
    ("append 4 KiB + fsync", Call::AppendSync),
    ("create + write 4 KiB + fsync", Call::CreateSync),
];

/// The calls on one file system.
trait Side {
    /// Makes `count` calls, and returns µs a call.
    fn round(&mut self, call: Call, count: usize) -> Result<f64>;

    /// Compares all bytes with the ones that should be there. Returns the number of blocks that the rounds
    /// and this call have compared.
    fn prove(&mut self) -> Result<u64>;
}

struct Calls<'a, P: Posix + Clone> {
    fs: &'a P,
    large: File<P>,
    growing: File<P>,
    /// The number of changes of each block of the large file.
    versions: Vec<u32>,
    /// Blocks of the growing file.
    appended: usize,
    /// Numbers of files that were made, renamed and removed so far. Each kind of call takes the files in the
    /// order of their numbers.
    created: usize,
    renamed: usize,
    unlinked: usize,
    random: Random,
    proven: u64,
}

/// The number of a block and its version determine its bytes. The blocks of the growing file have numbers
/// from `APPENDED` on, and the blocks of the made files have numbers from `CREATED` on. So the large
/// file, the growing file and the made files have no equal blocks.
const APPENDED: usize = 1 << 30;
const CREATED: usize = 1 << 31;

fn block(number: usize, version: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    value(number, version, BLOCK, &mut bytes);
    bytes
}

fn old_name(number: usize) -> String {
    format!("/bench/new/file-{number:08}")
}

fn new_name(number: usize) -> String {
    format!("/bench/new/moved-{number:08}")
}

/// Runs `call` for each of `inputs`, and returns the time.
fn time<I, O>(inputs: impl IntoIterator<Item = I>, mut call: impl FnMut(I) -> Result<O>) -> Result<Duration> {
    let inputs = inputs.into_iter();
    let started = Instant::now();
    for input in inputs {
        std::hint::black_box(call(input)?);
    }
    Ok(started.elapsed())
}

impl<'a, P: Posix + Clone> Calls<'a, P> {
    fn new(fs: &'a P, blocks: usize) -> Result<Calls<'a, P>> {
        for dir in ["/bench", "/bench/few", "/bench/new"] {
            fs.create_dir(dir)?;
        }
        for number in 0..FILES {
            fs.write(format!("/bench/few/file-{number:08}"), block(number, 0))?;
        }
        let open = |path| fs.options().read(true).write(true).create_new(true).open(path);
        let (large, growing) = (open("/bench/large")?, open("/bench/growing")?);
        for number in 0..blocks {
            large.write_all_at(&block(number, 0), (number * BLOCK) as u64)?;
        }
        large.sync_all()?;
        let versions = vec![0; blocks];
        let (appended, created, renamed, unlinked, proven) = (0, 0, 0, 0, 0);
        let random = Random::new(2);
        Ok(Calls { fs, large, growing, versions, appended, created, renamed, unlinked, random, proven })
    }

    fn compare(&mut self, found: &[u8], number: usize, version: u32) -> Result<()> {
        self.proven += 1;
        if found == block(number, version) { Ok(()) } else { Err(format!("block {number} is wrong").into()) }
    }

    fn random_paths(&mut self) -> Vec<String> {
        (0..TIMED_CALLS).map(|_| format!("/bench/few/file-{:08}", self.random.below(FILES))).collect()
    }

    fn read(&mut self) -> Result<Duration> {
        let numbers: Vec<usize> = (0..TIMED_CALLS).map(|_| self.random.below(self.versions.len())).collect();
        let mut outs = vec![vec![0; BLOCK]; TIMED_CALLS];
        let time = time(numbers.iter().zip(&mut outs), |(number, out)| {
            Ok(self.large.read_exact_at(out, (number * BLOCK) as u64)?)
        })?;
        for (number, out) in numbers.into_iter().zip(&outs) {
            self.compare(out, number, self.versions[number])?;
        }
        Ok(time)
    }

    fn overwrite(&mut self, sync: bool) -> Result<Duration> {
        let change = |_| {
            let number = self.random.below(self.versions.len());
            self.versions[number] += 1;
            ((number * BLOCK) as u64, block(number, self.versions[number]))
        };
        let changes: Vec<(u64, Vec<u8>)> = (0..TIMED_CALLS).map(change).collect();
        time(&changes, |(offset, bytes)| {
            self.large.write_all_at(bytes, *offset)?;
            if sync {
                self.large.sync_all()?;
            }
            Ok(())
        })
    }

    fn append(&mut self, sync: bool) -> Result<Duration> {
        let first = self.appended;
        self.appended += TIMED_CALLS;
        let blocks: Vec<(usize, Vec<u8>)> =
            (first..first + TIMED_CALLS).map(|number| (number, block(APPENDED + number, 0))).collect();
        time(&blocks, |(number, bytes)| {
            self.growing.write_all_at(bytes, (number * BLOCK) as u64)?;
            if sync {
                self.growing.sync_all()?;
            }
            Ok(())
        })
    }

    fn create(&mut self, sync: bool) -> Result<Duration> {
        let first = self.created;
        self.created += TIMED_CALLS;
        let files: Vec<(String, Vec<u8>)> = (first..first + TIMED_CALLS)
            .map(|number| (old_name(number), block(CREATED + number, 0)))
            .collect();
        time(&files, |(name, bytes)| {
            let file = self.fs.options().write(true).create_new(true).open(name)?;
            file.write_all_at(bytes, 0)?;
            if sync {
                file.sync_all()?;
            }
            Ok(file.close()?)
        })
    }

    fn rename(&mut self) -> Result<Duration> {
        let first = self.renamed;
        self.renamed += TIMED_CALLS;
        let names: Vec<(String, String)> =
            (first..first + TIMED_CALLS).map(|number| (old_name(number), new_name(number))).collect();
        time(&names, |(from, to)| Ok(self.fs.rename(from, to)?))
    }

    fn unlink(&mut self) -> Result<Duration> {
        let first = self.unlinked;
        self.unlinked += TIMED_CALLS;
        let names: Vec<String> = (first..first + TIMED_CALLS).map(new_name).collect();
        for (number, name) in (first..).zip(&names) {
            let found = self.fs.read(name)?;
            self.compare(&found, CREATED + number, 0)?;
        }
        time(&names, |name| Ok(self.fs.remove_file(name)?))
    }
}

impl<P: Posix + Clone> Side for Calls<'_, P> {
    fn round(&mut self, call: Call, count: usize) -> Result<f64> {
        let mut total = Duration::ZERO;
        let repeats = count.div_ceil(TIMED_CALLS);
        for _ in 0..repeats {
            total += match call {
                Call::OpenClose => time(self.random_paths(), |path| Ok(self.fs.open_file(path)?.close()?))?,
                Call::Stat => time(self.random_paths(), |path| {
                    let size = self.fs.metadata(path)?.size;
                    if size == BLOCK as u64 { Ok(()) } else { Err("a file has a wrong size".into()) }
                })?,
                Call::Read => self.read()?,
                Call::Overwrite => self.overwrite(false)?,
                Call::Append => self.append(false)?,
                Call::Create => self.create(false)?,
                Call::Rename => self.rename()?,
                Call::Unlink => self.unlink()?,
                Call::OverwriteSync => self.overwrite(true)?,
                Call::AppendSync => self.append(true)?,
                Call::CreateSync => self.create(true)?,
            };
        }
        Ok(total.as_secs_f64() * 1e6 / (repeats * TIMED_CALLS) as f64)
    }

    fn prove(&mut self) -> Result<u64> {
        let mut found = vec![0; BLOCK];
        for number in 0..self.versions.len() {
            self.large.read_exact_at(&mut found, (number * BLOCK) as u64)?;
            self.compare(&found, number, self.versions[number])?;
        }
        for number in 0..self.appended {
            self.growing.read_exact_at(&mut found, (number * BLOCK) as u64)?;
            self.compare(&found, APPENDED + number, 0)?;
        }
        for number in self.unlinked..self.created {
            let found = self.fs.read(old_name(number))?;
            self.compare(&found, CREATED + number, 0)?;
        }
        let names = self.fs.read_dir("/bench/new")?.count();
        if names != self.created - self.unlinked {
            return Err(format!("{names} files are left").into());
        }
        Ok(self.proven)
    }
}

/// Measures all calls on both file systems. Rounds of the two alternate. Returns the rows, and the number of
/// blocks that were compared.
pub fn measure(
    volume: &(impl Posix + Clone),
    host: &(impl Posix + Clone),
    amounts: Amounts,
) -> Result<(Vec<Row>, u64)> {
    let mut sides: [Box<dyn Side + '_>; 2] =
        [Box::new(Calls::new(volume, amounts.blocks)?), Box::new(Calls::new(host, amounts.blocks)?)];
    let mut rows = Vec::new();
    for (name, call) in CALLS {
        let durable = matches!(call, Call::OverwriteSync | Call::AppendSync | Call::CreateSync);
        let reads = matches!(call, Call::OpenClose | Call::Stat | Call::Read);
        if !(durable || reads || amounts.unsynced) {
            continue;
        }
        let (count, rounds) = if durable {
            (amounts.durable_calls, amounts.durable_rounds)
        } else {
            (amounts.calls, amounts.rounds)
        };
        let mut row = Row { name, times: vec![Vec::new(); sides.len()] };
        for round in rounds.all() {
            for (side, times) in sides.iter_mut().zip(&mut row.times) {
                let us = side.round(call, count).map_err(|error| format!("{name}: {error}"))?;
                // The first round warms caches and memory.
                if round > 0 {
                    times.push(us);
                }
            }
        }
        rows.push(row);
    }
    let mut proven = 0;
    for side in &mut sides {
        proven += side.prove()?;
    }
    Ok((rows, proven))
}

#[cfg(test)]
mod tests {
    use eyrie::Host;

    use super::*;

    /// Makes some calls, changes a file without the knowledge of [`Calls`], and returns the error of the next
    /// comparison.
    fn error_after(change: impl FnOnce(&Host) -> eyrie::Result<()>) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let host = Host::new(dir.path()).expect("the host");
        let mut calls = Calls::new(&host, 20).expect("a file system");
        for call in [Call::Overwrite, Call::Append, Call::Create, Call::Read] {
            calls.round(call, 1).expect("a round");
        }
        calls.prove().expect("every block is right");
        change(&host).expect("a change");
        calls.prove().expect_err("the change is noticed").to_string()
    }

    #[test]
    fn wrong_block_or_file_fails_the_run() {
        let overwrite = |host: &Host, path: &str, at| {
            host.options().write(true).open(path)?.write_all_at(b"other bytes", at)
        };
        assert_eq!(error_after(|host| overwrite(host, "/bench/large", 7 * 4096)), "block 7 is wrong");
        let growing = format!("block {} is wrong", APPENDED + 3);
        assert_eq!(error_after(|host| overwrite(host, "/bench/growing", 3 * 4096 + 5)), growing);
        let created = format!("block {} is wrong", CREATED + 2);
        assert_eq!(error_after(|host| overwrite(host, &old_name(2), 0)), created);
        assert_eq!(error_after(|host| host.write("/bench/new/more", "")), "17 files are left");
    }
}
