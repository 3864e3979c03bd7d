//! Suites that kill the server of a mount with SIGKILL while programs change the volume. After each kill the
//! volume must be sound, and must have all changes that were acknowledged and that its medium promises.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, SystemTime};

use super::Context;
use super::content::bytes;
use super::mounted::{Mounted, SuiteMedium};
use super::tool::{assert_same, command, succeed, text_file, wait};
use crate::run::Result;

/// Number of kills of each volume.
const ROUNDS: u32 = 4;
/// Number of threads that change files.
const WRITERS: u64 = 2;
/// Number of directories of a thread.
const DIRECTORIES: u64 = 5;
/// Limit of the random part of the time before a kill, in milliseconds. The whole time is 100 ms longer.
const MAX_RUN_MS: u64 = 1200;
/// Time that `sqlite3` gets to notice that its file is gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit of one program, in seconds.
const LIMIT_S: u64 = 60;
/// Number of rows that one transaction inserts.
const ROWS: u64 = 5;

/// Returns a random time below `max_ms`.
pub fn some_time(max_ms: u64) -> Result<Duration> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(Duration::from_millis(u64::from(now.subsec_micros()) % max_ms))
}

/// Kills the server after this time.
pub fn kill_after(mounted: &mut Mounted, time: Duration) -> Result<()> {
    std::thread::sleep(time);
    mounted.kill()
}

/// Kills the server while `sqlite3` makes transactions, in the modes DELETE and WAL, on both media.
pub fn sqlite(context: &Context) -> Result<String> {
    let mut transactions = 0;
    for medium in SuiteMedium::ALL {
        for mode in ["DELETE", "WAL"] {
            let mut mounted = Mounted::at(context, "kill-sqlite", medium, "rw")?;
            let database = mounted.point().join("database");
            // `EXTRA` also synchronises the directory after the removal of the journal. Otherwise the mode
            // DELETE may undo a commit.
            let pragmas = format!("PRAGMA journal_mode={mode};\nPRAGMA synchronous=EXTRA;\n");
            sqlite3(&database, &format!("{pragmas}CREATE TABLE t(n INTEGER, row INTEGER, v TEXT);\n"))?;
            let mut found = 0;
            for round in 1..=ROUNDS {
                let what = format!("{} {mode}, round {round}", medium.name());
                found = sqlite_round(&mut mounted, &database, &pragmas, found)
                    .map_err(|error| format!("{what}: {error}"))?;
            }
            if found == 0 {
                return Err("no transaction was made".into());
            }
            transactions += found;
            mounted.finish()?;
        }
    }
    Ok(format!("{} kills, {transactions} transactions kept", 4 * ROUNDS))
}

/// Makes transactions after transaction `found` until the server is killed. Checks that the database then has
/// each acknowledged transaction, and whole transactions only. Returns the number of its transactions.
fn sqlite_round(mounted: &mut Mounted, database: &Path, pragmas: &str, found: u64) -> Result<u64> {
    let mut child = command("sqlite3")
        .args(["-batch", "-bail", "-init", "/dev/null"])
        .arg(database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("sqlite3 has no pipes".into());
    };
    let pragmas = pragmas.to_owned();
    // Both threads end with sqlite3, which ends when its file is gone.
    let feeder = std::thread::spawn(move || -> std::io::Result<()> {
        input.write_all(pragmas.as_bytes())?;
        (found + 1..).try_for_each(|number| input.write_all(transaction(number).as_bytes()))
    });
    let reader = std::thread::spawn(move || last_number(BufReader::new(output)));
    std::thread::sleep(some_time(MAX_RUN_MS)? + Duration::from_millis(100));
    // After the kill, an error of the volume would look like the end of the server.
    let early = child.try_wait()?;
    mounted.kill()?;
    let ended = wait(&mut child, PATIENCE)?;
    // The feeder ends with an error, because its reader sqlite3 has ended.
    let _ = feeder.join();
    let reported = reader.join().map_err(|_| "a thread has panicked")?.unwrap_or(found);
    if let Some(status) = early {
        return Err(format!("sqlite3 has ended before the kill: {status}").into());
    }
    if ended.is_none_or(|status| status.success()) {
        return Err("sqlite3 has not noticed the kill".into());
    }
    mounted.recover()?;
    let state = sqlite3(
        database,
        "PRAGMA integrity_check; SELECT count(*), count(DISTINCT n), ifnull(max(n), 0) FROM t;\n",
    )?;
    let last = state.trim().rsplit('|').next().and_then(|last| last.parse::<u64>().ok()).unwrap_or(0);
    assert_same("the database", &state, &format!("ok\n{}|{last}|{last}\n", last * ROWS))?;
    if last < reported {
        return Err(format!("transaction {reported} was acknowledged, but {last} is the last one").into());
    }
    Ok(last)
}

