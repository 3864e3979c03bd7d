//! The tests of a service with clients in the same process notice each broken rule of sessions.

use eyrie_testkit::mutants::{On, every_broken_rule_is_noticed};

#[test]
fn every_broken_rule_of_sessions_is_noticed() {
    every_broken_rule_is_noticed(On::Sessions);
}
