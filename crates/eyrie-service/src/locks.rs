//! Answers requests about advisory locks. The owners that a client names belong to its session, so no client
//! can touch the locks of another client.

use eyrie_client::protocol::ServiceCall;
use eyrie_client::sent::SentLock;
use eyrie_engine::access::Requester;
use eyrie_engine::advisory::{LockOwner, LockRequest, LockTarget};
use eyrie_engine::scm::Scm;
use eyrie_engine::{Error, ObjectId, Result};
use zerocopy::{FromBytes, IntoBytes};

/// Maximum number of owners whose locks one request ends. A close ends the locks of a process and of an open
/// file.
const MOST_ENDED: usize = 2;

/// A client that may lock.
pub struct LockClient<'a> {
    pub requester: Requester<'a, Scm>,
    pub session: u64,
}

impl LockClient<'_> {
    /// Answers a request about an object. Returns the number and the data of the answer.
    pub fn answer(&self, call: ServiceCall, id: ObjectId, data: &[u8]) -> Result<(u64, Vec<u8>)> {
        let engine = self.requester.engine;
        let table = engine.lock_table();
        match call {
            ServiceCall::EndLocks => {
                if data.len() > MOST_ENDED * size_of::<SentLock>() {
                    return Err(impossible());
                }
                let parts = data.chunks(size_of::<SentLock>());
                let owners = parts.map(|part| Ok(self.one(part)?.1.owner));
                table.end(id, &owners.collect::<Result<Vec<LockOwner>>>()?);
                Ok((0, Vec::new()))
            }
            ServiceCall::FindLock => {
                let (_, request) = self.one(data)?;
                self.requester.check_lock(id)?;
                let found = table.find(engine.locked_object(id)?, &request);
                let sent = found.map_or_else(Vec::new, |held| {
                    let target = LockTarget::Bytes(held.range);
                    let shown = LockRequest { owner: held.owner, target, kind: Some(held.kind) };
                    SentLock::of(&shown, 0).as_bytes().to_vec()
                });
                Ok((0, sent))
            }
            _ => {
                let (sent, request) = self.one(data)?;
                // A user who has lost the right to lock may still unlock.
                if request.kind.is_some() {
                    self.requester.check_lock(id)?;
                }
                let waiter = Some(sent.waiter).filter(|&number| number != 0);
                let holds = table.try_lock_of_client(engine.locked_object(id)?, &request, waiter)?;
                Ok((holds.into(), Vec::new()))
            }
        }
    }

    /// Returns the lock of a message.
    fn one(&self, data: &[u8]) -> Result<(SentLock, LockRequest)> {
        let sent = SentLock::read_from_bytes(data).map_err(|_| impossible())?;
        let request = sent.request(self.session).ok_or_else(impossible)?;
        Ok((sent, request))
    }
}

fn impossible() -> Error {
    Error::Invalid("a request for an impossible lock")
}