/// Returns one line of SQL with a transaction. After the commit, the line prints the number of the
/// transaction.
fn transaction(number: u64) -> String {
    let rows: Vec<String> = (0..ROWS).map(|row| format!("({number}, {row}, hex(randomblob(300)))")).collect();
    format!("BEGIN; INSERT INTO t VALUES {}; COMMIT; SELECT {number};\n", rows.join(", "))
}

/// Returns the last line that is a number.
fn last_number(output: impl BufRead) -> Option<u64> {
    output.lines().map_while(std::result::Result::ok).filter_map(|line| line.parse().ok()).last()
}

/// Runs statements on a database. Returns the text that they print.
fn sqlite3(database: &Path, statements: &str) -> Result<String> {
    let mut sqlite3 = command("sqlite3");
    sqlite3.args(["-batch", "-bail", "-init", "/dev/null"]).arg(database).stdin(text_file(statements)?);
    succeed(&mut sqlite3, LIMIT_S)
}

/// The state that a file must have after a kill.
#[derive(Clone, Copy, Debug)]
enum FileState {
    /// The file has the contents of this number.
    Written(u64),
    /// A removal has begun: the file is not there, or has the contents of this number.
    MayBeRemoved(u64),
    Removed,
}

/// A report of a thread: a path, and the state that the file at this path must have from then on.
type Report = (PathBuf, FileState);

/// Kills the server while threads create, rename and remove files, on both media.
pub fn writer(context: &Context) -> Result<String> {
    let mut changes = 0;
    for medium in SuiteMedium::ALL {
        let mut mounted = Mounted::at(context, "kill-writer", medium, "rw")?;
        let mut expected = BTreeMap::new();
        for round in 1..=ROUNDS {
            let result = writer_round(&mut mounted, medium, round, &mut expected);
            changes += result.map_err(|error| format!("{}, round {round}: {error}", medium.name()))?;
        }
        mounted.finish()?;
    }
    Ok(format!("{} kills, {changes} acknowledged changes kept", 2 * ROUNDS))
}

/// Changes files until the server is killed. Then compares all files of all rounds with their reported
/// states. Returns the number of reports of this round.
fn writer_round(
    mounted: &mut Mounted,
    medium: SuiteMedium,
    round: u32,
    expected: &mut BTreeMap<PathBuf, FileState>,
) -> Result<usize> {
    let (report, reports) = channel();
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let place = mounted.point().join(format!("round-{round}-{writer}"));
        for directory in 0..DIRECTORIES {
            fs::create_dir_all(place.join(directory.to_string()))?;
        }
        let report = report.clone();
        writers.push(std::thread::spawn(move || change_files(&place, medium, &report)));
    }
    drop(report);
    kill_after(mounted, some_time(MAX_RUN_MS)? + Duration::from_millis(100))?;
    for writer in writers {
        let error = writer.join().map_err(|_| "a thread has panicked")?;
        if ![ErrorKind::NotConnected, ErrorKind::ConnectionAborted].contains(&error.kind()) {
            return Err(format!("a change has failed: {error}").into());
        }
    }
    let reports: Vec<Report> = reports.iter().collect();
    let count = reports.len();
    if count == 0 {
        return Err("no change was acknowledged".into());
    }
    expected.extend(reports);
    mounted.recover()?;
    for (path, state) in expected.iter() {
        compare_file(path, *state)?;
    }
    Ok(count)
}

