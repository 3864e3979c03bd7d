//! The journal of a paged volume: records of whole cuts behind the volume's own bytes.
//!
//! A record lists the *fresh* pages of its cut, which were written to their places before it, each with its checksum,
//! and the changed lines of all others. It counts when its checksum is right; the last record only if the fresh pages
//! are what it says, since no flush came between. Records follow one another with sequence numbers without gap; when
//! everything in them has reached its place, the next is written over the first again.
//!
//! Safe when power fails: a record is whole or does not count, and is durable before a page is changed because of it.
//! Replaying changes nothing that a second replay would do otherwise: a line is taken from the last record that has it, and
//! a page that a later record calls fresh from its place alone.

use std::collections::BTreeMap;
use std::io;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

mod lines;

use super::blocks::{Blocks, SECTOR};
use crate::addr::PAGE_SIZE;
use crate::fault::Fault;
use crate::plan::host_call;
use crate::rules::{SafetyRule, broken};
use lines::{pack, take, unpack};

const PAGE: usize = PAGE_SIZE as usize;
const LINE: usize = 64;
const WORD: usize = 8;
/// Bytes that a changed line takes in a record, at most.
pub(super) const PACKED_LINE: usize = LINE + 1;

/// First bytes of the last page of a paged volume's file.
pub const ANCHOR_MAGIC: [u8; 8] = *b"EyrJrnl\0";
/// First bytes of a record.
pub const RECORD_MAGIC: [u8; 8] = *b"EyrCut\0\0";
const VERSION: u32 = 1;
/// Bytes of a journal that are read or written at a time.
const CHUNK: u64 = 1 << 20;
/// Size of a journal, at most.
pub const MOST_JOURNAL_BYTES: u64 = 64 << 20;

/// The last page of a paged volume's file: where the journal is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Anchor {
    /// `EyrJrnl` and a zero byte.
    pub magic: [u8; 8],
    /// Random bytes that name the journal.
    pub id: [u8; 16],
    /// Size of the volume before the journal, in bytes.
    pub volume_bytes: u64,
    /// Size of the journal, in bytes, without this page.
    pub journal_bytes: u64,
    /// 1.
    pub version: u32,
    /// CRC-32C of the bytes before.
    pub checksum: u32,
    /// Zero.
    pub reserved: [u8; 16],
}

/// The start of a record; the fresh pages, the changed pages and zeros up to a whole sector follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordHead {
    /// `EyrCut` and two zero bytes.
    pub magic: [u8; 8],
    /// The journal's name.
    pub id: [u8; 16],
    /// Its number.
    pub sequence: u64,
    /// Its size with this head and the zeros, in bytes.
    pub bytes: u64,
    /// Number of fresh pages.
    pub fresh: u32,
    /// Number of changed pages.
    pub changed: u32,
    /// CRC-32C of the record, this field taken as zero.
    pub checksum: u32,
    /// Zero.
    pub reserved: [u8; 12],
}

/// A page that was written to its place.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FreshPage {
    /// Its number.
    pub page: u64,
    /// CRC-32C of its bytes.
    pub checksum: u32,
    /// Zero.
    pub reserved: u32,
}

/// The start of a changed page; its changed lines follow, in order, each as a byte that has a bit for every word of eight
/// bytes that is not zeros, and these words.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ChangedPage {
    /// Its number.
    pub page: u64,
    /// A bit for each changed line.
    pub lines: u64,
}

const _: () = {
    assert!(size_of::<Anchor>() == 64 && size_of::<RecordHead>() == 64);
    assert!(size_of::<FreshPage>() == 16 && size_of::<ChangedPage>() == 16);
};

/// A page of memory, aligned as direct transfers need it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub struct PageBytes(pub [u8; PAGE]);

/// Zeroed pages for at least `bytes`.
pub fn page_buffer(bytes: usize) -> Vec<PageBytes> {
    vec![PageBytes([0; PAGE]); bytes.div_ceil(PAGE)]
}

fn io_fault(what: &str) -> impl FnOnce(io::Error) -> Fault {
    move |source| Fault::Io { what: what.to_string(), source }
}

#[track_caller]
fn random_id() -> io::Result<[u8; 16]> {
    let mut id = [0; 16];
    host_call(|| rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty()))?;
    Ok(id)
}

impl Anchor {
    /// An anchor for a new journal.
    ///
    /// # Errors
    /// When the host has no random bytes.
    pub fn create(volume_bytes: u64, journal_bytes: u64) -> io::Result<Anchor> {
        Ok(Anchor::new(random_id()?, volume_bytes, journal_bytes))
    }

