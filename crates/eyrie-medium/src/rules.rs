//! The rules of crash safety: what every change and every recovery keeps to, each with the place in the sources that keeps it.
//!
//! [`SafetyRule`] is the catalogue. `docs/rules.md` is the same for readers, and a test compares the two. With the feature
//! `mutants` one rule of the process can be broken (`break_rule`): the place that asks [`broken`] then does what the catalogue says
//! of its mutant, and the crash explorer must notice. Without the feature every question is answered while the program is
//! compiled.

use std::fmt;

/// What a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Area {
    /// Stores, lines and their order.
    Medium,
    /// The journal and the page cache of a disk.
    Journal,
    /// Redo records.
    Redo,
    /// What a commit makes reachable, and when.
    Transactions,
    /// What is free, and when it is given out again.
    Allocation,
    /// Directories and stores.
    Collections,
    /// Bytes and attributes of files.
    Files,
    /// What opening a volume finds out.
    Recovery,
    /// The tables of a volume, and its size.
    Volumes,
}

impl Area {
    /// Every area, in the order of the catalogue.
    pub const ALL: [Area; 9] = [
        Area::Medium,
        Area::Journal,
        Area::Redo,
        Area::Transactions,
        Area::Allocation,
        Area::Collections,
        Area::Files,
        Area::Recovery,
        Area::Volumes,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Area::Medium => "Medium",
            Area::Journal => "Journal",
            Area::Redo => "Redo",
            Area::Transactions => "Transactions",
            Area::Allocation => "Allocation",
            Area::Collections => "Collections",
            Area::Files => "Files",
            Area::Recovery => "Recovery",
            Area::Volumes => "Volumes",
        }
    }
}

/// The media of the explorer on which a broken rule can be noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// Memory only: elsewhere the code is not run, or a crash leaves nothing between two Ops.
    Memory,
    /// A disk only.
    Disk,
    /// Both.
    Both,
}

/// What the catalogue says of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name, the same in every version.
    pub id: &'static str,
    /// What it is about.
    pub area: Area,
    /// What holds, in one sentence.
    pub sentence: &'static str,
    /// The source file that keeps it.
    pub place: &'static str,
    /// What the mutant does instead.
    pub mutant: &'static str,
    /// The media on which the mutant can be noticed.
    pub on: On,
    /// The kind of workload that is tried first; all others follow.
    pub hint: &'static str,
}

macro_rules! rules {
    ($($area:ident in $place:literal { $(
        $name:ident $id:literal on $on:ident, $hint:literal: $sentence:literal, $mutant:literal;
    )* })*) => {
        /// A rule of crash safety.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum SafetyRule {
            $($(
                #[doc = $sentence]
                $name,
            )*)*
        }

        impl SafetyRule {
            /// Every rule, in the order of the catalogue.
            pub const ALL: &[SafetyRule] = &[$($(SafetyRule::$name,)*)*];

            /// What the catalogue says of it.
            pub const fn entry(self) -> Entry {
                match self {
                    $($(SafetyRule::$name => Entry {
                        id: $id,
                        area: Area::$area,
                        sentence: $sentence,
                        place: $place,
                        mutant: $mutant,
                        on: On::$on,
                        hint: $hint,
                    },)*)*
                }
            }

            /// Its name in the sources.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(SafetyRule::$name => stringify!($name),)*)*
                }
            }
        }
    };
}

mod catalogue;
pub use catalogue::SafetyRule;

impl SafetyRule {
    /// The rule with this identifier.
    pub fn of_id(id: &str) -> Option<SafetyRule> {
        SafetyRule::ALL.iter().copied().find(|rule| rule.entry().id == id)
    }
}

impl fmt::Display for SafetyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.entry().id)
    }
}

#[cfg(feature = "mutants")]
mod breaking {
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::SafetyRule;

    /// One more than the number of the broken rule; 0: none is.
    static BROKEN: AtomicU16 = AtomicU16::new(0);

    /// Breaks a rule in all of this process from now on, or none.
    pub fn break_rule(rule: Option<SafetyRule>) {
        BROKEN.store(rule.map_or(0, |rule| rule as u16 + 1), Ordering::Relaxed);
    }

    /// Whether the mutant of a rule takes the place of what keeps it.
    #[inline]
    pub fn broken(rule: SafetyRule) -> bool {
        BROKEN.load(Ordering::Relaxed) == rule as u16 + 1
    }
}
#[cfg(feature = "mutants")]
pub use breaking::{break_rule, broken};

/// Whether the mutant of a rule takes the place of what keeps it: never without the feature `mutants`.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn broken(_rule: SafetyRule) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// `TwoWords` as `two-words`.
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
    fn every_rule_has_a_name_and_a_sentence_of_its_own() {
        let mut sentences = BTreeSet::new();
        for &rule in SafetyRule::ALL {
            let Entry { id, sentence, mutant, .. } = rule.entry();
            assert_eq!(id, dashed(rule.name()));
            assert_eq!(SafetyRule::of_id(id), Some(rule));
            assert!(sentence.ends_with('.') && !mutant.ends_with('.'), "{rule}");
            assert!(sentences.insert(sentence), "{rule}");
        }
        assert!(SafetyRule::ALL.len() >= 40, "{}", SafetyRule::ALL.len());
        assert!(SafetyRule::ALL.is_sorted_by_key(|rule| rule.entry().area), "areas in order");
    }
}
