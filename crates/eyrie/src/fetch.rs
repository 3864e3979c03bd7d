//! The number of entries that a listing fetches at a time.

/// Doubles with each fetch from 32 to 1024: a listing of a small directory, or one that ends early, takes
/// little memory, and a long one few fetches.
#[derive(Debug)]
pub(crate) struct FetchSize(usize);

impl FetchSize {
    const LARGEST: usize = 1024;

    /// The size of the first fetch comes first.
    pub(crate) fn first() -> FetchSize {
        FetchSize(32)
    }

    /// The size of the next fetch.
    pub(crate) fn next(&mut self) -> usize {
        let size = self.0;
        self.0 = FetchSize::LARGEST.min(size * 2);
        size
    }
}
