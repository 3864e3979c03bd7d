//! Inode flags in a comparison with the kernel.

use std::path::Path;

use eyrie::posix::{OpenFlags, Posix, WalkStep};
use eyrie::{InodeFlags, Kind, PosixExt};

/// True if the host has the flags. The root directory of the host has no flags afterwards.
pub(super) fn has_all<P: Posix>(host: &P) -> bool {
    let root = host.open("/".into(), OpenFlags::READ, 0).expect("the root can be opened");
    let set = |flags| host.set_inode_flags(&root, flags);
    let has = set(InodeFlags::all()).and_then(|()| set(InodeFlags::empty()));
    host.close(root).expect("open files close");
    has.is_ok()
}

/// Clears the flags of all files and directories, as root.
pub(super) fn clear<P: Posix>(fs: &P) {
    clear_one(fs, "/".as_ref());
    for step in fs.walk("/").expect("root reads everything") {
        if let WalkStep::Entry(entry) = step
            && matches!(entry.kind, Kind::File | Kind::Directory)
        {
            clear_one(entry.dir(), entry.name());
        }
    }
}

fn clear_one<P: Posix>(fs: &P, path: &Path) {
    let file = fs.open(path.into(), OpenFlags::READ, 0).expect("root opens everything");
    match fs.inode_flags(&file) {
        Ok(flags) if flags.is_empty() => {}
        Ok(_) => fs.set_inode_flags(&file, InodeFlags::empty()).expect("root clears all flags"),
        // The host has no flags.
        Err(_) => {}
    }
    fs.close(file).expect("open files close");
}
