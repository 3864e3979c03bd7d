//! Tests of clones: contents, space, counts of pointers, crashes and damage.

use super::*;
use crate::{Applied, salvage};

pub(super) const PAGE: usize = PAGE_SIZE as usize;

/// Clones `length` bytes. `source` and `target` have a file and an offset in it.
pub(super) fn clone(
    engine: &Scm,
    source: (ObjectId, u64),
    target: (ObjectId, u64),
    length: u64,
) -> Result<Applied> {
    let ((source, source_offset), (id, offset)) = (source, target);
    let set_ids = SetIds::Keep;
    engine.apply(&Op::CloneRange { source, source_offset, id, offset, length, set_ids, time: LATER })
}

pub(super) fn write(engine: &Scm, id: ObjectId, offset: u64, data: &[u8]) {
    engine.apply(&Op::Write { id, offset, data, set_ids: SetIds::Keep, time: BORN }).expect("room");
}

pub(super) fn fallocate(engine: &Scm, id: ObjectId, mode: FallocateMode, offset: u64, length: u64) {
    let set_ids = SetIds::Keep;
    engine.apply(&Op::Fallocate { id, mode, offset, length, set_ids, time: BORN }).expect("room");
}

pub(super) fn read(engine: &Scm, id: ObjectId) -> Vec<u8> {
    let size = engine.attributes(id).expect("alive").size;
    let mut bytes = vec![0xee; size as usize];
    assert_eq!(engine.read(id, 0, &mut bytes).expect("sound"), bytes.len());
    bytes
}

pub(super) fn unlink(engine: &Scm, name: &[u8]) {
    engine.apply(&Op::Unlink { dir: engine.root(), name, time: LATER }).expect("there");
}

pub(super) fn file(engine: &Scm, name: &[u8], data: &[u8]) -> ObjectId {
    let id = create(engine, engine.root, name, Kind::File).expect("room");
    write(engine, id, 0, data);
    id
}

pub(super) fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + seed) as u8 | 1).collect()
}

pub(super) fn used(engine: &Scm) -> u64 {
    engine.reclaim();
    let space = engine.space();
    space.total - space.free
}

pub(super) fn assert_clean(engine: &Scm) {
    assert_eq!(findings(engine), [""; 0]);
}

/// Returns the volume as the next process finds it after a crash.
fn after_crash(engine: &Scm) -> Scm {
    Scm::open_on(Medium::memory_holding(&engine.medium().snapshot()).expect("memory")).expect("sound")
}

/// Returns the volume as the next process finds it after a close.
pub(super) fn after_close(engine: Scm) -> Scm {
    let medium = Arc::clone(&engine.volume.space().context().medium);
    engine.close().expect("room");
    Scm::open_on(Medium::memory_holding(&medium.snapshot()).expect("memory")).expect("sound")
}

#[test]
fn clone_takes_no_space_for_data() {
    let engine = engine();
    let data = bytes(300_000, 1);
    let source = file(&engine, b"source", &data);
    // The second write makes the file a tree.
    write(&engine, source, 5000, &data[5000..5020]);
    let target = create(&engine, engine.root, b"target", Kind::File).expect("room");
    let before = used(&engine);
    clone(&engine, (source, 0), (target, 0), 0).expect("room");
    assert_eq!(used(&engine), before + PAGE_SIZE, "a node");
    assert_eq!(read(&engine, target), read(&engine, source));
    let (from, to) = (engine.attributes(source).expect("alive"), engine.attributes(target).expect("alive"));
    assert_eq!((from.allocated, from.size), (to.allocated, to.size));
    assert_eq!((to.modified, to.changed, from.modified), (LATER, LATER, BORN));
    assert_clean(&engine);

    write(&engine, target, 100, b"changed");
    assert_eq!(used(&engine), before + 2 * PAGE_SIZE, "a page of its own");
    assert_eq!(read(&engine, source)[100..107], data[100..107]);
    assert_clean(&engine);
    unlink(&engine, b"source");
    assert_eq!(&read(&engine, target)[100..107], b"changed");
    assert_eq!(read(&engine, target)[5001..], data[5001..]);
    assert_clean(&engine);
    unlink(&engine, b"target");
    assert_clean(&engine);
    assert!(used(&engine) < before - 300_000);
}

