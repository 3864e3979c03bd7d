//! Tests of clients of a service. Some compare calls with a tmpfs of the kernel: calls of a client through
//! its service, and calls that pass only the checks of a service. Others have clients in several threads, or
//! in forked children.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use eyrie::{
    AccessRules, AccessTimes, Credentials, LockKind, LockWait, MediumChoice, OpenFlags, Posix, PosixClones,
    PosixExt, PosixLocks, Pxfs, RangeOwner, Volume, Whence,
};
use eyrie_client::Client;
use eyrie_engine::access::Requester;
use eyrie_engine::scm::Scm;
use eyrie_engine::{Applied, Engine, Error, Notice, Op, Owner, Result, Time, forward_calls};
use eyrie_medium::{Medium, in_forked_child};
use eyrie_sim::explore::fixed_options;
use eyrie_testkit::posix::{
    Comparison, PosixCall, clients_in_tmpfs_root, compare_clients_with_host,
    compare_locks_of_clients_with_host, compare_with_host, in_tmpfs_root, plain_users,
};
use eyrie_testkit::services::{in_client_process, served};

use crate::threads::{Shared, explain, storm_of};

/// Returns the next time of a clock that never shows the same time twice. The clock is years behind, because
/// a service keeps only times of root that are more than a minute old. A run takes less than a day on this
/// clock, so no access time becomes a day old.
fn counter() -> Time {
    static NEXT: AtomicI64 = AtomicI64::new(0);
    let micros = NEXT.fetch_add(1, Ordering::Relaxed);
    Time::new(1_000_000_000 + micros / 1_000_000, (micros % 1_000_000) as u32 * 1000)
}

fn compare<E: Engine>(
    engine_of: impl Fn(&Credentials) -> Arc<E>,
    rules: AccessRules,
    is_left_out: fn(&PosixCall) -> bool,
) {
    let files = |who: &Credentials| {
        let files = Pxfs::new(engine_of(who), who.clone()).with_rules(rules).with_clock(counter);
        files.with_access_times(AccessTimes::Relative)
    };
    let comparison = Comparison { users: plain_users, is_left_out, ..Comparison::new(200..230, 300) };
    if let Err(difference) = compare_with_host(files, &comparison) {
        panic!("{difference}");
    }
}

#[test]
fn random_calls_of_a_client_match_the_kernel() {
    compare_client(MediumChoice::Auto, "shared::random_calls_of_a_client_match_the_kernel");
}

#[test]
fn random_calls_of_a_client_of_a_disk_match_the_kernel() {
    compare_client(MediumChoice::Paged, "shared::random_calls_of_a_client_of_a_disk_match_the_kernel");
}

fn compare_client(medium: MediumChoice, test: &str) {
    let rules = AccessRules::of_host();
    clients_in_tmpfs_root(test, 256 << 20, medium, |clients| {
        // A service refuses writes through a handle that was opened before the file got its flags. The kernel
        // allows them.
        let sets_flags = |call: &PosixCall| matches!(call, PosixCall::SetInodeFlags { .. });
        compare(|_| Arc::clone(&clients[0]), rules, sets_flags);
    });
}

/// Three clients, each of a different user, make the calls in turn. The service checks each of their changes.
#[test]
fn random_calls_of_clients_of_three_users_match_the_kernel() {
    const TEST: &str = "shared::random_calls_of_clients_of_three_users_match_the_kernel";
    clients_in_tmpfs_root(TEST, 256 << 20, MediumChoice::Auto, |clients| {
        compare_clients_with_host(clients, Comparison::new(0..30, 300));
    });
}

#[test]
fn random_calls_of_clients_of_three_users_of_a_disk_match_the_kernel() {
    const TEST: &str = "shared::random_calls_of_clients_of_three_users_of_a_disk_match_the_kernel";
    clients_in_tmpfs_root(TEST, 256 << 20, MediumChoice::Paged, |clients| {
        compare_clients_with_host(clients, Comparison::new(30..45, 300));
    });
}

#[test]
fn random_locks_of_clients_of_three_users_match_the_kernel() {
    const TEST: &str = "shared::random_locks_of_clients_of_three_users_match_the_kernel";
    clients_in_tmpfs_root(TEST, 16 << 20, MediumChoice::Auto, |clients| {
        compare_locks_of_clients_with_host(clients, 100..110, 400);
    });
}

/// A client knows of the first clone of a volume, even if it joined before the clone. Without clones, no file
/// has more pages than its volume.
#[test]
fn earlier_client_knows_of_the_first_clone() {
    served(4 << 20, MediumChoice::Auto, |socket| {
        let files = || {
            let client = Client::connect(socket, false).expect("a session");
            Pxfs::new(Arc::new(client), Credentials::of_process())
        };
        let (earlier, later) = (files(), files());
        later.write("/egg", vec![7; 1 << 20]).expect("room");
        assert!(earlier.data_bytes_max() <= 4 << 20, "no pages are shared");
        let egg = later.open("/egg".into(), OpenFlags::READ | OpenFlags::WRITE, 0).expect("there");
        let mut size = 1 << 20;
        while size < 64 << 20 {
            later.clone_range((&egg, 0), (&egg, size), 0).expect("room for nodes");
            size *= 2;
        }
        assert!(earlier.data_bytes_max() >= size);
        let egg = earlier.open_file("/egg").expect("there");
        assert_eq!(earlier.seek(egg.handle(), 0, Whence::Hole).expect("the file is sound"), size);
    });
}

