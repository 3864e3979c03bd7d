//! Lists calls that change files with set-id bits or a capability, and truncations that change nothing.
//! Random lists of calls seldom have them.

use eyrie::posix::OpenFlags;
use eyrie::{AclKind, FallocateMode, XattrMode};
use eyrie_engine::op::CAPABILITY_XATTR;

use super::calls::PosixCall;
use super::values::CallPath;
use super::xattr::{CAPABILITY, XattrCall};
use crate::acls::acl;

/// Returns calls that make each change by each user, on files with and without bytes. The users are root, the
/// owner of the file (a member of its group), and a user outside this group.
pub(super) fn calls() -> Vec<(usize, PosixCall)> {
    let name = || CallPath::from("/f");
    let slot = 0;
    let mode = |mode| PosixCall::Chmod { path: name(), mode };
    let open = |flags| PosixCall::Open { slot, path: name(), flags: OpenFlags::WRITE | flags, mode: 0o666 };
    let own = |uid, gid| PosixCall::Chown { path: name(), uid, gid };
    let storage = |mode, offset, length| PosixCall::Fallocate { slot, mode, offset, length };
    let end = i64::MAX as u64;
    let changes = [
        PosixCall::Write { slot, data: vec![1], offset: 0 },
        PosixCall::Write { slot, data: Vec::new(), offset: 0 },
        PosixCall::Write { slot, data: vec![1], offset: end },
        PosixCall::Append { slot, data: vec![1; 10] },
        PosixCall::Append { slot, data: Vec::new() },
        PosixCall::SetLen { slot, size: 0 },
        PosixCall::SetLen { slot, size: 100 },
        PosixCall::SetLen { slot, size: 1 << 63 },
        storage(FallocateMode::Allocate, 0, 4096),
        storage(FallocateMode::KeepSize, 0, 100),
        storage(FallocateMode::PunchHole, 0, 10),
        storage(FallocateMode::Allocate, end - 8192, 16384),
        storage(FallocateMode::Allocate, 0, 0),
        PosixCall::Truncate { path: name(), size: 50 },
        PosixCall::Truncate { path: name(), size: 1 << 63 },
        PosixCall::TruncateToSame { path: name() },
        open(OpenFlags::TRUNCATE),
        own(None, None),
        own(Some(1000), None),
        own(None, Some(2000)),
    ];
    let mut calls = Vec::new();
    let call =
        XattrCall::Set { name: CAPABILITY_XATTR.to_vec(), value: CAPABILITY.to_vec(), mode: XattrMode::Set };
    let capable = PosixCall::Xattr { path: name(), follow: true, call };
    // A file without set-id bits gets a capability instead.
    for bits in [0o6777, 0o6767, 0o777] {
        let rights = if bits == 0o777 { &capable } else { &mode(bits) };
        for bytes in [0, 100] {
            for (user, change) in (0..3).flat_map(|user| changes.iter().map(move |change| (user, change))) {
                calls.extend([
                    (0, PosixCall::Unlink { path: name() }),
                    (0, open(OpenFlags::CREATE)),
                    (0, PosixCall::Write { slot, data: vec![7; bytes], offset: 0 }),
                    (0, own(Some(1000), Some(1000))),
                    (0, mode(bits)),
                    (0, rights.clone()),
                    (user, change.clone()),
                ]);
            }
            // A write beyond the largest size of a file fails and keeps the set-id bits.
            for user in 0..3 {
                calls.extend([
                    (0, open(OpenFlags::CREATE)),
                    (0, PosixCall::SetLen { slot, size: end }),
                    (0, mode(bits)),
                    (0, rights.clone()),
                    (user, PosixCall::Append { slot, data: vec![1; 3] }),
                ]);
            }
        }
    }
    // When Linux clears the set-id bits of a file, it also writes the new mode into the access ACL.
    let call = XattrCall::Set {
        name: AclKind::Access.name().to_vec(),
        value: acl(5, u32::MAX),
        mode: XattrMode::Set,
    };
    let listed = PosixCall::Xattr { path: name(), follow: true, call };
    for (bits, user) in [0o6777, 0o2755, 0o777].iter().flat_map(|bits| (0..3).map(move |user| (*bits, user)))
    {
        calls.extend([
            (0, PosixCall::Unlink { path: name() }),
            (0, open(OpenFlags::CREATE)),
            (0, own(Some(1000), Some(1000))),
            (0, mode(bits)),
            (0, listed.clone()),
            (user, PosixCall::TruncateToSame { path: name() }),
        ]);
    }
    calls
}
