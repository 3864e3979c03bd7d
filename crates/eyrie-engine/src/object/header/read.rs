//! Reading headers, without locks.

use std::mem::offset_of;

use eyrie_medium::sync::spin;
use eyrie_medium::{Addr, LINE_SIZE, Medium};
use zerocopy::transmute;

use super::layout::{Cold, HotCopy, HotLine, Identity};
use crate::object::pointer::Pointer;
use crate::op::FILE_MAX;
use crate::{Error, Kind, ObjectId, Result, Time};

/// The selector word of a hot line.
///
/// Bit 0 is the number of the current hot copy, bit 1 that of the current cold copy. Bit 2 is set if the
/// change time equals the modification time. Bits 3 to 5 are the kind, bit 6 means sealed, bit 7 unlinked,
/// and bits 8 to 63 are the version. Only a running engine uses the unlinked bit. It sets the bit only for an
/// object without a name, and clears it in the commit that gives such an object its first name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selector(pub u64);

impl Selector {
    const COLD: u64 = 1 << 1;
    const FOLLOWS: u64 = 1 << 2;
    const KIND_SHIFT: u32 = 3;
    const SEALED: u64 = 1 << 6;
    const UNLINKED: u64 = 1 << 7;
    const VERSION_SHIFT: u32 = 8;

    /// Makes the first selector of a new object.
    pub fn first(kind: Kind, sealed: bool) -> Selector {
        let sealed = if sealed { Selector::SEALED } else { 0 };
        Selector(
            1 << Selector::VERSION_SHIFT | (kind as u64) << Selector::KIND_SHIFT | sealed | Selector::FOLLOWS,
        )
    }

    /// Returns the selector after a change of the hot copy. If `cold`, the change includes the cold copy.
    /// `follows` tells if the change time then equals the modification time.
    #[must_use]
    pub fn next(self, cold: bool, follows: bool) -> Selector {
        let flipped = self.0 ^ 1 ^ if cold { Selector::COLD } else { 0 };
        let kept = flipped & !Selector::FOLLOWS | if follows { Selector::FOLLOWS } else { 0 };
        Selector(kept.wrapping_add(1 << Selector::VERSION_SHIFT))
    }

    /// Returns the version, which grows with every change of a hot or cold copy.
    #[inline]
    pub fn version(self) -> u64 {
        self.0 >> Selector::VERSION_SHIFT
    }

    /// Returns the number of the current hot copy.
    #[inline]
    pub fn hot_copy(self) -> usize {
        (self.0 & 1) as usize
    }

    /// Returns the number of the current cold copy.
    #[inline]
    pub fn cold_copy(self) -> u64 {
        self.0 >> 1 & 1
    }

    /// True if the change time equals the modification time.
    #[inline]
    pub fn follows(self) -> bool {
        self.0 & Selector::FOLLOWS != 0
    }

    /// True if the object's bytes are never changed in place. Such bytes can be handed out as a slice.
    #[inline]
    pub fn sealed(self) -> bool {
        self.0 & Selector::SEALED != 0
    }

    /// True if the object has no name and only open handles keep it alive.
    #[inline]
    pub fn unlinked(self) -> bool {
        self.0 & Selector::UNLINKED != 0
    }

    /// Returns the same selector with the sealed bit.
    #[must_use]
    pub(super) fn as_sealed(self) -> Selector {
        Selector(self.0 | Selector::SEALED)
    }

    /// Returns the same selector with the unlinked bit.
    #[must_use]
    pub(super) fn as_unlinked(self) -> Selector {
        Selector(self.0 | Selector::UNLINKED)
    }

    /// Returns the same selector without the unlinked bit.
    #[must_use]
    pub fn as_named(self) -> Selector {
        Selector(self.0 & !Selector::UNLINKED)
    }

    #[inline]
    fn is_of(self, kind: Kind) -> bool {
        self.0 >> Selector::KIND_SHIFT & 7 == kind as u64
    }
}

/// One consistent state of a hot line.
#[derive(Clone, Copy, Debug)]
pub struct Hot {
    /// Selector of this state. States of the object with the same selector differ at most in the shared bit
    /// of the root, which a clone sets without a new selector.
    pub selector: Selector,
    /// Root pointer.
    pub root: Pointer,
    /// Size, in bytes.
    pub size: u64,
    /// Modification time.
    pub modified: Time,
}

/// The address of an object's header, and the kind of the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    addr: Addr,
    kind: Kind,
}

impl Header {
    /// Returns the header of an object. The caller knows, for example from `VolumeView::is_header`, that the
    /// id leads to a header slot.
    #[inline]
    pub fn of(id: ObjectId) -> Header {
        Header { addr: Addr::from_raw(id.place()), kind: id.kind() }
    }

    /// Returns the address of the root pointer in the current hot copy.
    pub(crate) fn root_at(self, now: Selector) -> Addr {
        let copy = offset_of!(HotLine, copies) + now.hot_copy() * size_of::<HotCopy>();
        self.hot_line().add((copy + offset_of!(HotCopy, root)) as u64)
    }

    /// Returns the address of the first byte.
    pub fn addr(self) -> Addr {
        self.addr
    }

    /// Returns the address of the hot line.
    #[inline]
    pub fn hot_line(self) -> Addr {
        self.addr.add(LINE_SIZE)
    }

