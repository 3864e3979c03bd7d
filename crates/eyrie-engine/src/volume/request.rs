//! The record of the request that a service is applying, and the results of requests during which a service
//! ended. `scm::handover` gives them their meaning.
//!
//! A record survives the death of the process that made it. It need not survive a power failure.

use std::mem::offset_of;

use eyrie_medium::Ordered;
use zerocopy::IntoBytes;

use super::Volume;
use crate::Result;
use crate::tables::layout::{OUTCOMES, OutcomeRecord, REQUEST, RequestRecord, outcome_of};

impl Volume {
    /// Records a request, whose key is not 0.
    pub(crate) fn record_request(&self, record: &RequestRecord) -> Result<()> {
        let _gate = self.medium().enter()?;
        let used = offset_of!(RequestRecord, name) + record.name_bytes.get() as usize;
        // The record counts only with its key. Therefore the key, its first field, is stored last.
        drop(self.medium().write(REQUEST.add(8), &record.as_bytes()[8..used])?);
        let _recorded = self.medium().publish_apart(REQUEST, record.key.get(), Ordered::nothing())?;
        Ok(())
    }

    /// Forgets the recorded request.
    pub(crate) fn forget_request(&self) -> Result<()> {
        let _gate = self.medium().enter()?;
        let _forgotten = self.medium().publish_apart(REQUEST, 0, Ordered::nothing())?;
        Ok(())
    }

    /// Returns the recorded request.
    pub(crate) fn recorded_request(&self) -> Result<Option<RequestRecord>> {
        let medium = self.medium();
        if medium.load(REQUEST)? == 0 {
            return Ok(None);
        }
        Ok(Some(medium.read_value(REQUEST)?))
    }

    /// Keeps the result of the recorded request, and forgets the request.
    pub(crate) fn keep_outcome(&self, outcome: &OutcomeRecord) -> Result<()> {
        let medium = self.medium();
        let _gate = medium.enter()?;
        let place = outcome_of(self.owner_number()?);
        // The result is whole before the record is forgotten. If this process is killed between the two, the
        // next owner finds the same result.
        let ordered = medium.barrier(medium.write_value(place, outcome)?);
        let published = medium.publish_apart(REQUEST, 0, ordered)?;
        medium.settle(published);
        Ok(())
    }

    /// Returns the kept result of the request `number` of the session with this key, if there is one.
    pub(crate) fn kept_outcome(&self, key: u64, number: u64) -> Result<Option<OutcomeRecord>> {
        for owner in 0..OUTCOMES as u64 {
            let outcome: OutcomeRecord = self.medium().read_value(outcome_of(owner))?;
            if outcome.key.get() == key && outcome.number.get() == number {
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }
}
