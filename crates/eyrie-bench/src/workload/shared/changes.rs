//! The changes of one client, in bursts and sustained.

use std::time::Duration;

use eyrie::{Posix, PosixExt, RenameMode};

use super::{ChangeCall, Length, SMALL_BYTES, SharedWorker};
use crate::error::Result;
use crate::method::Stopwatch;
use crate::values::{NumberedName, Pattern};
use crate::workload::files::{BLOCK_BYTES, NEW, write_all};

/// Number of blocks from which the calls of a round take their bytes. The calls of a round follow one another
/// without a pause, so their bytes are made before the round.
pub(super) const POOL: usize = 16;
/// Number of the content ([`Pattern::new`]) of the first block of the pool.
const CONTENTS: u64 = 4 << 40;
/// Changes after which a client that is alone has the grant.
const GRANTED_AFTER: u32 = 64;
/// Pause before each burst, in which the service finishes its work for the earlier calls.
const PAUSE: Duration = Duration::from_millis(15);
/// A step through blocks or keys. Its multiples visit each of them once before any twice, because the step
/// has no factor in common with a power of two or of ten.
const STEP: u64 = 0x9e37_79b9;

/// The content of a block or value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Written {
    /// The number of the block in the pool.
    pub slot: u64,
    /// The version of the pool.
    pub version: u32,
}

impl Written {
    fn pattern(self) -> Pattern {
        Pattern::new(CONTENTS + self.slot, self.version)
    }
}

/// Returns the number of the block or key that call `call` changes.
fn place(call: u64, among: u64) -> u64 {
    call.wrapping_mul(STEP) % among
}

fn old_key() -> NumberedName {
    NumberedName::new("key-")
}

fn new_key() -> NumberedName {
    NumberedName::new("new-")
}

impl<P: Posix + Clone> SharedWorker<P> {
    pub(super) fn fill_changes(&mut self) -> Result<()> {
        self.fill_pool();
        for block in 0..self.amounts.blocks {
            let data = &self.pool[self.blocks[block as usize].slot as usize];
            write_all(&self.fs, self.file.handle(), data, block * BLOCK_BYTES as u64)?;
        }
        let mut keys = old_key();
        for key in 0..self.amounts.keys {
            let data = &self.pool[self.values[key as usize].0.slot as usize];
            self.store.put(keys.key(key), data)?;
        }
        Ok(())
    }

    /// Gives the blocks of the pool their contents of this version.
    fn fill_pool(&mut self) {
        for (slot, block) in (0..).zip(&mut self.pool) {
            Written { slot, version: self.version }.pattern().fill(block, 0);
        }
    }

    fn written(&self, call: u64) -> Written {
        Written { slot: call % POOL as u64, version: self.version }
    }

    fn names(&self, base: &str) -> NumberedName {
        NumberedName::new(&format!("{}/names/{base}", self.directory))
    }

    /// Makes the calls of one round, and compares their results.
    pub(super) fn change(&mut self, call: ChangeCall, length: Length, watch: &mut Stopwatch) -> Result<()> {
        let count = self.amounts.calls(length);
        self.version += 1;
        self.fill_pool();
        if call == ChangeCall::Append {
            self.log.set_len(0)?;
        }
        if length == Length::Burst {
            std::thread::sleep(PAUSE);
        }
        for _ in 0..GRANTED_AFTER {
            self.granted.write_all_at(&[1], 0)?;
        }
        self.settle()?;
        self.make_calls(call, count as usize, watch)?;
        if length == Length::Sustained {
            watch.time_whole(0, || self.settle())?;
        }
        self.compare(call, count, watch)
    }

    fn make_calls(&mut self, call: ChangeCall, count: usize, watch: &mut Stopwatch) -> Result<()> {
        let (mut new, mut moved) = (self.names("new-"), self.names("moved-"));
        let (mut key, mut new_key) = (old_key(), new_key());
        let (fs, pool, [block, value], amounts) = (&self.fs, &self.pool, self.next, self.amounts);
        let data = |at: usize| &pool[at % POOL][..];
        match call {
            ChangeCall::Create => {
                watch.time(count, |at| Ok(fs.close(fs.open(new.path(at as u64).into(), NEW, 0o644)?)?))
            }
            ChangeCall::Rename => watch.time(count, |at| {
                let (from, to) = (new.path(at as u64), moved.path(at as u64));
                Ok(fs.rename_with(from.into(), to.into(), RenameMode::Replace)?)
            }),
            ChangeCall::Unlink => watch.time(count, |at| Ok(fs.unlink(moved.path(at as u64).into())?)),
            ChangeCall::PutNew => {
                let store = &mut self.store;
                watch.time(count, |at| store.put(new_key.key(at as u64), &data(at)[..SMALL_BYTES]))
            }
            ChangeCall::Erase => {
                let store = &mut self.store;
                watch.time(count, |at| store.erase(new_key.key(at as u64)).map(drop))
            }
            ChangeCall::Append => {
                let log = self.log.handle();
                watch.time(count, |at| Ok(fs.append(log, data(at)).map(drop)?))
            }
            ChangeCall::Overwrite => {
                let file = self.file.handle();
                watch.time(count, |at| {
                    let place = place(block + at as u64, amounts.blocks);
                    write_all(fs, file, data(at), place * BLOCK_BYTES as u64)
                })
            }
            ChangeCall::Put | ChangeCall::PutSmall => {
                let bytes = if call == ChangeCall::Put { BLOCK_BYTES } else { SMALL_BYTES };
                let store = &mut self.store;
                watch.time(count, |at| {
                    store.put(key.key(place(value + at as u64, amounts.keys)), &data(at)[..bytes])
                })
            }
        }
    }

