//! Random calls from a seed. The calls use only a few names, so many of them act on the same objects.

use std::ffi::OsString;

use eyrie::{FallocateMode, RenameMode, Time};

use super::{Call, bytes};

/// Paths that usually lead to directories.
const DIRECTORIES: [&str; 4] = ["/d", "/e", "/d/f", "/e/f"];
/// Names that are usually files, in a directory or in the root.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Targets of symbolic links. None leads out of the tree, because a host and a volume differ outside of it.
const TARGETS: [&str; 6] = ["a", "b", "d", "f", "d/a", "f/b"];
/// Lengths and offsets, in bytes: near the sizes of words, cache lines and pages, and some of several pages.
const SIZES: [u64; 14] = [0, 1, 7, 8, 63, 64, 100, 4095, 4096, 4097, 8192, 12_289, 65_536, 100_000];
/// Permission bits. None of them make a sticky directory that all users may write, because a Linux host may
/// refuse `creat` in such a directory, even to root.
const MODES: [u16; 8] = [0o600, 0o644, 0o755, 0o777, 0o4755, 0o2755, 0o1755, 0];
const MODES_OF_FALLOCATE: [FallocateMode; 6] = [
    FallocateMode::Allocate,
    FallocateMode::KeepSize,
    FallocateMode::PunchHole,
    FallocateMode::ZeroRange,
    FallocateMode::CollapseRange,
    FallocateMode::InsertRange,
];
const XATTRS: [&str; 4] = ["user.a", "user.b", "trusted.a", "user.\u{e9} "];
/// Keys. Two of them are not legal file names.
const KEYS: [&[u8]; 4] = [b"a", b"b", b"k/1", b"\0"];

/// Three groups of calls, each of which a caller may leave out. Every mix has all calls outside these groups,
/// except `batch`, `chattr`, `clone`, `project`, `quota` and `tmpfile`, which the generator never draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallMix {
    /// `put` and `erase`. If the key exists, `put` replaces its file on the host by a new file. In a volume
    /// it changes the value of the same file.
    pub keys: bool,
    /// `setxattr` and `removexattr`.
    pub xattrs: bool,
    /// `fallocate`.
    pub fallocate: bool,
}

impl Default for CallMix {
    /// Includes all groups.
    fn default() -> CallMix {
        CallMix { keys: true, xattrs: true, fallocate: true }
    }
}

/// An endless iterator over random calls. A seed and a mix give the same calls in every version. Many of the
/// calls succeed, and many fail.
#[derive(Clone, Debug)]
pub struct CallGenerator {
    seed: u64,
    /// Number of random numbers drawn so far.
    drawn: u64,
    mix: CallMix,
}

/// Groups of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Group {
    Always,
    Keys,
    Xattrs,
    Fallocate,
}

type Draw = fn(&mut CallGenerator) -> Call;

/// The calls that can be drawn, each with its group and weight.
const DRAWS: [(Group, u64, Draw); 22] = [
    (Group::Always, 16, |random| Call::Creat { path: random.path(), mode: random.of(MODES) }),
    (Group::Always, 8, |random| Call::Mkdir { path: random.directory(), mode: random.of(MODES) }),
    (Group::Always, 14, |random| Call::Write {
        path: random.path(),
        offset: random.of(SIZES),
        length: random.of(SIZES),
        seed: random.below(1000),
    }),
    (Group::Always, 7, |random| Call::Append {
        path: random.path(),
        length: random.of(SIZES),
        seed: random.below(1000),
    }),
    (Group::Always, 3, |random| Call::Fsync { path: random.path() }),
    (Group::Always, 1, |random| Call::Fdatasync { path: random.path() }),
    (Group::Always, 1, |_| Call::Sync),
    (Group::Always, 16, |random| Call::Rename {
        from: random.path(),
        to: random.path(),
        mode: random.of([
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
        ]),
    }),
    (Group::Always, 7, |random| Call::Link { from: random.path(), to: random.path() }),
    (Group::Always, 5, |random| Call::Symlink { target: random.of(TARGETS).into(), path: random.path() }),
    (Group::Always, 6, |random| Call::Unlink { path: random.path() }),
    (Group::Always, 4, |random| Call::Rmdir { path: random.directory() }),
    (Group::Always, 6, |random| Call::Truncate { path: random.path(), length: random.of(SIZES) }),
    (Group::Always, 4, |random| Call::Chmod { path: random.path(), mode: random.of(MODES) }),
    (Group::Always, 4, |random| Call::Chown { path: random.path(), uid: random.id(), gid: random.id() }),
    (Group::Always, 4, |random| Call::Utimes {
        path: random.path(),
        accessed: random.time(),
        modified: random.time(),
    }),
    (Group::Always, 3, |random| Call::Read { path: random.path() }),
    (Group::Fallocate, 6, |random| Call::Fallocate {
        path: random.path(),
        mode: random.of(MODES_OF_FALLOCATE),
        offset: random.of(SIZES),
        length: random.of(SIZES),
    }),
    (Group::Xattrs, 6, |random| Call::Setxattr {
        path: random.path(),
        name: random.of(XATTRS).into(),
        value: random.value(),
    }),
    (Group::Xattrs, 3, |random| Call::Removexattr { path: random.path(), name: random.of(XATTRS).into() }),
    (Group::Keys, 6, |random| Call::Put {
        dir: random.directory(),
        key: random.of(KEYS).to_vec(),
        length: random.of(SIZES),
        seed: random.below(1000),
    }),
    (Group::Keys, 4, |random| Call::Erase { dir: random.directory(), key: random.of(KEYS).to_vec() }),
];

