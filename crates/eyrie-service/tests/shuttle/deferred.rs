//! Deferred changes: appends to the log, seals, and readers beside them.

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

/// Two threads of a client write rising numbers, each to its own file, and another client reads them. A read
/// that begins after a write has returned gives no lower number.
#[test]
fn readers_see_each_answered_number() {
    let _alone = alone();
    let template = Template::make();
    run(Bursts::new(11, 600), move || {
        let mut served = template.serve();
        let (writer, reader) = (served.client(), served.client());
        let answered = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        for name in NAMES {
            make_file(&writer, name);
            write_number(&writer, name, 0);
        }
        let write = {
            let answered = Arc::clone(&answered);
            move |file: usize| {
                for number in 1..6 {
                    write_number(&writer, NAMES[file], number);
                    answered[file].store(number, Ordering::SeqCst);
                    if number == 3 {
                        assert_eq!(read_number(&*writer, NAMES[file]), number);
                    }
                }
            }
        };
        let second = write.clone();
        let second = shuttle::thread::spawn(move || second(1));
        let reading = shuttle::thread::spawn(move || {
            for turn in 0..6 {
                let file = turn % 2;
                let least = answered[file].load(Ordering::SeqCst);
                let number = read_number(&*reader, NAMES[file]);
                assert!(number >= least, "{number} after {least}");
            }
        });
        write(0);
        second.join().unwrap();
        reading.join().unwrap();
        drop(write);
        let engine = served.end();
        assert_eq!(NAMES.map(|name| read_number(&engine, name)), [5, 5]);
    });
}

/// Two clients append to one file, each with two threads, and a service follows another. Each append is made
/// once.
#[test]
fn each_append_is_made_once() {
    let _alone = alone();
    let template = Template::make();
    run(Bursts::new(12, 400), move || {
        let mut served = template.serve();
        let clients = [served.client(), served.client()];
        make_file(&clients[0], b"egg");
        let done = Arc::new(AtomicUsize::new(0));
        let threads = [0, 1, 2].map(|number: u8| {
            let done = Arc::clone(&done);
            let client = Arc::clone(&clients[usize::from(number) % 2]);
            shuttle::thread::spawn(move || {
                for _ in 0..3 {
                    repeated(|| {
                        let id = client.lookup(client.root(), b"egg")?.ok_or(Error::NotFound)?;
                        let data = &[number];
                        client.apply(&Op::Append { id, data, set_ids: SetIds::Keep, time: TIME })
                    });
                }
                done.fetch_add(1, Ordering::SeqCst);
            })
        });
        served.replace();
        while done.load(Ordering::SeqCst) < threads.len() {
            sleep::pass_time();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(clients);
        let engine = served.end();
        let id = engine.lookup(engine.root(), b"egg").unwrap().unwrap();
        let mut bytes = [9; 64];
        let count = engine.read(id, 0, &mut bytes).unwrap();
        assert_eq!((count, &bytes[..3]), (12, &b"egg"[..]));
        let of = |number: u8| bytes[3..count].iter().filter(|&&byte| byte == number).count();
        assert_eq!([0, 1, 2].map(of), [3; 3]);
    });
}
