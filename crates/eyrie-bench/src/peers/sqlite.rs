//! SQLite with a write-ahead log, prepared statements, one table, and a connection for each thread.
//! `synchronous` is `FULL` if each call must be durable, and otherwise `OFF`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{Error, Result};
use crate::keys::{Durability, KeySession, KeyStore, VisitPair};

/// Largest size of values, in bytes, with which the table is `WITHOUT ROWID`. SQLite's documentation advises
/// such a table for rows up to about a twentieth of a page, and a page has 4 KiB.
const SMALL_BYTES: usize = 200;
/// Longest time that a thread waits for another writer.
const PATIENCE: Duration = Duration::from_secs(60);
const PUT: &str = "INSERT INTO store (key, value) VALUES (?1, ?2) \
                   ON CONFLICT (key) DO UPDATE SET value = excluded.value";

struct Sqlite {
    path: PathBuf,
    durability: Durability,
}

struct Session {
    connection: Connection,
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        Error::Peer(error.to_string())
    }
}

impl Sqlite {
    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        let synchronous = match self.durability {
            Durability::Later => "OFF",
            Durability::EachCall => "FULL",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        Ok(connection)
    }
}

impl KeyStore for Sqlite {
    fn session(&self) -> Result<Box<dyn KeySession>> {
        Ok(Box::new(Session { connection: self.connect()? }))
    }
}

impl KeySession for Session {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        self.view(key, &mut |value| out.extend_from_slice(value))
    }

    fn view(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut get = self.connection.prepare_cached("SELECT value FROM store WHERE key = ?1")?;
        let found = get.query_row([key], |row| {
            visit(row.get_ref(0)?.as_blob()?);
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

    fn scan(&mut self, sorted: bool, visit: &mut VisitPair<'_>) -> Result<()> {
        let query = match sorted {
            true => "SELECT key, value FROM store ORDER BY key",
            false => "SELECT key, value FROM store",
        };
        let mut scan = self.connection.prepare_cached(query)?;
        let mut rows = scan.query([])?;
        while let Some(row) = rows.next()? {
            let blob = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_blob()?);
            visit(blob(0)?, blob(1)?);
        }
        Ok(())
    }
}

/// Makes a database in `path`.
pub(super) fn open(path: &Path, durability: Durability, value_bytes: usize) -> Result<Arc<dyn KeyStore>> {
    let store = Sqlite { path: path.join("sqlite"), durability };
    let kind = if value_bytes <= SMALL_BYTES { " WITHOUT ROWID" } else { "" };
    let table = format!("CREATE TABLE store (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL){kind}");
    store.connect()?.execute(&table, [])?;
    Ok(Arc::new(store))
}
