//! Verifies a volume on persistent memory, and then changes it until the machine is killed. `cargo xtask
//! dax-guest` runs this program in a virtual machine.
//!
//! ```text
//! dax_guest VOLUME ACKNOWLEDGED [STEPS]
//! ```
//!
//! Each step is one change, which follows from the number of the step. The program prints the number when the
//! step has returned. At the next boot, the program gets the last number that was printed (`ACKNOWLEDGED`).
//! The volume must show the state after that step or after a later step. The program stops after `STEPS` more
//! steps. Without `STEPS` it does not stop.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use eyrie::{MediumChoice, Volume};
use eyrie_testkit::script::{StepDirectory, StepKinds, StepScript};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const VOLUME_BYTES: u64 = 32 << 20;
const GROUP_BYTES: u64 = 1 << 20;
const SEED: u64 = 0x5eed;

/// Opens or creates the volume. Returns an error if the volume is not on persistent memory.
fn volume_at(path: &Path) -> Result<Volume> {
    println!("opening {}", path.display());
    let volume = if path.exists() {
        Volume::open(path)?
    } else {
        let options = Volume::options().size(VOLUME_BYTES).group_size(GROUP_BYTES);
        options.medium(MediumChoice::Auto).create(path)?
    };
    let information = volume.information();
    println!("medium: {}, {}", information.medium, information.promise);
    if information.medium != "pmem" || !information.promise.contains("power failure") {
        return Err("auto did not choose persistent memory".into());
    }
    Ok(volume)
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, acknowledged, rest @ ..] = &arguments[..] else {
        return Err("usage: dax_guest VOLUME ACKNOWLEDGED [STEPS]".into());
    };
    let acknowledged = acknowledged.parse()?;
    let steps = rest.first().map_or(Ok(u64::MAX), |steps| steps.parse())?;
    let volume = volume_at(Path::new(path))?;
    let report = volume.check()?;
    if !report.is_clean() {
        return Err(format!("the volume is not sound: {:?}", report.findings).into());
    }
    let place = StepDirectory::new(&volume, "", StepKinds::All)?;
    let mut script = StepScript::found(SEED, &place, acknowledged)?;
    println!("found: {};", script.number());
    for _ in 0..steps {
        script.step(&place)?;
        println!("done: {};", script.number());
    }
    if !script.is_shown(&place)? {
        return Err("the files differ from those that the steps made".into());
    }
    drop(place);
    Ok(volume.close()?)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}
