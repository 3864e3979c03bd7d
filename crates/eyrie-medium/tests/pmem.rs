//! Tests of persistent memory: a store writes back every line that it touches before the next barrier. The
//! tests use the directory on persistent memory that `EYRIE_TEST_PMEM` names. Without this variable they run
//! the same instructions on ordinary shared memory.

#![expect(clippy::unwrap_used, reason = "this is all tests")]

use std::fs::File;
use std::os::unix::fs::FileExt;

use eyrie_faults::{WrittenBack, pmem_anywhere};
use eyrie_medium::{Addr, Fault, LINE_SIZE, Medium, MediumKind, Ordered};

const BYTES: u64 = 64 << 10;

fn file() -> File {
    let file = match std::env::var_os("EYRIE_TEST_PMEM") {
        Some(directory) => tempfile::tempfile_in(directory).unwrap(),
        None => tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap(),
    };
    file.set_len(BYTES).unwrap();
    file
}

/// Makes a medium in which no byte is zero.
fn filled() -> (Medium, WrittenBack, File) {
    let file = file();
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8 + 1).collect();
    file.write_all_at(&bytes, 0).unwrap();
    let (medium, written) = pmem_anywhere(file.try_clone().unwrap(), BYTES).unwrap();
    assert_eq!(medium.kind(), MediumKind::Pmem);
    assert_eq!(medium.snapshot(), bytes);
    (medium, written, file)
}

fn at(offset: u64) -> Addr {
    Addr::from_raw(offset)
}

/// Panics unless every byte in memory was written back, and `lines` lines were written back since the count
/// was `before`.
fn assert_written(medium: &Medium, written: &WrittenBack, before: u64, lines: u64, what: &str) {
    assert_eq!(written.line_count() - before, lines, "{what}: lines written back");
    let (memory, kept) = (medium.snapshot(), written.bytes());
    let lost: Vec<usize> = (0..memory.len()).filter(|&at| memory[at] != kept[at]).collect();
    assert!(lost.is_empty(), "{what}: bytes {lost:?} were not written back");
}

fn lines_of(offset: u64, len: u64) -> u64 {
    if len == 0 { 0 } else { (offset + len - 1) / LINE_SIZE - offset / LINE_SIZE + 1 }
}

/// Returns ranges as offset and length. Most lengths are close to whole lines or to the least streamed
/// length. Each length comes at every offset in a line.
fn ranges() -> impl Iterator<Item = (u64, u64)> {
    let lengths = [1, 7, 8, 63, 64, 65, 130, 448, 511, 512, 513, 575, 576, 640, 1000, 4096, 4100];
    lengths.into_iter().flat_map(|len| (0..LINE_SIZE).map(move |within| (4096 + within, len)))
}

#[test]
fn exactly_the_stored_lines_are_written_back() {
    let (medium, written, _file) = filled();
    let bytes: Vec<u8> = (0..5000_u32).map(|at| (at % 241) as u8).collect();
    for (turn, (offset, len)) in ranges().enumerate() {
        let what = format!("{len} bytes at {offset}");
        let data = &bytes[turn % 7..][..len as usize];
        let mut expected = medium.snapshot();
        let here = offset as usize..(offset + len) as usize;

        let before = written.line_count();
        let _ = medium.barrier(medium.write(at(offset), data).unwrap());
        expected[here.clone()].copy_from_slice(data);
        assert_eq!(medium.snapshot(), expected, "writing {what}");
        assert_written(&medium, &written, before, lines_of(offset, len), &format!("writing {what}"));

        let before = written.line_count();
        let _ = medium.barrier(medium.copy(at(offset), at(30_000 + turn as u64 % 64), len).unwrap());
        expected.copy_within(30_000 + turn % 64..30_000 + turn % 64 + len as usize, offset as usize);
        assert_eq!(medium.snapshot(), expected, "copying {what}");
        assert_written(&medium, &written, before, lines_of(offset, len), &format!("copying {what}"));

        let before = written.line_count();
        let _ = medium.barrier(medium.zero(at(offset), len).unwrap());
        expected[here].fill(0);
        assert_eq!(medium.snapshot(), expected, "clearing {what}");
        assert_written(&medium, &written, before, lines_of(offset, len), &format!("clearing {what}"));
    }
}

#[test]
fn each_word_and_each_line_is_written_back_once() {
    let (medium, written, _file) = filled();
    let before = written.line_count();
    let _ = medium.barrier(medium.write_word(at(1000), 1).unwrap());
    assert_written(&medium, &written, before, 1, "a word");

    let before = written.line_count();
    let _ = medium.settle(medium.publish(at(1008), 2, Ordered::nothing()).unwrap());
    assert_written(&medium, &written, before, 1, "a publish");

    let before = written.line_count();
    let _ = medium.settle(medium.publish_apart(at(2048), 2, Ordered::nothing()).unwrap());
    assert_written(&medium, &written, before, 1, "a publish apart");

    let before = written.line_count();
    let words = [(7, 70), (0, 1), (3, 30)];
    let _ = medium.settle(medium.publish_line(at(4096), &words, Ordered::nothing()).unwrap());
    assert_eq!(medium.load(at(4096 + 56)).unwrap(), 70);
    assert_written(&medium, &written, before, 1, "three words of a line");

    let before = written.line_count();
    let words = [(at(8), 3), (at(5000), 4), (at(5008), 5)];
    let _ = medium.settle(medium.publish_all(words, Ordered::nothing()).unwrap());
    assert_written(&medium, &written, before, 3, "three words anywhere");
}

#[test]
fn missing_write_back_is_noticed() {
    let (medium, written, file) = filled();
    file.write_all_at(b"behind the medium's back", 100).unwrap();
    let (memory, kept) = (medium.snapshot(), written.bytes());
    assert_eq!(&memory[100..106], b"behind");
    assert_ne!(memory, kept);
    // A write-back writes the whole line, with the bytes of every writer. They are durable after the fence.
    let dirty = medium.write(at(64), b"!").unwrap();
    assert_eq!(written.bytes(), kept, "without a fence");
    let _ = medium.barrier(dirty);
    assert_eq!(medium.snapshot(), written.bytes());
}

#[test]
fn host_without_persistent_memory_is_refused() {
    let file = file();
    let mapped = Medium::pmem(vec![(file, BYTES)]);
    if std::env::var_os("EYRIE_TEST_PMEM").is_some() {
        assert_eq!(mapped.unwrap().kind(), MediumKind::Pmem);
    } else {
        assert!(matches!(mapped, Err(Fault::NotSynchronous)));
    }
}

#[test]
fn remapped_file_has_the_written_bytes() {
    let (medium, _written, file) = filled();
    let data = [7; 3000];
    let _ = medium.barrier(medium.write(at(777), &data).unwrap());
    let before = medium.snapshot();
    drop(medium);
    let (medium, written) = pmem_anywhere(file, BYTES).unwrap();
    assert_eq!(medium.snapshot(), before);
    assert_eq!(written.bytes(), before, "the record begins with what is there");
}
