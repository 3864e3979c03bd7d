//! Read-ahead for sequential readers, on separate threads, so that the disk works while the readers compute.
//!
//! A reader counts as sequential if it misses the page directly after the pages that were last read or
//! requested for this reader. Further pages are read ahead in *chunks*. Each chunk is larger than the one
//! before it, until the chunks reach a limit. The reader itself reads a small chunk. A large chunk is queued
//! in *pieces*: a piece is the pages that a thread reads with one call. The first page of a large chunk gets
//! the flag `AHEAD`, and the first use of this page requests the next chunk. The *window* of a reader is the
//! planned number of pages of a chunk. The chunk may have fewer pages.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex};

use crate::addr::PAGE_SIZE;
use crate::mapping::HUGE_PAGE;
use crate::sync::unpoisoned;

/// Number of read-ahead threads. There are several, because a disk is faster with several requests in its
/// queue.
pub(super) const THREADS: usize = 4;
/// Maximum number of pages of a chunk: twice the number of pages that the threads read at a time. The reader
/// requests the next chunk when it uses the first page of this one. The threads then still have pieces to
/// read.
const MAX_CHUNK: usize = 2 * THREADS * PIECE;
/// Ratio of a reader's window to the window before it, while the limit allows this ratio.
const GROWTH: usize = 4;
/// Least number of pages of a chunk that is queued after a miss. The reader itself reads a smaller chunk,
/// together with the pages that it needs.
const MIN_QUEUED_CHUNK: usize = 64;
/// Maximum number of pages of a piece: the number of pages of a huge page. One page fault then provides the
/// memory of a whole piece. Single pages would need 512 page faults.
pub(super) const PIECE: usize = HUGE_PAGE / PAGE_SIZE as usize;
/// Number of readers that are tracked at a time.
const STREAMS: usize = 8;

/// A reader that may be sequential.
#[derive(Clone, Copy, Default)]
struct Stream {
    /// The page that the reader misses next if the reader is sequential.
    next: usize,
    /// The first page of the last chunk, which ends before `next`. `usize::MAX` before the first chunk.
    marked: usize,
    /// The window of the last chunk, from which the next window is computed. Before the first chunk, this
    /// field is the number of pages of the first read, but at least 4 and at most [`ReadAhead::most`]. 0 if
    /// the entry is unused.
    window: usize,
}

/// Neighbouring pages that a thread reads with one call, if none of them is in memory or locked. `marked` is
/// the first page of their chunk.
pub(super) struct Piece {
    pub(super) pages: Range<usize>,
    pub(super) marked: usize,
}

/// The pieces that wait for a thread.
#[derive(Default)]
struct PieceQueue {
    pieces: VecDeque<Piece>,
    stop: bool,
}

/// The tracked readers, and the pieces for the threads.
pub(super) struct ReadAhead {
    /// Number of pages in the volume.
    pages: usize,
    /// Maximum number of pages of a chunk: [`MAX_CHUNK`], or an eighth of the limit of memory if that is
    /// less, because other pages need memory too.
    most: usize,
    streams: Mutex<[Stream; STREAMS]>,
    queue: Mutex<PieceQueue>,
    asked: Condvar,
}

impl ReadAhead {
    /// Makes the state for a volume of `pages` pages, with a memory limit of `limit` pages.
    pub(super) fn new(pages: usize, limit: usize) -> ReadAhead {
        let (streams, queue) = (Mutex::default(), Mutex::default());
        ReadAhead { pages, most: MAX_CHUNK.min(limit / 8), streams, queue, asked: Condvar::new() }
    }

    /// Queues the pieces of a chunk. Does nothing if the queue is long. The reader then reads these pages
    /// itself.
    fn ask(&self, chunk: Range<usize>) {
        let mut queue = unpoisoned(self.queue.lock());
        if queue.pieces.len() > STREAMS * MAX_CHUNK / PIECE {
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

    /// Waits for the next piece. Returns `None` after [`ReadAhead::stop`].
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

    /// Returns the end of a chunk that begins at `page`. If the window is [`PIECE`] pages or more, the chunk
    /// ends at the boundary of a huge page, so that the next chunk begins with a whole piece. No chunk passes
    /// the end of the volume.
    fn chunk_end(&self, page: usize, window: usize) -> usize {
        let end = page + window;
        let whole = if window >= PIECE { end - end % PIECE } else { end };
        whole.min(self.pages)
    }

    /// Notes that a reader of the pages from `page` up to `last` missed `page`. Returns the page after the
    /// last one that the caller should read now. If the reader is sequential, this call also plans the next
    /// chunk: the caller reads a small chunk, and the threads read a large one.
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
        if end - wanted < MIN_QUEUED_CHUNK {
            return end;
        }
        drop(streams);
        self.ask(wanted..end);
        wanted
    }

    /// Requests the next chunk for a reader that has used the first page of a chunk.
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
