//! The tests of served volumes notice each broken rule of processes. The process of the tests breaks the
//! rule, and so do the commands that the tests start.

use eyrie_testkit::mutants::{On, every_broken_rule_is_noticed};

#[test]
fn every_broken_rule_of_processes_is_noticed() {
    every_broken_rule_is_noticed(On::Services);
}
