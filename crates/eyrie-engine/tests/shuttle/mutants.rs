//! The tests under the scheduler notice each broken rule of threads.

use std::collections::BTreeSet;
use std::process::Command;

use eyrie_medium::rules::{On, SafetyRule, break_rule};

/// The environment variable with the rule that a child process breaks.
const BROKEN: &str = "EYRIE_BROKEN_RULE";

/// Breaks the rule that the parent of this process has chosen, if it has chosen one.
pub fn break_chosen_rule() {
    if let Ok(id) = std::env::var(BROKEN) {
        break_rule(Some(SafetyRule::of_id(&id).expect("an id of the catalogue")));
    }
}

#[test]
fn every_broken_rule_of_threads_is_noticed() {
    let _alone = super::alone();
    let broken = || SafetyRule::ALL.iter().filter(|rule| rule.entry().on == On::Scheduler);
    assert!(broken().count() > 0);
    let run = |hint: &str, id: Option<&str>| {
        let mut tests = Command::new(std::env::current_exe().expect("this program"));
        tests.arg(hint).env_remove(BROKEN).envs(id.map(|id| (BROKEN, id)));
        tests.output().expect("this program runs again")
    };
    // Without a broken rule the same tests pass.
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
