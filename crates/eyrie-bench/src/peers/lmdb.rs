//! LMDB, with its default settings except for the size of the map. If changes need not be durable, the
//! setting `MDB_NOSYNC` is added.

use std::path::Path;
use std::sync::Arc;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use crate::error::{Error, Result};
use crate::keys::{Durability, KeySession, KeyStore, VisitPair};

/// Upper limit of the size of the file, in bytes. LMDB reserves this much address space.
const MAP_BYTES: usize = 64 << 30;

#[derive(Clone)]
struct Lmdb {
    env: Env,
    database: Database<Bytes, Bytes>,
}

impl From<heed::Error> for Error {
    fn from(error: heed::Error) -> Error {
        Error::Peer(error.to_string())
    }
}

impl KeyStore for Lmdb {
    fn session(&self) -> Result<Box<dyn KeySession>> {
        Ok(Box::new(self.clone()))
    }
}

impl KeySession for Lmdb {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        self.view(key, &mut |value| out.extend_from_slice(value))
    }

    fn view(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.env.read_txn()?;
        Ok(self.database.get(&transaction, key)?.map(visit).is_some())
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

    fn scan(&mut self, _sorted: bool, visit: &mut VisitPair<'_>) -> Result<()> {
        let transaction = self.env.read_txn()?;
        for pair in self.database.iter(&transaction)? {
            let (key, value) = pair?;
            visit(key, value);
        }
        Ok(())
    }
}

/// Makes an environment in `path`.
pub(super) fn open(path: &Path, durability: Durability) -> Result<Arc<dyn KeyStore>> {
    let flags = match durability {
        Durability::Later => EnvFlags::NO_SYNC,
        Durability::EachCall => EnvFlags::empty(),
    };
    // SAFETY: a process must not open an environment twice, and only LMDB may change its files, which are
    // mapped. The run has just made this directory, and no other code of the run uses it. After a power
    // failure, `NO_SYNC` leaves damaged files. No process opens these files, because a run opens only an
    // environment that it has just made.
    let env = unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).flags(flags).open(path)? };
    let mut transaction = env.write_txn()?;
    let database = env.create_database(&mut transaction, None)?;
    transaction.commit()?;
    Ok(Arc::new(Lmdb { env, database }))
}
