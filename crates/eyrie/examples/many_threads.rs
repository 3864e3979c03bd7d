//! Many threads with one volume: all threads append to a log, and each thread fills a part of a table.
//!
//! An open `File` owns its file system, so it fits into a structure and into `thread::spawn`. Each append and
//! each write is one atomic step for the other threads. A thread that only reads waits for no lock.

use std::error::Error;
use std::sync::Arc;
use std::thread;

use eyrie::{Credentials, File, Files, PosixExt, Volume};

const THREADS: usize = 4;
const RECORDS: usize = 250;
const RECORD_BYTES: usize = 16;

/// A log with records of one length. All threads append to one open file.
struct Log {
    file: File<Files>,
}

impl Log {
    fn open(files: &Files, path: &str) -> eyrie::Result<Log> {
        Ok(Log { file: files.options().read(true).append(true).create(true).open(path)? })
    }

    /// Adds a record after the last one, also while other threads add records.
    fn add(&self, text: &str) -> eyrie::Result<()> {
        self.file.append(format!("{text:<RECORD_BYTES$}").as_bytes())?;
        Ok(())
    }

    /// Returns the record at `index`. A read at an offset does not use the position of the file, so threads
    /// need no lock around it.
    fn record(&self, index: usize) -> Result<String, Box<dyn Error + Send + Sync>> {
        let mut bytes = [0; RECORD_BYTES];
        self.file.read_exact_at(&mut bytes, (index * RECORD_BYTES) as u64)?;
        Ok(std::str::from_utf8(&bytes)?.trim_end().to_owned())
    }

    fn len(&self) -> eyrie::Result<usize> {
        Ok(self.file.metadata()?.size as usize / RECORD_BYTES)
    }
}

/// Appends to the shared log, writes a part of the shared table, and makes files of its own.
fn work(
    number: usize,
    volume: &Volume,
    log: &Log,
    table: &File<Files>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    // Each thread has a `Files` of its own, which could have its own user. Here all threads have the same
    // user.
    let files = volume.files(Credentials::of_process());
    let home = format!("/thread-{number}");
    files.create_dir(&home)?;
    let part = [b'0' + number as u8; 1024];
    table.write_all_at(&part, (number * part.len()) as u64)?;
    for record in 0..RECORDS {
        log.add(&format!("{number}:{record}"))?;
        if record % 50 == 0 {
            files.write(format!("{home}/{record}"), "written by one thread")?;
            log.record(log.len()? / 2)?; // other threads append meanwhile
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let scratch = tempfile::tempdir()?;
    let volume = Arc::new(Volume::create(scratch.path().join("volume"), 64 << 20)?);
    let files = volume.files(Credentials::of_process());
    let log = Arc::new(Log::open(&files, "/log")?);
    let table = files.options().read(true).write(true).create(true).open("/table")?;

    let mut threads = Vec::new();
    for number in 0..THREADS {
        let (volume, log, table) = (Arc::clone(&volume), Arc::clone(&log), table.try_clone()?);
        threads.push(thread::spawn(move || work(number, &volume, &log, &table)));
    }
    for thread in threads {
        thread.join().expect("no thread panicked")?;
    }

    assert_eq!(log.len()?, THREADS * RECORDS, "no append was lost");
    let mut next = [0; THREADS];
    for index in 0..log.len()? {
        let record = log.record(index)?;
        let (thread, count) = record.split_once(':').expect("whole records");
        let (thread, count): (usize, usize) = (thread.parse()?, count.parse()?);
        assert_eq!(count, next[thread], "the records of one thread are in their order");
        next[thread] += 1;
    }
    println!("{THREADS} threads appended {} records, none lost and none torn", log.len()?);

    let bytes = files.read("/table")?;
    assert!(bytes.chunks(1024).zip(b'0'..).all(|(part, digit)| part.iter().all(|&byte| byte == digit)));
    println!("the table has {} bytes in {} parts", bytes.len(), bytes.len() / 1024);

    let names = files.read_dir("/")?.map(|entry| Ok(entry?.path())).collect::<eyrie::Result<Vec<_>>>()?;
    println!("the root has {} entries", names.len());
    assert_eq!(names.len(), THREADS + 2);

    // A close needs a volume that nothing else uses. So the files, the log and the table are dropped first.
    drop((files, log, table));
    Arc::into_inner(volume).expect("the threads have ended").close()?;
    Ok(())
}
