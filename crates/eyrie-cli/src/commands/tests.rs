//! Tests that every help text has examples, and that every example is a valid command.

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
