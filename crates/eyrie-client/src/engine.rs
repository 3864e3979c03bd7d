//! The calls of a client as an engine.

use std::sync::atomic::Ordering;
use std::time::Duration;

use eyrie_engine::advisory::{HeldLock, LockOwner, LockRange, LockRequest, LockTarget, LockWaiter};
use eyrie_engine::delegate_reads;
use eyrie_engine::notices::quiet_watcher;
use eyrie_engine::op::encode::encode;
use eyrie_engine::quota::{QuotaId, QuotaReport};
use eyrie_engine::{
    Applied, Attributes, Engine, Error, FileView, InodeFlags, Kind, ListedEntry, Notice, ObjectId, Op, Owner,
    Result, SpaceUsage, StoredProtection, Version, Watcher,
};
use eyrie_medium::Fault;
use eyrie_medium::epoch::{Guard, pin_number};
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::lock;
use zerocopy::{FromBytes, IntoBytes};

use crate::channel::ServiceRequest;
use crate::client::{Client, words_of};
use crate::protocol::{LARGE_LANE_BYTES, ServiceCall};
use crate::sent::{SentAttributes, SentLock, SentQuota, account_number};
use crate::session::OwnedLocks;
use crate::shadow::MadeObject;

/// Number of ids that a client reserves at once, without and with grants. With grants, a create makes no
/// request except the one for ids, so a large number of ids makes requests rare.
const POOLS: (u64, u64) = (32, if cfg!(feature = "shuttle") { 32 } else { 512 });
/// A pool with this number of ids or more takes no id back. Further ids go back to the service.
const MOST_POOLED: usize = 2 * POOLS.1 as usize;
/// Largest number of bytes of a write. The data of a request have room for them and for the rest of the Op.
const WRITE_MAX: usize = 64 << 20;
const _: () = assert!(WRITE_MAX < LARGE_LANE_BYTES);

impl Client {
    /// Makes all changes of this client durable, for a close. No other thread makes calls meanwhile. If all
    /// changes are durable already, makes no request.
    ///
    /// # Errors
    /// As [`Engine::sync`].
    pub fn save(&self) -> Result<()> {
        if self.board().is_saved() {
            // The service has saved the volume before its end, so all changes are durable. This client has
            // not joined the next service, so it has not noted that yet.
            self.unsynced.save();
        }
        if !self.unsynced.has_some() {
            return self.check_log();
        }
        self.sync()
    }
}

impl Engine for Client {
    delegate_reads!(reading_object, reading_bytes);

