//! The commands that repeat a failure.

use std::fmt::Write as _;

use eyrie_sim::explore::{self, CrashRule, ProcessEnd, RunMedium};

use super::arguments::ExploreArgs;

/// Returns the options of a command that repeats a run on the medium `medium`.
pub(super) fn flags(arguments: &ExploreArgs, medium: RunMedium, closes: bool) -> String {
    let mut flags = format!(" --size {}", medium.bytes);
    if let Some(bytes) = medium.journal_bytes {
        // Writing to a string cannot fail.
        let _ = write!(flags, " --journal {bytes}");
    }
    if medium.checksums {
        flags.push_str(" --checksums");
    }
    if arguments.medium.rule() != CrashRule::Lines {
        // Writing to a string cannot fail.
        let _ = write!(flags, " --medium {}", arguments.medium.name());
    }
    if closes {
        flags.push_str(" --close");
    }
    if let Some(place) = &arguments.without {
        // Writing to a string cannot fail.
        let quoted = shlex::try_quote(place).map_or(place.clone(), Into::into);
        let _ = write!(flags, " --without {quoted}");
    }
    flags
}

/// Returns the line with the command that opens the image of a failure again.
pub(super) fn replay_hint(command: &str, failure: &explore::CrashFailure) -> String {
    let image = |after: usize, picks: &[usize]| {
        format!("{after}:{}", picks.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
    };
    let link = |link: &ProcessEnd| match link {
        ProcessEnd::Kill { after } => format!("k{after}"),
        ProcessEnd::Power { after, picks } => image(*after, picks),
    };
    let mut images: Vec<String> = failure.links.iter().map(link).collect();
    images.push(image(failure.after, &failure.picks));
    images.extend(failure.recovery_crash.iter().map(|crash| image(crash.after, &crash.picks)));
    format!("replay it with: {command} --replay {}", images.join("/"))
}