/// Changes files until a call fails, and reports each change that is durable.
fn change_files(place: &Path, medium: SuiteMedium, report: &Sender<Report>) -> std::io::Error {
    let mut number = 0;
    loop {
        if let Err(error) = change_file(place, medium, number, report) {
            return error;
        }
        number += 1;
    }
}

/// Creates a file. If its number is a multiple of three, renames the file to another directory. If its number
/// is a multiple of five, removes an older file, unless this older file was renamed.
fn change_file(
    place: &Path,
    medium: SuiteMedium,
    number: u64,
    report: &Sender<Report>,
) -> std::io::Result<()> {
    let directory = |number: u64| place.join((number % DIRECTORIES).to_string());
    // On `dram` a change is durable when its call returns.
    let sync = |path: &Path| if medium == SuiteMedium::Disk { File::open(path)?.sync_all() } else { Ok(()) };
    // The receiver lives until all threads have ended, so this cannot fail.
    let tell = |path: &Path, state: FileState| drop(report.send((path.to_owned(), state)));
    let path = directory(number).join(format!("file-{number}"));
    let mut file = File::create_new(&path)?;
    file.write_all(&contents(number))?;
    if medium == SuiteMedium::Disk {
        file.sync_all()?;
    }
    drop(file);
    if number.is_multiple_of(3) {
        let (to, old) = (directory(number + 2).join(format!("renamed-{number}")), path);
        fs::rename(&old, &to)?;
        sync(&directory(number + 2))?;
        tell(&to, FileState::Written(number));
        tell(&old, FileState::Removed);
    } else {
        sync(&directory(number))?;
        tell(&path, FileState::Written(number));
    }
    // The older file has a number that is no multiple of three, so it has kept its name.
    let older = number.wrapping_sub(5);
    if number.is_multiple_of(5) && number > 5 && !older.is_multiple_of(3) {
        let path = directory(older).join(format!("file-{older}"));
        tell(&path, FileState::MayBeRemoved(older));
        fs::remove_file(&path)?;
        sync(&directory(older))?;
        tell(&path, FileState::Removed);
    }
    Ok(())
}

/// Returns the contents of a file: 0 to 100 KB.
fn contents(number: u64) -> Vec<u8> {
    bytes(number, (number * 7919 % 100_000) as usize)
}

/// Returns an error unless the file has this state.
fn compare_file(path: &Path, state: FileState) -> Result<()> {
    let found = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        found => Some(found.map_err(|error| format!("{}: {error}", path.display()))?),
    };
    let problem = match (found, state) {
        (None, FileState::Removed | FileState::MayBeRemoved(_)) => return Ok(()),
        (None, FileState::Written(_)) => "acknowledged, but missing",
        (Some(_), FileState::Removed) => "removed, but there",
        (Some(found), FileState::Written(number) | FileState::MayBeRemoved(number)) => {
            if found == contents(number) {
                return Ok(());
            }
            "other contents than those that were acknowledged"
        }
    };
    Err(format!("{}: {problem}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_acknowledged_transaction_is_found() {
        assert_eq!(last_number("wal\n1\n2\n".as_bytes()), Some(2));
        assert_eq!(last_number("delete\n".as_bytes()), None);
        assert!(transaction(7).ends_with("COMMIT; SELECT 7;\n"));
    }

    #[test]
    fn lost_and_changed_files_are_noticed() {
        let directory = std::env::temp_dir().join(format!("eyrie-kills-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("file");
        let problem = |state| compare_file(&path, state).map_err(|error| error.to_string());
        assert!(problem(FileState::Removed).is_ok() && problem(FileState::MayBeRemoved(3)).is_ok());
        assert!(problem(FileState::Written(3)).unwrap_err().contains("missing"));
        fs::write(&path, contents(3)).unwrap();
        assert!(problem(FileState::Written(3)).is_ok() && problem(FileState::MayBeRemoved(3)).is_ok());
        assert!(problem(FileState::Written(4)).unwrap_err().contains("other contents"));
        assert!(problem(FileState::MayBeRemoved(4)).unwrap_err().contains("other contents"));
        assert!(problem(FileState::Removed).unwrap_err().contains("removed"));
        fs::remove_dir_all(directory).unwrap();
    }
}
