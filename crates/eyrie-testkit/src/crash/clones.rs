//! Cases of clones, and of changes of files that share extents.

use eyrie_engine::FallocateMode;

use super::path_op::{append, clone_range, fallocate, file, put, set_size, unlink, write};
use super::{CaseVolume, PathOp};

/// Returns a volume with files that share extents: trees, files of one extent, and a file that has an extent
/// twice.
pub(super) fn cloned() -> CaseVolume {
    let changes = [
        // An overwrite turns an extent of more than 16 KiB into a tree.
        file("tree", 40_000),
        write("tree", 9000, 100),
        file("twin", 10),
        clone_range(("tree", 0), ("twin", 0), 0),
        file("extent", 20_000),
        file("double", 10),
        clone_range(("extent", 0), ("double", 0), 0),
        file("again", 30_000),
        clone_range(("again", 0), ("again", 32_768), 4096),
        file("small", 100),
    ];
    CaseVolume::after("cloned", true, &changes)
}

/// Returns changes of the files of [`cloned`].
pub(super) fn changes() -> Vec<PathOp> {
    use FallocateMode::{
        CollapseRange, InsertRange, KeepSize, PunchHole, UnshareRange, UnshareRangeKeepSize, ZeroRange,
    };
    vec![
        clone_range(("tree", 0), ("small", 0), 0),
        clone_range(("small", 0), ("extent", 20_480), 0),
        clone_range(("twin", 8192), ("extent", 4096), 8192),
        clone_range(("extent", 4096), ("tree", 0), 12_288),
        clone_range(("tree", 0), ("tree", 40_960), 0),
        clone_range(("again", 0), ("tree", 1 << 20), 0),
        clone_range(("tree", 0), ("twin", 0), 40_000),
        write("twin", 0, 8),
        write("twin", 4090, 20),
        write("double", 16, 8),
        write("double", 0, 20_000),
        write("again", 32_776, 8),
        append("tree", 8),
        append("twin", 6000),
        append("double", 100),
        append("again", 10),
        set_size("tree", 0),
        set_size("twin", 5000),
        set_size("twin", 50_000),
        set_size("extent", 4096),
        set_size("double", 30_000),
        unlink("tree"),
        unlink("double"),
        put("extent", 100),
        fallocate("twin", PunchHole, 4096, 9000),
        fallocate("twin", CollapseRange, 4096, 8192),
        fallocate("double", InsertRange, 4096, 4096),
        fallocate("double", ZeroRange, 0, 8192),
        fallocate("tree", KeepSize, 40_000, 9000),
        fallocate("tree", UnshareRange, 0, 50_000),
        fallocate("double", UnshareRangeKeepSize, 4096, 4096),
    ]
}
