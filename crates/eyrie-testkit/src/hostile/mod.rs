//! Hostile images: volumes damaged on purpose, opened, read, checked and changed.
//!
//! A seed makes an [`Image`]: one of a few small [`Base`] volumes with one to several damages, each of which knows the
//! format ([`Damage`]), and half of them with the checksums made right again. [`examine`] does with it what a program
//! may do with a volume. Whatever it is answered is right, an error or not; a panic, a call that does not end, an access
//! outside the volume or memory without bounds is a failure, which the seed replays. A [`HostileDisk`] is the same for the medium `paged`.
//!
//! Invariant: an image shares the pages of its base that it does not change, so that making one costs little.

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

pub use base::{Base, bases};
pub use damage::Damage;
pub use disk::{DiskBase, DiskDamage, HostileDisk, disk_bases};
pub use examine::{Examined, examine};
pub use fields::{Broken, Impossible, STRUCTURES, Structure, broken, described};
pub use image::Image;
pub use readable::readable;
pub use repairs::{Repairs, repairs};
pub use run::{Hostile, Report, run, run_disks};
pub use threads::run_in_processes;
