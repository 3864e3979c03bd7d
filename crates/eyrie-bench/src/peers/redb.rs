//! redb, with one table and its default settings. If changes need not be durable, a transaction has
//! `Durability::None`.

use std::path::Path;
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use crate::error::{Error, Result};
use crate::keys::{Durability, KeySession, KeyStore, VisitPair};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("store");

#[derive(Clone)]
struct Redb {
    database: Arc<Database>,
    durability: Durability,
}

/// Runs calls of redb, whose errors have several types.
fn attempt<T>(calls: impl FnOnce() -> std::result::Result<T, redb::Error>) -> Result<T> {
    calls().map_err(|error| Error::Peer(error.to_string()))
}

impl Redb {
    /// Makes a change as one transaction.
    fn change<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> std::result::Result<T, redb::Error>,
    ) -> Result<T> {
        attempt(|| {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(match self.durability {
                Durability::Later => redb::Durability::None,
                Durability::EachCall => redb::Durability::Immediate,
            })?;
            let result = change(&transaction)?;
            transaction.commit()?;
            Ok(result)
        })
    }
}

impl KeyStore for Redb {
    fn session(&self) -> Result<Box<dyn KeySession>> {
        Ok(Box::new(self.clone()))
    }
}

impl KeySession for Redb {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        self.view(key, &mut |value| out.extend_from_slice(value))
    }

    fn view(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        attempt(|| {
            let value = self.database.begin_read()?.open_table(TABLE)?.get(key)?;
            Ok(value.map(|value| visit(value.value())).is_some())
        })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.change(|transaction| {
            transaction.open_table(TABLE)?.insert(key, value)?;
            Ok(())
        })
    }

    fn erase(&mut self, key: &[u8]) -> Result<bool> {
        self.change(|transaction| Ok(transaction.open_table(TABLE)?.remove(key)?.is_some()))
    }

    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.change(|transaction| {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in pairs {
                table.insert(&key[..], &value[..])?;
            }
            Ok(())
        })
    }

    fn scan(&mut self, _sorted: bool, visit: &mut VisitPair<'_>) -> Result<()> {
        attempt(|| {
            for pair in self.database.begin_read()?.open_table(TABLE)?.iter()? {
                let (key, value) = pair?;
                visit(key.value(), value.value());
            }
            Ok(())
        })
    }
}

/// Makes a database in `path`.
pub(super) fn open(path: &Path, durability: Durability) -> Result<Arc<dyn KeyStore>> {
    let database = attempt(|| Ok(Database::create(path.join("redb"))?))?;
    let store = Redb { database: Arc::new(database), durability };
    store.change(|transaction| {
        transaction.open_table(TABLE)?;
        Ok(())
    })?;
    Ok(Arc::new(store))
}
