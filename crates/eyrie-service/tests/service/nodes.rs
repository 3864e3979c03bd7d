//! Nodes of a client, as a mount uses them: notices of changes, and ids after the end of a service.

use std::time::Duration;

use eyrie::{Kind, Node, Nodes, Notice, OpenFlags, SetAttributes};
use eyrie_client::protocol::MOST_WATCHERS;

use super::*;

const LONG: Duration = Duration::from_secs(20);
fn root() -> Credentials {
    Credentials::root()
}

fn next(nodes: &Nodes<Client>) -> Notice {
    nodes.next_notice(LONG).expect("a notice within its time")
}

/// Takes the notices of all changes whose calls have returned.
fn take_all(nodes: &Nodes<Client>) {
    while nodes.next_notice(Duration::ZERO).is_some() {}
}

/// Returns the name in the next notice, and true if an object has the name after the change.
fn next_entry(nodes: &Nodes<Client>) -> (Vec<u8>, bool) {
    match next(nodes) {
        Notice::Entry { name, after, .. } => (name.to_vec(), after.is_some()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nodes_get_notices_of_the_changes_of_others() {
    let (mut served, [files, other]) = Served::with_clients(64 << 20);
    let nodes = files.nodes().watching(100);
    for milliseconds in [0, 1, 30] {
        assert_eq!(nodes.next_notice(Duration::from_millis(milliseconds)), None);
    }
    other.write("/egg", "blue").unwrap();
    assert_eq!(next_entry(&nodes), (b"egg".to_vec(), true));
    take_all(&nodes);
    let egg = nodes.lookup(&root(), nodes.root(), b"egg").unwrap().id;
    // Changes through these nodes give no notice, but those of other users in the same process do.
    nodes.write(&root(), egg, 0, b"grey").unwrap();
    nodes.make(&root(), nodes.root(), b"nest", Kind::Directory, 0o755, 0).unwrap();
    assert_eq!(nodes.next_notice(Duration::from_millis(1)), None);
    files.write("/egg", "pale").unwrap();
    assert_eq!(next(&nodes), Notice::Object(egg));
    take_all(&nodes);
    other.remove_file("/egg").unwrap();
    assert_eq!(next_entry(&nodes), (b"egg".to_vec(), false));
    nodes.forget(egg, u64::MAX);

    // Threads that wait without a limit get the notices of later changes.
    std::thread::scope(|scope| {
        let waiters = [(); 2].map(|()| scope.spawn(|| nodes.next_notice(Duration::MAX)));
        std::thread::sleep(Duration::from_millis(20));
        other.create_dir("/new").unwrap();
        other.create_dir("/newer").unwrap();
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Some(Notice::Entry { .. })));
        }
        // A thread that waits ends with the watcher, although nothing changes.
        let waiter = scope.spawn(|| nodes.next_notice(Duration::from_secs(3600)));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(Client::sessions(&served.socket).unwrap().iter().map(|it| it.pending).sum::<u32>(), 0);
        nodes.stop_notices();
        assert_eq!(waiter.join().unwrap(), None);
    });
    drop((nodes, files, other));
    served.stop();
}

#[test]
fn lost_notices_and_lost_services_are_told() {
    let (mut served, [files, other]) = Served::with_clients(64 << 20);
    let nodes = files.nodes().watching(3);
    for number in 0..10 {
        other.create_dir(format!("/{number}")).unwrap();
    }
    assert_eq!(next(&nodes), Notice::Everything);
    assert_eq!(nodes.next_notice(Duration::ZERO), None);
    for service in ["second", "third"] {
        served.end();
        served.change(|owner| owner.create_dir(format!("/before the {service}")).unwrap());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| next(&nodes));
            std::thread::sleep(Duration::from_millis(50));
            served.start();
            assert_eq!(waiter.join().unwrap(), Notice::Everything);
        });
        // Until the next service knows the watcher, anything may have changed again.
        take_all(&nodes);
        other.create_dir(format!("/{service}")).unwrap();
        assert_eq!(next_entry(&nodes), (service.as_bytes().to_vec(), true));
    }
    drop((nodes, files, other));
    served.stop();
}

