//! Hostile disks: damages of the journal and the anchor of the medium `paged`, besides those of the volume.
//!
//! As with images in memory, a seed makes a [`HostileDisk`]: one of a few [`DiskBase`]s with one to several
//! damages ([`DiskDamage`]). Most of the disks get valid checksums again.

mod base;
mod damage;
mod image;
mod journal;

pub use base::{DiskBase, disk_bases};
pub use damage::DiskDamage;
pub use image::HostileDisk;

#[cfg(test)]
mod tests;
