//! Breaks the rules of crash safety one after another. The tests of a program must notice each broken rule.
//! The rules are those of the catalogue, [`SafetyRule`].

use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

pub use eyrie_medium::rules::On;
use eyrie_medium::rules::{BROKEN_RULE, SafetyRule};

/// Breaks each rule that the catalogue assigns to runs of the kind `on`, as [`broken_rules_are_noticed`]
/// does, with the tests that the catalogue names for the rule. Runs under the scheduler do not depend on the
/// time, so they have all processors.
///
/// # Panics
/// As [`broken_rules_are_noticed`].
pub fn every_broken_rule_is_noticed(on: On) {
    let broken: Vec<_> = SafetyRule::ALL.iter().filter(|rule| rule.entry().on == on).collect();
    assert!(!broken.is_empty());
    let hints: BTreeSet<_> = broken.iter().map(|rule| rule.entry().hint).collect();
    let whole = hints.into_iter().map(|hint| (hint, None));
    let runs: Vec<_> = whole.chain(broken.iter().map(|rule| (rule.entry().hint, Some(**rule)))).collect();
    let processors = match on {
        On::Scheduler | On::ServiceScheduler => std::thread::available_parallelism().map_or(1, usize::from),
        _ => 1,
    };
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(&(hint, rule)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(hint, rule);
                }
            });
        }
    });
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
    check(hint, None);
    rules.iter().for_each(|rule| check(hint, Some(*rule)));
}

/// Runs the tests whose paths contain `hint`, with a broken rule or without one.
fn check(hint: &str, rule: Option<SafetyRule>) {
    let output = run(hint, rule.map(|rule| rule.entry().id));
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(rule) = rule else {
        assert!(output.status.success(), "{hint}:\n{text}");
        return;
    };
    assert!(!output.status.success(), "{rule} is not noticed:\n{text}");
    assert!(text.contains("panicked at"), "{rule} ends without a failed test:\n{text}");
    println!("{rule}: noticed");
}

/// Runs the tests of this program whose paths contain `hint`, as libtest filters them. Each hint of the
/// catalogue is the start of a path, and occurs nowhere else.
fn run(hint: &str, id: Option<&str>) -> Output {
    let mut tests = Command::new(std::env::current_exe().expect("this program"));
    tests.arg(hint).env_remove(BROKEN_RULE).envs(id.map(|id| (BROKEN_RULE, id)));
    tests.output().expect("this program runs again")
}
