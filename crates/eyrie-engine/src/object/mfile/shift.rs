//! Taking whole pages out of a file and putting holes into it: what follows moves, storage and all.
//!
//! A new tree is built over the old leaves. Subtrees that stay where they are, or move by a multiple of what they span,
//! are taken over as they are.

use eyrie_medium::Addr;

use super::tree::{
    FANOUT, MAX_HEIGHT, Node, height_for, root_extent, slot_of, span, start_of, tree_height, under,
};
use super::visit::retire_under;
use super::write::raise;
use crate::Result;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;

/// Prepares a file of `size` bytes without `length` of them from `offset` on, both multiples of a page and the end before
/// that of the file; the new root, to be published with the new size in the header's hot line.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`; nothing was changed.
pub fn collapse(
    transaction: &mut Transaction<'_>,
    root: Pointer,
    size: u64,
    offset: u64,
    length: u64,
) -> Result<Pointer> {
    shift(transaction, root, Shift { size, offset, resumes: offset + length, length, inserts: false })
}

/// Prepares a file of `size` bytes with a hole of `length` at `offset`, both multiples of a page and the latter before the
/// end; the new root, to be published with the new size in the header's hot line.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`; nothing was changed.
pub fn insert(
    transaction: &mut Transaction<'_>,
    root: Pointer,
    size: u64,
    offset: u64,
    length: u64,
) -> Result<Pointer> {
    shift(transaction, root, Shift { size, offset, resumes: offset, length, inserts: true })
}

/// Which bytes move, and how far.
#[derive(Clone, Copy)]
struct Shift {
    /// Of the file before.
    size: u64,
    /// What is before this stays.
    offset: u64,
    /// What is from here on moves; what is between goes.
    resumes: u64,
    length: u64,
    /// Forth, otherwise back.
    inserts: bool,
}

/// Where a range goes.
enum Target {
    At(u64),
    Nowhere,
    /// Parts of it go to different places.
    Apart,
}

impl Shift {
    fn target(self, start: u64, len: u64) -> Target {
        let end = start.saturating_add(len);
        if end <= self.offset {
            Target::At(start)
        } else if start >= self.resumes {
            Target::At(if self.inserts { start + self.length } else { start - self.length })
        } else if start >= self.offset && end <= self.resumes {
            Target::Nowhere
        } else {
            Target::Apart
        }
    }
}

fn shift(transaction: &mut Transaction<'_>, root: Pointer, shift: Shift) -> Result<Pointer> {
    let height = tree_height(root)?;
    let held = match root.height() {
        0 => root_extent(root, Addr::NULL)?.map_or(0, |extent| extent.bytes()),
        height => span(height),
    };
    let reach = shift.size.min(held);
    if root.is_null() || shift.offset >= reach {
        return Ok(root);
    }
    let grown = raise(transaction, root, shift.size, height)?;
    let end = if shift.inserts { reach + shift.length } else { reach };
    let mut builder = Builder::new(height_for(end).max(height));
    rebuild(transaction, &mut builder, shift, grown, height, 0)?;
    builder.finish(transaction)
}

/// Puts what is visible under a pointer, which spans from `start` on, where it goes.
fn rebuild(
    transaction: &mut Transaction<'_>,
    builder: &mut Builder,
    shift: Shift,
    pointer: Pointer,
    level: u8,
    start: u64,
) -> Result<()> {
    if pointer.is_null() || start >= shift.size {
        return Ok(());
    }
    match shift.target(start, span(level)) {
        Target::At(place) if place % span(level) == 0 => builder.put(transaction, level, place, pointer),
        Target::Nowhere => retire_under(transaction, pointer, level, shift.size - start),
        Target::At(_) | Target::Apart => {
            let old = under(pointer, level, Addr::NULL)?;
            let node = Node::take(transaction, old, level)?;
            (0..FANOUT).try_for_each(|slot| {
                let child = start.saturating_add(start_of(level, slot));
                rebuild(transaction, builder, shift, node.get(slot), level - 1, child)
            })
        }
    }
}

/// A tree that grows from its start to its end.
struct Builder {
    height: u8,
    /// For each level from 1 on the node that grows, and where it starts.
    open: [Option<(u64, Node)>; MAX_HEIGHT as usize],
}

impl Builder {
    fn new(height: u8) -> Builder {
        Builder { height, open: [const { None }; MAX_HEIGHT as usize] }
    }

    /// Adds what a pointer at `level` spans, from `at` on: behind all that was added before.
    fn put(&mut self, transaction: &mut Transaction<'_>, level: u8, at: u64, pointer: Pointer) -> Result<()> {
        for above in 1..=self.height {
            let ended = |(start, _): &(u64, Node)| at - start >= span(above);
            if self.open[usize::from(above) - 1].as_ref().is_some_and(ended) {
                self.close(transaction, above)?;
            }
        }
        for above in level + 1..=self.height {
            let start = at - at % span(above);
            self.open[usize::from(above) - 1].get_or_insert_with(|| (start, Node::empty()));
        }
        self.set(level + 1, at, pointer);
        Ok(())
    }

    fn set(&mut self, level: u8, at: u64, pointer: Pointer) {
        if let Some((start, node)) = &mut self.open[usize::from(level) - 1] {
            node.set(slot_of(level, at - *start), pointer);
        }
    }

    /// Writes the node that grows at `level`; the pointer to it, which the one above has, too.
    fn close(&mut self, transaction: &mut Transaction<'_>, level: u8) -> Result<Pointer> {
        let Some((start, node)) = self.open[usize::from(level) - 1].take() else {
            return Ok(Pointer::NULL);
        };
        let pointer = node.write(transaction)?;
        if level < self.height {
            self.set(level + 1, start, pointer);
        }
        Ok(pointer)
    }

    /// The root.
    fn finish(mut self, transaction: &mut Transaction<'_>) -> Result<Pointer> {
        let mut root = Pointer::NULL;
        for level in 1..=self.height {
            root = self.close(transaction, level)?;
        }
        Ok(if root.is_null() { Pointer::NULL } else { root.with_height(self.height) })
    }
}
