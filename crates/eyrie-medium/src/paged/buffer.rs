//! Memory for transfers of pages to and from the disk.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::PAGE_SIZE;

const PAGE: usize = PAGE_SIZE as usize;

/// A page of memory, aligned for direct transfers.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub(super) struct PageBytes(pub(super) [u8; PAGE]);

/// Makes a buffer of zeroed pages for at least `bytes`.
pub(super) fn page_buffer(bytes: usize) -> Vec<PageBytes> {
    vec![PageBytes([0; PAGE]); bytes.div_ceil(PAGE)]
}
