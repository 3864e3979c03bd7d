//! `eyrie explore`: simulates crashes during a script, and checks the volumes that the crashes leave. Power
//! fails before each fence, and processes are killed at some moments. With `--faults`, accesses to the host
//! fail instead.

mod arguments;
mod bounds;
mod faults;
#[cfg(feature = "mutants")]
mod mutants;
mod reproduce;
mod runs;
mod script;
mod suite;

pub use arguments::ExploreArgs;
pub(super) use runs::empty_volume;

use eyrie_sim::explore::CrashRule;

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;

pub fn run(arguments: &ExploreArgs, output: &mut Output) -> Result<()> {
    interrupt::install();
    if arguments.medium.rule() == CrashRule::Lines && arguments.journal.is_some() {
        return Err(Failure::usage(
            "no journal",
            arguments.medium.name(),
            "only --medium paged has a journal",
        ));
    }
    #[cfg(feature = "mutants")]
    match &arguments.mutant {
        _ if arguments.mutants => return mutants::explore(arguments, output),
        Some(rule) => return mutants::explore_one(rule, arguments, output),
        None => {}
    }
    match &arguments.script {
        _ if arguments.faults || arguments.fault.is_some() => faults::explore(arguments, output),
        Some(script) => script::explore(arguments, script, output),
        None => suite::explore(arguments, output),
    }
}
