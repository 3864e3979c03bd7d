//! The form of the catalogue: areas, media, and the macro that makes the enum of rules.

/// The area of a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Area {
    /// Stores, lines and their order.
    Medium,
    /// The journal and the page cache of a disk.
    Journal,
    /// Redo records.
    Redo,
    /// The changes that a commit makes reachable, and their order.
    Transactions,
    /// Free storage, and the moment of its reuse.
    Allocation,
    /// Directories, and stores of keys and values.
    Collections,
    /// Bytes and attributes of files.
    Files,
    /// The walk of recovery over all storage that is in use.
    Recovery,
    /// The tables of a volume, and its size.
    Volumes,
    /// The order of Ops, reads and advisory locks of several threads.
    Threads,
    /// Clients, their service, and the next service after a kill.
    Processes,
}

impl Area {
    /// Every area, in the order of the catalogue.
    pub const ALL: [Area; 11] = [
        Area::Medium,
        Area::Journal,
        Area::Redo,
        Area::Transactions,
        Area::Allocation,
        Area::Collections,
        Area::Files,
        Area::Recovery,
        Area::Volumes,
        Area::Threads,
        Area::Processes,
    ];

    /// Returns the name of the area.
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
            Area::Threads => "Threads",
            Area::Processes => "Processes",
        }
    }
}

/// The runs that can notice that a rule is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// Memory only. On a disk either the code never runs, or a crash leaves only states between two Ops, so
    /// the order inside an Op does not show.
    Memory,
    /// A disk only.
    Disk,
    /// Memory, and a disk.
    Both,
    /// No run of the explorer. The tests of the engine under the scheduler `shuttle` notice the mutant.
    Scheduler,
    /// No run of the explorer. The tests of a service and its clients under the scheduler notice the mutant.
    ServiceScheduler,
    /// No run of the explorer. The tests of the command with services in processes of their own notice the
    /// mutant.
    Services,
    /// No run of the explorer. The tests of a service with clients in the same process notice the mutant.
    Sessions,
}

/// The entry of a rule in the catalogue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleEntry {
    /// The identifier, the same in every version.
    pub id: &'static str,
    /// The area of the rule.
    pub area: Area,
    /// The rule, in one sentence.
    pub sentence: &'static str,
    /// The source file that keeps the rule.
    pub place: &'static str,
    /// The behaviour of the mutant.
    pub mutant: &'static str,
    /// The runs that can notice the mutant: those of the explorer on a medium, those under the scheduler, or
    /// those with services.
    pub on: On,
    /// The kind of workload that the explorer tries first, because it is likely to show the mutant. The other
    /// kinds follow. For the other runs this is the start of the names of the tests that notice the mutant.
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

            /// Returns the entry of the rule in the catalogue.
            pub const fn entry(self) -> RuleEntry {
                match self {
                    $($(SafetyRule::$name => RuleEntry {
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

            /// Returns the name of the rule in the sources.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(SafetyRule::$name => stringify!($name),)*)*
                }
            }
        }
    };
}

pub(super) use rules;
