//! Applies batches to the model.

use std::collections::BTreeSet;

use super::apply::check_file;
use super::state::ModelState;
use crate::{Error, ObjectId, Op, Result, Time};

impl ModelState {
    /// Applies a batch. This is the only Op that may fail after its first change. Therefore the changes are
    /// made on a copy, which replaces the state if all parts succeed.
    pub(super) fn batch(&mut self, batch_dir: ObjectId, ops: &[Op<'_>], time: Time) -> Result<()> {
        self.directory(batch_dir)?;
        let mut keys = BTreeSet::new();
        for op in ops {
            let (Op::Put { dir, name, .. } | Op::Erase { dir, name, .. } | Op::Expect { dir, name, .. }) = op
            else {
                return Err(Error::Invalid("a batch can have only puts, erases and conditions"));
            };
            if *dir != batch_dir {
                return Err(Error::Invalid("all parts of a batch must be in its directory"));
            }
            if !keys.insert((*name, matches!(op, Op::Expect { .. }))) {
                return Err(Error::Invalid("a batch has two changes or two conditions of one key"));
            }
        }
        let mut objects = BTreeSet::new();
        for op in ops {
            let (Op::Put { dir, name, .. } | Op::Erase { dir, name, .. } | Op::Expect { dir, name, .. }) = op
            else {
                continue;
            };
            self.entry(*dir, name)?;
        }
        for op in ops {
            let (Op::Put { dir, name, .. } | Op::Erase { dir, name, .. }) = op else { continue };
            if self.entry(*dir, name)?.is_some_and(|id| !objects.insert(id)) {
                return Err(Error::Invalid("two keys of the batch name one object"));
            }
        }
        if !ops.is_empty() && self.is_removed(batch_dir)? {
            return Err(Error::NotFound);
        }
        for op in ops {
            let Op::Expect { dir, name, condition } = *op else { continue };
            let existing = self.entry(dir, name)?;
            existing.map_or(Ok(()), check_file)?;
            if !condition.holds(existing.map(|id| self.version(id)).transpose()?) {
                return Err(Error::ConditionFailed);
            }
        }
        let mut next = self.clone();
        for op in ops {
            match *op {
                Op::Expect { .. } => {}
                Op::Put { dir, name, id, owner, data, .. } => {
                    next.put(dir, name, id, owner, data, time)?;
                }
                Op::Erase { dir, name, .. } => match next.erase(dir, name, time) {
                    Ok(()) | Err(Error::NotFound) => {}
                    Err(error) => return Err(error),
                },
                _ => unreachable!("checked above"),
            }
        }
        *self = next;
        Ok(())
    }
}