#[test]
fn watcher_above_the_limit_hears_that_it_misses_changes() {
    let (mut served, [files, other]) = Served::with_clients(64 << 20);
    let watch = || files.nodes().watching(10);
    let mut watching: Vec<_> = (0..MOST_WATCHERS).map(|_| watch()).collect();
    let refused = watch();
    other.create_dir("/a").unwrap();
    for nodes in &watching {
        assert_eq!(next_entry(nodes), (b"a".to_vec(), true));
    }
    // A watcher that the service does not know learns from time to time that it may have missed changes.
    assert_eq!(refused.next_notice(Duration::from_millis(1)), Some(Notice::Everything));
    assert_eq!(refused.next_notice(Duration::from_millis(1)), None);
    for _ in 0..2 {
        assert_eq!(next(&refused), Notice::Everything);
    }
    // The end of one watcher makes room for another, which may have missed changes.
    watching.pop();
    assert_eq!(next(&refused), Notice::Everything);
    other.create_dir("/b").unwrap();
    assert_eq!(next_entry(&refused), (b"b".to_vec(), true));
    drop((refused, watching, files, other));
    served.stop();
}

/// A thread ends the watchers of a session under a pin of an earlier session.
#[test]
fn watchers_that_end_under_an_old_pin_make_room_for_others() {
    let (mut served, [files, other]) = Served::with_clients(64 << 20);
    let watch = || files.nodes().watching(10);
    let watching: Vec<_> = (0..MOST_WATCHERS).map(|_| watch()).collect();
    let pin = files.pin();
    assert_eq!(files.engine().lookup(files.engine().root(), b"egg").unwrap(), None);
    served.end();
    served.start();
    std::thread::scope(|scope| {
        // Only the pin of this test's thread is an old one.
        let joining = scope.spawn(|| {
            files.metadata("/").unwrap();
            watching.iter().for_each(take_all);
        });
        joining.join().unwrap();
    });
    watching.iter().for_each(Nodes::stop_notices);
    drop(pin);
    let nodes = watch();
    other.create_dir("/new").unwrap();
    assert_eq!(next_entry(&nodes), (b"new".to_vec(), true));
    drop((nodes, watching, files, other));
    served.stop();
}

/// The next service may give the id of a removed file to a new one.
#[test]
fn node_of_a_removed_file_is_stale_with_the_next_service() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    files.write("/egg", "blue").unwrap();
    files.create_dir("/nest").unwrap();
    let nodes = files.nodes();
    let of = |name: &[u8]| -> Node { nodes.lookup(&root(), nodes.root(), name).unwrap() };
    let (egg, nest) = (of(b"egg"), of(b"nest"));
    served.restart_with_new_files(|owner| {
        owner.remove_file("/egg").unwrap();
        owner.rename("/nest", "/moved").unwrap();
    });
    // A second service follows before the nodes have made a call to the first one.
    served.end();
    served.start();
    let stale = |error: eyrie::Error| assert_eq!(error.errno(), Errno::STALE, "{error}");
    stale(nodes.read(egg.id, 0, &mut [0; 4]).unwrap_err());
    stale(nodes.write(&root(), egg.id, 0, b"lost").unwrap_err());
    stale(nodes.node(egg.id).unwrap_err());
    stale(nodes.open(&root(), egg.id, OpenFlags::READ).unwrap_err());
    stale(nodes.set(&root(), egg.id, None, &SetAttributes::default()).unwrap_err());
    stale(nodes.link(&root(), egg.id, nest.id, b"egg").unwrap_err());
    stale(nodes.list(egg.id, 0, false, &mut |_| true).unwrap_err());
    // A directory that has another name is still the same node.
    nodes.make(&root(), nest.id, b"twig", Kind::Directory, 0o755, 0).unwrap();
    assert!(files.metadata("/moved/twig").unwrap().is_dir());
    // A new look-up finds the new object, with a generation of its own.
    let reused = (0..500).map(|number| of(format!("new-{number}").as_bytes())).find(|node| node.id == egg.id);
    let reused = reused.expect("one of the new files has the id");
    assert_ne!(reused.generation, egg.generation);
    let mut bytes = [0; 4];
    nodes.read(egg.id, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"mine");
    drop((nodes, files));
    served.stop();
}

on_disk! {
    nodes_get_notices_of_the_changes_of_others lost_notices_and_lost_services_are_told
    watcher_above_the_limit_hears_that_it_misses_changes
    node_of_a_removed_file_is_stale_with_the_next_service
}
