//! Read-ahead for sequential readers, on threads of its own: the disk works while the readers do.
//!
//! A reader that misses the page after the last one it read is sequential. Further pages are read ahead in
//! chunks of growing size. The first page of a chunk is marked, and its first use requests the next chunk.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex};

use crate::addr::PAGE_SIZE;
use crate::mapping::HUGE_PAGE;
use crate::sync::unpoisoned;

/// Number of threads. Disks are faster with several requests in their queue.
pub(super) const THREADS: usize = 4;
/// Pages of a chunk, at most: twice the pages that the threads read at a time, so that they still have work
/// when the chunk begins to arrive.
const MOST: usize = 2 * THREADS * PIECE;
/// Ratio of the sizes of a chunk and the one before.
const GROWTH: usize = 4;
/// Least size of a chunk that is worth waking a thread, in pages. A smaller one is read together with the
/// wanted pages.
const LEAST: usize = 64;
/// Pages that a thread reads with one call: those of a huge page, so that their memory comes with one fault
/// instead of 512.
pub(super) const PIECE: usize = HUGE_PAGE / PAGE_SIZE as usize;
/// Sequential readers that are tracked at a time.
const STREAMS: usize = 8;

/// A reader that may be sequential.
#[derive(Clone, Copy, Default)]
struct Stream {
    /// The page that the reader misses next if it is sequential.
    next: usize,
    /// The first page of the chunk before `next`.
    marked: usize,
    /// Pages to read at a time; 0 if the entry is unused.
    window: usize,
}

/// Pages to read ahead. One of them may be the first of its chunk.
pub(super) struct Piece {
    pub(super) pages: Range<usize>,
    pub(super) marked: usize,
}

/// The pieces to read ahead.
#[derive(Default)]
struct PieceQueue {
    pieces: VecDeque<Piece>,
    stop: bool,
}

/// The tracked readers, and the work of the threads.
pub(super) struct ReadAhead {
    /// Number of pages in the volume.
    pages: usize,
    /// Pages of a chunk, at most. On a small memory limit it is an eighth, because other pages need memory,
    /// too.
    most: usize,
    streams: Mutex<[Stream; STREAMS]>,
    queue: Mutex<PieceQueue>,
    asked: Condvar,
}

impl ReadAhead {
    /// For a volume of `pages` pages, of which memory holds `limit`.
    pub(super) fn new(pages: usize, limit: usize) -> ReadAhead {
        let (streams, queue) = (Mutex::default(), Mutex::default());
        ReadAhead { pages, most: MOST.min(limit / 8), streams, queue, asked: Condvar::new() }
    }

    /// Requests a chunk. Does nothing if the queue is long: the reader then reads its pages itself.
    fn ask(&self, chunk: Range<usize>) {
        let mut queue = unpoisoned(self.queue.lock());
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

    /// Waits for the next piece. Returns `None` at the end.
    pub(super) fn wait(&self) -> Option<Piece> {
        let mut queue = unpoisoned(self.queue.lock());
        loop {
            if queue.stop {
                return None;
            }
            if let Some(piece) = queue.pieces.pop_front() {
                return Some(piece);
            }
            queue = unpoisoned(self.asked.wait(queue));
        }
    }

    /// Ends the threads.
    pub(super) fn stop(&self) {
        unpoisoned(self.queue.lock()).stop = true;
        self.asked.notify_all();
    }

    /// The end of a chunk that begins at `page`. A large chunk ends with a piece, so that pieces stay aligned
    /// to huge pages.
    fn chunk_end(&self, page: usize, window: usize) -> usize {
        let end = page + window;
        let whole = if window >= PIECE { end - end % PIECE } else { end };
        whole.min(self.pages)
    }

    /// Notes a miss of `page` by a reader that wants the pages up to `last`. Returns the end (exclusive) of
    /// the pages to read now; the threads may be asked for more.
    pub(super) fn missed(&self, page: usize, last: usize) -> usize {
        let wanted = last + 1;
        let mut streams = unpoisoned(self.streams.lock());
        let found = streams.iter_mut().find(|stream| stream.window > 0 && stream.next == page);
        let Some(stream) = found else {
            let window = (wanted - page).clamp(4, self.most);
            streams[page % STREAMS] = Stream { next: wanted, marked: usize::MAX, window };
            return wanted;
        };
        stream.window = (GROWTH * stream.window).min(self.most);
        let end = wanted.max(self.chunk_end(page, stream.window)).min(self.pages);
        (stream.next, stream.marked) = (end, wanted);
        if end - wanted < LEAST {
            return end;
        }
        drop(streams);
        self.ask(wanted..end);
        wanted
    }

    /// Continues the read-ahead for a reader that came to the first page of a chunk.
    #[cold]
    pub(super) fn go_on(&self, page: usize) {
        let mut streams = unpoisoned(self.streams.lock());
        let Some(stream) = streams.iter_mut().find(|stream| stream.window > 0 && stream.marked == page)
        else {
            return;
        };
        stream.window = (GROWTH * stream.window).min(self.most);
        let chunk = stream.next..self.chunk_end(stream.next, stream.window);
        (stream.next, stream.marked) = (chunk.end, chunk.start);
        drop(streams);
        self.ask(chunk);
    }
}
