//! Lists calls of `access`. Random lists of calls seldom have a case in which real and effective ids decide
//! differently.

use std::ops::Range;

use eyrie::posix::{Access, OpenFlags};

use super::calls::PosixCall;
use super::values::CallPath;

/// Seeds that together have all users whose real ids differ from the effective ones.
pub(super) const SEEDS: Range<u64> = 1..5;

/// Returns calls of `access` by each of `users` users. They ask for each set of rights on a file and on a
/// directory, with real and with effective ids. Both objects get several owners and modes. Further calls ask
/// for rights on a file in that directory.
pub(super) fn calls(users: usize) -> Vec<(usize, PosixCall)> {
    let [file, dir, below] = ["/f", "/d", "/d/f"].map(CallPath::from);
    let open = |path: &CallPath| {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        PosixCall::Open { slot: 0, path: path.clone(), flags, mode: 0o666 }
    };
    let mut calls = vec![
        (0, open(&file)),
        (0, PosixCall::Mkdir { path: dir.clone(), mode: 0o777 }),
        (0, open(&below)),
        (0, PosixCall::Chmod { path: below.clone(), mode: 0o777 }),
    ];
    for (uid, gid) in [(0, 0), (1000, 1000), (1001, 2000)] {
        for mode in [0o700, 0o070, 0o007, 0o600, 0o041, 0] {
            for path in [&file, &dir] {
                calls.push((0, PosixCall::Chown { path: path.clone(), uid: Some(uid), gid: Some(gid) }));
                calls.push((0, PosixCall::Chmod { path: path.clone(), mode }));
            }
            for user in 0..users {
                let ask = |path: &CallPath, access| (user, PosixCall::Access { path: path.clone(), access });
                let all = (0..=Access::all().bits()).map(Access::from_bits_truncate);
                calls.extend(all.flat_map(|access| [ask(&file, access), ask(&dir, access)]));
                calls.extend([ask(&below, Access::READ), ask(&below, Access::READ | Access::EFFECTIVE)]);
            }
        }
    }
    calls
}
