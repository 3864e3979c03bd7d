//! Tests of short writes.

use eyrie::{
    Credentials, Errno, Files, Posix, PosixExt, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaTable,
};

use crate::{alone, copy_of_now, errno, side_by_side, small_volume};

const MIB: usize = 1 << 20;

/// Calls `write` with 1 MiB at a time, and returns the counts before the first error, and the error.
fn fill(mut write: impl FnMut(&[u8]) -> eyrie::Result<usize>) -> (Vec<usize>, Errno) {
    let mut counts = Vec::new();
    loop {
        match write(&[7; MIB]) {
            Ok(count) => counts.push(count),
            Err(error) => return (counts, error.errno()),
        }
    }
}

#[test]
fn short_write_is_whole_after_a_crash() {
    let _tests = alone();
    let (place, volume) = small_volume();
    let files = volume.files(Credentials::root()).with_short_writes(true);
    let file = files.options().write(true).create(true).open("/file").unwrap();
    let (mut end, mut short) = (0, 0);
    let (counts, error) = fill(|data| {
        let count = file.write_at(data, end as u64)?;
        end += count;
        assert_eq!(file.metadata()?.size, end as u64);
        if count < MIB {
            short += 1;
            let crashed = copy_of_now(&place.path().join("vol"), place.path());
            assert_eq!(crashed.files(Credentials::root()).read("/file")?, vec![7; end]);
        }
        Ok(count)
    });
    assert_eq!(error, Errno::NOSPC);
    assert!(short > 0 && counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    assert!(counts.iter().all(|&count| count > 0 && count.is_multiple_of(4096)), "{counts:?}");
    assert!(end > 7 * MIB, "{end}");
    assert_eq!(errno(file.write_at(&[7; 4096], end as u64)), Some(Errno::NOSPC));
    assert!(volume.check().unwrap().is_clean());
}

#[test]
fn writes_are_short_only_by_choice() {
    let _tests = alone();
    let (_place, volume) = small_volume();
    let root = volume.files(Credentials::root());
    let open = |files: &Files| files.options().append(true).create(true).open("/file").unwrap();
    let file = open(&root);
    let (counts, error) = fill(|data| file.write_at(data, 0));
    assert_eq!((counts.iter().all(|&count| count == MIB), error), (true, Errno::NOSPC));

    // A short append ends at the end of a page, wherever it begins.
    let file = open(&root.with_short_writes(true));
    type AppendCall<'a> = &'a dyn Fn(&[u8]) -> eyrie::Result<usize>;
    let calls: [AppendCall<'_>; 2] =
        [&|data| file.write_at(data, 0), &|data| root.with_short_writes(true).append(file.handle(), data)];
    for append in calls {
        file.set_len(0).unwrap();
        file.write_all_at(&[7; 100], 0).unwrap();
        let (counts, error) = fill(append);
        let size = file.metadata().unwrap().size;
        assert_eq!(size, 100 + counts.iter().sum::<usize>() as u64);
        assert_eq!((size % 4096, error), (0, Errno::NOSPC));
        assert_eq!(root.read("/file").unwrap(), vec![7; size as usize]);
    }
    let nodes = volume.nodes().with_short_writes(true);
    let node = nodes.lookup(&Credentials::root(), nodes.root(), b"file").unwrap();
    file.set_len(0).unwrap();
    let mut end = 0;
    let (counts, error) = fill(|data| {
        let count = nodes.write(&Credentials::root(), node.id, end, data)?;
        end += count as u64;
        Ok(count)
    });
    assert!(counts.last().is_some_and(|&count| count < MIB), "{counts:?}");
    assert_eq!((file.metadata().unwrap().size, error), (end, Errno::NOSPC));
    nodes.forget(node.id, 1);
}

#[test]
fn quotas_make_writes_short() {
    const LIMIT: u64 = 2_500_000;
    let _tests = side_by_side();
    let (_place, volume) = small_volume();
    let root = volume.files(Credentials::root());
    root.set_mode("/", 0o777).unwrap();
    let ada = QuotaId { kind: QuotaKind::User, number: 7 };
    let mut table = QuotaTable::default();
    let bytes = QuotaLimit { hard: LIMIT, ..QuotaLimit::default() };
    table.set(ada, QuotaLimits { bytes, ..QuotaLimits::default() }).unwrap();
    root.set_quota_table(Some(&table)).unwrap();
    let files = root.with_credentials(Credentials::new(7, 70, &[]));
    files.write("/file", "").unwrap();
    let open = |files: &Files| files.options().write(true).open("/file").unwrap();
    assert_eq!(errno(open(&files).write_at(&[7; 3 * MIB], 0)), Some(Errno::DQUOT));

    let file = open(&files.with_short_writes(true));
    let mut end = 0;
    let (counts, error) = fill(|data| {
        let count = file.write_at(data, end)?;
        end += count as u64;
        Ok(count)
    });
    assert_eq!((file.metadata().unwrap().size, error), (end, Errno::DQUOT));
    assert_eq!(counts[..2], [MIB, MIB]);
    let usage = files.quotas().unwrap().expect("switched on")[0].usage.bytes;
    assert!(usage <= LIMIT && usage + 2 * 4096 > LIMIT, "{usage}");
}
