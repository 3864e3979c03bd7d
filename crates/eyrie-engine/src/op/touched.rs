//! The objects that an Op reads or changes.

use super::{Op, Whiteout};
use crate::ObjectId;

/// An object that an Op reads or changes.
#[derive(Clone, Copy, Debug)]
pub enum Touched<'a> {
    /// The Op names the object by its id. The object may be one that the Op makes.
    Object(ObjectId),
    /// The Op looks up this name. If the name exists, the Op reads or changes its object.
    Name {
        /// The directory.
        dir: ObjectId,
        /// The name.
        name: &'a [u8],
    },
}

impl<'a> Op<'a> {
    /// Calls `visit` with each object that the Op reads or changes.
    pub fn each_touched(&self, visit: &mut dyn FnMut(Touched<'a>)) {
        use Touched::{Name, Object};
        match *self {
            Op::Create { dir, id, .. } | Op::CreateUnnamed { dir, id, .. } | Op::Link { dir, id, .. } => {
                visit(Object(dir));
                visit(Object(id));
            }
            Op::Unlink { dir, name, .. }
            | Op::Erase { dir, name, .. }
            | Op::RemoveDirectory { dir, name, .. }
            | Op::Expect { dir, name, .. } => {
                visit(Object(dir));
                visit(Name { dir, name });
            }
            Op::Rename { from_dir, from_name, to_dir, to_name, whiteout, .. } => {
                visit(Object(from_dir));
                visit(Object(to_dir));
                visit(Name { dir: from_dir, name: from_name });
                visit(Name { dir: to_dir, name: to_name });
                if let Some(Whiteout { id, .. }) = whiteout {
                    visit(Object(id));
                }
            }
            Op::Put { dir, name, id, .. } => {
                visit(Object(dir));
                visit(Object(id));
                visit(Name { dir, name });
            }
            Op::CloneRange { source, id, .. } => {
                visit(Object(source));
                visit(Object(id));
            }
            Op::Write { id, .. }
            | Op::Append { id, .. }
            | Op::SetSize { id, .. }
            | Op::Fallocate { id, .. }
            | Op::SetAttributes { id, .. }
            | Op::MarkAccess { id, .. }
            | Op::SetXattr { id, .. }
            | Op::RemoveXattr { id, .. }
            | Op::SetAcl { id, .. } => visit(Object(id)),
            Op::Batch { dir, ops, .. } => {
                visit(Object(dir));
                ops.iter().for_each(|op| op.each_touched(visit));
            }
        }
    }
}
