//! Chains of symbolic links around the limit of links that a walk follows, which is 40.

use eyrie::RenameMode;
use eyrie::posix::{Access, OpenFlags};

use super::calls::PosixCall;
use super::values::CallPath;

/// Returns calls of each user through chains of links. The link `/f39` leads to the file `/f` by 40 links,
/// and `/d39` leads to the directory `/d`.
pub(super) fn calls() -> Vec<(usize, PosixCall)> {
    let path = |name: &str| CallPath::from(name);
    let open = |name: &str, flags| PosixCall::Open { slot: 0, path: path(name), flags, mode: 0o666 };
    let mut made = vec![PosixCall::Mkdir { path: path("/d"), mode: 0o777 }];
    for first in ["f", "d"] {
        let mut target = first.to_string();
        for number in 0..42 {
            let name = format!("{first}{number}");
            made.push(PosixCall::Symlink { target: target.into_bytes(), path: path(&format!("/{name}")) });
            target = name;
        }
    }
    let mut calls: Vec<_> = made.into_iter().map(|call| (0, call)).collect();
    for user in 0..3 {
        for number in 38..42 {
            let file = format!("/f{number}");
            let [below, slash] = ["b", ""].map(|end| format!("/d{number}/{end}"));
            let through = [
                PosixCall::Stat { path: path(&file) },
                PosixCall::Lstat { path: path(&file) },
                open(&file, OpenFlags::WRITE | OpenFlags::CREATE),
                PosixCall::Access { path: path(&file), access: Access::READ },
                PosixCall::Readlink { path: path(&file) },
                PosixCall::Lstat { path: path(&slash) },
                open(&below, OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE),
                PosixCall::Rename { from: path(&below), to: path("/d/c"), mode: RenameMode::Replace },
                PosixCall::Link { existing: path("/d/c"), follow: false, path: path(&below) },
                PosixCall::Unlink { path: path("/d/b") },
                PosixCall::Unlink { path: path("/d/c") },
                PosixCall::Unlink { path: path("/f") },
                PosixCall::Mkdir { path: path(&file), mode: 0o777 },
            ];
            calls.extend(through.map(|call| (user, call)));
        }
        // A walk counts the links of all its components.
        for both in ["/d18/../d20/b", "/d19/../d20/b"] {
            calls.push((user, PosixCall::Mkdir { path: path(both), mode: 0o700 }));
            calls.push((user, PosixCall::Rmdir { path: path("/d/b") }));
        }
    }
    calls
}
