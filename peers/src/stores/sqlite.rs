//! SQLite with a write-ahead log, prepared statements, and one table.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};

use super::{Durability, Peer};
use crate::Result;

/// Largest value for which the table has no rowid, in bytes. SQLite's documentation advises this for rows up
/// to about a twentieth of a page, and a page has 4 KiB.
const SMALL_BYTES: usize = 200;
const PUT: &str = "INSERT INTO store (key, value) VALUES (?1, ?2) \
                   ON CONFLICT (key) DO UPDATE SET value = excluded.value";

struct Sqlite {
    connection: Connection,
}

impl Peer for Sqlite {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        let mut get = self.connection.prepare_cached("SELECT value FROM store WHERE key = ?1")?;
        let found = get.query_row([key], |row| {
            out.extend_from_slice(row.get_ref(0)?.as_blob()?);
            Ok(())
        });
        Ok(found.optional()?.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.connection.prepare_cached(PUT)?.execute(params![key, value])?;
        Ok(())
    }

    fn erase(&mut self, key: &[u8]) -> Result<bool> {
        let erased = self.connection.prepare_cached("DELETE FROM store WHERE key = ?1")?.execute([key])?;
        Ok(erased == 1)
    }

    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut put = transaction.prepare_cached(PUT)?;
            for (key, value) in pairs {
                put.execute(params![key, value])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        scan(&self.connection, "SELECT key, value FROM store ORDER BY key", visit)
    }

    fn scan_unordered(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        scan(&self.connection, "SELECT key, value FROM store", visit)
    }
}

fn scan(connection: &Connection, query: &str, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
    let mut scan = connection.prepare_cached(query)?;
    let mut rows = scan.query([])?;
    while let Some(row) = rows.next()? {
        visit(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
    }
    Ok(())
}

/// Makes a database in `dir`.
pub fn open(dir: &Path, durability: Durability, value_bytes: usize) -> Result<Box<dyn Peer>> {
    let connection = Connection::open(dir.join("sqlite"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(
        None,
        "synchronous",
        match durability {
            Durability::None => "OFF",
            Durability::EachCall => "FULL",
        },
    )?;
    let kind = if value_bytes <= SMALL_BYTES { " WITHOUT ROWID" } else { "" };
    let table = format!("CREATE TABLE store (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL){kind}");
    connection.execute(&table, [])?;
    Ok(Box::new(Sqlite { connection }))
}