#[test]
fn whole_extent_is_shared_and_given_back_page_by_page() {
    let engine = engine();
    let data = bytes(100_000, 2);
    let source = file(&engine, b"source", &data);
    let target = create(&engine, engine.root, b"target", Kind::File).expect("room");
    let before = used(&engine);
    clone(&engine, (source, 0), (target, 0), 0).expect("room");
    assert_eq!(used(&engine), before, "one extent, one root");
    let set_size = |id, size| {
        engine.apply(&Op::SetSize { id, size, set_ids: SetIds::Keep, time: BORN }).expect("room");
    };
    set_size(source, 50_000);
    set_size(source, 60_000);
    assert_eq!(read(&engine, target), data);
    assert!(read(&engine, source)[50_000..].iter().all(|&byte| byte == 0));
    assert_clean(&engine);
    set_size(target, 3 * PAGE_SIZE);
    assert_clean(&engine);
    set_size(target, 0);
    set_size(source, 0);
    assert_clean(&engine);
    assert!(used(&engine) < before - 90_000);
}

#[test]
fn appends_and_words_leave_the_other_file_alone() {
    for len in [10, 3000, PAGE, 20_000, 100_000, 5 * PAGE] {
        let engine = engine();
        let data = bytes(len, 3);
        let source = file(&engine, b"source", &data);
        let target = create(&engine, engine.root, b"target", Kind::File).expect("room");
        clone(&engine, (source, 0), (target, 0), 0).expect("room");
        let append = |id, data: &[u8]| {
            engine.apply(&Op::Append { id, data, set_ids: SetIds::Keep, time: BORN }).expect("room");
        };
        append(source, b"first");
        append(target, b"second");
        write(&engine, target, 0, b"w");
        assert_eq!(read(&engine, source), [&data[..], b"first"].concat());
        assert_eq!(read(&engine, target), [b"w", &data[1..], b"second"].concat());
        write(&engine, source, len as u64 + 9000, b"far");
        assert_eq!(read(&engine, source)[len + 5..len + 9000], [0; 8995]);
        assert_clean(&engine);
    }
}

#[test]
fn clone_survives_crash_and_close() {
    let engine = engine();
    let data = bytes(50_000, 4);
    let source = file(&engine, b"source", &data);
    let target = create(&engine, engine.root, b"target", Kind::File).expect("room");
    clone(&engine, (source, 8192), (target, 4096), 8192).expect("room");
    let wanted = [&[0; PAGE], &data[2 * PAGE..4 * PAGE]].concat();
    assert_eq!(read(&engine, target), wanted);
    for engine in [after_crash(&engine), after_close(engine)] {
        assert_clean(&engine);
        unlink(&engine, b"source");
        assert_eq!(read(&engine, target), wanted);
        assert_clean(&engine);
        unlink(&engine, b"target");
        assert_clean(&engine);
    }
}

#[test]
fn two_pointers_without_bits_are_corrupt() {
    let engine = engine();
    let source = file(&engine, b"source", &bytes(8192, 5));
    let target = create(&engine, engine.root, b"target", Kind::File).expect("room");
    clone(&engine, (source, 0), (target, 0), 0).expect("room");
    assert_clean(&engine);
    let root = hot(&engine, source).root;
    assert!(root.is_shared());
    set_root(&engine, source, Pointer::leaf(root.extent().expect("sound")), 8192);
    assert!(findings(&engine)[0].contains("bytes that belong to two extents"), "{:?}", findings(&engine));
    assert!(matches!(recovery::mark_reachable(&engine.volume, engine.root), Err(Error::Corrupt { .. })));
}

