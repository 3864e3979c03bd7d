//! Views of files in place.

use eyrie::{Condition, Credentials, Errno, FallocateMode, Kvfs, Outcome, PosixExt, VALUE_MAX, View, Volume};

use crate::side_by_side;
use crate::space::{MEDIA, create, volumes};

/// Returns `len` bytes that differ from their neighbours.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect()
}

#[test]
fn views_keep_their_bytes_while_the_file_changes() {
    let _side_by_side = side_by_side();
    for (_, _host, volume, files) in volumes(16 << 20) {
        for size in [1, 64, 3000, 4096, 100_000, 3 << 20] {
            let old = pattern(size, 0);
            files.write("/file", &old).unwrap();
            let file = files.options().read(true).write(true).open("/file").unwrap();
            let pin = files.pin();
            let whole = file.view(.., &pin).unwrap();
            let end = file.view(size as u64 / 2.., &pin).unwrap();
            assert!(whole.is_in_place() && end.is_in_place(), "{size}");

            file.write_at(b"x", size as u64 / 2).unwrap();
            file.fallocate(FallocateMode::ZeroRangeKeepSize, 0, size as u64).unwrap();
            file.set_len(size as u64 / 3).unwrap();
            file.append(&old).unwrap();
            files.write("/file", "new").unwrap();
            files.remove_file("/file").unwrap();
            files.write("/other", pattern(size, 9)).unwrap();
            assert_eq!(&whole[..], old);
            assert_eq!(&end[..], &old[size / 2..]);
            files.remove_file("/other").unwrap();
        }
        assert_eq!(volume.check().unwrap().findings, [""; 0]);
    }
}

/// One thread changes private copies of a file and writes them back, while the other thread looks at the
/// file.
#[test]
fn copy_that_is_written_back_is_seen_whole() {
    let _side_by_side = side_by_side();
    for (_, _host, _volume, files) in volumes(16 << 20) {
        files.write("/file", vec![0; 50_000]).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let file = files.options().read(true).write(true).open("/file").unwrap();
                for _ in 0..200 {
                    let mut copy = file.view(1000..49_000, &files.pin()).unwrap().into_vec();
                    copy.iter_mut().for_each(|byte| *byte += 1);
                    file.write_all_at(&copy, 1000).unwrap();
                }
            });
            let file = files.open_file("/file").unwrap();
            while !writer.is_finished() {
                let pin = files.pin();
                let view = file.view(.., &pin).unwrap();
                assert!(view[1000..49_000].iter().all(|&byte| byte == view[1000]), "a mixture");
            }
        });
        let mut expected = vec![200; 50_000];
        expected[..1000].fill(0);
        expected[49_000..].fill(0);
        assert!(files.read("/file").unwrap() == expected);
    }
}

#[test]
fn ranges_of_views_end_with_the_file() {
    let _side_by_side = side_by_side();
    let host = tempfile::tempdir().unwrap();
    let volume = create(&host.path().join("v"), 16 << 20, MEDIA[0]);
    let files = volume.files(Credentials::root());
    let bytes = pattern(10_000, 3);
    files.write("/file", &bytes).unwrap();
    let file = files.open_file("/file").unwrap();
    let pin = files.pin();
    let view = |from: u64, to: u64| file.view(from..to, &pin).unwrap();
    assert_eq!(&view(0, 10_000)[..], bytes);
    assert_eq!(&view(4095, 4097)[..], &bytes[4095..4097]);
    assert_eq!(&view(9_999, u64::MAX)[..], &bytes[9_999..]);
    assert!(view(10_000, u64::MAX).is_empty() && view(5, 5).is_empty() && view(9, 3).is_empty());
    assert_eq!(&file.view(..=0, &pin).unwrap()[..], &bytes[..1]);
    assert_eq!(file.view(u64::MAX.., &pin).unwrap_err().errno(), Errno::INVAL);

    let written = files.options().write(true).open("/file").unwrap();
    assert_eq!(written.view(.., &pin).unwrap_err().errno(), Errno::BADF);
    assert_eq!(written.pieces(.., &pin).next().unwrap().unwrap_err().errno(), Errno::BADF);
    let dir = files.options().read(true).open("/").unwrap();
    assert_eq!(dir.view(.., &pin).unwrap_err().errno(), Errno::ISDIR);
}

#[test]
fn bytes_in_pieces_are_copied_and_pieces_are_in_place() {
    let _side_by_side = side_by_side();
    for (_, _host, _volume, files) in volumes(16 << 20) {
        let file = files.options().read(true).write(true).create(true).open("/file").unwrap();
        let mut bytes = vec![0; 700_000];
        for (at, len) in [(0, 5000), (200_000, 1), (499_999, 90_000), (700_000 - 8, 8)] {
            let part = pattern(len, at as u8);
            file.write_all_at(&part, at as u64).unwrap();
            bytes[at..at + len].copy_from_slice(&part);
        }
        let pin = files.pin();
        let View::Copied(copy) = file.view(.., &pin).unwrap() else { panic!("a file with holes in place") };
        assert!(copy == bytes);
        assert!(!file.view(300_000..300_010, &pin).unwrap().is_in_place(), "a hole");
        for (from, to) in [(0, 700_000), (3, 600_000), (250_000, 250_001)] {
            let mut joined = Vec::new();
            for piece in file.pieces(from..to, &pin) {
                let piece = piece.unwrap();
                assert!(piece.is_in_place() && !piece.is_empty());
                joined.extend_from_slice(&piece);
            }
            assert!(joined == bytes[from as usize..to as usize]);
        }
        // A write to one page of a file in one piece leaves the other pages where they are.
        files.write("/whole", pattern(400_000, 1)).unwrap();
        let whole = files.options().read(true).write(true).open("/whole").unwrap();
        whole.write_all_at(&[0; 9], 300_000).unwrap();
        assert!(whole.view(..294_912, &pin).unwrap().is_in_place());
        assert!(!whole.view(.., &pin).unwrap().is_in_place());
        assert!(whole.pieces(.., &pin).count() <= 3);
    }
}