impl Iterator for CallGenerator {
    type Item = Call;

    fn next(&mut self) -> Option<Call> {
        let mix = self.mix;
        let chosen = || DRAWS.iter().filter(move |(group, ..)| mix.has(*group));
        let mut drawn = self.below(chosen().map(|(_, weight, _)| weight).sum());
        let (.., draw) = chosen().find(|(_, weight, _)| match drawn.checked_sub(*weight) {
            Some(rest) => {
                drawn = rest;
                false
            }
            None => true,
        })?;
        Some(draw(self))
    }
}

impl CallMix {
    fn has(self, group: Group) -> bool {
        match group {
            Group::Always => true,
            Group::Keys => self.keys,
            Group::Xattrs => self.xattrs,
            Group::Fallocate => self.fallocate,
        }
    }
}

impl CallGenerator {
    /// Makes the generator of the calls of `seed`.
    pub fn new(seed: u64, mix: CallMix) -> CallGenerator {
        CallGenerator { seed, drawn: 0, mix }
    }

    fn below(&mut self, limit: u64) -> u64 {
        let number = bytes::word(self.seed, self.drawn);
        self.drawn += 1;
        number % limit
    }

    fn of<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[self.below(N as u64) as usize]
    }

    fn path(&mut self) -> OsString {
        if self.below(5) == 0 {
            return self.directory();
        }
        let dir = self.of(["", "", "/d", "/e", "/d/f"]);
        format!("{dir}/{}", self.of(NAMES)).into()
    }

    /// Draws the path of a directory. One draw in ten is a path that usually leads to a file, so some calls
    /// fail.
    fn directory(&mut self) -> OsString {
        match self.below(10) {
            0 => format!("/{}", self.of(NAMES)).into(),
            _ => self.of(DIRECTORIES).into(),
        }
    }

    fn id(&mut self) -> Option<u32> {
        self.of([None, Some(0), Some(1), Some(1000)])
    }

    fn time(&mut self) -> Time {
        Time::new(self.below(2_000_000_000) as i64, self.below(1_000_000_000) as u32)
    }

    fn value(&mut self) -> Vec<u8> {
        let mut value = vec![0; self.of([0, 1, 5, 40, 200])];
        bytes::fill(self.below(1000), 0, &mut value);
        value
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::Script;
    use super::*;

    #[test]
    fn every_call_is_drawn_if_it_is_in_the_mix() {
        let names = |mix| -> BTreeSet<&str> {
            CallGenerator::new(1, mix).take(2000).map(|call| call.name()).collect()
        };
        assert_eq!(names(CallMix::default()).len(), 22);
        let few = names(CallMix { keys: false, xattrs: false, fallocate: false });
        for name in ["put", "erase", "setxattr", "removexattr", "fallocate"] {
            assert!(!few.contains(name), "{name}");
        }
        assert_eq!(few.len(), 17);
    }

    #[test]
    fn a_seed_stands_for_the_same_calls_for_ever() {
        let script: Script = CallGenerator::new(7, CallMix::default()).take(6).collect();
        assert_eq!(
            script.to_string(),
            "put /d/f \"\\x00\" 65536 305\nmkdir /e 0644\nwrite /b 63 65536 327\ncreat /b 2755\n\
             link /a /d/f/a\nlink /a /a\n"
        );
        assert_ne!(script, CallGenerator::new(8, CallMix::default()).take(6).collect());
    }
}
