//! The thread that tells the kernel of changes that did not come through the mount.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use eyrie::{Notice, ObjectId, VolumeNodes, names};
use fuser::Notifier;

use crate::convert::Numbers;

/// Maximum number of notices that wait for this thread. If more come, the kernel forgets everything.
pub(crate) const NOTICES: usize = 1 << 16;
/// Maximum time between two checks for the end of the mount.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Passes notices to the kernel until the mount ends.
pub(crate) fn run(nodes: &VolumeNodes, kernel: &Notifier) {
    let numbers = Numbers { root: nodes.root() };
    while !nodes.has_stopped_notices() {
        match nodes.next_notice(PATIENCE) {
            Some(Notice::Object(id)) => forget_object(kernel, numbers, id),
            Some(Notice::Entry { dir, name, before, after, .. }) => {
                forget_entry(kernel, numbers, dir, &names::encode(&name));
                [Some(dir), before, after].into_iter().flatten().for_each(|id| {
                    forget_object(kernel, numbers, id);
                });
            }
            // All other notices mean that notices were lost.
            Some(_) => forget_everything(nodes, kernel, numbers),
            None => {}
        }
    }
}

/// Makes the kernel forget the attributes and the pages of an object.
fn forget_object(kernel: &Notifier, numbers: Numbers, id: ObjectId) {
    // An error means that the kernel does not know the object, or that the mount ends.
    let _ = kernel.inval_inode(numbers.of(id), 0, 0);
}

/// Makes the kernel forget an entry, and everything below it.
fn forget_entry(kernel: &Notifier, numbers: Numbers, dir: ObjectId, name: &[u8]) {
    let _ = kernel.inval_entry(numbers.of(dir), OsStr::from_bytes(name));
}

/// Makes the kernel forget all entries, attributes and pages. The entries of the root that no longer exist
/// have a short life in the kernel's cache instead, because nothing names them any more.
fn forget_everything(nodes: &VolumeNodes, kernel: &Notifier, numbers: Numbers) {
    let mut names: Vec<Box<[u8]>> = Vec::new();
    let _ = nodes.list(nodes.root(), 0, false, &mut |entry| {
        names.push(entry.name.into());
        true
    });
    for name in names {
        forget_entry(kernel, numbers, nodes.root(), &name);
    }
    for id in nodes.held() {
        forget_object(kernel, numbers, id);
    }
    forget_object(kernel, numbers, nodes.root());
}
