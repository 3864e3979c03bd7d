//! Writing, appending, cutting and extending files.

use eyrie_medium::PAGE_SIZE;

use super::Scm;
use crate::object::header::{Cold, Header, Hot, HotChange};
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
                let change = HotChange::data(root, size, time);
                self.change_size(&mut transaction, header, &hot, change, offset)?;
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
        let change = HotChange::data(root, size, time);
        let unwritten = size.next_multiple_of(PAGE_SIZE);
        self.change_size(&mut transaction, header, &hot, change, unwritten)?;
        transaction.commit()?;
        Ok(Applied::default())
    }

    /// Makes the commit bring `change` to life. What is between the old end and `unwritten` is not written: if that has
    /// whole pages, the file is said to be sparse from now on.
    fn change_size(
        &self,
        transaction: &mut Transaction<'_>,
        header: Header,
        now: &Hot,
        change: HotChange,
        unwritten: u64,
    ) -> Result<()> {
        if unwritten / PAGE_SIZE > now.size.div_ceil(PAGE_SIZE) {
            let (_, mut cold) = header.hot_and_cold(self.medium())?;
            if cold.flags & Cold::SPARSE == 0 {
                cold.flags |= Cold::SPARSE;
                return header.change_cold(transaction, now, &cold, change);
            }
        }
        header.change(transaction, now, &change);
        Ok(())
    }
}