    /// Returns the address of cold copy 0 or 1.
    #[inline]
    pub fn cold_line(self, copy: u64) -> Addr {
        self.addr.add(LINE_SIZE * (2 + copy))
    }

    /// Returns the kind in the object's id.
    pub fn kind(self) -> Kind {
        self.kind
    }

    /// Returns the selector, if the object is alive.
    ///
    /// # Errors
    /// `Stale` if the header has no object of this kind. `Fault` if the hot line cannot be read.
    #[inline]
    pub fn selector(self, medium: &Medium) -> Result<Selector> {
        let selector = Selector(medium.load(self.hot_line())?);
        if selector.is_of(self.kind) { Ok(selector) } else { Err(Error::Stale) }
    }

    /// Returns the current copy of the hot line.
    ///
    /// # Errors
    /// `Corrupt` if the size is impossible, and the errors of [`Header::selector`].
    #[inline(always)]
    pub fn hot(self, medium: &Medium) -> Result<Hot> {
        let line = medium.words(self.hot_line(), 8)?;
        loop {
            let selector = Selector(line.load(offset_of!(HotLine, selector) / 8));
            if !selector.is_of(self.kind) {
                return Err(Error::Stale);
            }
            let copy = selector.hot_copy();
            let first = (offset_of!(HotLine, copies) + copy * size_of::<HotCopy>()) / 8;
            let word = |at: usize| line.load(first + at / 8);
            let nanoseconds = line.load(offset_of!(HotLine, modified_nanoseconds) / 8) >> (32 * copy);
            let hot = Hot {
                selector,
                root: Pointer::from_raw(word(offset_of!(HotCopy, root))),
                size: word(offset_of!(HotCopy, size)),
                modified: Time::new(word(offset_of!(HotCopy, modified_seconds)) as i64, nanoseconds as u32),
            };
            // Loads have acquire order, and stores have release order. A change writes into the copy that is
            // not current. So the words that were read above, from the current copy, change only after the
            // publish of a newer selector. Therefore, if a load above saw a changed word, this load sees a
            // newer selector. An unchanged selector proves that all words belong to one state. (Only the
            // shared bit of the root may change under the same selector.)
            if line.load(0) == selector.0 {
                // A size that was read during a change may be impossible although nothing is corrupt.
                // Therefore the check comes after the comparison of the selectors.
                if hot.size > FILE_MAX {
                    return Err(Error::corrupt(self.addr, "impossible size"));
                }
                return Ok(hot);
            }
            spin();
        }
    }

    /// Returns the hot and the cold attributes of one state of the object.
    ///
    /// # Errors
    /// The errors of [`Header::hot`].
    #[inline(always)]
    pub fn hot_and_cold(self, medium: &Medium) -> Result<(Hot, Cold)> {
        loop {
            let hot = self.hot(medium)?;
            let cold: Cold =
                transmute!(medium.words(self.cold_line(hot.selector.cold_copy()), 8)?.load_all::<8>());
            // As in `hot`, an unchanged selector proves that the cold copy belongs to the same state.
            if medium.load(self.hot_line())? == hot.selector.0 {
                return Ok((hot, cold));
            }
            spin();
        }
    }

    /// Reads and verifies line 0.
    ///
    /// # Errors
    /// `Corrupt` if line 0 has a wrong magic number, or if its kind is not that of the object's id. `Fault`
    /// if line 0 cannot be read.
    #[inline(always)]
    pub fn identity(self, medium: &Medium) -> Result<Identity> {
        let identity: Identity = transmute!(medium.words(self.addr, 8)?.load_all::<8>());
        if identity.magic != Identity::MAGIC || identity.kind != self.kind as u8 {
            return Err(Error::corrupt(self.addr, "object header with a wrong magic number or kind"));
        }
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc::assert_described;

    #[test]
    fn format_page_matches_selectors() {
        let bit = |mask: u64| mask.trailing_zeros() as usize;
        let (cold, follows) = (bit(Selector::COLD), bit(Selector::FOLLOWS));
        let (kind, version) = (Selector::KIND_SHIFT as usize, Selector::VERSION_SHIFT as usize);
        let fields = [
            ("hot_copy", 0, 1),
            ("cold_copy", cold, 1),
            ("follows", follows, 1),
            ("kind", kind, 3),
            ("sealed", bit(Selector::SEALED), 1),
            ("unlinked", bit(Selector::UNLINKED), 1),
            ("version", version, 64 - version),
        ];
        assert_described("Selector", 64, &fields);
    }

    #[test]
    fn selector_returns_the_values_it_was_made_of() {
        let first = Selector::first(Kind::Symlink, true);
        assert!(first.is_of(Kind::Symlink) && !first.is_of(Kind::File) && first.sealed() && first.follows());
        assert_eq!((first.hot_copy(), first.cold_copy(), first.unlinked()), (0, 0, false));
        let next = first.next(true, false);
        assert!(next.is_of(Kind::Symlink) && next.sealed() && !next.follows());
        assert_eq!((next.hot_copy(), next.cold_copy(), next.version()), (1, 1, first.version() + 1));
        let third = next.next(false, true);
        assert_eq!((third.hot_copy(), third.cold_copy(), third.follows()), (0, 1, true));
        assert!(third.as_unlinked().unlinked());
        assert_eq!(third.as_unlinked().as_named(), third);
    }
}
