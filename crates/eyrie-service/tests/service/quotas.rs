//! Tests of limits of quotas that stop the clients of a served volume.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use eyrie::{
    Credentials, Posix, PosixExt, PosixProjects, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaTable,
    Volume,
};
use eyrie_client::{Client, SOCKET_NAME};
use eyrie_engine::{Engine, Errno};
use eyrie_service::{ServeOptions, Service};

use super::refusals::{USER, as_user};

const ACCOUNT: QuotaId = QuotaId { kind: QuotaKind::User, number: USER };

fn errno<T>(result: eyrie::Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

#[test]
fn limits_stop_clients_of_other_users() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("volume");
    let volume = Volume::create(&path, 16 << 20).unwrap();
    let files = volume.files(Credentials::root());
    files.create_dir("/dir").unwrap();
    files.chown("/dir".into(), Some(USER), None).unwrap();
    let mut table = QuotaTable::default();
    let hard = |hard| QuotaLimit { hard, ..QuotaLimit::default() };
    table.set(ACCOUNT, QuotaLimits { bytes: hard(64 << 10), files: hard(3) }).unwrap();
    files.set_quota_table(Some(&table)).unwrap();
    drop(files);
    volume.close().unwrap();
    for directory in [place.path(), &path] {
        set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    }
    let mut options = ServeOptions::default();
    options.users = Some(vec![USER]);
    let service = Service::start(&path, &path.join(SOCKET_NAME), options).unwrap();
    let stopper = service.stopper();
    let thread = std::thread::spawn(move || service.run());
    let mut was_run = false;
    as_user(|| {
        let volume = Volume::open(&path).unwrap();
        let files = volume.files(Credentials::of_process());
        files.write("/dir/file", [1; 4096]).unwrap();
        assert_eq!(errno(files.write("/dir/large", vec![1; 100_000])), Some(Errno::DQUOT));
        assert_eq!(errno(files.create_dir("/dir/fourth")), Some(Errno::DQUOT));
        let store = volume.store("/dir", Credentials::of_process()).unwrap();
        assert_eq!(errno(store.put("file", vec![1; 100_000])), Some(Errno::DQUOT));
        let reports = files.quotas().unwrap().expect("switched on");
        let report = reports.iter().find(|report| report.id == ACCOUNT).expect("the account of the user");
        assert_eq!((report.usage.files, report.limits), (3, table.get(ACCOUNT)));
        let client = Client::connect(&path.join(SOCKET_NAME), false).unwrap();
        assert_eq!(client.quota(ACCOUNT).unwrap().as_ref(), Some(report));
        let other = QuotaId { number: USER + 1, ..ACCOUNT };
        assert_eq!(client.quota(other).unwrap(), None, "the account of another user");
        drop(client);
        // The service trusts the credentials of the process, and not those that the client claims.
        let as_root = volume.files(Credentials::root());
        let file = as_root.options().write(true).open("/dir/file").unwrap();
        assert_eq!(errno(file.write_at(&[2; 100_000], 0)), Some(Errno::DQUOT));
        assert_eq!(errno(as_root.set_quota_table(None)), Some(Errno::PERM));
        assert_eq!(errno(as_root.set_project("/dir/file".into(), 5)), Some(Errno::PERM));
        drop((file, as_root, files, store));
        volume.close().unwrap();
        was_run = true;
    });
    if !was_run {
        eprintln!("NOT TESTED: only root tests clients of another user");
    }
    stopper.stop();
    thread.join().unwrap().unwrap();
    let report = Volume::open(&path).unwrap().check().unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}