    /// The anchor of a volume of `volume_bytes`.
    fn new(id: [u8; 16], volume_bytes: u64, journal_bytes: u64) -> Anchor {
        let mut anchor = Anchor {
            magic: ANCHOR_MAGIC,
            id,
            volume_bytes,
            journal_bytes,
            version: VERSION,
            ..Anchor::new_zeroed()
        };
        anchor.checksum = anchor.sum();
        anchor
    }

    fn sum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..std::mem::offset_of!(Anchor, checksum)])
    }

    /// The anchor in the last page of `blocks`, if there is a sound one that fits them.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn read(blocks: &dyn Blocks) -> Result<Option<Anchor>, Fault> {
        let size = blocks.here().size().map_err(io_fault("asking for the size of the volume's host"))?;
        let Some(last) = (size / PAGE_SIZE).checked_sub(1) else { return Ok(None) };
        let mut page = page_buffer(PAGE);
        blocks
            .here()
            .read(last * PAGE_SIZE, page.as_mut_bytes())
            .map_err(io_fault("reading the volume's host"))?;
        let Ok((anchor, _)) = Anchor::read_from_prefix(page.as_bytes()) else { return Ok(None) };
        let known = anchor.magic == ANCHOR_MAGIC && anchor.version == VERSION;
        let whole = known && blocks.here().verify(anchor.checksum == anchor.sum());
        let aligned = (anchor.volume_bytes | anchor.journal_bytes).is_multiple_of(PAGE_SIZE);
        let fits = anchor
            .volume_bytes
            .checked_add(anchor.journal_bytes)
            .is_some_and(|bytes| bytes == last * PAGE_SIZE && anchor.volume_bytes > 0);
        // A record is read as a whole, so its size must not be anything.
        let fits = fits && anchor.journal_bytes <= MOST_JOURNAL_BYTES;
        Ok(Some(anchor).filter(|_| whole && aligned && fits))
    }

    /// Gives the journal a new name, durably: everything in it has reached its place.
    ///
    /// The flush must come before the next record. If that tore while the old name came back, the records before the
    /// tear would be replayed without those after it, and bring back what those had changed.
    ///
    /// # Errors
    /// The host's.
    pub fn rename(&mut self, blocks: &dyn Blocks) -> io::Result<()> {
        *self = Anchor::new(random_id()?, self.volume_bytes, self.journal_bytes);
        self.write_page(blocks)?;
        if broken(SafetyRule::NewJournalNameIsFlushed) { Ok(()) } else { blocks.here().flush() }
    }

    #[track_caller]
    fn write_page(&self, blocks: &dyn Blocks) -> io::Result<()> {
        let mut page = page_buffer(PAGE);
        page.as_mut_bytes()[..size_of::<Anchor>()].copy_from_slice(self.as_bytes());
        blocks.here().write(self.volume_bytes + self.journal_bytes, page.as_bytes())
    }

    /// Writes the anchor behind the end of `blocks`, which makes them longer. The journal's blocks are there before, and
    /// zeros.
    ///
    /// # Errors
    /// The host's.
    pub fn extend(&self, blocks: &dyn Blocks) -> io::Result<()> {
        blocks.here().allocate(self.volume_bytes, self.journal_bytes + PAGE_SIZE)?;
        self.write_page(blocks)?;
        blocks.here().flush()
    }

    /// Writes the anchor, and zeros over the journal so that its blocks are there. Opening the volume makes it durable: there
    /// is none before.
    ///
    /// # Errors
    /// The host's.
    pub fn write(&self, blocks: &dyn Blocks) -> io::Result<()> {
        blocks.here().allocate(self.volume_bytes, self.journal_bytes + PAGE_SIZE)?;
        let zeros = page_buffer(CHUNK as usize);
        let mut at = 0;
        while at < self.journal_bytes {
            let len = CHUNK.min(self.journal_bytes - at);
            blocks.here().write(self.volume_bytes + at, &zeros.as_bytes()[..len as usize])?;
            at += len;
        }
        self.write_page(blocks)
    }
}

/// A record in the making.
#[derive(Default)]
pub struct Record {
    fresh: Vec<FreshPage>,
    changed: Vec<u8>,
    changed_pages: u32,
}

impl Record {
    /// Adds a page that is written to its place.
    pub fn fresh(&mut self, page: usize, bytes: &[u8; PAGE]) {
        self.fresh.push(FreshPage { page: page as u64, checksum: crc32c::crc32c(bytes), reserved: 0 });
    }

