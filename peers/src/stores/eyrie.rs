//! Eyrie: a store in a directory of a volume.

use std::path::Path;

use eyrie::{Batch, Credentials, KeyRange, MediumChoice, Order, PosixExt, Store, Volume};

use super::{Durability, Peer};
use crate::Result;

/// Upper limit of the storage of the volume, in bytes. The host provides storage as the volume uses it.
const VOLUME_BYTES: u64 = 8 << 30;

struct Eyrie {
    store: Store,
    volume: Volume,
    durability: Durability,
}

impl Eyrie {
    /// Makes the changes so far durable, if each call must be durable.
    fn end_call(&self) -> Result<()> {
        if self.durability == Durability::EachCall {
            self.volume.sync()?;
        }
        Ok(())
    }

    fn visit(&self, sorted: bool, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let order = if sorted { Order::ByKey } else { Order::Unordered };
        let pin = self.store.pin();
        for entry in self.store.scan_in_place(KeyRange::all(), order, &pin) {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }
}

impl Peer for Eyrie {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Ok(self.store.get_into(key, out)?)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.put(key, value)?;
        self.end_call()
    }

    fn erase(&mut self, key: &[u8]) -> Result<bool> {
        let existed = self.store.erase(key)?;
        self.end_call()?;
        Ok(existed)
    }

    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = Batch::new();
        for (key, value) in pairs {
            batch.put(&key[..], &value[..]);
        }
        self.store.commit(&batch)?;
        self.end_call()
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.visit(true, visit)
    }

    fn scan_unordered(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.visit(false, visit)
    }
}

/// Makes a volume in `dir`, on the medium `paged` if each call is durable.
pub fn open(dir: &Path, durability: Durability, _value_bytes: usize) -> Result<Box<dyn Peer>> {
    let medium = match durability {
        Durability::None => MediumChoice::Dram,
        Durability::EachCall => MediumChoice::Paged,
    };
    let volume = Volume::options().size(VOLUME_BYTES).medium(medium).create(dir)?;
    volume.files(Credentials::of_process()).create_dir("/store")?;
    let store = volume.store("/store", Credentials::of_process())?;
    Ok(Box::new(Eyrie { store, volume, durability }))
}
