//! The tests under the scheduler notice each broken rule of a service and its clients.

use eyrie_testkit::mutants::{On, every_broken_rule_is_noticed};

#[test]
fn every_broken_rule_of_services_is_noticed() {
    let _alone = super::alone();
    every_broken_rule_is_noticed(On::ServiceScheduler);
}
