//! Reading ahead of sequential readers, by threads of its own: the disk works while they do.
//!
//! Who misses the page after the last one that was read is a sequential reader. What comes next is read ahead in chunks
//! of growing size; the first page of a chunk is marked, and its first use asks for the next one.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};

use super::page::{AHEAD, BUSY, LEAVING, RESIDENT};
use super::{Pager, locked};
use crate::addr::PAGE_SIZE;
use crate::mapping::HUGE_PAGE;

/// Threads: disks are faster when they have several things to do.
pub(super) const THREADS: usize = 4;
/// Pages of a chunk, at most: twice what the threads read at a time, so that they have more to do when it begins to arrive.
const MOST: usize = 2 * THREADS * PIECE;
/// How much larger a chunk is than the one before.
const GROWTH: usize = 4;
/// Pages from which on a chunk is worth waking a thread; fewer are read with what is wanted.
const LEAST: usize = 64;
/// Pages that a thread reads with one call: a huge page, whose memory comes with one fault and not with 512.
const PIECE: usize = HUGE_PAGE / PAGE_SIZE as usize;
/// Sequential readers that are told apart.
const STREAMS: usize = 8;

/// A reader that may be sequential.
#[derive(Clone, Copy, Default)]
struct Stream {
    /// The page that it misses next if it is.
    next: usize,
    /// The first page of the chunk before that.
    marked: usize,
    /// Pages to read at a time; 0 where there is no reader.
    window: usize,
}

/// Pages to be read ahead, of which one may be the first of its chunk.
struct Piece {
    pages: Range<usize>,
    marked: usize,
}

/// What is to be read ahead.
#[derive(Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    stop: bool,
}

/// Readers, and what the threads are asked to do for them.
#[derive(Default)]
pub(super) struct Ahead {
    streams: Mutex<[Stream; STREAMS]>,
    queue: Mutex<Queue>,
    asked: Condvar,
}

impl Ahead {
    /// Asks for a chunk, if there are not many already.
    fn ask(&self, chunk: Range<usize>) {
        let mut queue = locked(&self.queue);
        if queue.pieces.len() > STREAMS * MOST / PIECE {
            return;
        }
        let mut first = chunk.start;
        while first < chunk.end {
            let end = (first + 1).next_multiple_of(PIECE).min(chunk.end);
            queue.pieces.push_back(Piece { pages: first..end, marked: chunk.start });
            self.asked.notify_one();
            first = end;
        }
    }

    /// The next piece, when there is one; `None` at the end.
    fn wait(&self) -> Option<Piece> {
        let mut queue = locked(&self.queue);
        loop {
            if queue.stop {
                return None;
            }
            if let Some(piece) = queue.pieces.pop_front() {
                return Some(piece);
            }
            queue = self.asked.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the threads.
    pub(super) fn stop(&self) {
        locked(&self.queue).stop = true;
        self.asked.notify_all();
    }
}

impl Pager {
    /// Pages of a chunk, at most: others need memory, too.
    fn most_ahead(&self) -> usize {
        MOST.min(self.limit() / 8)
    }

    /// Where a chunk from `page` on ends: large ones with a piece.
    fn chunk_end(&self, page: usize, window: usize) -> usize {
        let end = page + window;
        let whole = if window >= PIECE { end - end % PIECE } else { end };
        whole.min(self.pages.count())
    }

    /// Where to end reading from `page` on (exclusive), which is missed and wanted up to `last`; more may be asked for
    /// beside that.
    pub(super) fn missed(&self, page: usize, last: usize) -> usize {
        let wanted = last + 1;
        let mut streams = locked(&self.ahead.streams);
        let found = streams.iter_mut().find(|stream| stream.window > 0 && stream.next == page);
        let Some(stream) = found else {
            let window = (wanted - page).clamp(4, self.most_ahead());
            streams[page % STREAMS] = Stream { next: wanted, marked: usize::MAX, window };
            return wanted;
        };
        stream.window = (GROWTH * stream.window).min(self.most_ahead());
        let end = wanted.max(self.chunk_end(page, stream.window)).min(self.pages.count());
        (stream.next, stream.marked) = (end, wanted);
        if end - wanted < LEAST {
            return end;
        }
        drop(streams);
        self.ahead.ask(wanted..end);
        wanted
    }

    /// Reads on ahead of a reader who came to the first page of a chunk.
    #[cold]
    pub(super) fn go_ahead(&self, page: usize) {
        let mut streams = locked(&self.ahead.streams);
        let Some(stream) = streams.iter_mut().find(|stream| stream.window > 0 && stream.marked == page)
        else {
            return;
        };
        stream.window = (GROWTH * stream.window).min(self.most_ahead());
        let chunk = stream.next..self.chunk_end(stream.next, stream.window);
        (stream.next, stream.marked) = (chunk.end, chunk.start);
        drop(streams);
        self.ahead.ask(chunk);
    }

    /// Reads pieces until it is stopped.
    pub(super) fn keep_ahead(&self) {
        while let Some(piece) = self.ahead.wait() {
            if self.resident() + piece.pages.len() < self.limit() {
                self.bring_piece(&piece);
            }
        }
    }

    /// Brings those pages of a piece that are not in memory.
    fn bring_piece(&self, piece: &Piece) {
        let mut pages = piece.pages.clone();
        while let Some(first) = pages.find(|&page| self.lock_absent(page)) {
            let mut end = first + 1;
            while end < pages.end && self.lock_absent(end) {
                end += 1;
            }
            if end - first == PIECE && first.is_multiple_of(PIECE) {
                self.memory.bring_huge_page((first * PAGE_SIZE as usize) as u64);
            }
            // Whoever needs a page that cannot be read is told when trying again.
            let is_read = self.read_in(first, end - first).is_ok();
            if is_read {
                self.arrived(first, end - first);
            } else {
                self.let_go(first, end - first);
            }
            for page in first..end {
                let mark = if page == piece.marked { AHEAD } else { 0 };
                self.pages.unlock(page, if is_read { RESIDENT | mark } else { 0 }, LEAVING);
            }
            pages = end..pages.end;
        }
    }

    /// Locks a page that is not in memory; not if it is, or somebody else has it locked.
    fn lock_absent(&self, page: usize) -> bool {
        let flags = self.pages.flags(page).load(Ordering::Acquire);
        flags & (RESIDENT | BUSY) == 0 && self.pages.turn(page, flags, flags | BUSY)
    }
}
