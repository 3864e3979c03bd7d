//! fjall, with its default settings and one keyspace.

use std::path::Path;
use std::sync::Arc;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::error::{Error, Result};
use crate::keys::{Durability, KeySession, KeyStore, VisitPair};

#[derive(Clone)]
struct Fjall {
    database: Database,
    keys: Keyspace,
    durability: Durability,
}

impl From<fjall::Error> for Error {
    fn from(error: fjall::Error) -> Error {
        Error::Peer(error.to_string())
    }
}

impl Fjall {
    fn end_call(&self) -> Result<()> {
        match self.durability {
            Durability::Later => Ok(()),
            Durability::EachCall => Ok(self.database.persist(PersistMode::SyncAll)?),
        }
    }
}

impl KeyStore for Fjall {
    fn session(&self) -> Result<Box<dyn KeySession>> {
        Ok(Box::new(self.clone()))
    }
}

impl KeySession for Fjall {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        self.view(key, &mut |value| out.extend_from_slice(value))
    }

    fn view(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.keys.get(key)?.map(|value| visit(&value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keys.insert(key, value)?;
        self.end_call()
    }

    /// fjall's own call does not tell if the key existed, so a look-up before the call finds out. The time of
    /// the look-up counts.
    fn erase(&mut self, key: &[u8]) -> Result<bool> {
        let existed = self.keys.contains_key(key)?;
        self.keys.remove(key)?;
        self.end_call()?;
        Ok(existed)
    }

    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = self.database.batch();
        for (key, value) in pairs {
            batch.insert(&self.keys, &key[..], &value[..]);
        }
        batch.commit()?;
        self.end_call()
    }

    fn scan(&mut self, _sorted: bool, visit: &mut VisitPair<'_>) -> Result<()> {
        for entry in self.keys.iter() {
            let (key, value) = entry.into_inner()?;
            visit(&key, &value);
        }
        Ok(())
    }
}

/// Makes a database in `path`.
pub(super) fn open(path: &Path, durability: Durability) -> Result<Arc<dyn KeyStore>> {
    let database = Database::builder(path).open()?;
    let keys = database.keyspace("store", KeyspaceCreateOptions::default)?;
    Ok(Arc::new(Fjall { database, keys, durability }))
}
