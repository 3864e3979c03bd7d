//! Hostile images: volumes damaged on purpose, then opened, read, checked and changed.
//!
//! A seed makes an [`Image`]: one of a few small [`BaseVolume`] volumes with one to several damages. Each
//! [`Damage`] knows the format, and half of the images get valid checksums again. [`examine`] uses an image
//! as any program might. Any answer is right, an error, too. A panic, a call that does not end, an access
//! outside the volume and unbounded memory are failures, which the seed replays. A [`HostileDisk`] is the
//! same for the medium `paged`.
//!
//! Invariant: an image shares the unchanged pages of its base, so that it is cheap to make.

mod base;
mod damage;
mod disk;
mod examine;
mod fields;
mod image;
mod readable;
mod repairs;
mod run;
mod survey;
mod threads;

pub use base::{BaseVolume, bases};
pub use damage::Damage;
pub use disk::{DiskBase, DiskDamage, HostileDisk, disk_bases};
pub use examine::{Examined, examine};
pub use fields::{Broken, Impossible, STRUCTURES, Structure, broken, described};
pub use image::Image;
pub use readable::readable;
pub use repairs::{Repairs, repairs};
pub use run::{Hostile, HostileReport, run, run_disks};
pub use threads::run_in_processes;
