//! Breaks the rules of crash safety one after another. The tests of a program must notice each broken rule.
//! The rules are those of the catalogue, [`SafetyRule`].

use std::collections::BTreeSet;
use std::process::{Command, Output};

pub use eyrie_medium::rules::On;
use eyrie_medium::rules::{BROKEN_RULE, SafetyRule};

/// Breaks each rule that the catalogue assigns to runs of the kind `on`, as [`broken_rules_are_noticed`]
/// does, with the tests that the catalogue names for the rule.
///
/// # Panics
/// As [`broken_rules_are_noticed`].
pub fn every_broken_rule_is_noticed(on: On) {
    let broken: Vec<_> = SafetyRule::ALL.iter().filter(|rule| rule.entry().on == on).collect();
    assert!(!broken.is_empty());
    for hint in broken.iter().map(|rule| rule.entry().hint).collect::<BTreeSet<_>>() {
        let rules = broken.iter().filter(|rule| rule.entry().hint == hint);
        broken_rules_are_noticed(hint, &rules.map(|rule| **rule).collect::<Vec<_>>());
    }
}

/// Breaks rules one after another. For each rule, this program runs again in a process of its own, with the
/// tests whose paths contain `hint`. At least one of these tests must fail. All of them must pass in a
/// process without a broken rule.
///
/// The environment variable [`BROKEN_RULE`] tells a process its rule. The tests break this rule with
/// `break_rule_of_environment`, so the program must have the feature `mutants` of `eyrie-medium`.
///
/// # Panics
/// Panics if no test notices a broken rule, or if a test fails without a broken rule.
pub fn broken_rules_are_noticed(hint: &str, rules: &[SafetyRule]) {
    let output = run(hint, None);
    assert!(output.status.success(), "{hint}:\n{}", String::from_utf8_lossy(&output.stdout));
    for rule in rules {
        let output = run(hint, Some(rule.entry().id));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{rule} is not noticed:\n{text}");
        assert!(text.contains("panicked at"), "{rule} ends without a failed test:\n{text}");
        println!("{rule}: noticed");
    }
}

/// Runs the tests of this program whose paths contain `hint`, as libtest filters them. Each hint of the
/// catalogue is the start of a path, and occurs nowhere else.
fn run(hint: &str, id: Option<&str>) -> Output {
    let mut tests = Command::new(std::env::current_exe().expect("this program"));
    tests.arg(hint).env_remove(BROKEN_RULE).envs(id.map(|id| (BROKEN_RULE, id)));
    tests.output().expect("this program runs again")
}
