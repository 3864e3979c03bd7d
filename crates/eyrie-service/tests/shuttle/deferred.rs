//! Deferred changes: appends to the log, seals, and readers beside them.

use eyrie_engine::{ListedEntry, ObjectId, RenameMode};

use super::*;

const NAMES: [&[u8]; 2] = [b"egg", b"nest"];

/// Writes a number to a file.
fn write_number(client: &Client, name: &[u8], number: usize) {
    repeated(|| {
        let id = client.lookup(client.root(), name)?.ok_or(Error::NotFound)?;
        let data = &(number as u64).to_le_bytes();
        client.apply(&Op::Write { id, offset: 0, data, set_ids: SetIds::Keep, time: TIME })
    });
}

fn read_number(engine: &impl Engine, name: &[u8]) -> usize {
    repeated(|| {
        let id = engine.lookup(engine.root(), name)?.ok_or(Error::NotFound)?;
        let mut bytes = [0; 8];
        engine.read(id, 0, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes) as usize)
    })
}

/// Moves a name within the root directory.
fn rename(client: &Client, from_name: &[u8], to_name: &[u8], mode: RenameMode) {
    let dir = client.root();
    let (from_dir, to_dir, whiteout, time) = (dir, dir, None, TIME);
    let op = Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time };
    repeated(|| client.apply(&op));
}

/// Appends bytes to the file of a name. Looks the name up at the start, and again only after a stale id. So
/// an append usually needs no grant but that of the file.
struct FileAppender {
    client: Arc<Client>,
    name: &'static [u8],
    id: ObjectId,
}

impl FileAppender {
    fn new(client: &Arc<Client>, name: &'static [u8]) -> FileAppender {
        FileAppender { client: Arc::clone(client), name, id: FileAppender::find(client, name) }
    }

    fn find(client: &Client, name: &[u8]) -> ObjectId {
        repeated(|| client.lookup(client.root(), name)).unwrap()
    }

    fn append(&mut self, data: &[u8]) {
        loop {
            let _pin = epoch::pin();
            let op = Op::Append { id: self.id, data, set_ids: SetIds::Keep, time: TIME };
            match self.client.apply(&op) {
                Ok(_) => return,
                Err(Error::Stale) => {}
                Err(error) => panic!("{error}"),
            }
            self.id = FileAppender::find(&self.client, self.name);
        }
    }
}

/// Two writers write rising numbers, each to its own file, and two threads of another client read them. A
/// read that begins after a write has returned gives no lower number. `is_one_client` is true if both writers
/// are threads of one client.
fn readers_see_answered_numbers(seed: u64, schedules: usize, is_one_client: bool) {
    let _alone = alone();
    let template = Template::make();
    run(Bursts::new(seed, schedules), move || {
        let mut served = template.serve();
        let first = served.client();
        let second = if is_one_client { Arc::clone(&first) } else { served.client() };
        let (writers, reader) = ([first, second], served.client());
        let answered = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        for (writer, name) in writers.iter().zip(NAMES) {
            make_file(writer, name);
            write_number(writer, name, 0);
        }
        let write = {
            let answered = Arc::clone(&answered);
            move |file: usize, writer: Arc<Client>| {
                for number in 1..6 {
                    write_number(&writer, NAMES[file], number);
                    answered[file].store(number, Ordering::SeqCst);
                    if number == 3 {
                        assert_eq!(read_number(&*writer, NAMES[file]), number);
                    }
                }
            }
        };
        let [first, second] = writers;
        let second = {
            let write = write.clone();
            shuttle::thread::spawn(move || write(1, second))
        };
        // One reader may read while the service takes the grant back for the other.
        let readers = [0, 1].map(|first| {
            let (reader, answered) = (Arc::clone(&reader), Arc::clone(&answered));
            shuttle::thread::spawn(move || {
                for turn in 0..4 {
                    let file = (first + turn) % 2;
                    let least = answered[file].load(Ordering::SeqCst);
                    let number = read_number(&*reader, NAMES[file]);
                    assert!(number >= least, "{number} after {least}");
                }
            })
        });
        write(0, first);
        second.join().unwrap();
        readers.into_iter().for_each(|it| it.join().unwrap());
        drop((write, reader));
        let engine = served.end();
        assert_eq!(NAMES.map(|name| read_number(&engine, name)), [5, 5]);
    });
}

