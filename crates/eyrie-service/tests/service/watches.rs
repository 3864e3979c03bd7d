//! Watches of clients: events of the changes of all clients.

use std::time::Duration;

use eyrie::{Watch, WatchEventKind, WatchOptions};
use eyrie_client::protocol::MOST_WATCHERS;

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// Waits for the next event. Returns its kind and its path.
fn next(watch: &mut Watch<Client>) -> (WatchEventKind, String) {
    let event = watch.next_within(LONG).expect("an event within its time");
    (event.kind, event.path.to_str().unwrap().to_owned())
}

fn named(kind: WatchEventKind, path: &str) -> (WatchEventKind, String) {
    (kind, path.to_owned())
}

#[test]
fn watch_of_a_client_sees_changes_of_all_clients_with_their_names() {
    use WatchEventKind::{AttributesChanged, Created, Modified, Removed, RenamedFrom, RenamedTo};
    let (mut served, [files, other]) = Served::with_clients(64 << 20);
    files.create_dir_all("/tree/a").unwrap();
    let mut watch = files.watch("/tree".into(), WatchOptions::new().tree(true)).unwrap();
    assert_eq!(watch.next_within(Duration::from_millis(10)), None);

    other.write("/tree/a/egg", "blue").unwrap();
    assert_eq!(next(&mut watch), named(Created, "a/egg"));
    assert_eq!(next(&mut watch), named(Modified, "a/egg"));
    other.rename("/tree/a", "/tree/b").unwrap();
    assert_eq!(next(&mut watch), named(RenamedFrom { cookie: 1 }, "a"));
    assert_eq!(next(&mut watch), named(RenamedTo { cookie: 1 }, "b"));
    other.set_mode("/tree/b/egg", 0o600).unwrap();
    assert_eq!(next(&mut watch), named(AttributesChanged, "b/egg"));
    // The changes of the watching client are events, too.
    files.remove_file("/tree/b/egg").unwrap();
    assert_eq!(next(&mut watch), named(Removed, "b/egg"));

    // A wait ends with a change of another client, and with the stopper.
    let stopper = watch.stopper();
    let waiter = std::thread::spawn(move || {
        let first = next(&mut watch);
        (first, watch.next(), watch.has_ended())
    });
    std::thread::sleep(Duration::from_millis(20));
    other.create_dir("/tree/new").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    stopper.stop();
    assert_eq!(waiter.join().unwrap(), (named(Created, "new"), None, true));
    drop((files, other));
    served.stop();
}

#[test]
fn watch_of_a_client_tells_of_lost_events_and_goes_on_with_the_next_service() {
    let (mut served, [files, other]) = Served::with_clients(64 << 20);
    files.create_dir("/tree").unwrap();
    let mut watch = files.watch("/tree".into(), WatchOptions::new().tree(true).capacity(4)).unwrap();
    for number in 0..10 {
        other.create_dir(format!("/tree/{number}")).unwrap();
    }
    assert_eq!(next(&mut watch), named(WatchEventKind::Overflow, ""));
    other.write("/tree/9/egg", "").unwrap();
    assert_eq!(next(&mut watch), named(WatchEventKind::Created, "9/egg"));

    served.end();
    served.change(|owner| owner.rename("/tree/9", "/tree/moved").unwrap());
    served.start();
    while next(&mut watch) != named(WatchEventKind::Overflow, "") {}
    // Until the next service knows the watch, there may be further overflows.
    while watch.next_within(Duration::from_millis(300)).is_some() {}
    other.remove_file("/tree/moved/egg").unwrap();
    assert_eq!(next(&mut watch), named(WatchEventKind::Removed, "moved/egg"));

    served.end();
    served.change(|owner| owner.remove_dir_all("/tree").unwrap());
    served.start();
    while next(&mut watch).0 != WatchEventKind::Removed {}
    assert!(watch.has_ended());
    drop((watch, files, other));
    served.stop();
}

#[test]
fn watch_above_the_limit_of_a_client_hears_that_it_misses_events() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    let watch = || files.watch("/".into(), WatchOptions::new()).unwrap();
    for _ in 0..2 * MOST_WATCHERS {
        // A failed call leaves no watch at the service.
        files.watch("/missing".into(), WatchOptions::new()).unwrap_err();
    }
    let mut watching: Vec<_> = (0..MOST_WATCHERS).map(|_| watch()).collect();
    let mut refused = watch();
    let told = refused.poll().expect("an event without a wait");
    assert_eq!(told.kind, WatchEventKind::Overflow);
    files.create_dir("/first").unwrap();
    for watch in &mut watching {
        assert_eq!(next(watch), named(WatchEventKind::Created, "first"));
    }
    drop(watching);
    while refused.next_within(Duration::from_millis(300)).is_some() {}
    files.create_dir("/seen").unwrap();
    assert_eq!(next(&mut refused), named(WatchEventKind::Created, "seen"));
    drop((refused, files));
    served.stop();
}

#[test]
fn waiting_watch_goes_on_after_a_long_time_without_a_service() {
    let (mut served, [files, other]) = Served::with_clients(64 << 20);
    files.create_dir("/nest").unwrap();
    let mut watch = files.watch("/nest".into(), WatchOptions::new().tree(true)).unwrap();
    served.end();
    let waiter = std::thread::spawn(move || {
        while next(&mut watch) != named(WatchEventKind::Created, "egg") {
            assert!(!watch.has_ended());
        }
    });
    // A call that waits for a service gives up after five seconds.
    std::thread::sleep(Duration::from_secs(7));
    served.start();
    // The watch works again after an overflow. The test does not know when the overflow comes.
    while !waiter.is_finished() {
        other.write("/nest/egg", "").unwrap();
        other.remove_file("/nest/egg").unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    waiter.join().unwrap();
    drop((files, other));
    served.stop();
}

on_disk! {
    watch_of_a_client_sees_changes_of_all_clients_with_their_names
    watch_of_a_client_tells_of_lost_events_and_goes_on_with_the_next_service
    watch_above_the_limit_of_a_client_hears_that_it_misses_events
    waiting_watch_goes_on_after_a_long_time_without_a_service
}
