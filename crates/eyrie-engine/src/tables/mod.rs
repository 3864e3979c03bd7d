//! The tables at the start of a volume: their places, their content, and the superblock.
//!
//! [`layout`] has the structures on media and their places. [`Geometry`] has the sizes and places that follow
//! from the size of a volume. `superblock` writes and verifies the superblock. The only bytes of an open
//! volume that this module changes are the two copies of the superblock.

pub(crate) mod geometry;
pub mod layout;
pub(crate) mod options;
pub(crate) mod superblock;

pub use geometry::Geometry;
pub use options::{MIN_HOST_BYTES, MediumChoice, Options};