#[test]
fn readers_see_each_answered_number() {
    readers_see_answered_numbers(11, 600, true);
}

#[test]
fn readers_see_each_answered_number_of_two_clients() {
    readers_see_answered_numbers(15, 600, false);
}

/// Two clients append to one file. After each append, a client renames a new file of its own to `latest`, a
/// name that both clients use. Each append is made once, and at the end `latest` is the last file of a
/// client.
#[test]
fn clients_that_share_an_object_make_each_change_once() {
    let _alone = alone();
    let template = Template::make();
    run(Bursts::new(16, 600), move || {
        let mut served = template.serve();
        let clients = [served.client(), served.client()];
        make_file(&clients[0], b"egg");
        let writers = [0, 1].map(|number: u8| {
            let client = Arc::clone(&clients[usize::from(number)]);
            shuttle::thread::spawn(move || {
                let dir = client.root();
                for turn in 0..4 {
                    let own = [b'a' + number, b'0' + turn];
                    make_numbered(&client, &own, usize::from(turn));
                    repeated(|| {
                        let id = client.lookup(dir, b"egg")?.ok_or(Error::NotFound)?;
                        let data = &[number];
                        client.apply(&Op::Append { id, data, set_ids: SetIds::Keep, time: TIME })
                    });
                    // Both clients replace the same name.
                    rename(&client, &own, b"latest", RenameMode::Replace);
                }
            })
        });
        writers.into_iter().for_each(|it| it.join().unwrap());
        drop(clients);
        let engine = served.end();
        let bytes = bytes_of(&engine, b"egg");
        let of = |number: u8| bytes[3..].iter().filter(|&&byte| byte == number).count();
        assert_eq!((bytes.len(), [0, 1].map(of)), (11, [4; 2]));
        assert_eq!(number_of(&engine, b"latest"), Some(3));
        for own in [b"a0", b"a3", b"b0", b"b3"] {
            assert_eq!(number_of(&engine, own), None);
        }
    });
}

/// A client appends to a file while another client puts new values at the name of the file. Each append comes
/// as a whole before or after each put. So after the value of the last put, the file has only appended bytes,
/// without a hole.
#[test]
fn appends_beside_puts_leave_no_hole() {
    let _alone = alone();
    let template = Template::make();
    run(Bursts::new(17, 600), move || {
        let mut served = template.serve();
        let (appender, putter) = (served.client(), served.client());
        make_file(&appender, b"egg");
        let appending = {
            let appender = Arc::clone(&appender);
            shuttle::thread::spawn(move || {
                let mut file = FileAppender::new(&appender, b"egg");
                (0..12).for_each(|_| file.append(b"+"));
                // A sync fails if the service could not make an append.
                repeated(|| appender.sync());
            })
        };
        let putting = shuttle::thread::spawn(move || {
            for _ in 0..6 {
                repeated(|| {
                    let (dir, name, data) = (putter.root(), b"egg", b"value");
                    let id = putter.reserve(Kind::File)?;
                    putter.apply(&Op::Put { dir, name, id, owner: OWNER, data, time: TIME })
                });
            }
        });
        appending.join().unwrap();
        putting.join().unwrap();
        drop(appender);
        let bytes = bytes_of(&served.end(), b"egg");
        let rest = bytes.strip_prefix(b"value");
        assert!(rest.is_some_and(|rest| rest.iter().all(|&byte| byte == b'+')), "{bytes:?}");
    });
}

