//! Tests of the definition of the command line: every help text has valid examples, and every command, except
//! those in the lists below, prints JSON and is quiet on demand.

use clap::{Command, CommandFactory, Parser};

use super::Arguments;

/// Returns all commands and their subcommands.
fn all() -> Vec<Command> {
    let mut root = Arguments::command().disable_help_subcommand(true);
    root.build();
    let (mut all, mut pending) = (Vec::new(), vec![root]);
    while let Some(command) = pending.pop() {
        pending.extend(command.get_subcommands().cloned());
        all.push(command);
    }
    all
}

/// Returns the indented lines that follow "Examples:" in the help text.
fn examples(command: &Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines.take_while(|line| line.starts_with("  ")).map(|line| line.trim().to_owned()).collect()
}

/// Returns the words of each `eyrie` command in a line of shell, without redirections. A command after
/// `xargs` gets the argument `vol:/file`.
fn commands(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(line).unwrap_or_else(|| panic!("not a line of shell: {line}"));
    let parts = words.split(|word| ["|", "&&"].contains(&word.as_str()));
    parts
        .filter_map(|part| {
            let begin = part.iter().position(|word| word == "eyrie")?;
            let end = part.iter().position(|word| [">", "<"].contains(&word.as_str()));
            let mut command = part[begin..end.unwrap_or(part.len())].to_vec();
            if part[0] == "xargs" {
                command.push("vol:/file".to_owned());
            }
            Some(command)
        })
        .collect()
}

#[test]
fn every_help_has_valid_examples() {
    let all = all();
    assert!(all.len() > 25, "{}", all.len());
    for command in all {
        let name = command.get_display_name().unwrap_or(command.get_name()).replace('-', " ");
        let examples = examples(&command);
        assert!(
            examples.iter().any(|line| line.contains(&format!("{name} "))),
            "{name} is not in its examples: {examples:?}"
        );
        for line in examples {
            let commands = commands(&line);
            assert!(!commands.is_empty(), "{line}");
            for words in commands {
                if let Err(error) = Arguments::try_parse_from(&words) {
                    panic!("{line}: {error}");
                }
            }
        }
    }
}

#[test]
fn command_line_definition_is_sound() {
    Arguments::command().debug_assert();
}

/// Commands without `--json` that print nothing at all.
const SILENT: [&str; 11] = [
    "mkdir",
    "touch",
    "truncate",
    "mount",
    "umount",
    "kv put",
    "kv erase",
    "xattr set",
    "xattr rm",
    "quota off",
    "replay",
];
/// Commands without `--json` that print nothing unless `--verbose` asks for a line about each file.
const VERBOSE: [&str; 7] = ["cp", "mv", "rm", "ln", "chmod", "chown", "chattr"];
/// Commands without `--json` that write bytes or text in a format of another program: the bytes of files and
/// values, traces, completions and manual pages.
const OTHER_FORMATS: [&str; 6] = ["cat", "kv get", "xattr get", "trace", "completions", "man"];
/// Commands without `--quiet`, because a user who runs them wants their output. They print no confirmation.
const ANSWERS: [&str; 23] = [
    "ls",
    "tree",
    "find",
    "du",
    "stat",
    "lsattr",
    "kv scan",
    "xattr list",
    "info",
    "df",
    "stats",
    "sessions",
    "quota",
    "quota report",
    "run",
    "explore",
    "bench micro",
    "bench kv",
    "bench profile",
    "bench catd",
    "bench bpfs",
    "bench jobs",
    "bench shared",
];

#[test]
fn every_command_prints_json_and_is_quiet_on_demand() {
    let (mut exceptions, mut wrong) = (Vec::new(), Vec::new());
    for command in all() {
        let name = command.get_display_name().unwrap_or_default().replace('-', " ");
        let name = name.trim_start_matches("eyrie").trim_start();
        let has = |flag: &str| command.get_arguments().any(|argument| argument.get_long() == Some(flag));
        let runs = !command.is_subcommand_required_set();
        let is_in = |list: &[&str]| list.contains(&name);
        let right = match (has("json"), has("quiet"), has("verbose")) {
            (true, true, _) => true,
            (true, false, _) => is_in(&ANSWERS),
            (false, false, verbose) => {
                !runs || is_in(&OTHER_FORMATS) || is_in(if verbose { &VERBOSE } else { &SILENT })
            }
            (false, true, _) => false,
        };
        if !right {
            wrong.push(name.to_owned());
        }
        if runs && !(has("json") && has("quiet")) {
            exceptions.push(name.to_owned());
        }
    }
    assert!(wrong.is_empty(), "without --json, or without --quiet: {wrong:?}");
    for listed in [&SILENT[..], &VERBOSE, &OTHER_FORMATS, &ANSWERS].concat() {
        assert!(exceptions.iter().any(|name| name == listed), "{listed} is no exception any more");
    }
}
