//! LMDB, with its default settings except for the size of the map. If changes need not be durable, the
//! setting `MDB_NOSYNC` is added.

use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use super::{Durability, Peer};
use crate::Result;

/// Upper limit of the file, in bytes. LMDB reserves addresses of this size.
const MAP_BYTES: usize = 16 << 30;

struct Lmdb {
    env: Env,
    database: Database<Bytes, Bytes>,
}

impl Peer for Lmdb {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        let transaction = self.env.read_txn()?;
        let value = self.database.get(&transaction, key)?;
        out.extend_from_slice(value.unwrap_or_default());
        Ok(value.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.database.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn erase(&mut self, key: &[u8]) -> Result<bool> {
        let mut transaction = self.env.write_txn()?;
        let existed = self.database.delete(&mut transaction, key)?;
        transaction.commit()?;
        Ok(existed)
    }

    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in pairs {
            self.database.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let transaction = self.env.read_txn()?;
        for pair in self.database.iter(&transaction)? {
            let (key, value) = pair?;
            visit(key, value);
        }
        Ok(())
    }
}

/// Makes an environment in `dir`.
pub fn open(dir: &Path, durability: Durability, _value_bytes: usize) -> Result<Box<dyn Peer>> {
    let flags = match durability {
        Durability::None => EnvFlags::NO_SYNC,
        Durability::EachCall => EnvFlags::empty(),
    };
    // SAFETY: the directory is new and private to this process, which opens it once and changes no file in
    // it. `NO_SYNC` can damage a file only if the machine stops, and no file outlives this process.
    let env = unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).flags(flags).open(dir)? };
    let mut transaction = env.write_txn()?;
    let database = env.create_database(&mut transaction, None)?;
    transaction.commit()?;
    Ok(Box::new(Lmdb { env, database }))
}