#[test]
fn regression_clone_of_the_largest_hole_ends() {
    let engine = engine();
    let source = file(&engine, b"source", &bytes(5000, 9));
    let size = i64::MAX as u64 - 8191;
    engine.apply(&Op::SetSize { id: source, size, set_ids: SetIds::Keep, time: BORN }).expect("room");
    write(&engine, source, 1 << 60, &bytes(5000, 9));
    for to in [0, 4096] {
        let target = create(&engine, engine.root, format!("{to}").as_bytes(), Kind::File).expect("room");
        clone(&engine, (source, 0), (target, to), 0).expect("room");
        let attributes = engine.attributes(target).expect("alive");
        assert_eq!((attributes.size, attributes.allocated), (size + to, 4 * PAGE_SIZE));
        let mut read = vec![0; 5000];
        engine.read(target, (1 << 60) + to, &mut read).expect("sound");
        assert!(read == bytes(5000, 9));
    }
    assert_clean(&engine);
}

#[test]
fn regression_large_leaf_is_extended() {
    for grow in [false, true] {
        let medium = Medium::memory(16 << 20).expect("memory");
        let options = Options { group_bytes: 4 << 20, ..options() };
        let engine = Scm::create_on(medium, &options, OWNER, BORN).expect("a new volume");
        let (half, len) = (2 << 20, (4 << 20) - 100);
        let data = bytes(len, 8);
        let source = file(&engine, b"source", &data);
        let target = create(&engine, engine.root, b"target", Kind::File).expect("room");
        // The second half of the source is one aligned leaf, which becomes the root of the target.
        clone(&engine, (source, half), (target, 0), 0).expect("room");
        let root = hot(&engine, target).root;
        assert!(root.is_leaf() && root.height() == 1);
        unlink(&engine, b"source");
        // The next open counts no shared page, so the target may store bytes past its end in place.
        let engine = after_close(engine);
        let mut wanted = data[half as usize..].to_vec();
        if grow {
            let size = half - 50;
            engine
                .apply(&Op::SetSize { id: target, size, set_ids: SetIds::Keep, time: LATER })
                .expect("room");
            wanted.resize(size as usize, 0);
        } else {
            write(&engine, target, half - 90, &[9; 20]);
            wanted.resize(half as usize - 90, 0);
            wanted.extend([9; 20]);
        }
        assert!(read(&engine, target) == wanted);
        assert_clean(&engine);
    }
}

#[test]
fn clone_within_a_file_shares_its_pages() {
    let engine = engine();
    for (name, len) in [(b"one", 9000), (b"two", 9000), (b"six", 50_000)] {
        let data = bytes(len, 3);
        let id = file(&engine, name, &data);
        let before = used(&engine);
        let to = len.next_multiple_of(PAGE) as u64;
        clone(&engine, (id, 0), (id, to), PAGE_SIZE).expect("room");
        assert!(used(&engine) <= before + 2 * PAGE_SIZE, "a node, and the last page");
        let mut wanted = data.clone();
        wanted.resize(to as usize, 0);
        wanted.extend(&data[..PAGE]);
        assert_eq!(read(&engine, id), wanted);
        assert_clean(&engine);
    }
}

#[test]
fn first_clone_sets_the_feature_bit() {
    let engine = engine();
    let (source, target) = (file(&engine, b"source", &[1; 9000]), file(&engine, b"target", &[2; 10]));
    clone(&engine, (source, 9000), (target, 0), 0).expect("nothing to do");
    assert!(!engine.volume.has_shared_extents());
    clone(&engine, (source, 0), (target, 0), 0).expect("room");
    assert!(engine.volume.has_shared_extents());
}

