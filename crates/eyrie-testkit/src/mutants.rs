//! Runs the tests of a program with one broken rule of the catalogue after another.

use std::collections::BTreeSet;
use std::process::{Command, Output};

pub use eyrie_medium::rules::On;
use eyrie_medium::rules::{BROKEN_RULE, SafetyRule};

/// Breaks each rule that runs of the kind `on` notice, one after another. For each rule, this program runs
/// again in a process of its own, with the tests that the catalogue names for this rule. One of them must
/// fail. Without a broken rule the same tests must pass. The tests break the rule of their process with
/// `break_rule_of_environment`, so the program must have the feature `mutants`.
///
/// # Panics
/// Panics if a broken rule is not noticed.
pub fn every_broken_rule_is_noticed(on: On) {
    let broken = || SafetyRule::ALL.iter().filter(|rule| rule.entry().on == on);
    assert!(broken().count() > 0);
    for hint in broken().map(|rule| rule.entry().hint).collect::<BTreeSet<_>>() {
        let output = run(hint, None);
        assert!(output.status.success(), "{hint}:\n{}", String::from_utf8_lossy(&output.stdout));
    }
    for rule in broken() {
        let entry = rule.entry();
        let output = run(entry.hint, Some(entry.id));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{rule} is not noticed:\n{text}");
        assert!(text.contains("panicked at"), "{rule} ends without a failed test:\n{text}");
        println!("{rule}: noticed");
    }
}

/// Runs the tests of this program whose names begin with `hint`.
fn run(hint: &str, id: Option<&str>) -> Output {
    let mut tests = Command::new(std::env::current_exe().expect("this program"));
    tests.arg(hint).env_remove(BROKEN_RULE).envs(id.map(|id| (BROKEN_RULE, id)));
    tests.output().expect("this program runs again")
}
