//! A value that shares no cache line with its neighbours.

/// Keeps a value in cache lines of its own. The alignment is two lines, because processors fetch lines in
/// pairs.
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);