/// A forked child has a session of its own. It keeps the files that its parent has opened, and it changes
/// nothing of its parent's session.
#[test]
fn forked_child_joins_the_service() {
    join_in_child(MediumChoice::Auto);
}

#[test]
fn forked_child_joins_the_service_of_a_disk() {
    join_in_child(MediumChoice::Paged);
}

fn join_in_child(medium: MediumChoice) {
    let place = served(64 << 20, medium, |socket| {
        let client = Arc::new(Client::connect(socket, false).expect("a session"));
        let files = Pxfs::new(Arc::clone(&client), Credentials::of_process());
        files.write("/egg", "blue").expect("room");
        let egg = files.open_file("/egg").expect("there");
        for round in 0..3 {
            let done = in_forked_child(|| {
                let mut bytes = [0; 4];
                let name = format!("/child-{round}");
                egg.read_exact_at(&mut bytes, 0).is_ok_and(|()| &bytes == b"blue")
                    && files.write(&name, "grey").is_ok()
                    && files.read(&name).is_ok_and(|read| read == b"grey")
                    && files.remove_file("/egg").is_ok() == (round == 0)
                    // The claims of the child keep the unlinked file.
                    && egg.read_exact_at(&mut bytes, 0).is_ok()
                    && Client::sessions(socket).is_ok_and(|sessions| sessions.len() == 2)
            });
            assert!(done.expect("a child"), "round {round}");
            assert_eq!(files.read(format!("/child-{round}")).expect("there"), b"grey");
        }
        let mut bytes = [0; 4];
        egg.read_exact_at(&mut bytes, 0).expect("this process still has it open");
        // A child of a child, as a daemon is, joins although its parent has no session of its own.
        let nested = in_forked_child(|| {
            let deeper = in_forked_child(|| {
                let sessions = || Client::sessions(socket).map_or(0, |sessions| sessions.len());
                files.write("/deep", "grey").is_ok()
                    && egg.read_exact_at(&mut [0; 4], 0).is_ok()
                    && files.read("/deep").is_ok_and(|read| read == b"grey")
                    && sessions() == 2
            });
            deeper.is_ok_and(|done| done)
                && files.read("/deep").is_ok_and(|read| read == b"grey")
                && in_forked_child(|| files.write("/deeper", "blue").is_ok()).is_ok_and(|done| done)
        });
        assert!(nested.expect("a child"));
        assert_eq!(files.read("/deeper").expect("there"), b"blue");
    });
    let report = Volume::open(place.path().join("volume")).expect("sound").check().expect("sound");
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

/// The first call of a child may be one that names no object of its parent's session.
#[test]
fn first_call_of_a_forked_child_may_concern_the_whole_volume() {
    for medium in [MediumChoice::Auto, MediumChoice::Paged] {
        served(8 << 20, medium, |socket| {
            let client = Client::connect(socket, false).expect("a session");
            let total = client.space().total;
            let synced = in_forked_child(|| client.sync().is_ok());
            assert!(synced.expect("a child"), "{medium:?}: sync");
            let has_space = in_forked_child(|| client.space().total == total);
            assert!(has_space.expect("a child"), "{medium:?}: space");
            let has_no_quotas = in_forked_child(|| matches!(client.quotas(), Ok(None)));
            assert!(has_no_quotas.expect("a child"), "{medium:?}: quotas");
        });
    }
}

/// A thread of the parent waits for notices of the same watcher at the fork.
#[test]
fn forked_child_gets_notices_by_its_own_session() {
    served(8 << 20, MediumChoice::Auto, |socket| {
        let client = Client::connect(socket, false).expect("a session");
        let watcher = client.watch(10).expect("a client has watchers");
        let told = std::thread::scope(|scope| {
            scope.spawn(|| client.next_notice(&watcher, Duration::from_secs(3600)));
            std::thread::sleep(Duration::from_millis(100));
            let told = in_forked_child(|| {
                client.next_notice(&watcher, Duration::from_secs(10)) == Some(Notice::Everything)
            });
            client.stop_watch(&watcher);
            told
        });
        assert!(told.expect("a child"), "the child gets no notice");
    });
}

#[test]
fn lock_of_a_forked_child_has_its_process_id() {
    served(8 << 20, MediumChoice::Auto, |socket| {
        let files = || {
            let client = Client::connect(socket, false).expect("a session");
            Pxfs::new(Arc::new(client), Credentials::of_process())
        };
        let of_parent = files();
        of_parent.write("/egg", "blue").expect("room");
        let egg = of_parent.open_file("/egg").expect("there");
        let is_right = in_forked_child(|| {
            let (shared, whole) = (Some(LockKind::Shared), (0, 0));
            let owner = RangeOwner::Process;
            let locked = of_parent.set_range_lock(egg.handle(), owner, whole, shared, LockWait::NO);
            let other = files();
            let seen = other
                .open_file("/egg")
                .and_then(|egg| other.find_range_lock(egg.handle(), owner, whole, LockKind::Exclusive));
            let process = seen.ok().flatten().and_then(|lock| lock.process);
            locked.is_ok() && process == Some(std::process::id().into())
        });
        assert!(is_right.expect("a child"));
    });
}

#[test]
fn calls_of_three_clients_are_linearizable() {
    explain_clients(MediumChoice::Auto, 300);
}

#[test]
fn calls_of_three_clients_of_a_disk_are_linearizable() {
    explain_clients(MediumChoice::Paged, 100);
}

/// Some order explains the calls of three clients with sessions of their own. On a disk, the service drains
/// the volume meanwhile.
fn explain_clients(medium: MediumChoice, seeds: u64) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: a service keeps only the times of root");
        return;
    }
    let mut overlapped = 0;
    for seed in 0..seeds {
        served(8 << 20, medium, |socket| {
            let clients = (0..3).map(|_| Client::connect(socket, false).expect("a session")).collect();
            overlapped += explain(&Shared::new(clients), seed, 3, 3, medium == MediumChoice::Paged);
        });
    }
    println!("{overlapped} of {} calls overlapped another", seeds * 9);
    assert!(overlapped > 0);
}

