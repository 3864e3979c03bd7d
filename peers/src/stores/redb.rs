//! redb, with one table and its default settings. If changes need not be durable, a transaction has
//! `Durability::None`.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::{Durability, Peer};
use crate::Result;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("store");

struct Redb {
    database: Database,
    durability: Durability,
}

impl Redb {
    fn begin(&self) -> Result<WriteTransaction> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(match self.durability {
            Durability::None => redb::Durability::None,
            Durability::EachCall => redb::Durability::Immediate,
        })?;
        Ok(transaction)
    }
}

impl Peer for Redb {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        let value = self.database.begin_read()?.open_table(TABLE)?.get(key)?;
        out.extend_from_slice(value.as_ref().map_or(&[], |value| value.value()));
        Ok(value.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let transaction = self.begin()?;
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn erase(&mut self, key: &[u8]) -> Result<bool> {
        let transaction = self.begin()?;
        let existed = transaction.open_table(TABLE)?.remove(key)?.is_some();
        transaction.commit()?;
        Ok(existed)
    }

    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let transaction = self.begin()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in pairs {
                table.insert(&key[..], &value[..])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for pair in self.database.begin_read()?.open_table(TABLE)?.iter()? {
            let (key, value) = pair?;
            visit(key.value(), value.value());
        }
        Ok(())
    }
}

/// Makes a database in `dir`.
pub fn open(dir: &Path, durability: Durability, _value_bytes: usize) -> Result<Box<dyn Peer>> {
    let store = Redb { database: Database::create(dir.join("redb"))?, durability };
    let transaction = store.begin()?;
    transaction.open_table(TABLE)?;
    transaction.commit()?;
    Ok(Box::new(store))
}
