//! The tests of a service and its clients under the scheduler notice broken rules of processes.

use eyrie_testkit::mutants::{On, every_broken_rule_is_noticed};

#[test]
fn broken_rules_of_processes_are_noticed_under_the_scheduler() {
    let _alone = super::alone();
    every_broken_rule_is_noticed(On::ScheduledServices);
}
