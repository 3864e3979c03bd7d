//! Random Ops over a small universe of names and objects.
//!
//! A [`Step`] names objects by the step that made them ([`Handle`]), not by id, so that the same steps run on any engine,
//! and still run when some of them are left out. [`Generator`] makes steps from a seed; [`Ids`] turns one into an Op
//! with ids that the engine under test reserved.

mod concrete;
mod generate;
#[cfg(test)]
mod tests;

use std::fmt;

use eyrie_engine::{AttributeChange, FallocateMode, Kind, Owner, RenameMode, Time, XattrMode};

pub use concrete::{Concrete, Ids, Record};
pub use generate::{Generator, Mix};

/// Names an object of a run by the step that made it, and the part of it if that was a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// Number of the step; 0 for the root.
    pub step: u32,
    /// Index of the part of a batch; otherwise 0.
    pub part: u32,
}

impl Handle {
    /// The root directory.
    pub const ROOT: Handle = Handle { step: 0, part: 0 };
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Handle::ROOT => write!(f, "root"),
            Handle { step, part: 0 } => write!(f, "@{step}"),
            Handle { step, part } => write!(f, "@{step}.{part}"),
        }
    }
}

/// A name of the universe, by its index in [`Name::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(u8);

impl Name {
    /// Every name: short ones, the longest, others of any bytes; the last [`Name::BAD`] are refused by every engine.
    pub const ALL: [&[u8]; 12] = [
        b"a",
        b"b",
        b"c",
        b"d",
        b"readme.txt",
        &[b'n'; 255],
        &[b'e'; 254],
        b"\xff\xfe\xc3",
        b"sl/ash\0nul",
        b".",
        &[b'x'; 256],
        b"",
    ];
    /// How many of them no engine accepts (a count).
    pub const BAD: usize = 2;

    /// The name with this index.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(index: usize) -> Name {
        assert!(index < Name::ALL.len(), "there are {} names", Name::ALL.len());
        Name(index as u8)
    }

    /// Every name that engines accept.
    pub fn good() -> impl Iterator<Item = Name> {
        (0..Name::ALL.len() - Name::BAD).map(Name::new)
    }

    /// Its bytes.
    pub fn bytes(self) -> &'static [u8] {
        Name::ALL[usize::from(self.0)]
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            long if long.len() > 20 => write!(f, "{} × {:?}", long.len(), char::from(long[0])),
            short => write!(f, "\"{}\"", short.escape_ascii()),
        }
    }
}

/// Bytes to write, told by how they are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes {
    /// How many.
    pub length: usize,
    /// Tells one pattern from another; 0 stands for zeros.
    pub pattern: u32,
}

impl Bytes {
    /// The bytes. Each depends on its place, so that bytes that went astray are noticed.
    pub fn make(self) -> Vec<u8> {
        if self.pattern == 0 {
            return vec![0; self.length];
        }
        let words = (0..self.length.div_ceil(8) as u64)
            .map(|index| (index + 1 + (u64::from(self.pattern) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes: Vec<u8> = words.flat_map(|word| (word ^ word >> 29).to_be_bytes()).collect();
        bytes.truncate(self.length);
        bytes
    }
}

/// What a created object starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// [`Content::Empty`](eyrie_engine::Content::Empty).
    Empty,
    /// [`Content::Bytes`](eyrie_engine::Content::Bytes).
    Bytes(Bytes),
    /// [`Content::Device`](eyrie_engine::Content::Device).
    Device(u64),
}

/// A part of a batch.
#[expect(missing_docs, reason = "as in Op")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A `Put`.
    Put { name: Name, bytes: Bytes, owner: Owner },
    /// An `Erase`.
    Erase { name: Name },
}

/// What a step does: an Op, or an open or close.
#[expect(missing_docs, reason = "as in Op")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Creates the object whose handle is the step.
    Create { dir: Handle, name: Name, kind: Kind, start: Start, owner: Owner },
    /// Links.
    Link { dir: Handle, name: Name, object: Handle },
    /// Unlinks.
    Unlink { dir: Handle, name: Name },
    /// Removes a directory.
    RemoveDirectory { dir: Handle, name: Name },
    /// Renames.
    Rename { from: (Handle, Name), to: (Handle, Name), mode: RenameMode },
    /// Writes.
    Write { object: Handle, offset: u64, bytes: Bytes },
    /// Appends.
    Append { object: Handle, bytes: Bytes },
    /// Sets the size, in bytes.
    SetSize { object: Handle, size: u64 },
    /// Changes which storage a range has; offset and length in bytes.
    Fallocate { object: Handle, mode: FallocateMode, offset: u64, length: u64 },
    /// Sets attributes.
    SetAttributes { object: Handle, change: AttributeChange },
    /// Sets an extended attribute.
    SetXattr { object: Handle, name: Name, bytes: Bytes, mode: XattrMode },
    /// Removes an extended attribute.
    RemoveXattr { object: Handle, name: Name },
    /// Puts a value.
    Put { dir: Handle, name: Name, bytes: Bytes, owner: Owner },
    /// Erases a key.
    Erase { dir: Handle, name: Name },
    /// Puts and erases.
    Batch { dir: Handle, parts: Vec<Part> },
    /// Opens an object, which the run closes some day.
    Open { object: Handle },
    /// Closes an object that the run has open.
    Close { object: Handle },
}

/// One step of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Its number, from 1 on.
    pub number: u32,
    /// When it happens.
    pub time: Time,
    /// What it does.
    pub action: Action,
}

impl Step {
    /// The objects that it names, those that it makes apart.
    pub fn handles(&self) -> Vec<Handle> {
        match self.action {
            Action::Create { dir, .. }
            | Action::Unlink { dir, .. }
            | Action::RemoveDirectory { dir, .. }
            | Action::Put { dir, .. }
            | Action::Erase { dir, .. }
            | Action::Batch { dir, .. } => vec![dir],
            Action::Link { dir, object, .. } => vec![dir, object],
            Action::Rename { from, to, .. } => vec![from.0, to.0],
            Action::Write { object, .. }
            | Action::Append { object, .. }
            | Action::SetSize { object, .. }
            | Action::Fallocate { object, .. }
            | Action::SetAttributes { object, .. }
            | Action::SetXattr { object, .. }
            | Action::RemoveXattr { object, .. }
            | Action::Open { object }
            | Action::Close { object } => vec![object],
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{} at {}: {:?}", self.number, self.time.seconds, self.action)
    }
}
