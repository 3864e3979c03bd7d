//! The options of a service.

use eyrie_medium::PagedOptions;

/// Options of a service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// The users who may connect, besides the user of the service and root. `None` admits every user.
    pub users: Option<Vec<u32>>,
    /// Memory and timing of a volume on a disk.
    pub paged: PagedOptions,
    /// True if clients may log changes of objects that no other client uses, and go on without an answer
    /// ([`eyrie_engine::change_log`]). Only a volume in shared memory defers changes.
    pub defers_changes: bool,
}

impl Default for ServeOptions {
    /// Admits only the user of the service and root, with [`PagedOptions::for_host`]. Clients may log
    /// changes.
    fn default() -> ServeOptions {
        ServeOptions { users: Some(Vec::new()), paged: PagedOptions::for_host(), defers_changes: true }
    }
}
