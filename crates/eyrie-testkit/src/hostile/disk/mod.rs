//! Hostile disks: disks of the medium `paged` with damage to the journal, the anchor, the checksum pages or
//! the volume.
//!
//! As with images in memory, a seed makes a [`HostileDisk`]: one of a few [`DiskBase`]s with one or several
//! [`DiskDamage`]s. Most of the disks get valid checksums of the journal and of the volume's tables again.
//! Half of the bases also have checksums of pages. Most disks from these bases get valid checksums of pages,
//! too, so that the damage reaches the volume.

mod base;
mod damage;
mod fields;
mod image;
mod journal;

pub use base::{DiskBase, disk_bases};
pub use damage::DiskDamage;
pub use fields::journal_damages;
pub use image::HostileDisk;

#[cfg(test)]
mod tests;
