//! Hostile disks: of the medium `paged` not only the volume is damaged, but also its journal and its anchor.
//!
//! As with images in memory, a seed makes a [`HostileDisk`]: one of a few [`DiskBase`]s with one to several damages
//! ([`DiskDamage`]), and most of them with the checksums made right again.

mod base;
mod damage;
mod image;
mod journal;

pub use base::{DiskBase, disk_bases};
pub use damage::DiskDamage;
pub use image::HostileDisk;

#[cfg(test)]
mod tests;
