//! The Ops of the calls of scripts.

use std::ffi::OsString;

use eyrie_engine::access::AclKind;
use eyrie_engine::{AttributeChange, Kind, XattrMode};
use eyrie_sim::explore::workload;
use eyrie_sim::script::Call;

use super::PathOp;
use super::path_op::{
    append, bytes, create, directory, fallocate, link, put, rename, set_size, unlink, write, xattr,
};
use crate::ops::InitialContent;

/// Returns the Op of a script's call. Returns `None` for a batch, for `tmpfile`, which makes several Ops on
/// an open file, and for calls that only make changes durable. The Op of `quota` replaces all limits.
///
/// In POSIX, `creat` of an existing file truncates the file. The Op fails instead, and this failure is a case
/// too.
fn of_call(call: &Call) -> Option<PathOp> {
    let op = match call {
        Call::Creat { path, .. } => create(&relative(path), Kind::File, InitialContent::Empty),
        Call::Mkdir { path, .. } => directory(&relative(path)),
        Call::Symlink { target, path } => {
            create(&relative(path), Kind::Symlink, InitialContent::Bytes(bytes(target.len(), 1)))
        }
        Call::Link { from, to } => link(&relative(to), &relative(from)),
        Call::Unlink { path } => unlink(&relative(path)),
        Call::Rmdir { path } => PathOp::RemoveDirectory { path: relative(path) },
        Call::Rename { from, to, mode } => rename(&relative(from), &relative(to), *mode),
        Call::Write { path, offset, length, .. } => write(&relative(path), *offset, *length as usize),
        Call::Append { path, length, .. } => append(&relative(path), *length as usize),
        Call::Truncate { path, length } => set_size(&relative(path), *length),
        Call::Fallocate { path, mode, offset, length } => fallocate(&relative(path), *mode, *offset, *length),
        Call::Clone { from, from_offset, to, to_offset, length } => PathOp::CloneRange {
            from: (relative(from), *from_offset),
            to: (relative(to), *to_offset),
            length: *length,
        },
        Call::Setxattr { path, name, value } => match AclKind::of_name(name) {
            Some(kind) => PathOp::SetAcl { path: relative(path), kind, acl: value.clone() },
            None => xattr(&relative(path), &String::from_utf8_lossy(name), value.len(), XattrMode::Set),
        },
        Call::Removexattr { path, name } => match AclKind::of_name(name) {
            Some(kind) => PathOp::SetAcl { path: relative(path), kind, acl: Vec::new() },
            None => {
                PathOp::RemoveXattr { path: relative(path), name: String::from_utf8_lossy(name).into_owned() }
            }
        },
        Call::Chmod { path, mode } => {
            set_attributes(path, AttributeChange { mode: Some(*mode), ..AttributeChange::default() })
        }
        &Call::Chown { ref path, uid, gid } => {
            set_attributes(path, AttributeChange { uid, gid, ..AttributeChange::default() })
        }
        &Call::Chattr { ref path, flags } => {
            set_attributes(path, AttributeChange { flags: Some(flags), ..AttributeChange::default() })
        }
        &Call::Project { ref path, project } => {
            set_attributes(path, AttributeChange { project: Some(project), ..AttributeChange::default() })
        }
        Call::Utimes { path, accessed, modified } => {
            let (accessed, modified) = (Some(*accessed), Some(*modified));
            set_attributes(path, AttributeChange { accessed, modified, ..AttributeChange::default() })
        }
        &Call::Quota { account, limits } => PathOp::SetLimits { account, limits },
        Call::Read { path } => PathOp::MarkAccess { path: relative(path) },
        Call::Put { dir, key, length, .. } => put(&below(dir, key), *length as usize),
        Call::Erase { dir, key } => PathOp::Erase { path: below(dir, key) },
        Call::Batch { .. }
        | Call::Tmpfile { .. }
        | Call::Fsync { .. }
        | Call::Fdatasync { .. }
        | Call::Sync => return None,
    };
    Some(op)
}

fn set_attributes(path: &OsString, change: AttributeChange) -> PathOp {
    PathOp::SetAttributes { path: relative(path), change }
}

fn relative(path: &OsString) -> String {
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

fn below(dir: &OsString, key: &[u8]) -> String {
    format!("{}/{}", relative(dir), String::from_utf8_lossy(key)).trim_start_matches('/').to_owned()
}

/// Returns the Ops of all scripts of the crash explorer that consist of one call.
pub(super) fn of_explorer() -> Vec<PathOp> {
    let scripts = workload::singles();
    let lines = scripts.iter().flat_map(|script| script.lines());
    lines.filter_map(|line| of_call(&line.call)).collect()
}