    /// Compares everything that the calls of a round have changed.
    fn compare(&mut self, call: ChangeCall, count: u64, watch: &mut Stopwatch) -> Result<()> {
        watch.check()?;
        match call {
            ChangeCall::Create => self.compare_names(b"new-", count, watch)?,
            ChangeCall::Rename => self.compare_names(b"moved-", count, watch)?,
            ChangeCall::Unlink => self.compare_names(b"", 0, watch)?,
            ChangeCall::PutNew | ChangeCall::Erase => {
                self.compare_new_keys(call == ChangeCall::PutNew, count, watch)?;
            }
            ChangeCall::Append => self.compare_log(count, watch)?,
            ChangeCall::Overwrite => {
                let (first, among) = (self.next[0], self.amounts.blocks);
                self.next[0] += count;
                for at in 0..count {
                    let block = place(first + at, among);
                    self.blocks[block as usize] = self.written(at);
                    watch.touch(block);
                }
                for at in 0..count.min(among) {
                    self.compare_block(place(first + at, among), watch)?;
                }
                return Ok(());
            }
            ChangeCall::Put | ChangeCall::PutSmall => {
                let (first, among) = (self.next[1], self.amounts.keys);
                let bytes = if call == ChangeCall::Put { BLOCK_BYTES } else { SMALL_BYTES };
                self.next[1] += count;
                for at in 0..count {
                    let key = place(first + at, among);
                    self.values[key as usize] = (self.written(at), bytes);
                    watch.touch(key);
                }
                for at in 0..count.min(among) {
                    self.compare_value(place(first + at, among), watch)?;
                }
                return Ok(());
            }
        }
        (0..count).for_each(|number| watch.touch(number));
        Ok(())
    }

    /// Requires that the directory has `count` names, all of which begin with `base`.
    fn compare_names(&self, base: &[u8], count: u64, watch: &mut Stopwatch) -> Result<()> {
        let (mut names, mut right) = (0, 0);
        for entry in self.fs.read_dir(format!("{}/names", self.directory))? {
            names += 1;
            right += u64::from(entry?.name_bytes().starts_with(base));
        }
        watch.require((names, right) == (count, count), || {
            format!("{names} names instead of {count}, and {right} of them begin as they should")
        })
    }

    fn compare_new_keys(&mut self, exist: bool, count: u64, watch: &mut Stopwatch) -> Result<()> {
        let (mut keys, mut found) = (new_key(), Vec::new());
        for key in 0..count {
            let exists = self.store.get(keys.key(key), &mut found)?;
            let right =
                !exists || found.len() == SMALL_BYTES && self.written(key).pattern().matches(&found, 0);
            watch.require(exists == exist && right, || format!("new key {key} is wrong"))?;
        }
        Ok(())
    }

    fn compare_log(&mut self, count: u64, watch: &mut Stopwatch) -> Result<()> {
        let mut found = [0; BLOCK_BYTES];
        for block in 0..count {
            self.log.read_exact_at(&mut found, block * BLOCK_BYTES as u64)?;
            let right = self.written(block).pattern().matches(&found, 0);
            watch.require(right, || format!("block {block} of the log is wrong"))?;
        }
        let size = self.log.metadata()?.size;
        watch.require(size == count * BLOCK_BYTES as u64, || format!("the log has {size} bytes"))
    }

    fn compare_block(&self, block: u64, watch: &mut Stopwatch) -> Result<()> {
        let mut found = [0; BLOCK_BYTES];
        self.file.read_exact_at(&mut found, block * BLOCK_BYTES as u64)?;
        let right = self.blocks[block as usize].pattern().matches(&found, 0);
        watch.require(right, || format!("block {block} is wrong"))
    }

    fn compare_value(&mut self, key: u64, watch: &mut Stopwatch) -> Result<()> {
        let (written, bytes) = self.values[key as usize];
        let mut found = Vec::with_capacity(2 * BLOCK_BYTES);
        let exists = self.store.get(old_key().key(key), &mut found)?;
        let right = exists && found.len() == bytes && written.pattern().matches(&found, 0);
        watch.require(right, || format!("key {key} has a wrong value"))
    }

    /// Compares all blocks and values, and requires that no new name is left.
    pub(super) fn prove_changes(&mut self, watch: &mut Stopwatch) -> Result<()> {
        (0..self.amounts.blocks).try_for_each(|block| self.compare_block(block, watch))?;
        (0..self.amounts.keys).try_for_each(|key| self.compare_value(key, watch))?;
        self.compare_names(b"", 0, watch)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SharedAmounts;
    use super::*;

    #[test]
    fn steps_visit_everything_before_anything_twice() {
        for amounts in [SharedAmounts::standard(), SharedAmounts::quick()] {
            for among in [amounts.blocks, amounts.keys] {
                let mut seen: Vec<u64> = (among..2 * among).map(|call| place(call, among)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..among).collect::<Vec<_>>());
            }
        }
    }
}