/// Clients list directories while other clients create, remove and rename. The service is in another process.
/// Names that stay are listed exactly once.
#[test]
fn a_storm_of_clients_tears_nothing_and_loses_nothing() {
    storm_of_clients(MediumChoice::Auto, 5000, "shared::a_storm_of_clients_tears_nothing_and_loses_nothing");
}

#[test]
fn a_storm_of_clients_of_a_disk_tears_nothing_and_loses_nothing() {
    const TEST: &str = "shared::a_storm_of_clients_of_a_disk_tears_nothing_and_loses_nothing";
    storm_of_clients(MediumChoice::Paged, 1500, TEST);
}

/// Each thread of the storm has a client of its own. The directories grow to many buckets, and shrink.
fn storm_of_clients(medium: MediumChoice, ops: usize, test: &str) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root makes objects for another owner");
        return;
    }
    in_client_process(test, 64 << 20, medium, |socket| {
        let connect = |_| Client::connect(socket, false).expect("a session");
        let clients: Vec<_> = (0..6).map(connect).collect();
        storm_of(&clients, ops, 600);
    });
}

/// An engine behind the checks that a service makes for one user.
struct Checked {
    engine: Arc<Scm>,
    who: Credentials,
    rules: AccessRules,
}

impl Checked {
    fn inner(&self) -> &Scm {
        &self.engine
    }

    /// Returns the Op that a service would apply. A handle keeps the rights that its user had at the open. A
    /// service does not know these rights, so it refuses some changes of bytes and attributes that the kernel
    /// allows. Such an Op is returned unchanged.
    fn authorized<'o>(&self, op: &Op<'o>) -> Result<Op<'o>> {
        // A service takes the present time instead, but the comparison needs the times of `counter`.
        let now = op.time();
        let requester = Requester { engine: &*self.engine, who: &self.who, rules: self.rules, now };
        match requester.authorize(op) {
            Err(Error::AccessDenied | Error::NotPermitted) if is_on_handles(op) => Ok(*op),
            checked => checked,
        }
    }
}

fn is_on_handles(op: &Op<'_>) -> bool {
    matches!(
        op,
        Op::Write { .. }
            | Op::Append { .. }
            | Op::SetSize { .. }
            | Op::Fallocate { .. }
            | Op::CloneRange { .. }
            | Op::SetAttributes { .. }
            | Op::MarkAccess { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::SetAcl { .. }
    )
}

impl Engine for Checked {
    forward_calls! {
        inner:
        root instance lookup attributes birth owner inode_flags read version seek has_storage xattr
        xattr_names list open close reserve unreserve reclaim directory_changes wait_for sync space
    }

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        self.engine.apply(&self.authorized(op)?)
    }
}

#[test]
fn a_service_allows_the_names_that_the_kernel_allows() {
    in_tmpfs_root("shared::a_service_allows_the_names_that_the_kernel_allows", || {
        let rules = AccessRules::of_host();
        let options = fixed_options(8 << 20, counter());
        let owner = Owner { mode: 0o777, uid: 0, gid: 0 };
        let medium = Medium::memory(1 << 28).expect("memory");
        let engine = Arc::new(Scm::create_on(medium, &options, owner, counter()).expect("a new volume"));
        let checked =
            |who: &Credentials| Arc::new(Checked { engine: Arc::clone(&engine), who: who.clone(), rules });
        // This engine has no locks, because the checks of a service do not look at them.
        let is_lock = |call: &PosixCall| {
            matches!(call, PosixCall::Flock { .. } | PosixCall::LockRange { .. } | PosixCall::FindLock { .. })
        };
        compare(checked, rules, is_lock);
    });
}
