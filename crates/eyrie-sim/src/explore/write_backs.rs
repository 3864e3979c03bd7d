//! Write-backs: a line that was written back and fenced is durable on persistent memory.
//!
//! The recorded media of other runs treat every store as written back. This check uses the code for
//! persistent memory, with an observer of its write-backs. After each call the check opens the bytes that
//! were written back and fenced, because a power failure may leave only these bytes.

use std::fs::{self, File};
use std::sync::Arc;

use eyrie::Errno;
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_engine::{Model, Owner, Time};
use eyrie_faults::{Recorder, pmem_anywhere, traced_from};

use super::images::Counts;
use super::record::{errno, files_of, pass_grace_periods, set_clock};
use super::recovered::{caught, sound};
use super::workload;
use crate::compare::{TreeParts, difference, tree, try_tree};
use crate::script::{Script, perform};

const BYTES: u64 = 1 << 20;
const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };

fn file(number: usize) -> std::io::Result<File> {
    let path = std::env::temp_dir().join(format!("eyrie-written-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    file.set_len(BYTES)?;
    Ok(file)
}

/// Makes the calls with the code for persistent memory, and opens the durable bytes after each call. Returns
/// the number of images.
fn run(number: usize, script: &Script, should_continue: &mut dyn FnMut() -> bool) -> Result<u64, String> {
    let file = file(number).map_err(|error| error.to_string())?;
    let (medium, written) = pmem_anywhere(file, BYTES).map_err(|error| error.to_string())?;
    let random = Options::random(Time::new(1, 0)).map_err(|error| error.to_string())?;
    let options = Options { medium: MediumChoice::Auto, group_bytes: 64 << 10, ..random };
    let engine =
        Scm::create_on(medium, &options, OWNER, Time::new(1, 0)).map_err(|error| error.to_string())?;
    let model = Arc::new(Model::new(eyrie_engine::Engine::root(&engine), OWNER, Time::new(1, 0)));
    let files = files_of(Arc::new(engine));
    let expected = files_of(model);
    let mut images = 0;
    for line in script.lines() {
        set_clock(1000 + line.number as i64);
        let given = errno(&perform(&files, &line.call));
        // The model knows neither the storage of the volume nor the limits of quotas.
        if ![Some(Errno::NOSPC), Some(Errno::DQUOT)].contains(&given) {
            let wanted = errno(&perform(&expected, &line.call));
            if given != wanted {
                return Err(format!("{} gives {given:?}, should give {wanted:?}", line.call));
            }
        }
        pass_grace_periods();
        let with_context = |what: String| format!("after {}: {what}", line.call);
        let medium = traced_from(&written.bytes(), Recorder::default());
        let engine = medium.map_err(eyrie_engine::Error::from).and_then(Scm::open_on);
        let engine = engine.map_err(|error| with_context(error.to_string()))?;
        let found = try_tree(&engine, TreeParts::ALL).map_err(|error| with_context(error.to_string()))?;
        difference(&found, &tree(&**expected.engine())).map_or(Ok(()), |what| Err(with_context(what)))?;
        sound(&engine).map_err(with_context)?;
        images += 1;
        if !should_continue() {
            break;
        }
    }
    Ok(images)
}

/// Runs scripts with the code for persistent memory, over ordinary files. Stops when `should_continue`
/// returns false.
///
/// # Errors
/// Fails at the first call that does not give the result of the model, or after which the durable bytes do
/// not open as a sound volume with the contents of the model.
pub(super) fn explore(should_continue: &mut dyn FnMut() -> bool) -> Result<Counts, String> {
    let mut counts = Counts::default();
    for (number, script) in [workload::setup()].into_iter().chain((0..6).map(workload::random)).enumerate() {
        counts.images += caught(|| run(number, &script, should_continue)).unwrap_or_else(Err)?;
    }
    Ok(counts)
}