    /// Adds the lines of a page that changed.
    pub fn changed(&mut self, page: usize, lines: u64, bytes: &[u8; PAGE]) {
        self.changed.extend_from_slice(ChangedPage { page: page as u64, lines }.as_bytes());
        self.changed_pages += 1;
        let mut rest = lines;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize * LINE;
            pack(&bytes[at..at + LINE], &mut self.changed);
            rest &= rest - 1;
        }
    }

    /// Whether it lists fresh pages.
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.changed_pages == 0
    }

    /// Its size on a disk with sectors of `sector` bytes, in bytes.
    pub fn bytes(&self, sector: u64) -> u64 {
        let bytes = size_of::<RecordHead>() + self.fresh.len() * size_of::<FreshPage>() + self.changed.len();
        (bytes as u64).next_multiple_of(sector)
    }

    /// Its bytes, of which there are `bytes`, and zeros.
    pub fn seal(&self, id: [u8; 16], sequence: u64, bytes: u64) -> Vec<PageBytes> {
        let mut pages = page_buffer(bytes as usize);
        let mut head = RecordHead {
            magic: RECORD_MAGIC,
            id,
            sequence,
            bytes,
            fresh: self.fresh.len() as u32,
            changed: self.changed_pages,
            ..RecordHead::new_zeroed()
        };
        let bytes = &mut pages.as_mut_bytes()[..bytes as usize];
        let (head_bytes, rest) = bytes.split_at_mut(size_of::<RecordHead>());
        let (fresh, rest) = rest.split_at_mut(self.fresh.len() * size_of::<FreshPage>());
        fresh.copy_from_slice(self.fresh.as_bytes());
        rest[..self.changed.len()].copy_from_slice(&self.changed);
        head_bytes.copy_from_slice(head.as_bytes());
        head.checksum = sum(bytes);
        bytes[..size_of::<RecordHead>()].copy_from_slice(head.as_bytes());
        pages
    }
}

/// The checksum of a record whose own is zero.
fn sum(record: &[u8]) -> u32 {
    let covered = if broken(SafetyRule::RecordChecksumCoversAll) { SECTOR as usize } else { record.len() };
    crc32c::crc32c(&record[..covered])
}

/// A record that was read: sound in itself.
struct Found {
    fresh: Vec<FreshPage>,
    /// Page, which lines of it, and those, packed.
    changed: Vec<(u64, u64, Vec<u8>)>,
}

/// The record that `bytes` are, if their checksum and all numbers in them are right.
fn open_record(blocks: &dyn Blocks, bytes: &mut [u8], pages: u64) -> Option<Found> {
    let (mut head, _) = RecordHead::read_from_prefix(bytes).ok()?;
    let checksum = std::mem::take(&mut head.checksum);
    bytes[..size_of::<RecordHead>()].copy_from_slice(head.as_bytes());
    if !blocks.here().verify(sum(bytes) == checksum) {
        return None;
    }
    let mut rest = &bytes[size_of::<RecordHead>()..];
    let fresh = take(&mut rest, (head.fresh as usize).checked_mul(size_of::<FreshPage>())?)?;
    let fresh: Vec<FreshPage> = fresh
        .chunks_exact(size_of::<FreshPage>())
        .filter_map(|entry| FreshPage::read_from_bytes(entry).ok())
        .collect();
    let mut changed = Vec::new();
    for _ in 0..head.changed {
        let entry = ChangedPage::read_from_bytes(take(&mut rest, size_of::<ChangedPage>())?).ok()?;
        if entry.lines == 0 {
            return None;
        }
        let packed = rest;
        for _ in 0..entry.lines.count_ones() {
            unpack(&mut rest)?;
        }
        changed.push((entry.page, entry.lines, packed[..packed.len() - rest.len()].to_vec()));
    }
    let numbers = fresh.iter().map(|entry| entry.page).chain(changed.iter().map(|entry| entry.0));
    numbers.into_iter().all(|page| page < pages).then_some(Found { fresh, changed })
}

/// Brings everything that the journal has to its place, durably.
///
/// A process that is killed between a write and the flush after it leaves bytes that the next process reads from the host's
/// cache and that a power failure may still take away. So the flush comes first: pages are changed because of a record only
/// once that record, and the fresh pages that it lists, are durable.
///
/// # Errors
/// [`Fault::Io`]. A journal that is damaged is one that ends before the damage.
pub fn replay(blocks: &dyn Blocks, anchor: &Anchor) -> Result<(), Fault> {
    let replayed = || {
        let records = read_records(blocks, anchor)?;
        if records.is_empty() {
            return Ok(());
        }
        if !broken(SafetyRule::FoundRecordsAreFlushed) {
            blocks.here().flush()?;
        }
        apply_whole(blocks, records, &Record::default())
    };
    replayed().map_err(io_fault("replaying the journal"))
}

/// Brings everything that the journal has to its place, in the session that wrote all of it and flushed it. `next` is the record that
/// is about to be written: its fresh pages have their places already.
///
/// # Errors
/// The disk's.
pub fn checkpoint(blocks: &dyn Blocks, anchor: &Anchor, next: &Record) -> io::Result<()> {
    apply_whole(blocks, read_records(blocks, anchor)?, next)
}

