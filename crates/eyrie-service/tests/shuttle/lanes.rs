//! Requests in lanes: no wake-up is lost, and each request is answered once, also when its session or its
//! service ends meanwhile.
//!
//! The module `mutants` plants two mistakes that these tests must notice: the client looks if the service
//! sleeps before it rings the bell, and the service does not look at the bells after it has announced that it
//! sleeps. At least one of these tests also fails with each of the following mistakes, which were planted by
//! hand:
//! - The client rings the bell before it marks the request as made.
//! - The client stores the data after it has rung the bell.
//! - The client marks its lane as waiting without a look at the answer.
//! - The client never looks if its session has ended.
//! - The service wakes no client, or marks the answer as made before it stores the answer.
//! - The service clears the bells after it has answered.
//!
//! Two further mistakes are not noticed. The first is harmless: a client marks its request as made before it
//! stores the data. The service looks at a lane only after its bell, so it still finds the data. The second
//! made no difference in the interleavings that ran: a client finds its session ended, and does not look for
//! an answer. A test of the command, `answer_of_a_killed_service_counts`, notices the second mistake.

use super::*;

/// Runs threads that make files through clients of a service. `disturb` runs beside them. Asserts that each
/// file was made once.
///
/// If `disturb` returns true, the time limits of sleeps can expire from then on. A service that has ended
/// wakes no client, so its clients need these limits. Otherwise no limit expires, because an expired sleep
/// would hide a lost wake-up.
fn make_files_beside(
    template: &Template,
    threads: &[&[&'static [u8]]],
    disturb: impl Fn(&mut Served, &Client) -> bool,
) {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    // A change log leaves fewer requests in the lanes, so three of four services defer no changes.
    let mut served = template.serve_with(run.is_multiple_of(4));
    let (shared, other) = (served.client(), served.client());
    let done = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = threads
        .iter()
        .enumerate()
        .map(|(number, names)| {
            // The first two threads share a client.
            let client = Arc::clone(if number < 2 { &shared } else { &other });
            let (names, done) = (names.to_vec(), Arc::clone(&done));
            shuttle::thread::spawn(move || {
                names.iter().for_each(|name| make_file(&client, name));
                done.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    // The disturbance comes at different steps of the requests.
    for _ in 0..run * 7 % 300 {
        shuttle::thread::yield_now();
    }
    if disturb(&mut served, &shared) {
        while done.load(Ordering::SeqCst) < handles.len() {
            sleep::pass_time();
        }
    }
    handles.into_iter().for_each(|thread| thread.join().unwrap());
    drop((shared, other));
    let engine = served.end();
    threads.iter().flat_map(|names| names.iter()).for_each(|name| assert_file(&engine, name));
}

/// Runs [`make_files_beside`] with these schedules.
fn make_files_in_turns(
    schedules: Bursts,
    threads: &'static [&'static [&'static [u8]]],
    disturb: impl Fn(&mut Served, &Client) -> bool + Send + Sync + 'static,
) {
    let _alone = alone();
    let template = Template::make();
    run(schedules, move || make_files_beside(&template, threads, &disturb));
}

/// Threads of two clients make requests of a service that falls asleep between them. A lost wake shows in
/// about one of a thousand interleavings.
#[test]
fn each_request_is_answered_once_and_no_wake_is_lost() {
    make_files_in_turns(Bursts::new(1, 4000), &[&[b"a", b"b"], &[b"c"], &[b"d", b"e"]], |_, _| false);
}

/// The service ends the session of a client, which has requests in its lanes. The client joins again.
#[test]
fn client_whose_session_ends_makes_each_change_once() {
    make_files_in_turns(Bursts::new(2, 500), &[&[b"a"], &[b"c"], &[b"d"]], |_, client| {
        client.end_session_for_test();
        true
    });
}

/// The service ends, with requests in the lanes. The clients go on with the next service.
#[test]
fn clients_of_a_service_that_ends_make_each_change_once() {
    make_files_in_turns(Bursts::new(3, 500), &[&[b"a"], &[b"c"], &[b"d"]], |served, _| {
        served.replace();
        true
    });
}
