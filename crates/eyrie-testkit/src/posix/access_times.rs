//! Lists calls that may set access times. Random lists of calls seldom have them.

use eyrie::posix::{Access, OpenFlags, SetTime, Whence};
use eyrie::{InodeFlags, RenameMode, Time};

use super::calls::PosixCall;
use super::values::CallPath;

/// Returns calls of each user that read a file, a directory, or symbolic links to them, or that only look at
/// them. Before each of these calls, all access times become old. The call is then made twice, because the
/// second one finds a new access time.
pub(super) fn calls() -> Vec<(usize, PosixCall)> {
    let path = |name: &str| CallPath::from(name);
    let open = |slot, name: &str, flags| {
        let flags = OpenFlags::READ | flags;
        PosixCall::Open { slot, path: path(name), flags, mode: 0o644 }
    };
    let link = |target: &str, name: &str| PosixCall::Symlink { target: target.into(), path: path(name) };
    let read = |length, offset| PosixCall::Read { slot: 0, length, offset };
    let made = [
        open(0, "/f", OpenFlags::WRITE | OpenFlags::CREATE),
        PosixCall::Write { slot: 0, data: vec![7; 100], offset: 0 },
        PosixCall::Chown { path: path("/f"), uid: Some(1000), gid: None },
        PosixCall::Mkdir { path: path("/d"), mode: 0o777 },
        open(1, "/d", OpenFlags::DIRECTORY),
        link("f", "/l"),
        link("l", "/ll"),
        link("/d", "/ld"),
        link("x", "/x"),
    ];
    let (accessed, modified) = (SetTime::To(Time::new(1, 0)), SetTime::Omit);
    let aged = |name| PosixCall::Lutimens { path: path(name), accessed, modified };
    let reads = [
        read(4, 0),
        read(0, 0),
        read(4, 100),
        read(4, i64::MAX as u64),
        PosixCall::ListHandle { slot: 1, part: None },
        PosixCall::List { path: path("/ld/.") },
        PosixCall::Readlink { path: path("/l") },
        PosixCall::Readlink { path: path("/f") },
        PosixCall::Stat { path: path("/ll") },
        PosixCall::Lstat { path: path("/ll") },
        PosixCall::Lstat { path: path("/ld/") },
        PosixCall::Stat { path: path("/x") },
        PosixCall::Stat { path: path("/ll/a") },
        PosixCall::Access { path: path("/l"), access: Access::READ },
        PosixCall::Mkdir { path: path("/ld/a"), mode: 0o755 },
        PosixCall::Rename { from: path("/ld/a"), to: path("/ll/a"), mode: RenameMode::Replace },
        PosixCall::Unlink { path: path("/ld/a") },
        PosixCall::Link { existing: path("/ld/a"), follow: false, path: path("/ld/b") },
        PosixCall::Truncate { path: path("/ll"), size: 50 },
        PosixCall::Chmod { path: path("/ll"), mode: 0o644 },
        PosixCall::Seek { slot: 0, offset: 0, whence: Whence::Data },
        PosixCall::Fstat { slot: 0 },
        open(2, "/l", OpenFlags::NOATIME),
        PosixCall::Read { slot: 2, length: 4, offset: 0 },
        open(2, "/ld", OpenFlags::NOATIME),
        PosixCall::ListHandle { slot: 2, part: None },
        open(2, "/ld", OpenFlags::NOATIME | OpenFlags::NOFOLLOW),
        open(2, "/l", OpenFlags::NOATIME | OpenFlags::PATH),
        open(3, "/ll", OpenFlags::empty()),
        PosixCall::Read { slot: 3, length: 4, offset: 0 },
    ];
    let mut calls: Vec<_> = made.into_iter().map(|call| (0, call)).collect();
    for user in 0..3 {
        for call in &reads {
            calls.extend(["/f", "/d", "/l", "/ll", "/ld", "/x"].map(|name| (0, aged(name))));
            calls.extend([(user, call.clone()), (user, call.clone())]);
        }
    }
    for flags in [InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY] {
        for (slot, name) in [(0, "/f"), (1, "/d")] {
            calls.push((0, aged(name)));
            calls.push((0, PosixCall::SetInodeFlags { slot, flags }));
            calls.extend([(1, read(4, 0)), (1, PosixCall::ListHandle { slot: 1, part: None })]);
            calls.push((0, PosixCall::SetInodeFlags { slot, flags: InodeFlags::empty() }));
        }
    }
    // The directory is removed while it is open.
    calls.extend([
        (0, PosixCall::Rmdir { path: path("/d") }),
        (0, PosixCall::ListHandle { slot: 1, part: None }),
    ]);
    calls
}
