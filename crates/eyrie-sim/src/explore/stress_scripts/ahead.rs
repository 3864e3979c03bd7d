//! The script with storage past the end of a file.

use super::Calls;
use crate::script::Script;

/// Returns a script that gives a file storage past its end, and frees it. Other files reuse this storage, and
/// then the file gets other storage past its end.
pub fn ahead() -> Script {
    let mut calls = Calls::default();
    calls.add("creat /ahead");
    calls.add("append /ahead 24000 1");
    calls.add("write /ahead 5000 100 2");
    calls.add("fallocate /ahead keep-size 20000 50000");
    calls.add("append /ahead 3000 3");
    calls.add("truncate /ahead 27000");
    (0..12).for_each(|key| calls.add(format!("put / page-{key} 4096 {key}")));
    calls.add("fallocate /ahead keep-size 80000 9000");
    calls.add("append /ahead 9000 4");
    calls.add("write /ahead 80500 6000 5");
    calls.add("truncate /ahead 30000");
    calls.script()
}
