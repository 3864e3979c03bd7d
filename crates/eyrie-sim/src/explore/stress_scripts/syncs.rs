//! Scripts for a disk with several syncs in a row.

use super::Calls;
use crate::script::Script;

/// Returns scripts with several syncs in a row. A cut that only frees pages then lies between other cuts.
pub fn syncs_in_a_row() -> Vec<Script> {
    let mut rows = Calls::default();
    rows.add("creat /rows");
    for round in 0..4 {
        // A write of many pages retires the old pages as one run. The last write takes a part of the run.
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

/// Returns a script for the rule `freeing-cut-has-a-record`. One call retires more pages than one sync frees.
/// The journal record of this sync lists the other pages as fresh. The next sync frees these pages. Its cut
/// has no other change, and gets a record only because of the rule. The calls after it reuse exactly these
/// pages. Without that record, a replay would find other bytes in them than the last record expects.
///
/// The file is written from its end to its start. So no page lies in memory directly after the page that
/// precedes it in the file, and each page is retired alone.
fn scattered() -> Script {
    let mut calls = Calls::default();
    for round in 0..4 {
        calls.add("creat /pages");
        // One sync frees 32 pages that were retired one by one (`COLLECT` in the magazine of the engine). The
        // other 4 pages are enough for the 3 values.
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
