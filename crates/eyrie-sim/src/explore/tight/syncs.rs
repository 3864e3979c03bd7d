//! Scripts for a disk with several syncs in a row.

use super::Calls;
use crate::script::Script;

/// Returns scripts with several syncs in a row. A cut that only frees pages then lies between other cuts.
pub fn syncs_in_a_row() -> Vec<Script> {
    let mut rows = Calls::default();
    rows.add("creat /rows");
    for round in 0..4 {
        rows.add(format!("write /rows 0 140K {round}"));
        rows.add(format!("write /rows 0 140K {}", round + 10));
        rows.sync();
        rows.sync();
        rows.add(format!("write /rows 0 100K {}", round + 20));
        rows.sync();
        rows.sync();
        rows.sync();
    }
    vec![rows.script(), scattered()]
}

/// Returns a script in which one call retires more pages of its cut than one sync frees. The next sync frees
/// the rest without a change, and the calls after it reuse exactly these pages. The file is written from its
/// end to its start, so that no page follows its neighbour in memory and each page is retired alone.
fn scattered() -> Script {
    let mut calls = Calls::default();
    for round in 0..4 {
        calls.add("creat /pages");
        for page in (0..36).rev() {
            calls.add(format!("write /pages {}K 4K {round}", 4 * page));
        }
        match round % 2 {
            0 => calls.add("unlink /pages"),
            _ => calls.add(format!("write /pages 0 144K {round}")),
        }
        calls.sync();
        calls.sync();
        for page in 0..3 {
            calls.add(format!("put / page-{page} 4096 {round}"));
        }
        calls.sync();
        if round % 2 == 1 {
            calls.add("unlink /pages");
        }
        calls.sync();
    }
    calls.script()
}