#[test]
fn impossible_clones_are_refused() {
    let engine = engine();
    let (source, target) =
        (file(&engine, b"source", &bytes(9000, 6)), file(&engine, b"target", &[1; 20_000]));
    let dir = create(&engine, engine.root, b"dir", Kind::Directory).expect("room");
    let refused =
        |source, target, length| matches!(clone(&engine, source, target, length), Err(Error::Invalid(_)));
    assert!(refused((source, 1), (target, 0), 4096));
    assert!(refused((source, 0), (target, 1), 4096));
    assert!(refused((source, 0), (target, 0), 4000));
    assert!(refused((source, 0), (target, 0), 9000), "the tail would end inside the target");
    assert!(refused((source, 0), (target, 0), 12_288));
    assert!(refused((source, 12_288), (target, 0), 0));
    assert!(refused((source, 0), (source, 4096), 8192));
    assert!(refused((source, 0), (target, 1 << 63), 4096));
    assert!(refused((source, 0), (target, (1 << 63) - 4096), 4096));
    assert!(matches!(clone(&engine, (dir, 0), (target, 0), 0), Err(Error::IsDirectory)));
    assert_eq!(read(&engine, target), [1; 20_000]);
    clone(&engine, (target, 20_000), (source, 0), 0).expect("nothing to do");
    clone(&engine, (source, 0), (source, 12_288), 0).expect("apart");
    assert_eq!(engine.attributes(source).expect("alive").size, 12_288 + 9000);
    assert_clean(&engine);
}

#[test]
fn unshared_range_has_pages_of_its_own() {
    let engine = engine();
    let data = bytes(100_000, 7);
    let source = file(&engine, b"source", &data);
    let target = create(&engine, engine.root, b"target", Kind::File).expect("room");
    clone(&engine, (source, 0), (target, 0), 0).expect("room");
    let before = used(&engine);
    fallocate(&engine, target, FallocateMode::UnshareRange, 5000, 5000);
    assert_eq!(used(&engine), before + 3 * PAGE_SIZE, "two pages and a node");
    fallocate(&engine, target, FallocateMode::UnshareRangeKeepSize, 0, 200_000);
    assert_eq!(read(&engine, target), data);
    assert_clean(&engine);
    unlink(&engine, b"source");
    assert_eq!(read(&engine, target), data);
    assert_clean(&engine);
}

/// Makes the change of a write in a vector.
fn store(content: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (from, end) = (offset as usize, offset as usize + data.len());
    content.resize(content.len().max(end), 0);
    content[from..end].copy_from_slice(data);
}

/// Makes the change of a successful `fallocate` in a vector.
fn change_storage(content: &mut Vec<u8>, mode: FallocateMode, offset: u64, length: u64) {
    let (from, end) = (offset as usize, (offset + length) as usize);
    if mode.extends() {
        content.resize(content.len().max(end), 0);
    }
    let (from, end) = (from.min(content.len()), end.min(content.len()));
    match mode {
        FallocateMode::CollapseRange => drop(content.drain(from..end)),
        FallocateMode::InsertRange => {
            content.splice(from..from, std::iter::repeat_n(0, length as usize));
        }
        FallocateMode::PunchHole | FallocateMode::ZeroRange | FallocateMode::ZeroRangeKeepSize => {
            content[from..end].fill(0);
        }
        _ => {}
    }
}

