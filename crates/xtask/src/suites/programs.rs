//! Suites of programs that people use: `sqlite3` and `cargo build`.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::Context;
use super::content::text;
use super::mounted::Mounted;
use super::tool::{assert_same, command, succeed, text_file};
use crate::run::Result;

/// Time limit of one program, in seconds.
const LIMIT_S: u64 = 120;
/// Number of transactions of a database, and number of rows that each of them inserts.
const TRANSACTIONS: (u64, u64) = (20, 400);
/// Number of transactions of each of two processes that use a database at the same time.
const SHARED_TRANSACTIONS: u64 = 50;
/// Number of modules of the program that is built.
const MODULES: u32 = 200;

/// Fills databases, compares each with a database in memory, and lets two processes change each of them at
/// the same time.
pub fn sqlite(context: &Context) -> Result<String> {
    let mut mounted = Mounted::new(context, "sqlite", "rw")?;
    let changes = changes();
    let expected = sqlite3(Path::new(":memory:"), &format!("{changes}.dump\n"))?;
    let shared = |process: u64| -> String {
        let insert = format!("BEGIN IMMEDIATE; INSERT INTO t(k, n) VALUES('shared', {process}); COMMIT;\n");
        format!(".timeout 60000\nPRAGMA synchronous=FULL;\n{}", insert.repeat(SHARED_TRANSACTIONS as usize))
    };
    for mode in ["DELETE", "WAL"] {
        let database = mounted.point().join(format!("{mode}.db"));
        sqlite3(&database, &format!("PRAGMA journal_mode={mode};\nPRAGMA synchronous=FULL;\n{changes}"))?;
        mounted.remount()?;
        assert_same(mode, &sqlite3(&database, ".dump\n")?, &expected)?;
        assert_same(mode, &sqlite3(&database, "PRAGMA integrity_check;\n")?, "ok\n")?;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| sqlite3(&database, &shared(1)).map_err(|error| error.to_string()));
            sqlite3(&database, &shared(2)).map_err(|error| error.to_string())?;
            other.join().unwrap_or_else(|_| Err("a thread has panicked".into()))
        })?;
        let sums = "PRAGMA integrity_check; SELECT count(*), sum(n) FROM t WHERE k = 'shared';\n";
        let wanted = format!("ok\n{}|{}\n", 2 * SHARED_TRANSACTIONS, 3 * SHARED_TRANSACTIONS);
        assert_same(mode, &sqlite3(&database, sums)?, &wanted)?;
    }
    mounted.finish()?;
    Ok(format!(
        "DELETE and WAL, {} inserts in {} transactions each",
        TRANSACTIONS.0 * TRANSACTIONS.1,
        TRANSACTIONS.0
    ))
}

/// Returns the statements that fill a database: inserts, updates and removals in several transactions.
fn changes() -> String {
    let mut sql = "CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, v TEXT, n INTEGER);\n\
                   CREATE INDEX by_k ON t(k);\n"
        .to_owned();
    for transaction in 0..TRANSACTIONS.0 {
        sql += "BEGIN;\n";
        for row in 0..TRANSACTIONS.1 {
            let id = transaction * TRANSACTIONS.1 + row;
            let value = text(id, (id % 700) as usize);
            let _ =
                writeln!(sql, "INSERT INTO t VALUES({id}, 'key {}', '{value}', {row});", id * 7919 % 10007);
        }
        let _ = writeln!(sql, "UPDATE t SET n = n + {transaction} WHERE id % 3 = {};", transaction % 3);
        let _ = writeln!(sql, "DELETE FROM t WHERE id % 17 = {transaction};");
        sql += "COMMIT;\n";
    }
    sql
}

/// Runs statements on a database. Returns the text that they print.
fn sqlite3(database: &Path, statements: &str) -> Result<String> {
    let mut sqlite3 = command("sqlite3");
    sqlite3.args(["-batch", "-bail", "-init", "/dev/null"]).arg(database).stdin(text_file(statements)?);
    succeed(&mut sqlite3, LIMIT_S)
}

/// Builds a program with many modules on the mount, and runs it. Then changes a module, builds the program
/// again, and runs it again.
pub fn cargo(context: &Context) -> Result<String> {
    let mut mounted = Mounted::new(context, "cargo", "rw")?;
    let package = mounted.point().join("package");
    write_package(&package)?;
    for constant in [1, 2] {
        write_module(&package, 7, constant)?;
        let mut build = command(env!("CARGO"));
        build.args(["build", "--quiet", "--offline", "--manifest-path"]).arg(package.join("Cargo.toml"));
        succeed(build.arg("--target-dir").arg(mounted.point().join("target")), LIMIT_S)?;
        let program = mounted.point().join("target/debug/modules");
        let wanted = format!("{}\n", (1..=u64::from(MODULES)).sum::<u64>() * 1000 + 7 * (constant - 1));
        assert_same("the program", &succeed(&mut command(&program), LIMIT_S)?, &wanted)?;
        mounted.remount()?;
        assert_same("the program", &succeed(&mut command(&program), LIMIT_S)?, &wanted)?;
    }
    mounted.finish()?;
    Ok(format!("{MODULES} modules, built twice"))
}

/// Writes a package whose program prints the sum of the values of its modules.
fn write_package(path: &Path) -> Result<()> {
    fs::create_dir_all(path.join("src"))?;
    let manifest = "[package]\nname = \"modules\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(path.join("Cargo.toml"), manifest)?;
    let (mut modules, mut sum) = (String::new(), String::from("0"));
    for number in 1..=MODULES {
        write_module(path, number, 1)?;
        let _ = writeln!(modules, "mod m{number};");
        let _ = write!(sum, " + m{number}::value()");
    }
    Ok(fs::write(
        path.join("src/main.rs"),
        format!("{modules}fn main() {{\n    println!(\"{{}}\", {sum});\n}}\n"),
    )?)
}

/// Writes a module with the value `number * (999 + constant)`, and a time of change that cargo notices.
fn write_module(path: &Path, number: u32, constant: u64) -> Result<()> {
    let file = path.join(format!("src/m{number}.rs"));
    let function =
        format!("pub fn value() -> u64 {{\n    (0..{number}).map(|_| 999 + {constant}).sum()\n}}\n");
    fs::write(&file, function)?;
    let later = SystemTime::now() + Duration::from_secs(constant - 1);
    Ok(fs::File::options().write(true).open(file)?.set_modified(later)?)
}
