//! Writing, appending, cutting and extending files.

use super::Scm;
use crate::object::header::HotChange;
use crate::object::mfile::{self, Change, MAX_SIZE};
use crate::transaction::Transaction;
use crate::{Applied, Error, Kind, ObjectId, Result, Time};

/// Refuses objects that are no files.
pub(super) fn require_file(id: ObjectId) -> Result<()> {
    match id.kind() {
        Kind::File => Ok(()),
        Kind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid("only files can be written")),
    }
}

impl Scm {
    /// Writes at `offset`, or at the end for `None`.
    pub(super) fn write_data(
        &self,
        id: ObjectId,
        offset: Option<u64>,
        data: &[u8],
        time: Time,
    ) -> Result<Applied> {
        require_file(id)?;
        let header = self.header(id)?;
        let _held = self.locks.hold(&[id]);
        let hot = header.hot(self.medium())?;
        let began = if offset.is_none() { hot.size } else { 0 };
        let offset = offset.unwrap_or(hot.size);
        if data.is_empty() {
            return Ok(Applied { offset: began, created: false });
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_SIZE) {
            return Err(Error::TooLarge);
        }
        let mut transaction = Transaction::begin(&self.volume);
        match mfile::write(&mut transaction, hot.selector, hot.root, hot.size, offset, data)? {
            Change::Root(root, size) => {
                header.change(&mut transaction, &hot, &HotChange::data(root, size, time))
            }
            Change::Below => header.touch_first(&mut transaction, &hot, time),
        }
        transaction.commit()?;
        Ok(Applied { offset: began, created: false })
    }

    pub(super) fn set_size(&self, id: ObjectId, size: u64, time: Time) -> Result<Applied> {
        require_file(id)?;
        let header = self.header(id)?;
        let _held = self.locks.hold(&[id]);
        let hot = header.hot(self.medium())?;
        if size > MAX_SIZE {
            return Err(Error::TooLarge);
        }
        let mut transaction = Transaction::begin(&self.volume);
        let root = mfile::set_size(&mut transaction, hot.root, hot.size, size)?;
        header.change(&mut transaction, &hot, &HotChange::data(root, size, time));
        transaction.commit()?;
        Ok(Applied::default())
    }
}