/// Random Ops on three files, compared with vectors of bytes.
#[test]
fn random_clones_keep_every_byte() {
    let modes = FallocateMode::ALL;
    for seed in 0..40_u64 {
        let mut engine = engine();
        if seed % 2 == 1 {
            // The checks then also compare the counts of usage.
            super::quotas::set_limits(&engine, &[]).expect("room");
        }
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let names: [&[u8]; 3] = [b"a", b"b", b"c"];
        let mut files: Vec<(ObjectId, Vec<u8>)> =
            names.iter().map(|name| (file(&engine, name, b"x"), b"x".to_vec())).collect();
        for step in 0..120 {
            let which = below(3) as usize;
            let (id, size) = (files[which].0, files[which].1.len() as u64);
            let offset = match below(3) {
                0 => below(size + 1),
                1 => below(40) * PAGE_SIZE,
                _ => size,
            };
            let length: u64 = [1, 8, 100, 4096, 8192, 30_000, 100_000][below(7) as usize];
            match below(10) {
                0..=2 => {
                    let data = bytes(length as usize, step);
                    write(&engine, id, offset, &data);
                    store(&mut files[which].1, offset, &data);
                }
                3 => {
                    let size = offset;
                    engine.apply(&Op::SetSize { id, size, set_ids: SetIds::Keep, time: BORN }).expect("room");
                    files[which].1.resize(size as usize, 0);
                }
                4 => {
                    let mode = modes[below(modes.len() as u64) as usize];
                    let (offset, length) = match mode.shifts() {
                        true => (offset / PAGE_SIZE * PAGE_SIZE, length.next_multiple_of(PAGE_SIZE)),
                        false => (offset, length),
                    };
                    let done = engine.apply(&Op::Fallocate {
                        id,
                        mode,
                        offset,
                        length,
                        set_ids: SetIds::Keep,
                        time: BORN,
                    });
                    if done.is_ok() {
                        change_storage(&mut files[which].1, mode, offset, length);
                    }
                }
                5 if below(6) == 0 => {
                    engine = if below(2) == 0 { after_crash(&engine) } else { after_close(engine) };
                    assert_clean(&engine);
                }
                _ => {
                    let other = below(3) as usize;
                    let from = if below(2) == 0 { 0 } else { below(8) * PAGE_SIZE };
                    let to = if below(2) == 0 { from } else { below(20) * PAGE_SIZE };
                    let length = if below(2) == 0 { 0 } else { (below(20) + 1) * PAGE_SIZE };
                    if clone(&engine, (files[other].0, from), (id, to), length).is_ok() {
                        let source = files[other].1.clone();
                        let end = if length == 0 { source.len() } else { (from + length) as usize };
                        let part = &source[(from as usize).min(end)..end];
                        if !part.is_empty() {
                            store(&mut files[which].1, to, part);
                        }
                    }
                }
            }
            for (id, content) in &files {
                assert!(read(&engine, *id) == *content, "seed {seed}, step {step}");
            }
            assert_eq!(findings(&engine), [""; 0], "seed {seed}, step {step}");
        }
        names.iter().for_each(|name| unlink(&engine, name));
        assert_clean(&engine);
    }
}

#[test]
fn repair_keeps_extents_shared() {
    let engine = engine();
    let data = bytes(500_000, 8);
    let source = file(&engine, b"source", &data);
    for number in 0..6 {
        let target = create(&engine, engine.root, &[b'0' + number], Kind::File).expect("room");
        clone(&engine, (source, 0), (target, 0), 0).expect("room");
        write(&engine, target, u64::from(number) * 5000, b"this part differs");
    }
    clone(&engine, (source, 0), (source, 503_808), 0).expect("room");
    let (contents, space) = (read(&engine, source), used(&engine));
    let damaged =
        Volume::open_damaged_on(Medium::memory_holding(&engine.medium().snapshot()).expect("memory"));
    let to = super::engine();
    let salvaged = salvage::salvage(&damaged.expect("sound"), &to, LATER).expect("memory does not fail");
    assert_eq!((salvaged.losses, salvaged.files), (Vec::new(), 7));
    assert!(used(&to) < space + (64 << 10), "{} and {space}", used(&to));
    assert_clean(&to);
    let find = |name: &[u8]| to.lookup(to.root(), name).expect("sound").expect("there");
    assert!(read(&to, find(b"source")) == contents);
    for number in 0..6_u8 {
        let found = read(&to, find(&[b'0' + number]));
        let at = usize::from(number) * 5000;
        assert_eq!(&found[at..at + 17], b"this part differs");
        assert!(found[at + 17..] == data[at + 17..]);
    }
}
