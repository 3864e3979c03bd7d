//! The modes of `fallocate`.

/// Effect of `fallocate` on a range of a file.
///
/// ```
/// use eyrie_engine::FallocateMode;
///
/// let keeps_the_size = [FallocateMode::KeepSize, FallocateMode::PunchHole];
/// assert!(keeps_the_size.iter().all(|mode| FallocateMode::ALL.contains(mode)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FallocateMode {
    /// Allocate storage for the range. If the range ends past the end of the file, extend the file.
    Allocate,
    /// Allocate storage for the range, and keep the size of the file (`FALLOC_FL_KEEP_SIZE`). Storage past
    /// the end of the file stays until a truncation, or until a hole takes its place.
    KeepSize,
    /// Make the range a hole, and keep the size of the file (`FALLOC_FL_PUNCH_HOLE`).
    PunchHole,
    /// Allocate storage for the range, and make its bytes zero (`FALLOC_FL_ZERO_RANGE`). If the range ends
    /// past the end of the file, extend the file.
    ZeroRange,
    /// Allocate storage for the range, make its bytes zero, and keep the size of the file. Storage past the
    /// end of the file stays as with `KeepSize`.
    ZeroRangeKeepSize,
    /// Remove the range from the file. The bytes after the range move to the start of the range
    /// (`FALLOC_FL_COLLAPSE_RANGE`).
    CollapseRange,
    /// Insert a hole of the length of the range. All bytes between the start of the range and the end of the
    /// file move behind the hole (`FALLOC_FL_INSERT_RANGE`).
    InsertRange,
    /// Allocate storage for the range, and copy its shared pages, so that no other file has them
    /// (`FALLOC_FL_UNSHARE_RANGE`). If the range ends past the end of the file, extend the file.
    UnshareRange,
    /// Do the same as `UnshareRange`, but keep the size of the file.
    UnshareRangeKeepSize,
}

impl FallocateMode {
    /// All modes.
    pub const ALL: [FallocateMode; 9] = [
        FallocateMode::Allocate,
        FallocateMode::KeepSize,
        FallocateMode::PunchHole,
        FallocateMode::ZeroRange,
        FallocateMode::ZeroRangeKeepSize,
        FallocateMode::CollapseRange,
        FallocateMode::InsertRange,
        FallocateMode::UnshareRange,
        FallocateMode::UnshareRangeKeepSize,
    ];

    /// True if the file grows when the range ends past the end of the file.
    #[doc(hidden)]
    pub fn extends(self) -> bool {
        matches!(self, FallocateMode::Allocate | FallocateMode::ZeroRange | FallocateMode::UnshareRange)
    }

    /// True if the pages of the range get storage.
    #[doc(hidden)]
    pub fn allocates(self) -> bool {
        use FallocateMode::{CollapseRange, InsertRange, PunchHole};
        !matches!(self, PunchHole | CollapseRange | InsertRange)
    }

    /// True if bytes of the file move to another offset.
    #[doc(hidden)]
    pub fn shifts(self) -> bool {
        matches!(self, FallocateMode::CollapseRange | FallocateMode::InsertRange)
    }
}
