//! Tests of quotas through files and stores.

use eyrie::{
    Credentials, Errno, Posix, PosixExt, PosixProjects, QuotaId, QuotaKind, QuotaLimit, QuotaLimits,
    QuotaTable, Target,
};

use crate::{errno, side_by_side, small_volume};

const TREE: QuotaId = QuotaId { kind: QuotaKind::Tree, number: 9 };
const ADA: QuotaId = QuotaId { kind: QuotaKind::User, number: 7 };

#[test]
fn limits_stop_users_and_not_root() {
    let _tests = side_by_side();
    let (_place, volume) = small_volume();
    let root = volume.files(Credentials::root());
    let ada = root.with_credentials(Credentials::new(7, 70, &[]));
    root.create_dir("/dir").unwrap();
    root.chown(Target::Follow("/dir".into()), Some(7), Some(70)).unwrap();
    assert!(root.quotas().unwrap().is_none() && root.quota_table().unwrap().is_none());

    let mut table = QuotaTable::default();
    let bytes = QuotaLimit { hard: 8192, ..QuotaLimit::default() };
    table.set(ADA, QuotaLimits { bytes, ..QuotaLimits::default() }).unwrap();
    assert_eq!(errno(ada.set_quota_table(Some(&table))), Some(Errno::PERM));
    root.set_quota_table(Some(&table)).unwrap();
    assert_eq!(root.quota_table().unwrap(), Some(table));
    assert_eq!(errno(ada.quota_table()), Some(Errno::PERM));

    ada.write("/dir/file", [1; 4096]).unwrap();
    assert_eq!(errno(ada.write("/dir/large", [1; 8192])), Some(Errno::DQUOT));
    let file = ada.options().write(true).open("/dir/file").unwrap();
    assert_eq!(errno(file.write_at(&[2; 12_288], 4096)), Some(Errno::DQUOT));
    file.write_at(&[2; 4096], 0).unwrap();
    assert_eq!(ada.read("/dir/file").unwrap(), [2; 4096]);
    let as_root = root.options().write(true).open("/dir/file").unwrap();
    as_root.write_at(&[3; 12_288], 4096).unwrap();
    root.write("/source", [4; 32_768]).unwrap();
    let source = root.options().read(true).open("/source").unwrap();
    assert_eq!(errno(file.clone_range((&source, 0), 0, 0)), Some(Errno::DQUOT));
    as_root.clone_range((&source, 0), 0, 0).unwrap();
    let store = volume.store("/dir", Credentials::new(7, 70, &[])).unwrap();
    assert_eq!(errno(store.put("key", [1; 100])), Some(Errno::DQUOT));

    let seen = ada.quotas().unwrap().expect("switched on");
    let ids: Vec<QuotaId> = seen.iter().map(|report| report.id).collect();
    assert_eq!(ids, [ADA, QuotaId { kind: QuotaKind::Group, number: 70 }]);
    assert!(root.quotas().unwrap().expect("switched on").len() > ids.len());
    assert_eq!(errno(ada.set_project(Target::Follow("/dir".into()), 5)), Some(Errno::PERM));
    assert!(volume.check().unwrap().is_clean());
}

#[test]
fn tree_shows_its_limits_as_its_size() {
    let _tests = side_by_side();
    let (_place, volume) = small_volume();
    let files = volume.files(Credentials::root());
    files.create_dir("/tree").unwrap();
    files.write("/outside", [1; 5000]).unwrap();
    files.set_project("/tree".into(), TREE.number).unwrap();
    let space = |path: &str| {
        let space = files.statvfs(path.into()).unwrap();
        (space.blocks, space.blocks_free, space.files, space.files_free)
    };
    let (blocks, ..) = space("/tree");
    assert_eq!(blocks, space("/").0, "no limit");
    let limit = |soft, hard| QuotaLimit { soft, hard, deadline: 0 };
    let mut table = QuotaTable::default();
    table.set(TREE, QuotaLimits { bytes: limit(0, 64 << 10), files: limit(4, 9) }).unwrap();
    files.set_quota_table(Some(&table)).unwrap();
    files.write("/tree/file", [1; 5000]).unwrap();
    let usage = files.quotas().unwrap().unwrap().iter().find(|report| report.id == TREE).unwrap().usage;
    let free = ((64 << 10) - usage.bytes) / 4096;
    assert_eq!(space("/tree"), (16, free, 4, 2));
    assert_eq!(space("/tree/file"), space("/tree"));
    assert_eq!(space("/outside").0, blocks);
    files.write("/tree/large", [1; 100_000]).unwrap();
    assert_eq!(space("/tree"), (16, 0, 4, 1), "above the limit");
    let large = files.options().path_only(true).open("/tree/large").unwrap();
    let open = files.statvfs(Target::Open(large.handle())).unwrap();
    assert_eq!((open.blocks, open.blocks_free), (16, 0));
    let root = files.dir("/tree").unwrap().statvfs("/".into()).unwrap();
    assert_eq!((root.blocks, root.blocks_free), (16, 0));
    assert!(files.data_bytes_max() >= blocks * 4096, "root may exceed limits");
}