    #[inline]
    fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        if self.board().granted_to() != 0
            && let Some(known) = self.logged_name(dir, name)?
        {
            return Ok(known);
        }
        self.reading(|view| view.read_lookup(dir, name))
    }

    fn generation(&self, id: ObjectId) -> Result<u64> {
        match self.logged_object(id) {
            Some(made) => Ok(made.generation),
            None => self.reading(|view| view.read_birth(id)).map(|birth| birth.generation),
        }
    }

    fn owner(&self, id: ObjectId) -> Result<Owner> {
        match self.logged_object(id) {
            Some(made) => Ok(made.owner),
            None => self.reading(|view| view.read_owner(id)),
        }
    }

    fn guards(&self, id: ObjectId) -> Result<StoredProtection> {
        match self.logged_object(id) {
            Some(MadeObject { owner, .. }) => Ok(StoredProtection {
                owner,
                access_acl: None,
                has_default_acl: false,
                flags: InodeFlags::empty(),
            }),
            None => self.reading(|view| view.read_guards(id)),
        }
    }

    fn root(&self) -> ObjectId {
        self.root
    }

    #[inline]
    fn instance(&self) -> u32 {
        self.instance
    }

    #[inline]
    fn is_read_only(&self) -> bool {
        self.read_only
    }

    #[inline]
    fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        if !id.is_directory() {
            return self.reading_bytes(id, |view| view.read_object(id));
        }
        if let Some(attributes) = self.reading_bytes(id, |view| view.read_small_directory(id))? {
            return Ok(attributes);
        }
        // The service keeps the counts and times of a larger directory. This client would have to read all
        // pages of the directory to find them.
        let reply = self.call(ServiceCall::Attributes, id.raw(), 0, &[])?;
        let (sent, _) = SentAttributes::read_from_prefix(&reply.data)
            .map_err(|_| Error::Invalid("the service sent no attributes"))?;
        Ok(sent.attributes())
    }

    #[inline]
    fn view<'a>(&'a self, id: ObjectId, range: (u64, u64), guard: &'a Guard) -> Result<Option<FileView<'a>>> {
        self.reading_bytes(id, |view| view.read_view(id, range, false, guard))
    }

    fn seal(&self, id: ObjectId) -> Result<()> {
        if self.read_only {
            // The volume must not change. Without a seal, the caller copies the bytes.
            return Ok(());
        }
        self.call(ServiceCall::Seal, id.raw(), 0, &[]).map(drop)
    }

    fn version(&self, id: ObjectId) -> Result<Version> {
        let reply = self.call(ServiceCall::Version, id.raw(), 0, &[])?;
        let words: [u64; 3] = words_of(&reply.data)?;
        Ok(Version::from_raw(words))
    }

    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        // Names that were visited cannot be taken back, so they are visited after the read.
        let names = self.reading_object(id, |view| {
            let mut names: Vec<Vec<u8>> = Vec::new();
            view.read_xattr_names(id, &mut |name| names.push(name.to_vec()))?;
            Ok(names)
        })?;
        names.iter().for_each(|name| visit(name));
        Ok(())
    }

    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(ListedEntry<'_>) -> bool) -> Result<()> {
        let (key, mut is_lost, mut is_done) = (self.key(), false, false);
        if self.board().granted_to() != 0 {
            self.wait_until_applied(dir)?;
        }
        let result = self.view.read_list(dir, cookie, &mut |entry| {
            // An entry that was visited cannot be taken back, so the session is checked before each visit.
            is_lost = !self.is_current(key);
            is_done = !is_lost && !visit(entry);
            !is_lost && !is_done
        });
        // If the visitor ended the listing, each entry that it got was right, so a later end of the session
        // does not matter.
        if is_done { Ok(()) } else { self.checked_result(key, result) }
    }

    #[inline]
    fn prefetch_bytes(&self, id: ObjectId) {
        self.view.prefetch_data(id);
    }

    fn open(&self, id: ObjectId) -> Result<()> {
        let key = self.key();
        if let Err(Fault::Forked) = self.medium().check() {
            self.rejoin(key)?;
        }
        // The claim comes before the look at the object, as in the owner's process (`scm::opens`).
        let claim = || _ = self.claims.count_to_change(id).fetch_add(1, Ordering::SeqCst);
        if broken(SafetyRule::ClaimBeforeTheLook) {
            return self.check_alive(id).inspect(|()| claim());
        }
        claim();
        self.check_alive(id).inspect_err(|_| self.close(id))
    }

    fn close(&self, id: ObjectId) {
        // A forked child that has not joined yet shares the memory of its parent's claims, and must not
        // change them. If the child joins later, its own claims may still count this open, which delays the
        // freeing of an orphan.
        if self.medium().check().is_err() {
            return;
        }
        // The count may be 0 already: the claims of a forked child miss an open that its parent ended before
        // the child joined.
        let count = self.claims.count_to_change(id);
        let before = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if before == Ok(1) && self.board().has_orphans(id) {
            // The claims belong to all sessions of this process, even if the caller's pin belongs to an
            // earlier one. If the service has ended, the next one sees the claims as they are now.
            let request = ServiceRequest { call: ServiceCall::Closed, id: id.raw(), number: 0, data: &[] };
            let _ = self.session.load().channel.call(&request);
        }
    }

    #[inline]
    fn may_have_flags(&self) -> bool {
        self.board().has_flags()
    }

    #[inline]
    fn write_max(&self) -> usize {
        WRITE_MAX
    }

    fn may_share_extents(&self) -> bool {
        self.view.has_shared_extents()
    }

    #[inline]
    fn may_have_locks(&self) -> bool {
        self.has_locked.load(Ordering::Relaxed)
    }

    fn try_lock(&self, id: ObjectId, request: &LockRequest, waiter: Option<&LockWaiter>) -> Result<()> {
        let (key, generation) = (self.key(), self.generation(id)?);
        let (owner, is_whole) = (request.owner, request.target == LockTarget::Object);
        let locked = OwnedLocks { id, generation, owner, is_whole };
        if self.may_have_locks() && self.medium().check().is_ok() {
            let session = self.session.load();
            if lock(&session.locks).lost.remove(&locked) {
                return Err(Error::LocksLost);
            }
        }
        let sent = SentLock::of(request, waiter.map_or(0, LockWaiter::number));
        let reply = self.call(ServiceCall::TryLock, id.raw(), 0, sent.as_bytes())?;
        let is_held = reply.answer.number != 0;
        self.has_locked.store(true, Ordering::Relaxed);
        // Another thread may have joined the next session since the answer. The lock is then lost. It is
        // noted in one session only, because a lost lock is reported once.
        loop {
            let session = self.session.load();
            let mut locks = lock(&session.locks);
            if locks.are_collected {
                continue;
            }
            if session.key == key {
                locks.held.insert(locked, is_held);
            } else if is_held {
                locks.lost.insert(locked);
            }
            return Ok(());
        }
    }

    fn end_wait(&self, waiter: &LockWaiter) {
        // An error is ignored: a session that has ended has no waiters, and a service soon forgets a waiter
        // that does not repeat its request.
        let _ = self.call(ServiceCall::EndWait, 0, waiter.number(), &[]);
    }

    fn wakes_waiters(&self) -> bool {
        false
    }

    fn find_lock(&self, id: ObjectId, request: &LockRequest) -> Result<Option<HeldLock>> {
        let sent = SentLock::of(request, 0);
        let data = self.call(ServiceCall::FindLock, id.raw(), 0, sent.as_bytes())?.data;
        if data.is_empty() {
            return Ok(None);
        }
        let found = SentLock::read_from_bytes(&data).ok().and_then(|found| found.request(0));
        match found {
            Some(LockRequest { owner, target: LockTarget::Bytes(range), kind: Some(kind) }) => {
                Ok(Some(HeldLock { owner, range, kind }))
            }
            _ => Err(Error::Invalid("the service sent an impossible lock")),
        }
    }

    #[cold]
    fn end_locks(&self, id: ObjectId, generation: u64, owners: &[LockOwner]) {
        // A forked child that has not joined yet has no locks, and its parent may have held the mutex at the
        // fork.
        if self.medium().check().is_err() {
            return;
        }
        let mut data = Vec::new();
        let session = self.session.load();
        let mut locks = lock(&session.locks);
        for &owner in owners {
            let both = [true, false].map(|is_whole| OwnedLocks { id, generation, owner, is_whole });
            both.iter().for_each(|locked| _ = locks.lost.remove(locked));
            if both.map(|locked| locks.held.remove(&locked)) == [None, None] {
                continue;
            }
            let unlock = LockRequest { owner, target: LockTarget::Bytes(LockRange::ALL), kind: None };
            data.extend_from_slice(SentLock::of(&unlock, 0).as_bytes());
        }
        drop(locks);
        if !data.is_empty() {
            // The locks belong to this session, even if the caller's pin belongs to an earlier one. A session
            // that has ended has no locks.
            let request =
                ServiceRequest { call: ServiceCall::EndLocks, id: id.raw(), number: 0, data: &data };
            let _ = session.channel.call(&request);
        }
    }

    #[inline]
    fn session(&self) -> u64 {
        self.key().raw()
    }

    fn reserve(&self, kind: Kind) -> Result<ObjectId> {
        if self.read_only {
            // The Op would fail, and reserved ids take storage of the volume.
            return Err(Error::OpenedReadOnly);
        }
        let key = self.key();
        if let Err(Fault::Forked) = self.medium().check() {
            self.rejoin(key)?;
            return Err(Error::Stale);
        }
        // Each pool has the reserved ids of one session. Another thread may have joined the next session.
        let session = self.session.load();
        if session.key != key {
            return Err(Error::Stale);
        }
        // The lock is held during the request, so that a thread that waits for the lock finds the new ids.
        let mut pool = lock(&session.pools[kind as usize]);
        if let Some(id) = pool.pop() {
            return Ok(id);
        }
        let is_granted = session.log.as_ref().is_some_and(|log| log.word().is_some());
        let count = if is_granted { POOLS.1 } else { POOLS.0 };
        let data = self.call(ServiceCall::Reserve, kind as u64, count, &[])?.data;
        if self.key() != key {
            return Err(Error::Stale);
        }
        let ids = data.as_chunks::<8>().0.iter().map(|raw| u64::from_le_bytes(*raw));
        pool.extend(ids.filter_map(ObjectId::from_raw).filter(|id| id.kind() == kind));
        // A pool gives out its last id first. So the order is reversed, and the first id of the answer is the
        // next one.
        pool.reverse();
        pool.pop().ok_or(Error::Invalid("the service reserved no id"))
    }

    fn unreserve(&self, id: ObjectId) {
        let session = self.session.load();
        if session.key != self.key() {
            // The reservation has ended with its session. In the present session, the id may be another
            // thread's.
            return;
        }
        let mut pool = lock(&session.pools[id.kind() as usize]);
        // Without a pin, the id may belong to an earlier session. The service knows its own ids.
        if pool.len() < MOST_POOLED && pin_number() != 0 {
            pool.push(id);
            return;
        }
        drop(pool);
        let _ = self.call(ServiceCall::Unreserve, id.raw(), 0, &[]);
    }

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        if self.read_only {
            return Err(Error::OpenedReadOnly);
        }
        if let Some(logged) = self.log_change(op) {
            return logged;
        }
        let mut bytes = Vec::with_capacity(256);
        encode(op, &mut bytes);
        let reply = self.call(ServiceCall::Apply, 0, quiet_watcher(), &bytes)?;
        let number = reply.answer.number;
        Ok(Applied { offset: number, created: reply.answer.second_number != 0, generation: number })
    }

    fn quotas(&self) -> Result<Option<Vec<QuotaReport>>> {
        let mut reports = Vec::new();
        loop {
            let reply = self.call(ServiceCall::Quotas, 0, reports.len() as u64, &[])?;
            if reply.answer.number == 0 {
                return Ok(None);
            }
            let before = reports.len();
            reports.extend(SentQuota::reports(&reply.data)?);
            if reports.len() == before || reports.len() as u64 >= reply.answer.second_number {
                return Ok(Some(reports));
            }
        }
    }

    fn quota(&self, id: QuotaId) -> Result<Option<QuotaReport>> {
        let reply = self.call(ServiceCall::Quotas, account_number(id), 0, &[])?;
        Ok(SentQuota::reports(&reply.data)?.into_iter().find(|report| report.id == id))
    }

    fn reclaim(&self) -> bool {
        self.call(ServiceCall::Reclaim, 0, 0, &[]).is_ok_and(|reply| reply.answer.number != 0)
    }

    #[inline]
    fn directory_changes(&self) -> u64 {
        // The ids that a caller finds by this count are those of the present session. So this session becomes
        // that of the caller's pin now, and not at a later call, when another thread may have joined the next
        // session.
        let _ = self.key();
        let before = self.exchanges.load(Ordering::Acquire);
        let changes = self.board().directory_changes();
        // The board of a dead service does not change any more, although the volume may. The first call with
        // a cached id then notices the end of the session, and fails with `Stale`.
        if before.is_multiple_of(2) && self.exchanges.load(Ordering::Acquire) == before {
            // Boards of different services may have the same count, so the upper bits count the exchanges of
            // the board. The counts of a board stay below 2^40.
            return changes ^ before << 40;
        }
        1 << 63 | 1 << 62 | self.unique.fetch_add(1, Ordering::Relaxed)
    }

    fn watch(&self, capacity: usize) -> Option<Watcher> {
        Some(self.new_watcher(capacity))
    }

    fn next_notice(&self, watcher: &Watcher, timeout: Duration) -> Option<Notice> {
        self.next_notice_of(watcher, timeout)
    }

    fn stop_watch(&self, watcher: &Watcher) {
        self.end_watch(watcher);
    }

    fn wait_for(&self, id: ObjectId) -> Result<()> {
        // If the medium has failed, or this process is a forked child, the request finds that out.
        if self.seen_ops_are_durable() {
            return Ok(());
        }
        self.call(ServiceCall::WaitFor, id.raw(), 0, &[]).map(drop)
    }

    fn sync(&self) -> Result<()> {
        self.check_log()?;
        // In memory, each change is durable before its call returns, also a logged one.
        if !self.is_on_disk() && self.medium().check().is_ok() {
            return Ok(());
        }
        let made = self.unsynced.made();
        self.call(ServiceCall::Sync, 0, 0, &[])?;
        if !self.is_on_disk() {
            return Ok(());
        }
        // Another thread may have joined the next service, and that service may have made this sync. That
        // thread notes lost changes while it holds this lock. So this thread waits for the lock before it
        // looks for lost changes.
        let _joining = self.joining.lock();
        self.unsynced.synced(made)
    }

    fn space(&self) -> SpaceUsage {
        let sent = self.call(ServiceCall::Space, 0, 0, &[]).and_then(|reply| words_of(&reply.data));
        sent.map_or(SpaceUsage::default(), |[total, free, objects]| SpaceUsage { total, free, objects })
    }
}
