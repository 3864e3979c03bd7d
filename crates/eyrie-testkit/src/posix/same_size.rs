//! Truncations of files to the size that they have, with all kinds of storage.

use eyrie::FallocateMode;
use eyrie::posix::OpenFlags;

use super::calls::PosixCall;
use super::values::CallPath;

/// Returns calls for several files in turn. The calls make a file with or without data and storage, truncate
/// it to the size that it has, and remove it.
pub(super) fn calls() -> Vec<(usize, PosixCall)> {
    let (slot, name) = (0, || CallPath::from("same"));
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let size = |size| PosixCall::SetLen { slot, size };
    let write = |offset, bytes| PosixCall::Write { slot, data: vec![7; bytes], offset };
    let storage = |mode, offset, length| PosixCall::Fallocate { slot, mode, offset, length };
    let allocate = |offset, length| storage(FallocateMode::Allocate, offset, length);
    let keep = |offset, length| storage(FallocateMode::KeepSize, offset, length);
    let punch = |offset, length| storage(FallocateMode::PunchHole, offset, length);
    let files = [
        vec![],
        vec![size(10_000)],
        vec![allocate(0, 10_000)],
        vec![allocate(5000, 1)],
        vec![size(3 << 20), allocate(2 << 20, 1)],
        vec![size(10_000), keep(9000, 1)],
        // Storage past the end also counts, even after the file has grown over it.
        vec![keep(0, 10_000)],
        vec![keep(0, 2 << 20)],
        vec![keep(0, 10_000), size(0)],
        vec![keep(0, 10_000), punch(0, 8192)],
        vec![keep(0, 10_000), punch(0, 12_288)],
        vec![keep(0, 100), size(100), punch(0, 4096)],
        vec![size(10_000), keep(20_000, 10_000)],
        vec![size(10_000), keep(20_000, 10_000), size(40_000)],
        vec![size(10_000), keep(20_000, 10_000), size(40_000), size(20_000)],
        vec![size(10_000), keep(20_000, 10_000), size(10_000)],
        vec![write(0, 100), keep(4096, 4096), punch(0, 4096)],
        vec![write(0, 20_000), keep(20_480, 8192), punch(0, 20_480)],
        vec![keep(8192, 4096), write(0, 100), punch(0, 4096)],
        vec![keep(8192, 4096), write(8200, 100), size(50)],
        vec![allocate(0, 10_000), punch(0, 8192)],
        vec![allocate(0, 10_000), punch(0, 12_288)],
        vec![allocate(0, 10_000), size(4096), punch(0, 4095)],
        vec![allocate(4096, 10_000), size(4096)],
        vec![allocate(0, 3 << 20), punch(4096, 3 << 20), size(100), punch(0, 4096)],
        vec![allocate(0, 3 << 20), size(0), size(3 << 20)],
        vec![write(0, 100)],
        vec![write(0, 100), punch(0, 100)],
        vec![write(0, 100), punch(0, 4096)],
        vec![write(2 << 20, 100), punch(2 << 20, 4096)],
        vec![write(2 << 20, 100), size(100)],
        vec![write(2 << 20, 100), allocate(0, 1), size(100)],
    ];
    let mut calls = Vec::new();
    for steps in files {
        calls.push((0, PosixCall::Open { slot, path: name(), flags, mode: 0o666 }));
        calls.extend(steps.into_iter().map(|step| (0, step)));
        calls.push((0, PosixCall::TruncateToSame { path: name() }));
        calls.push((0, PosixCall::Unlink { path: name() }));
    }
    calls
}
