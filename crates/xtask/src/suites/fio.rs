//! Suites of `fio`: writes with checksums, also when the server is killed.

use std::fs::{self, File};
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::Context;
use super::kills::{kill_after, some_time};
use super::mounted::{Mounted, SuiteMedium};
use super::tool::{Ended, command, run, succeed};
use crate::run::Result;

/// The engines, each with its option `direct`. Files are opened with `O_DIRECT` for `libaio` and `io_uring`,
/// because these engines are made for such files.
const ENGINES: [(&str, &str); 4] =
    [("psync", "--direct=0"), ("mmap", "--direct=0"), ("libaio", "--direct=1"), ("io_uring", "--direct=1")];
/// Time limit of one program, in seconds.
const LIMIT_S: u64 = 120;
/// Number of kills on each medium.
const ROUNDS: u32 = 3;
/// Maximum time from the first write to the kill, in milliseconds.
const MAX_RUN_MS: u64 = 1200;
/// Size of the file that is written when the server is killed, in bytes.
const FILE_BYTES: u64 = 512 << 20;
/// Number of blocks by which a second verification goes beyond the last acknowledged block. The second
/// verification must fail, which proves that fio notices a missing block.
const NEVER_WRITTEN: u64 = 1000;

/// The texts of the errors `ENOTCONN` and `ECONNABORTED`, with which calls end when the server is killed.
const KILLED: [&str; 2] = ["Transport endpoint is not connected", "Software caused connection abort"];

/// Returns fio with a job of random writes with checksums in a file of the mount.
fn job(mounted: &Mounted, name: &str) -> Command {
    let mut fio = command("fio");
    fio.arg(format!("--name={name}")).arg(format!("--directory={}", mounted.point().display()));
    fio.args(["--rw=randwrite", "--verify=crc32c", "--verify_fatal=1", "--randseed=42", "--fallocate=none"]);
    // fio writes a file with its state to the working directory.
    fio.current_dir(mounted.beside());
    fio
}

/// Writes and verifies with each engine. Verifies again after a remount, so that all bytes come from the
/// volume.
pub fn engines(context: &Context) -> Result<String> {
    let mut mounted = Mounted::new(context, "fio", "rw")?;
    for again in [false, true] {
        for (engine, direct) in ENGINES {
            let mut fio = job(&mounted, engine);
            fio.args(["--size=64m", "--bsrange=4k-64k", "--iodepth=16", direct]);
            fio.arg(format!("--ioengine={engine}")).args(again.then_some("--verify_only=1"));
            let text = succeed(&mut fio, LIMIT_S)?;
            let issued = Issued::parse(&text).ok_or("fio does not report the number of its calls")?;
            if issued.reads < issued.writes || issued.reads == 0 {
                return Err(format!("fio has not verified all blocks: {issued:?}").into());
            }
        }
        if !again {
            mounted.remount()?;
        }
    }
    mounted.finish()?;
    Ok(format!("64 MiB with {}, verified twice", ENGINES.map(|(engine, _)| engine).join(", ")))
}

/// Kills the server while fio makes synchronous writes. Each write that has returned must verify.
pub fn kill(context: &Context) -> Result<String> {
    let mut blocks = 0;
    for medium in SuiteMedium::ALL {
        for _ in 0..ROUNDS {
            blocks += kill_once(context, medium).map_err(|error| format!("{}: {error}", medium.name()))?;
        }
    }
    Ok(format!("{} kills, {blocks} blocks verified", 2 * ROUNDS))
}

