//! Bytes of a header. `docs/format.md` describes these bytes, and a test compares the description with the
//! structures here.

use std::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Time;
use crate::object::pointer::Pointer;
use crate::op::{AclKind, InodeFlags};

/// Line 0: the identity of the object. It is written once, before the object has a name.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Identity {
    /// [`Identity::MAGIC`].
    pub magic: u32,
    /// Number of the object's [`crate::Kind`].
    pub kind: u8,
    /// Zero in format 1.
    pub reserved_flags: [u8; 3],
    /// Number of this use of the header. No two objects of the volume ever have the same generation.
    pub generation: u64,
    /// The realm of the object. 0 in format 1, which has no other realms.
    pub realm: u32,
    /// Nanoseconds of the creation time.
    pub created_nanoseconds: u32,
    /// Seconds of the creation time.
    pub created_seconds: i64,
    /// Zero.
    pub reserved: [u64; 4],
}

impl Identity {
    /// "EYOB".
    pub const MAGIC: u32 = u32::from_le_bytes(*b"EYOB");
}

/// Line 1: the selector, and two copies of the fields that change often.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct HotLine {
    /// See [`super::Selector`]. Zero if the header has no object. After a crash, a header without an object
    /// may still have another value.
    pub selector: u64,
    /// Two copies. The selector names the current copy.
    pub copies: [HotCopy; 2],
    /// Nanoseconds of each copy's modification time.
    pub modified_nanoseconds: [u32; 2],
}

/// One of the two copies in the hot line.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct HotCopy {
    /// Root pointer of the mFile or collection.
    pub root: u64,
    /// Size of an mFile in bytes. 0 for other objects.
    pub size: u64,
    /// Seconds of the modification time.
    pub modified_seconds: i64,
}

/// Line 2 or 3: attributes that change rarely.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Cold {
    /// Permission bits. No bits above 0o7777 are set.
    pub mode: u16,
    /// `Cold::SPARSE`, `Cold::ACCESS_ACL`, `Cold::DEFAULT_ACL`, `Cold::CAPABILITY` and `Cold::INODE_FLAGS`.
    pub flags: u16,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Number of names. 1 for the root, and for any other directory that has a name. 0 for a file that has
    /// never had a name but may get one. Any other object without a name has 1.
    pub links: u32,
    /// Seconds of the access time.
    pub accessed_seconds: i64,
    /// Seconds of the change time.
    pub changed_seconds: i64,
    /// Nanoseconds of the access time.
    pub accessed_nanoseconds: u32,
    /// Nanoseconds of the change time.
    pub changed_nanoseconds: u32,
    /// For a directory, the id of the directory that contains it. For a device, the device number.
    pub parent_or_device: u64,
    /// Pointer to the block of extended attributes. 0 if the object has none.
    pub xattr_root: u64,
    /// Version of a directory's times. Each `SetAttributes` with a modification time begins a new version.
    /// Each stamp in a bucket page also has such a version. A stamp with an earlier version does not count
    /// for the directory's modification time.
    pub times_version: u32,
    /// Project id of the tree to which the object belongs. 0 if it belongs to none.
    pub project: u32,
}

impl Cold {
    /// Flag of a file that may have holes of whole pages. Its size does not tell how much storage it has, so
    /// the storage must be counted by a walk through its tree.
    pub(crate) const SPARSE: u16 = 1;
    /// Flag of an object with an access ACL, which is one of its extended attributes.
    pub(crate) const ACCESS_ACL: u16 = 2;
    /// Flag of a directory with a default ACL, which is one of its extended attributes.
    pub(crate) const DEFAULT_ACL: u16 = 4;
    /// Flag of an object that has the extended attribute `security.capability`.
    pub(crate) const CAPABILITY: u16 = 8;

    /// Mask of the inode flags, which have the values of [`InodeFlags`].
    pub(crate) const INODE_FLAGS: u16 = InodeFlags::all().bits() as u16;

    /// Returns the inode flags.
    #[inline]
    pub(crate) fn inode_flags(&self) -> InodeFlags {
        InodeFlags::from_bits_truncate(self.flags as u8)
    }

    /// Returns the flag of an object with an ACL of this kind.
    pub(crate) fn flag_of(kind: AclKind) -> u16 {
        match kind {
            AclKind::Access => Cold::ACCESS_ACL,
            AclKind::Default => Cold::DEFAULT_ACL,
        }
    }

    /// Returns the pointer to the extended attributes.
    pub fn xattrs(&self) -> Pointer {
        Pointer::from_raw(self.xattr_root)
    }

    /// Returns the stored change time. The stored time is valid only if [`follows`](super::Selector::follows)
    /// is false.
    pub fn changed(&self) -> Time {
        Time::new(self.changed_seconds, self.changed_nanoseconds)
    }

    /// Sets the change time.
    pub(crate) fn set_changed(&mut self, time: Time) {
        (self.changed_seconds, self.changed_nanoseconds) = (time.seconds, time.nanoseconds);
    }

    /// Returns the access time.
    pub fn accessed(&self) -> Time {
        Time::new(self.accessed_seconds, self.accessed_nanoseconds)
    }

    /// Sets the access time.
    pub(crate) fn set_accessed(&mut self, time: Time) {
        (self.accessed_seconds, self.accessed_nanoseconds) = (time.seconds, time.nanoseconds);
    }
}

const _: () = {
    assert!(size_of::<Identity>() == 64 && size_of::<HotLine>() == 64 && size_of::<Cold>() == 64);
    assert!(offset_of!(Identity, generation) == 8 && offset_of!(Identity, created_seconds) == 24);
    assert!(offset_of!(HotLine, copies) == 8 && offset_of!(HotLine, modified_nanoseconds) == 56);
    assert!(offset_of!(Cold, links) == 12 && offset_of!(Cold, accessed_seconds) == 16);
    assert!(offset_of!(Cold, parent_or_device) == 40 && offset_of!(Cold, times_version) == 56);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc::{assert_described, fields};

    #[test]
    fn format_page_matches_headers() {
        let identity = fields!(Identity {
            magic,
            kind,
            reserved_flags,
            generation,
            realm,
            created_nanoseconds,
            created_seconds,
            reserved
        });
        assert_described("Identity", size_of::<Identity>(), &identity);
        let hot = fields!(HotLine { selector, copies, modified_nanoseconds });
        assert_described("Hot line", size_of::<HotLine>(), &hot);
        let copy = fields!(HotCopy { root, size, modified_seconds });
        assert_described("Hot copy", size_of::<HotCopy>(), &copy);
        let cold = fields!(Cold {
            mode,
            flags,
            uid,
            gid,
            links,
            accessed_seconds,
            changed_seconds,
            accessed_nanoseconds,
            changed_nanoseconds,
            parent_or_device,
            xattr_root,
            times_version,
            project
        });
        assert_described("Cold copy", size_of::<Cold>(), &cold);
        assert_eq!(&Identity::MAGIC.to_le_bytes(), b"EYOB");
    }
}
