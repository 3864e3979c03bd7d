//! The cases of changes that clear set-id bits and remove capabilities. A crash leaves the change of these
//! rights together with the change of the bytes or the owner, or neither change.

use eyrie_engine::{AttributeChange, FallocateMode, SetIds, XattrMode};

use super::path_op::{append, fallocate, file, set_size, write, xattr};
use super::{CaseVolume, PathOp};

/// Returns a volume with files that have both set-id bits: three files of 24 to 5000 bytes, and a file with a
/// tree. Most of the files also have a capability.
pub(super) fn privileged() -> CaseVolume {
    let files =
        [file("a", 100), file("b", 5000), file("c", 24), file("tree", 40_000), write("tree", 9000, 100)];
    let modes = ["a", "b", "c", "tree"].map(|path| {
        let change = AttributeChange { mode: Some(0o6755), ..AttributeChange::default() };
        PathOp::SetAttributes { path: path.into(), change }
    });
    let capabilities = ["a", "b", "tree"].map(|path| xattr(path, "security.capability", 20, XattrMode::Set));
    CaseVolume::after("set ids", true, &[&files[..], &modes, &capabilities].concat())
}

/// Returns changes of bytes and owners by users whose changes clear the set-id bits.
pub(super) fn changes() -> Vec<PathOp> {
    let own = |path: &str, mode| {
        let set_ids = SetIds::DropAsMember;
        let (drops_capability, uid) = (true, Some(7));
        let change = AttributeChange { mode, set_ids, drops_capability, uid, ..AttributeChange::default() };
        PathOp::SetAttributes { path: path.into(), change }
    };
    let writes = [
        write("c", 8, 8),
        write("c", 3, 4),
        write("c", 3, 12),
        write("a", 50, 100),
        write("a", 5000, 10),
        write("b", 4090, 20),
        write("b", 0, 6000),
        write("tree", 4096, 8),
        write("tree", 4000, 200),
        write("tree", 8192, 4096),
        write("tree", 60_000, 50),
        append("c", 8),
        append("b", 4000),
        append("tree", 5000),
        set_size("a", 0),
        set_size("a", 9000),
        set_size("b", 5000),
        set_size("tree", 12_288),
        fallocate("a", FallocateMode::Allocate, 0, 9000),
        fallocate("b", FallocateMode::PunchHole, 4096, 4096),
        fallocate("tree", FallocateMode::ZeroRange, 4096, 8192),
        fallocate("tree", FallocateMode::CollapseRange, 4096, 8192),
        fallocate("tree", FallocateMode::InsertRange, 8192, 4096),
    ];
    let by_user = |change, set_ids| PathOp::ByUser { change: Box::new(change), set_ids };
    let strangers = writes.iter().cloned().map(|change| by_user(change, SetIds::DropAsStranger));
    let member = by_user(write("tree", 4096, 8), SetIds::DropAsMember);
    strangers.chain([member, own("a", None), own("b", Some(0o6744))]).collect()
}
