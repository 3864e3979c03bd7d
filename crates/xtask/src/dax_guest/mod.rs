//! The task `dax-guest` runs tests in a guest (a virtual machine) with emulated persistent memory. QEMU
//! emulates an NVDIMM. In the guest Linux mounts ext4 on the NVDIMM with DAX, so that `mmap` with `MAP_SYNC`
//! succeeds.
//!
//! The guest first runs the tests of the medium `pmem`, and of the engine on this medium. Then a program in
//! the guest changes a volume, and reports each step on the console. The task kills QEMU at a random moment
//! and boots the guest again, several times. Each of these boots first checks that the volume has every step
//! that was reported before.
//!
//! The emulation has no processor caches, so even a store that was never written back survives. Other tests
//! record write-backs, and so find such a store. The guest is too slow to measure speed.

mod host;
mod initramfs;
mod machine;
mod programs;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;

use crate::run::{Result, directory};
use host::Kernel;
use machine::Machine;

/// See `cargo xtask dax-guest --help`.
#[derive(Debug, Args)]
pub struct DaxGuestArgs {
    /// Number of times that the machine is killed
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

/// Time limit for a boot that runs the tests. Other programs may use the processors at the same time.
const TEST_PATIENCE: Duration = Duration::from_secs(600);
/// Time limit for each later boot. Such a boot checks the volume and makes few steps, or is killed less than
/// [`MAX_RUN_MS`] after a line that it prints.
const CRASH_PATIENCE: Duration = Duration::from_secs(300);
const MAX_RUN_MS: u64 = 3000;
/// The text that the guest prints before the number of the last step that the volume has.
const FOUND: &str = "found: ";
const VOLUME: &str = "/mnt/volume";
const TESTS: &str = "export EYRIE_TEST_PMEM=/mnt; pmem && testkit persistent";
/// A part of the names of the engine's tests, which the guest prints when it runs them.
const ENGINE_TESTS: &str = "_on_persistent_memory_";
/// Number of steps of the boot that makes the volume. This boot is not killed before it has made all of these
/// steps, because a volume must be complete before it can survive a kill.
const FIRST_STEPS: u64 = 50;
/// Number of steps from the last found step to a step that the guest cannot have made, even if the console is
/// late.
const NEVER_DONE: u64 = 10_000;

/// Runs the tests, then kills the guest several times, and verifies the volume after each kill. At the end,
/// checks that the guest notices a missing step.
pub fn run(arguments: &DaxGuestArgs) -> Result<()> {
    let start = Instant::now();
    let tell = |what: String| println!("{:>4} s: {what}", start.elapsed().as_secs());
    let machine = prepare()?;
    tell("programs and kernel are ready".into());

    machine.clear()?;
    let first = format!("eyrie_format=yes eyrie_run=\"{TESTS} && dax_guest {VOLUME} 0 {FIRST_STEPS}\"");
    let mut boot = machine.boot(&first, TEST_PATIENCE)?;
    // A filter that fits no test would pass, too.
    boot.expect(ENGINE_TESTS)?;
    boot.expect("guest: passed")?;
    tell("the tests pass on persistent memory".into());

    let mut reported = FIRST_STEPS;
    for round in 1..=arguments.rounds {
        // The random time before every second kill begins when the guest opens the volume, so this kill may
        // come during the recovery or the check. The other kills come while the guest changes the volume.
        let word = if round % 2 == 0 { "opening" } else { FOUND };
        reported = kill_after(word, &machine, reported)?;
        tell(format!("killed {round} times, after step {reported}"));
    }
    let mut boot = machine.boot(&verify(reported, "20"), CRASH_PATIENCE)?;
    let found = number(&boot.expect(FOUND)?).ok_or("the guest found no number")?;
    boot.expect("guest: passed")?;
    tell(format!("found step {found}: nothing that was reported is lost"));

    machine.boot(&verify(found + NEVER_DONE, ""), CRASH_PATIENCE)?.expect("no state from step")?;
    tell("the guest notices that a later step is missing".into());
    Ok(())
}

/// Builds everything that a boot needs.
fn prepare() -> Result<Machine> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")), PathBuf::from);
    let place = directory(&target.join("dax-guest"))?;
    host::install_packages()?;
    let kernel = Kernel::in_directory(&place.join("kernel"))?;
    let programs = programs::build()?;
    let initramfs = place.join("initramfs.cpio");
    initramfs::build(&place.join("initramfs"), &initramfs, &kernel, &programs)?;
    Ok(Machine { kernel: kernel.image, initramfs, memory: place.join("memory.img") })
}

/// Returns the text for the kernel's command line of a boot that verifies that the volume has step
/// `reported`, and then makes `steps` more steps. If `steps` is empty, the boot makes steps without end.
fn verify(reported: u64, steps: &str) -> String {
    format!("eyrie_run=\"dax_guest {VOLUME} {reported} {steps}\"")
}

/// Boots the machine, and kills it at a random moment after it has printed `word`. Returns the last step that
/// the guest reported, or `reported` if it reported none.
fn kill_after(word: &str, machine: &Machine, reported: u64) -> Result<u64> {
    let mut boot = machine.boot(&verify(reported, ""), CRASH_PATIENCE)?;
    boot.expect(word)?;
    let log = boot.kill_after(some_time()?)?;
    let report = |line: &String| number(line.strip_prefix("done: ").or(line.strip_prefix(FOUND))?);
    Ok(log.iter().filter_map(report).next_back().unwrap_or(reported))
}

/// Returns a random time below [`MAX_RUN_MS`].
fn some_time() -> Result<Duration> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(Duration::from_millis(u64::from(now.subsec_micros()) % MAX_RUN_MS))
}

/// Returns the number in a report. Returns `None` if the report was cut off before its `;`.
fn number(report: &str) -> Option<u64> {
    report.strip_suffix(';')?.parse().ok()
}
