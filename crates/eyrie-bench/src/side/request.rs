//! The sides that a run asks for.

use std::path::PathBuf;

use eyrie::MediumChoice;

use crate::keys::Durability;
use crate::rival::Rival;

/// The sides that a run asks for.
#[derive(Clone, Debug)]
pub struct SideRequest {
    /// The directory for the volume and for the other sides.
    pub directory: PathBuf,
    /// The medium of the volume.
    pub medium: MediumChoice,
    /// The moment at which each change of a key is durable.
    pub durability: Durability,
    /// The sides other than Eyrie.
    pub against: Vec<Rival>,
    /// Bytes that the workload needs on each side.
    pub bytes: u64,
    /// True for a workload on keys. Only such a workload can run on a store that is no file system.
    pub keys: bool,
    /// The path of the command `eyrie`, which serves the volumes of the sides `served`, `confined` and
    /// `synchronous`, and is the program of all clients in processes of their own. Without this path these
    /// three sides are left out, and the clients of the other sides are threads of this process.
    pub command: Option<PathBuf>,
}

impl SideRequest {
    /// Makes a request for these sides. [`run`](crate::run()) sets `bytes` and `keys`. The caller sets
    /// `command` if a side with a service is wanted, or clients in processes of their own.
    pub fn new(
        directory: impl Into<PathBuf>,
        medium: MediumChoice,
        durability: Durability,
        against: Vec<Rival>,
    ) -> SideRequest {
        SideRequest {
            directory: directory.into(),
            medium,
            durability,
            against,
            bytes: 0,
            keys: false,
            command: None,
        }
    }

    pub(super) fn shown(&self) -> String {
        self.directory.display().to_string()
    }

    /// Returns the number of sides, Eyrie's own included.
    pub(crate) fn side_count(&self) -> u64 {
        1 + self.against.len() as u64
    }
}
