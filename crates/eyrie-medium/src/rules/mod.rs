//! The rules of crash safety, which every change of a volume and every recovery keep. The catalogue names the
//! source file that keeps each rule.
//!
//! [`SafetyRule`] is the catalogue. `docs/rules.md` repeats it for readers, and a test compares the two. With
//! the feature `mutants` a test can break one rule in its process (`break_rule`). The code that calls
//! [`broken`] for this rule then behaves as the catalogue describes the *mutant* of the rule. The crash
//! explorer, or a test of threads or of processes, must notice the mutant. Without the feature [`broken`] is
//! the constant false, so the compiler removes the mutants.

mod catalogue;
mod entry;
mod parallel;

use std::fmt;

pub use catalogue::SafetyRule;
pub use entry::{Area, On, RuleEntry};

impl SafetyRule {
    /// Returns the rule with this identifier.
    pub fn of_id(id: &str) -> Option<SafetyRule> {
        SafetyRule::ALL.iter().copied().find(|rule| rule.entry().id == id)
    }
}

impl fmt::Display for SafetyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.entry().id)
    }
}

/// The environment variable with the identifier of the rule that `break_rule_of_environment` breaks in a
/// process.
pub const BROKEN_RULE: &str = "EYRIE_BROKEN_RULE";

#[cfg(feature = "mutants")]
mod breaking {
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::{BROKEN_RULE, SafetyRule};

    /// One more than the number of the broken rule. 0 if no rule is broken.
    static BROKEN: AtomicU16 = AtomicU16::new(0);

    /// Breaks a rule in this whole process from now on, or no rule if `rule` is `None`.
    pub fn break_rule(rule: Option<SafetyRule>) {
        BROKEN.store(rule.map_or(0, |rule| rule as u16 + 1), Ordering::Relaxed);
    }

    /// Breaks the rule that the environment variable [`BROKEN_RULE`] names, if it is set.
    ///
    /// # Panics
    /// Panics if no rule has this identifier.
    pub fn break_rule_of_environment() {
        if let Ok(id) = std::env::var(BROKEN_RULE) {
            break_rule(Some(SafetyRule::of_id(&id).expect("an identifier of the catalogue")));
        }
    }

    /// Returns true if a test has switched on the mutant of the rule, which replaces the code that keeps the
    /// rule. The function does not look for damage: it returns false in every run that does not test a
    /// mutant.
    #[inline]
    pub fn broken(rule: SafetyRule) -> bool {
        BROKEN.load(Ordering::Relaxed) == rule as u16 + 1
    }
}
#[cfg(feature = "mutants")]
pub use breaking::{break_rule, break_rule_of_environment, broken};

/// Returns true if a test has switched on the mutant of the rule, which replaces the code that keeps the
/// rule. Without the feature `mutants`, and so in every product, this is always false. The function does not
/// look for damage.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn broken(_rule: SafetyRule) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns `TwoWords` as `two-words`.
    fn dashed(name: &str) -> String {
        let mut dashed = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !dashed.is_empty() {
                dashed.push('-');
            }
            dashed.push(letter.to_ascii_lowercase());
        }
        dashed
    }

    #[test]
    fn every_rule_has_its_own_name_and_sentence() {
        let mut sentences = BTreeSet::new();
        for &rule in SafetyRule::ALL {
            let RuleEntry { id, sentence, mutant, .. } = rule.entry();
            assert_eq!(id, dashed(rule.name()));
            assert_eq!(SafetyRule::of_id(id), Some(rule));
            assert!(sentence.ends_with('.') && !mutant.ends_with('.'), "{rule}");
            assert!(sentences.insert(sentence), "{rule}");
        }
        assert!(SafetyRule::ALL.len() >= 40, "{}", SafetyRule::ALL.len());
        assert!(SafetyRule::ALL.is_sorted_by_key(|rule| rule.entry().area), "areas in order");
    }
}