#[test]
fn pieces_of_a_large_file_have_a_limit() {
    let _side_by_side = side_by_side();
    for (_, _host, _volume, files) in volumes(16 << 20) {
        let bytes = pattern((3 << 20) + 5, 1);
        files.write("/file", &bytes).unwrap();
        let (file, pin) = (files.open_file("/file").unwrap(), files.pin());
        assert!(file.view(.., &pin).unwrap().is_in_place(), "the file is in one piece");
        let pieces: Vec<_> = file.pieces(1.., &pin).map(|piece| piece.unwrap()).collect();
        assert!(pieces.iter().all(|piece| piece.is_in_place() && piece.len() <= 1 << 20));
        assert!(pieces.iter().flat_map(|piece| piece.iter()).eq(&bytes[1..]));
    }
}

#[test]
fn pieces_end_with_the_file_and_with_an_error() {
    let _side_by_side = side_by_side();
    let host = tempfile::tempdir().unwrap();
    let volume = create(&host.path().join("v"), 16 << 20, MEDIA[0]);
    let files = volume.files(Credentials::root());
    files.write("/file", pattern(10_000, 1)).unwrap();
    let (file, pin) = (files.open_file("/file").unwrap(), files.pin());
    let writer = files.options().write(true).open("/file").unwrap();
    for end in [10_000, 20_000, i64::MAX as u64, u64::MAX] {
        let mut pieces = file.pieces(..end, &pin);
        assert_eq!(pieces.by_ref().map(|piece| piece.unwrap().len()).sum::<usize>(), 10_000);
        assert!(pieces.next().is_none(), "a range that ends at {end}");
        let mut refused = writer.pieces(..end, &pin);
        assert_eq!(refused.next().unwrap().unwrap_err().errno(), Errno::BADF);
        assert!(refused.next().is_none(), "a range that ends at {end}");
    }
    assert_eq!(writer.pieces(.., &pin).take(2).count(), 1, "the error is the last item");
}

#[test]
fn file_that_is_too_large_for_a_value_is_not_lent_as_one() {
    let _side_by_side = side_by_side();
    let host = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let volume = Volume::create(host.path().join("v"), 256 << 20).unwrap();
    let (files, store) = (volume.files(Credentials::root()), volume.store("/", Credentials::root()).unwrap());
    store.put("file", pattern(VALUE_MAX, 1)).unwrap();
    let pin = store.pin();
    assert!(store.get_in_place("file", &pin).unwrap().unwrap().is_in_place());
    let file = files.options().read(true).append(true).open("/file").unwrap();
    file.append(b"x").unwrap();
    assert_eq!(store.get("file").unwrap_err().errno(), Errno::FBIG);
    assert_eq!(store.get_into("file", &mut Vec::new()).unwrap_err().errno(), Errno::FBIG);
    assert_eq!(store.get_in_place("file", &pin).unwrap_err().errno(), Errno::FBIG);
    assert_eq!(file.view(.., &pin).unwrap().len(), VALUE_MAX + 1);
}

#[test]
fn first_view_changes_nothing_but_the_way_of_later_writes() {
    let _side_by_side = side_by_side();
    for medium in MEDIA {
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("v");
        let volume = create(&path, 16 << 20, medium);
        let files = volume.files(Credentials::root());
        files.write("/file", pattern(50, 1)).unwrap();
        let store = Kvfs::open(&files, "/").unwrap();
        let (before, version) = (files.metadata("/file").unwrap(), store.version("file").unwrap().unwrap());
        let reader = volume.files(Credentials::new(7, 7, &[]));
        let pin = reader.pin();
        assert!(reader.open_file("/file").unwrap().view(.., &pin).unwrap().is_in_place());
        assert_eq!(files.metadata("/file").unwrap(), before);
        assert_eq!(store.put_if("file", "new", Condition::Version(version)).unwrap(), Outcome::Done);

        files.write("/file", pattern(50, 2)).unwrap();
        let file = files.options().read(true).write(true).open("/file").unwrap();
        file.view(.., &pin).unwrap();
        file.write_all_at(b"12345678", 8).unwrap();
        let mut expected = pattern(50, 2);
        expected[8..16].copy_from_slice(b"12345678");
        drop((file, store, reader, files, pin));
        volume.close().unwrap();
        let volume = Volume::open(&path).unwrap();
        assert_eq!(volume.files(Credentials::root()).read("/file").unwrap(), expected);
        assert_eq!(volume.check().unwrap().findings, [""; 0]);
    }
}

#[test]
fn views_in_a_full_volume_are_right() {
    let _side_by_side = side_by_side();
    for (_, _host, _volume, files) in volumes(4 << 20) {
        files.write("/file", pattern(5000, 1)).unwrap();
        let filler = files.options().write(true).create(true).open("/filler").unwrap();
        while filler.append(&[1; 4096]).is_ok() {}
        let pin = files.pin();
        let file = files.open_file("/file").unwrap();
        assert_eq!(&file.view(.., &pin).unwrap()[..], pattern(5000, 1));
    }
}