/// Kills a server once, and verifies each acknowledged block. Returns the number of these blocks.
fn kill_once(context: &Context, medium: SuiteMedium) -> Result<u64> {
    let mut mounted = Mounted::at(context, "kill-fio", medium, "rw")?;
    // fio must find a file of the full size after the kill, too. Otherwise it would make another one.
    let file = mounted.point().join("synchronous.0.0");
    let new = File::create_new(&file)?;
    new.set_len(FILE_BYTES)?;
    new.sync_all()?;
    drop(new);
    let job = |mounted: &Mounted| {
        let mut fio = job(mounted, "synchronous");
        // With --sync=1 a write returns when it is durable.
        fio.arg(format!("--size={FILE_BYTES}")).args(["--bs=4k", "--ioengine=psync", "--sync=1"]);
        fio
    };
    let mut writes = job(&mounted);
    let writer =
        std::thread::spawn(move || run(writes.arg("--do_verify=0"), LIMIT_S).map_err(|e| e.to_string()));
    wait_for_writes(&file)?;
    kill_after(&mut mounted, some_time(MAX_RUN_MS)?)?;
    let ended = writer.join().map_err(|_| "a thread has panicked")??;
    let done = acknowledged(&ended.text).map_err(|reason| ended.failure(reason))?;
    mounted.recover()?;
    let verify = |blocks: u64| -> Result<Ended> {
        let mut fio = job(&mounted);
        run(fio.args(["--verify_only=1", &format!("--number_ios={blocks}")]), LIMIT_S)
    };
    verify(done)?.success()?;
    let beyond = verify(done + NEVER_WRITTEN)?;
    if beyond.status.success() {
        return Err(beyond.failure("fio verifies blocks that were never written").into());
    }
    // All of the file can be read, also where nothing was written.
    let read = std::io::copy(&mut File::open(file)?, &mut std::io::sink())?;
    if read != FILE_BYTES {
        return Err(format!("the file has {read} bytes, not {FILE_BYTES}").into());
    }
    mounted.finish()?;
    Ok(done)
}

/// Waits until a file without storage gets storage.
fn wait_for_writes(file: &Path) -> Result<()> {
    let start = Instant::now();
    while fs::metadata(file)?.st_blocks() == 0 {
        if start.elapsed() > Duration::from_secs(LIMIT_S) {
            return Err("fio does not begin to write".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The number of calls that fio has made.
#[derive(PartialEq, Eq, Debug)]
struct Issued {
    reads: u64,
    writes: u64,
}

impl Issued {
    /// Reads the calls of the first job.
    fn parse(text: &str) -> Option<Issued> {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("issued rwts: total="))?;
        let mut counts = line.split(',').map(|count| count.parse().ok());
        Some(Issued { reads: counts.next()??, writes: counts.next()?? })
    }
}

/// Returns the number of writes that returned before the server was killed. The last write has failed.
fn acknowledged(text: &str) -> std::result::Result<u64, &'static str> {
    let mut errors = text.lines().filter(|line| line.contains("io_u error on file")).peekable();
    if errors.peek().is_none() {
        return Err("the kill has disturbed no write");
    }
    if !errors.all(|line| KILLED.iter().any(|error| line.contains(error))) {
        return Err("a write has failed before the kill");
    }
    match Issued::parse(text) {
        Some(Issued { reads: 0, writes }) if writes > 1 => Ok(writes - 1),
        _ => Err("fio does not report the number of its writes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
fio: io_u error on file /mnt/sync.0.0: Transport endpoint is not connected: write offset=4096, buflen=4096
sync: (groupid=0, jobs=1): err=107 (file:io_u.c:1876, func=io_u error)
     issued rwts: total=0,8801,0,0 short=0,0,0,0 dropped=0,0,0,0
";

    #[test]
    fn acknowledged_writes_of_fio_are_counted() {
        assert_eq!(acknowledged(OUTPUT), Ok(8800));
        assert!(acknowledged(&OUTPUT.replace("io_u error on file", "fine")).is_err());
        assert!(acknowledged(&OUTPUT.replace(KILLED[0], KILLED[1])).is_ok());
        assert!(acknowledged(&OUTPUT.replace(KILLED[0], "Input/output error")).is_err());
        assert!(acknowledged(&OUTPUT.replace("total=0,8801", "total=0,1")).is_err());
        assert!(acknowledged(&OUTPUT.replace("issued", "")).is_err());
        assert_eq!(Issued::parse("  issued rwts: total=7,x,0,0"), None);
    }
}
