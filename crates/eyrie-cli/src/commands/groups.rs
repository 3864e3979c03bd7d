//! The groups of the subcommands in the help text of `eyrie`.

use std::fmt::Write;

use clap::Command;

/// The heading of each group, and its subcommands.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Everyday",
        &[
            "ls", "tree", "find", "du", "cat", "stat", "diff", "cp", "mv", "rm", "ln", "mkdir", "touch",
            "truncate", "chmod", "chown", "xattr", "chattr", "lsattr",
        ],
    ),
    (
        "Volumes",
        &[
            "mkfs", "mount", "umount", "serve", "sessions", "info", "df", "quota", "stats", "resize", "trim",
            "sync", "import", "export", "dump", "load",
        ],
    ),
    ("Keys", &["kv"]),
    ("Checking", &["fsck", "scrub", "tour", "bench", "run"]),
    ("Exploring crashes", &["explore", "trace", "replay"]),
    ("Help", &["help", "completions", "man"]),
];

/// Returns the definition with a help text that lists the subcommands in groups. clap can list them only in
/// one group.
pub(super) fn grouped(definition: Command) -> Command {
    let mut list = String::new();
    for (heading, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(list, "{heading}:");
        for name in names {
            let about = definition.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or_else(|| "Print the help of a command".to_owned(), ToString::to_string);
            let _ = writeln!(list, "  {name:<12} {about}");
        }
        list.push('\n');
    }
    definition.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::Arguments;

    #[test]
    fn every_subcommand_is_in_one_group() {
        let definition = Arguments::command();
        let mut known: Vec<&str> = definition.get_subcommands().map(Command::get_name).collect();
        known.push("help");
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        known.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, known);
    }
}