/// A client appends to two files. Another client appends to one of them, and then leaves, so the first client
/// gets the grant of the volume. Each append is made once.
#[test]
fn client_that_stays_makes_each_append_once() {
    let _alone = alone();
    let template = Template::make();
    run(Bursts::new(18, 600), move || {
        let mut served = template.serve();
        let (staying, leaving) = (served.client(), served.client());
        NAMES.iter().for_each(|name| make_file(&staying, name));
        let stay = shuttle::thread::spawn(move || {
            let mut files = NAMES.map(|name| FileAppender::new(&staying, name));
            for _ in 0..8 {
                files.iter_mut().for_each(|file| file.append(b"+"));
            }
            repeated(|| staying.sync());
        });
        let leave = shuttle::thread::spawn(move || {
            let mut file = FileAppender::new(&leaving, NAMES[0]);
            (0..6).for_each(|_| file.append(b"-"));
            drop((file, leaving));
            sleep::socket_changed();
        });
        stay.join().unwrap();
        leave.join().unwrap();
        let engine = served.end();
        for (name, count) in NAMES.into_iter().zip([14, 8]) {
            let bytes = bytes_of(&engine, name);
            let appended = bytes.strip_prefix(name).unwrap();
            let pluses = appended.iter().filter(|&&byte| byte == b'+').count();
            assert_eq!((appended.len(), pluses), (count, 8), "{bytes:?}");
        }
    });
}

