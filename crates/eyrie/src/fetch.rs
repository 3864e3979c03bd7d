//! The number of entries that a listing fetches in one call.

/// The size of the next fetch. The size doubles with each fetch, from 32 to 1024. So a listing of a small
/// directory takes little memory, and so does a listing that the caller ends early. A long listing takes few
/// fetches.
#[derive(Debug)]
pub(crate) struct FetchSize(usize);

impl FetchSize {
    const LARGEST: usize = 1024;

    /// Starts with the size of the first fetch.
    pub(crate) fn first() -> FetchSize {
        FetchSize(32)
    }

    /// Returns the size of the next fetch, and doubles it for the one after.
    pub(crate) fn next(&mut self) -> usize {
        let size = self.0;
        self.0 = FetchSize::LARGEST.min(size * 2);
        size
    }
}
