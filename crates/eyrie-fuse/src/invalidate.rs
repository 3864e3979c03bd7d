//! The thread that tells the kernel of changes that did not come through the mount.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use eyrie::{Notice, ObjectId, VolumeNodes, names};
use fuser::Notifier;
use zerocopy::{Immutable, IntoBytes};

use crate::convert::Numbers;

/// Maximum number of notices that wait for this thread. If more come, the kernel forgets everything.
pub(crate) const NOTICES: usize = 1 << 16;
/// Maximum time between two checks for the end of the mount.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Code of the notice after which the kernel looks every entry up again at its next use. Linux 6.16 and later
/// know this code.
const INC_EPOCH: i32 = 8;

/// The head of a notice on the device of a session.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct NoticeHead {
    length: u32,
    code: i32,
    /// Zero in a notice. In an answer, the number of the request.
    request: u64,
}

/// The caches of the kernel for one mount.
pub(crate) struct KernelCache {
    pub(crate) notifier: Notifier,
    /// The device of the session, for the notice that `notifier` cannot send.
    pub(crate) device: Arc<OwnedFd>,
}

/// Passes notices to the kernel until the mount ends.
pub(crate) fn run(nodes: &VolumeNodes, kernel: &KernelCache) {
    let numbers = Numbers { root: nodes.root() };
    while !nodes.has_stopped_notices() {
        match nodes.next_notice(PATIENCE) {
            Some(Notice::Object(id) | Notice::Attributes(id)) => kernel.forget_object(numbers, id),
            Some(Notice::Access(id)) => kernel.forget_attributes(numbers, id),
            Some(Notice::Entry { dir, name, before, after, .. }) => {
                kernel.forget_entry(numbers, dir, &names::encode(&name));
                [Some(dir), before, after].into_iter().flatten().for_each(|id| {
                    kernel.forget_object(numbers, id);
                });
            }
            Some(Notice::Rename { from_dir, from_name, to_dir, to_name, moved, replaced, left, .. }) => {
                kernel.forget_entry(numbers, from_dir, &names::encode(&from_name));
                kernel.forget_entry(numbers, to_dir, &names::encode(&to_name));
                let objects = [Some(from_dir), Some(to_dir), Some(moved), replaced, left];
                objects.into_iter().flatten().for_each(|id| kernel.forget_object(numbers, id));
            }
            // All other notices mean that notices were lost.
            Some(_) => kernel.forget_everything(nodes, numbers),
            None => {}
        }
    }
}

impl KernelCache {
    /// Makes the kernel forget the attributes and the pages of an object.
    fn forget_object(&self, numbers: Numbers, id: ObjectId) {
        // An error means that the kernel does not know the object, or that the mount ends.
        let _ = self.notifier.inval_inode(numbers.of(id), 0, 0);
    }

    /// Makes the kernel forget the attributes of an object, but not its pages.
    fn forget_attributes(&self, numbers: Numbers, id: ObjectId) {
        // A negative offset means the attributes alone.
        let _ = self.notifier.inval_inode(numbers.of(id), -1, 0);
    }

    /// Makes the kernel forget an entry, and everything below it.
    fn forget_entry(&self, numbers: Numbers, dir: ObjectId, name: &[u8]) {
        let _ = self.notifier.inval_entry(numbers.of(dir), OsStr::from_bytes(name));
    }

    /// Makes the kernel forget all entries, attributes and pages.
    fn forget_everything(&self, nodes: &VolumeNodes, numbers: Numbers) {
        if !self.expire_entries() {
            self.forget_entries(nodes, numbers);
        }
        for id in nodes.held() {
            self.forget_object(numbers, id);
        }
        self.forget_object(numbers, nodes.root());
    }

    /// Makes the kernel look each entry up again before it uses the entry. A process whose working directory
    /// still exists keeps this directory. Returns false if the kernel does not know this notice.
    fn expire_entries(&self) -> bool {
        let head = NoticeHead { length: size_of::<NoticeHead>() as u32, code: INC_EPOCH, request: 0 };
        rustix::io::write(&self.device, head.as_bytes()).is_ok()
    }

    /// Makes the kernel forget all entries of the root that still exist, and everything below them. A process
    /// below a directory of the root then no longer knows the path of its working directory. Entries of the
    /// root that no longer exist cannot be named here, so the kernel caches entries of the root only briefly.
    fn forget_entries(&self, nodes: &VolumeNodes, numbers: Numbers) {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let _ = nodes.list(nodes.root(), 0, false, &mut |entry| {
            names.push(entry.name.into());
            true
        });
        for name in names {
            self.forget_entry(numbers, nodes.root(), &name);
        }
    }
}
