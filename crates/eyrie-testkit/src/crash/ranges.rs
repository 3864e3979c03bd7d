//! More cases of `fallocate`, and cases of writes to storage that `fallocate` allocated.

use eyrie_engine::FallocateMode;

use super::PathOp;
use super::path_op::{append, fallocate, set_size, write};

/// Returns pairs of Ops. The second Op of a pair may reuse storage that the first Op freed or allocated.
pub(super) fn again() -> [[PathOp; 2]; 6] {
    use FallocateMode::{Allocate, CollapseRange, InsertRange, KeepSize, PunchHole, ZeroRange};
    [
        [fallocate("tree", ZeroRange, 4096, 8192), write("tree", 5000, 100)],
        [fallocate("tree", PunchHole, 0, 8192), fallocate("tree", Allocate, 0, 8192)],
        [fallocate("tree", CollapseRange, 4096, 4096), fallocate("tree", InsertRange, 4096, 4096)],
        [fallocate("sparse", Allocate, 0, 8192), write("sparse", 100, 6000)],
        [fallocate("tree", KeepSize, 30_000, 30_000), append("tree", 6000)],
        [append("ahead", 4000), set_size("ahead", 9000)],
    ]
}

/// Returns Ops on files with a tree, with one large extent, with holes, and with storage that was never
/// written.
pub(super) fn ranges() -> Vec<PathOp> {
    use FallocateMode::{
        Allocate, CollapseRange, InsertRange, KeepSize, PunchHole, ZeroRange, ZeroRangeKeepSize,
    };
    vec![
        fallocate("reserved", Allocate, 3000, 20_000),
        fallocate("reserved", PunchHole, 0, 9000),
        fallocate("reserved", ZeroRange, 100, 14_000),
        fallocate("reserved", CollapseRange, 0, 4096),
        fallocate("reserved", InsertRange, 8192, 4096),
        write("reserved", 9000, 100),
        write("reserved", 3000, 3000),
        append("reserved", 3000),
        set_size("reserved", 9000),
        set_size("reserved", 30_000),
        fallocate("tree", Allocate, 30_000, 30_000),
        fallocate("tree", PunchHole, 9000, 20_000),
        fallocate("tree", PunchHole, 0, 1 << 40),
        fallocate("tree", ZeroRange, 100, 10_000),
        fallocate("tree", ZeroRangeKeepSize, 4096, 4096),
        fallocate("tree", CollapseRange, 4096, 8192),
        fallocate("tree", InsertRange, 4096, 8192),
        fallocate("tree", InsertRange, 0, 4 << 20),
        fallocate("tree", InsertRange, 0, 100),
        fallocate("extent", Allocate, 0, 30_000),
        fallocate("extent", PunchHole, 100, 50),
        fallocate("extent", CollapseRange, 4096, 4096),
        fallocate("extent", InsertRange, 16_384, 4096),
        fallocate("sparse", Allocate, 0, 20_000),
        fallocate("sparse", KeepSize, 3_100_000, 90_000),
        fallocate("sparse", ZeroRange, 30_000, 50),
        fallocate("sparse", CollapseRange, 20_480, 1 << 20),
        fallocate("sparse", InsertRange, 8192, 2 << 20),
        fallocate("ahead", Allocate, 3000, 10_000),
        fallocate("ahead", KeepSize, 9000, 100_000),
        fallocate("ahead", ZeroRangeKeepSize, 4000, 12_000),
        fallocate("ahead", PunchHole, 4096, 10_000),
        fallocate("ahead", CollapseRange, 0, 4096),
        fallocate("ahead", InsertRange, 4096, 4096),
        append("ahead", 100),
        append("ahead", 3500),
        append("ahead", 9000),
        write("ahead", 4500, 2000),
        write("ahead", 12_000, 100),
        write("ahead", 0, 5000),
        set_size("ahead", 5000),
        set_size("ahead", 0),
        set_size("ahead", 15_000),
    ]
}
