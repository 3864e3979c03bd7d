//! Hostile images: volumes that are damaged on purpose, and then opened, read, checked and changed.
//!
//! A seed makes an [`Image`]: one of a few small [`BaseVolume`]s with one or several [`Damage`]s. Most of the
//! damage hits structures in use, and half of the images get valid checksums again. [`examine`] uses an image
//! as any program might. Any answer is allowed, and so is any error. A panic, a call that does not end, an
//! access outside the volume and unbounded memory are failures, and the seed replays them. A [`HostileDisk`]
//! is such an image for the medium `paged`.
//!
//! Invariant: an image shares the unchanged pages of its base, so an image costs little time and memory.

mod base;
mod damage;
mod disk;
mod examine;
mod fields;
mod image;
mod owned_twice;
mod processes;
mod readable;
mod repairs;
mod run;
mod survey;

pub use base::{BaseVolume, bases};
pub use damage::{Damage, LowestSlots};
pub use disk::{DiskBase, DiskDamage, HostileDisk, disk_bases, journal_damages};
pub use examine::{Examined, examine};
pub use fields::{FieldDamage, FieldName, FieldValues, STRUCTURES, Structure, described, field_damages};
pub use image::Image;
pub use owned_twice::owned_twice;
pub use processes::run_in_processes;
pub use readable::readable;
pub use repairs::{Repairs, repairs};
pub use run::{Hostile, HostileReport, run, run_disks};