/// Applies `records`, the last only if its fresh pages are whole, but for the pages that are fresh in `next`.
fn apply_whole(blocks: &dyn Blocks, mut records: Vec<Found>, next: &Record) -> io::Result<()> {
    if let Some(newest) = records.last()
        && !fresh_pages_are_whole(blocks, newest)?
    {
        records.pop();
    }
    let fresh = if broken(SafetyRule::NextFreshPagesAreLeft) { Vec::new() } else { next.fresh.clone() };
    records.push(Found { fresh, changed: Vec::new() });
    apply(blocks, &records)
}

/// The journal's bytes, read ahead.
struct Reading<'a> {
    blocks: &'a dyn Blocks,
    anchor: &'a Anchor,
    from: u64,
    pages: Vec<PageBytes>,
}

impl Reading<'_> {
    /// The `len` bytes from `at` on, which the journal has.
    fn get(&mut self, at: u64, len: u64) -> io::Result<&mut [u8]> {
        if at < self.from || at + len > self.from + self.pages.as_bytes().len() as u64 {
            self.from = at - at % PAGE_SIZE;
            let end = (at + len).next_multiple_of(PAGE_SIZE).max(self.from + CHUNK);
            self.pages = page_buffer((end.min(self.anchor.journal_bytes) - self.from) as usize);
            self.blocks.here().read(self.anchor.volume_bytes + self.from, self.pages.as_mut_bytes())?;
        }
        Ok(&mut self.pages.as_mut_bytes()[(at - self.from) as usize..][..len as usize])
    }
}

fn read_records(blocks: &dyn Blocks, anchor: &Anchor) -> io::Result<Vec<Found>> {
    let mut reading = Reading { blocks, anchor, from: 0, pages: Vec::new() };
    let mut records = Vec::new();
    let mut at = 0;
    while at + SECTOR <= anchor.journal_bytes {
        let Ok((head, _)) = RecordHead::read_from_prefix(reading.get(at, SECTOR)?) else { break };
        let fits = head.bytes >= SECTOR && head.bytes.is_multiple_of(SECTOR);
        let known = head.magic == RECORD_MAGIC
            && (head.id == anchor.id || broken(SafetyRule::RecordsHaveTheJournalsName));
        let follows = head.sequence == records.len() as u64 + 1;
        if !known || !fits || !follows || head.bytes > anchor.journal_bytes - at {
            break;
        }
        let bytes = reading.get(at, head.bytes)?;
        let Some(found) = open_record(blocks, bytes, anchor.volume_bytes / PAGE_SIZE) else { break };
        records.push(found);
        at += head.bytes;
    }
    if broken(SafetyRule::ReplayGoesToTheLastRecord) {
        records.pop();
    }
    Ok(records)
}

fn fresh_pages_are_whole(blocks: &dyn Blocks, record: &Found) -> io::Result<bool> {
    let mut page = page_buffer(PAGE);
    let unchecked = usize::from(broken(SafetyRule::FreshPagesAreChecked));
    for entry in record.fresh.iter().skip(unchecked) {
        blocks.here().read(entry.page * PAGE_SIZE, page.as_mut_bytes())?;
        if !blocks.here().verify(crc32c::crc32c(page.as_bytes()) == entry.checksum) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn apply(blocks: &dyn Blocks, records: &[Found]) -> io::Result<()> {
    let mut pages: BTreeMap<u64, Vec<(u64, &[u8])>> = BTreeMap::new();
    for record in records {
        for (page, lines, bytes) in &record.changed {
            let changes = pages.entry(*page).or_default();
            let at = if broken(SafetyRule::LaterRecordWins) { 0 } else { changes.len() };
            changes.insert(at, (*lines, bytes));
        }
        for entry in record.fresh.iter().filter(|_| !broken(SafetyRule::FreshPageEndsOlderLines)) {
            pages.remove(&entry.page);
        }
    }
    if pages.is_empty() {
        return Ok(());
    }
    let mut page = page_buffer(PAGE);
    for (number, changes) in pages {
        blocks.here().read(number * PAGE_SIZE, page.as_mut_bytes())?;
        let out = page.as_mut_bytes();
        for (mut lines, mut packed) in changes {
            while let Some(line) = unpack(&mut packed) {
                let at = lines.trailing_zeros() as usize * LINE;
                out[at..at + LINE].copy_from_slice(&line);
                lines &= lines - 1;
            }
        }
        blocks.here().write(number * PAGE_SIZE, page.as_bytes())?;
    }
    blocks.here().flush()
}

#[cfg(test)]
mod tests;