/// Runs `change` with the numbers 0 to 2 in three threads, two of them with the first client, while one
/// service stops and the next one starts.
fn change_beside_a_next_service(
    served: &mut Served,
    clients: [Arc<Client>; 2],
    change: impl Fn(&Client, u8) + Send + Sync + Copy + 'static,
) {
    let done = Arc::new(AtomicUsize::new(0));
    let threads = [0, 1, 2].map(|number: u8| {
        let done = Arc::clone(&done);
        let client = Arc::clone(&clients[usize::from(number) % 2]);
        shuttle::thread::spawn(move || {
            change(&client, number);
            done.fetch_add(1, Ordering::SeqCst);
        })
    });
    served.replace();
    while done.load(Ordering::SeqCst) < threads.len() {
        sleep::pass_time();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Two clients append to one file, one of them with two threads, while one service stops and the next one
/// starts. Each append is made once.
#[test]
fn each_append_is_made_once() {
    let _alone = alone();
    let template = Template::make();
    run(Bursts::new(12, 400), move || {
        let mut served = template.serve();
        let clients = [served.client(), served.client()];
        make_file(&clients[0], b"egg");
        change_beside_a_next_service(&mut served, clients, |client, number| {
            for _ in 0..3 {
                repeated(|| {
                    let id = client.lookup(client.root(), b"egg")?.ok_or(Error::NotFound)?;
                    let data = &[number];
                    client.apply(&Op::Append { id, data, set_ids: SetIds::Keep, time: TIME })
                });
            }
        });
        let engine = served.end();
        let bytes = bytes_of(&engine, b"egg");
        assert_eq!((bytes.len(), &bytes[..3]), (12, &b"egg"[..]));
        let of = |number: u8| bytes[3..].iter().filter(|&&byte| byte == number).count();
        assert_eq!([0, 1, 2].map(of), [3; 3]);
    });
}

/// Makes a file that contains a number. No two files of a test have both the same name and the same number.
fn make_numbered(client: &Client, name: &[u8], number: usize) {
    let (dir, data) = (client.root(), (number as u64).to_le_bytes());
    let content = Content::Bytes(&data);
    repeated(|| {
        let _pin = epoch::pin();
        let id = client.reserve(Kind::File)?;
        client.apply(&Op::Create { dir, name, id, owner: OWNER, content, time: TIME })
    });
}

/// Returns the number in the file of a name. `None` if the name does not exist.
fn number_of(engine: &impl Engine, name: &[u8]) -> Option<usize> {
    repeated(|| {
        let _pin = epoch::pin();
        let Some(id) = engine.lookup(engine.root(), name)? else { return Ok(None) };
        let mut bytes = [0; 8];
        engine.read(id, 0, &mut bytes)?;
        Ok(Some(u64::from_le_bytes(bytes) as usize))
    })
}

/// Two threads of a client make files, move them to another name and remove them, each under names of its
/// own. Another client looks the names up. A look that begins after a change has returned finds that change
/// or a later one.
#[test]
fn readers_see_each_answered_name() {
    let _alone = alone();
    let template = Template::make();
    run(Bursts::new(13, 600), move || {
        let mut served = template.serve();
        let (writer, reader) = (served.client(), served.client());
        // Numbers of changes that have begun, and that have returned. After change 3 n + 1, the first name of
        // the thread has the file n, after change 3 n + 2 the second name has it, and after change 3 n + 3
        // none.
        let counts = Arc::new([(); 2].map(|()| [AtomicUsize::new(0), AtomicUsize::new(0)]));
        let names = [[&b"egg"[..], b"nest"], [&b"wing"[..], b"down"]];
        let write = {
            let counts = Arc::clone(&counts);
            move |thread: usize| {
                let (dir, [first, second]) = (writer.root(), names[thread]);
                for change in 1..=9 {
                    counts[thread][0].store(change, Ordering::SeqCst);
                    let (number, step) = ((change - 1) / 3, (change - 1) % 3);
                    match step {
                        0 => make_numbered(&writer, first, number),
                        1 => rename(&writer, first, second, RenameMode::Replace),
                        _ => _ = repeated(|| writer.apply(&Op::Unlink { dir, name: second, time: TIME })),
                    }
                    counts[thread][1].store(change, Ordering::SeqCst);
                    if change == 5 {
                        assert_eq!(number_of(&*writer, first), None);
                        assert_eq!(number_of(&*writer, second), Some(1));
                    }
                }
            }
        };
        let second = write.clone();
        let second = shuttle::thread::spawn(move || second(1));
        let reading = shuttle::thread::spawn(move || {
            for turn in 0..8 {
                let (thread, which) = (turn % 2, turn / 2 % 2);
                let least = counts[thread][1].load(Ordering::SeqCst);
                let found = number_of(&*reader, names[thread][which]);
                let most = counts[thread][0].load(Ordering::SeqCst);
                let after = |change: usize| match change.checked_sub(1) {
                    Some(before) if before % 3 == which => Some(before / 3),
                    _ => None,
                };
                assert!((least..=most).any(|change| after(change) == found), "{found:?} in {least}..={most}");
            }
        });
        write(0);
        second.join().unwrap();
        reading.join().unwrap();
        drop(write);
        let engine = served.end();
        assert_eq!(names.map(|names| names.map(|name| number_of(&engine, name))), [[None; 2]; 2]);
    });
}

/// Two clients make, move and remove files in one directory, one of them with two threads, while one service
/// stops and the next one starts. Each change is made once.
#[test]
fn each_name_is_made_once() {
    let _alone = alone();
    let template = Template::make();
    run(Bursts::new(14, 400), move || {
        let mut served = template.serve();
        let clients = [served.client(), served.client()];
        change_beside_a_next_service(&mut served, clients, |client, number| {
            let dir = client.root();
            for file in 0..3 {
                let (made, moved) = ([b'a' + number, b'0' + file], [b'x', b'a' + number, b'0' + file]);
                make_numbered(client, &made, usize::from(file));
                rename(client, &made, &moved, RenameMode::NoReplace);
                if file == 1 {
                    repeated(|| client.apply(&Op::Unlink { dir, name: &moved, time: TIME }));
                }
            }
        });
        let engine = served.end();
        let mut names = Vec::new();
        let visit = &mut |entry: ListedEntry<'_>| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        };
        engine.list(engine.root(), 0, visit).unwrap();
        names.sort();
        assert_eq!(names, ["xa0", "xa2", "xb0", "xb2", "xc0", "xc2"]);
        for name in &names {
            let number = name.as_bytes()[2] - b'0';
            assert_eq!(number_of(&engine, name.as_bytes()), Some(usize::from(number)));
        }
    });
}
