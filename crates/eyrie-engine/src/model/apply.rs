//! Applies Ops to the model. The module `batch` applies batches, and the module `xattr` changes extended
//! attributes.

use super::data::FileData;
use super::state::{ModelBody, ModelDirectory, ModelState};
use crate::op::{CAPABILITY_XATTR, DEVICE_MAX, FILE_MAX, VALUE_MAX, Whiteout, is_target};
use crate::{
    Applied, AttributeChange, Content, Error, Kind, ObjectId, Op, Owner, RenameMode, Result, SetIds, Time,
    access,
};

/// Mask of all permission bits.
const MODE_MASK: u16 = 0o7777;

impl ModelState {
    /// Applies `op`. All checks come before the first change, except in a batch, which changes a copy.
    pub(super) fn apply(&mut self, op: &Op<'_>) -> Result<Applied> {
        match *op {
            Op::Create { dir, name, id, owner, content, time } => {
                self.create(dir, name, id, owner, content, time).map(done)
            }
            Op::CreateUnnamed { dir, id, owner, linkable, time } => {
                self.create_unnamed(dir, id, owner, linkable, time).map(done)
            }
            Op::Link { dir, name, id, time } => self.link(dir, name, id, time).map(done),
            Op::Unlink { dir, name, time } => self.unlink(dir, name, time).map(done),
            Op::RemoveDirectory { dir, name, time } => self.remove_directory(dir, name, time).map(done),
            Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time } => {
                self.rename((from_dir, from_name), (to_dir, to_name), mode, whiteout, time)
            }
            Op::Write { id, offset, data, set_ids, time } => {
                self.write(id, Some(offset), data, set_ids, time)
            }
            Op::Append { id, data, set_ids, time } => self.write(id, None, data, set_ids, time),
            Op::SetSize { id, size, set_ids, time } => {
                self.set_size(id, size)?;
                self.written(id, set_ids, time).map(done)
            }
            Op::Fallocate { id, mode, offset, length, set_ids, time } => {
                self.fallocate(id, mode, offset, length)?;
                self.written(id, set_ids, time).map(done)
            }
            Op::CloneRange { source, source_offset, id, offset, length, set_ids, time } => {
                match self.clone_range((source, source_offset), (id, offset), length)? {
                    true => self.written(id, set_ids, time).map(done),
                    false => Ok(Applied::default()),
                }
            }
            Op::SetAttributes { id, change, time } => self.set_attributes(id, change, time).map(done),
            Op::MarkAccess { id, time } => {
                self.object_mut(id)?.accessed = time;
                Ok(Applied::default())
            }
            Op::SetXattr { id, name, value, mode, time } => {
                self.set_xattr(id, name, value, mode, time).map(done)
            }
            Op::RemoveXattr { id, name, time } => self.remove_xattr(id, name, time).map(done),
            Op::SetAcl { id, kind, acl, drops_set_gid, time } => {
                self.set_acl(id, kind, acl, drops_set_gid, time).map(done)
            }
            Op::Put { dir, name, id, owner, data, time } => self.put(dir, name, id, owner, data, time),
            Op::Erase { dir, name, time } => self.erase(dir, name, time).map(done),
            Op::Expect { .. } => Err(Error::Invalid("only a batch can have conditions")),
            Op::Batch { dir, ops, time } => self.batch(dir, ops, time).map(done),
        }
    }

    fn create(
        &mut self,
        dir: ObjectId,
        name: &[u8],
        id: ObjectId,
        owner: Owner,
        content: Content<'_>,
        time: Time,
    ) -> Result<()> {
        let taken = self.entry(dir, name)?.is_some();
        if taken {
            return Err(Error::Exists);
        }
        if self.is_removed(dir)? {
            return Err(Error::NotFound);
        }
        let body = match (id.kind(), content) {
            (Kind::File, Content::Empty) => ModelBody::Data(FileData::default()),
            (Kind::File, Content::Bytes(bytes)) => ModelBody::Data(FileData::from_bytes(bytes)),
            (Kind::Symlink, Content::Bytes(target)) if is_target(target) => {
                ModelBody::Data(FileData::from_bytes(target))
            }
            (Kind::Directory, Content::Empty) => ModelBody::Directory(ModelDirectory::new(dir)),
            (Kind::Fifo | Kind::Socket, Content::Empty) => ModelBody::Nothing,
            (Kind::CharDevice | Kind::BlockDevice, Content::Device(device)) if device <= DEVICE_MAX => {
                ModelBody::Device(device)
            }
            _ => return Err(Error::Invalid("an object of this kind cannot start with this content")),
        };
        let (owner, xattrs) = self.inherited(dir, id.kind(), owner)?;
        self.check_new(id, owner)?;
        self.insert(id, owner, body, time);
        self.object_mut(id)?.xattrs = xattrs;
        self.object_mut(id)?.project = self.tree_of(dir)?;
        self.directory_mut(dir)?.set(name, id);
        self.touch(dir, time)
    }

    /// Makes a file without a name. As on tmpfs, the directory may be a removed one.
    fn create_unnamed(
        &mut self,
        dir: ObjectId,
        id: ObjectId,
        owner: Owner,
        linkable: bool,
        time: Time,
    ) -> Result<()> {
        self.directory(dir)?;
        if id.kind() != Kind::File {
            return Err(Error::Invalid("only a file can be made without a name"));
        }
        let (owner, xattrs) = self.inherited(dir, id.kind(), owner)?;
        self.check_new(id, owner)?;
        let project = self.tree_of(dir)?;
        self.insert(id, owner, ModelBody::Data(FileData::default()), time);
        let object = self.object_mut(id)?;
        object.xattrs = xattrs;
        object.project = project;
        object.names = 0;
        object.is_linkable = linkable;
        Ok(())
    }

    fn check_new(&self, id: ObjectId, owner: Owner) -> Result<()> {
        if self.objects.contains_key(&id) {
            return Err(Error::Invalid("the id of the new object is in use"));
        }
        check_mode(owner.mode)
    }

    fn link(&mut self, dir: ObjectId, name: &[u8], id: ObjectId, time: Time) -> Result<()> {
        let taken = self.entry(dir, name)?.is_some();
        let object = self.object(id)?;
        if taken {
            return Err(Error::Exists);
        }
        if self.is_removed(dir)? {
            return Err(Error::NotFound);
        }
        if id.is_directory() {
            return Err(Error::NotPermitted);
        }
        self.check_tree(dir, id)?;
        if object.names == 0 && !object.is_linkable {
            return Err(Error::NotFound);
        }
        let names = object.names.checked_add(1).ok_or(Error::TooManyLinks)?;
        let object = self.object_mut(id)?;
        object.is_linkable = false;
        object.names = names;
        object.changed = time;
        self.directory_mut(dir)?.set(name, id);
        self.touch(dir, time)
    }

    fn unlink(&mut self, dir: ObjectId, name: &[u8], time: Time) -> Result<()> {
        let id = self.entry(dir, name)?.ok_or(Error::NotFound)?;
        if id.is_directory() {
            return Err(Error::IsDirectory);
        }
        self.remove_entry(dir, name, id, time)
    }

    fn remove_directory(&mut self, dir: ObjectId, name: &[u8], time: Time) -> Result<()> {
        let id = self.entry(dir, name)?.ok_or(Error::NotFound)?;
        if !self.directory(id)?.is_empty() {
            return Err(Error::NotEmpty);
        }
        self.directory_changes += 1;
        self.remove_entry(dir, name, id, time)
    }

    fn remove_entry(&mut self, dir: ObjectId, name: &[u8], id: ObjectId, time: Time) -> Result<()> {
        self.directory_mut(dir)?.remove(name);
        self.touch(dir, time)?;
        self.drop_name(id, time)
    }

    /// Renames an entry. The first check is that of the whiteout. After the checks of both directories and
    /// names, the order is: a missing source name, a removed directory, a target name that exists
    /// (`NoReplace`) or is missing (`Exchange`), loops, one object under both names, kinds, a directory that
    /// is not empty, another tree. Linux has the same order, except that it reports a removed directory
    /// first.
    fn rename(
        &mut self,
        (from_dir, from_name): (ObjectId, &[u8]),
        (to_dir, to_name): (ObjectId, &[u8]),
        mode: RenameMode,
        whiteout: Option<Whiteout>,
        time: Time,
    ) -> Result<Applied> {
        let is_whiteout = |new: Whiteout| new.id.kind() == Kind::CharDevice;
        if whiteout.map(is_whiteout) != mode.leaves_whiteout().then_some(true) {
            return Err(Error::Invalid(
                "the mode of a rename needs a whiteout device, or allows no whiteout",
            ));
        }
        let moved = self.entry(from_dir, from_name)?;
        let target = self.entry(to_dir, to_name)?;
        let moved = moved.ok_or(Error::NotFound)?;
        if self.is_removed(to_dir)? {
            return Err(Error::NotFound);
        }
        let exchange = mode == RenameMode::Exchange;
        match target {
            Some(_) if mode.needs_free_name() => return Err(Error::Exists),
            None if exchange => return Err(Error::NotFound),
            _ => {}
        }
        let is_loop = self.is_within(to_dir, moved)?
            || exchange && target.map_or(Ok(false), |target| self.is_within(from_dir, target))?;
        if is_loop {
            return Err(Error::Invalid("a directory cannot move into itself"));
        }
        if target == Some(moved) {
            return Ok(Applied::default());
        }
        if let Some(target) = target.filter(|_| !exchange) {
            match (moved.is_directory(), target.is_directory()) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                (true, true) if !self.directory(target)?.is_empty() => return Err(Error::NotEmpty),
                _ => {}
            }
        }

        self.check_tree(to_dir, moved)?;
        if let Some(target) = target.filter(|_| exchange) {
            self.check_tree(from_dir, target)?;
        }
        if let Some(Whiteout { id, owner }) = whiteout {
            let (owner, xattrs) = self.inherited(from_dir, id.kind(), owner)?;
            self.check_new(id, owner)?;
            self.insert(id, owner, ModelBody::Device(0), time);
            self.object_mut(id)?.xattrs = xattrs;
            self.object_mut(id)?.project = self.tree_of(from_dir)?;
        }

        if moved.is_directory() || target.is_some_and(ObjectId::is_directory) {
            self.directory_changes += 1;
        }
        match target {
            Some(target) if exchange => self.place(from_dir, from_name, target, time)?,
            _ => self.directory_mut(from_dir)?.remove(from_name),
        }
        if let Some(Whiteout { id, .. }) = whiteout {
            self.directory_mut(from_dir)?.set(from_name, id);
        }
        self.place(to_dir, to_name, moved, time)?;
        self.touch(from_dir, time)?;
        self.touch(to_dir, time)?;
        if let Some(target) = target.filter(|_| !exchange) {
            self.drop_name(target, time)?;
        }
        Ok(Applied { created: whiteout.is_some(), ..Applied::default() })
    }

    /// Makes a name refer to a moved object.
    fn place(&mut self, dir: ObjectId, name: &[u8], id: ObjectId, time: Time) -> Result<()> {
        self.directory_mut(dir)?.set(name, id);
        if id.is_directory() {
            self.directory_mut(id)?.parent = Some(dir);
        }
        self.object_mut(id)?.changed = time;
        Ok(())
    }

    /// Writes at `offset`, or at the end of the file if `offset` is `None`.
    fn write(
        &mut self,
        id: ObjectId,
        offset: Option<u64>,
        bytes: &[u8],
        set_ids: SetIds,
        time: Time,
    ) -> Result<Applied> {
        let size = self.file_mut(id)?.size();
        let applied = Applied { offset: if offset.is_none() { size } else { 0 }, ..Applied::default() };
        if bytes.is_empty() {
            return Ok(applied);
        }
        let offset = offset.unwrap_or(size);
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > FILE_MAX) {
            return Err(Error::TooLarge);
        }
        self.file_mut(id)?.write(offset, bytes);
        self.written(id, set_ids, time)?;
        Ok(applied)
    }

    /// Applies the side effects of a change of a file's bytes: new times, a new version, cleared set-id
    /// bits, and no capability.
    fn written(&mut self, id: ObjectId, set_ids: SetIds, time: Time) -> Result<()> {
        let object = self.object_mut(id)?;
        object.owner.mode = access::mode_after(object.owner.mode, set_ids);
        object.xattrs.remove(CAPABILITY_XATTR);
        self.touch(id, time)
    }

    fn set_size(&mut self, id: ObjectId, size: u64) -> Result<()> {
        let data = self.file_mut(id)?;
        if size > FILE_MAX {
            return Err(Error::TooLarge);
        }
        data.set_size(size);
        Ok(())
    }

    pub(super) fn file_mut(&mut self, id: ObjectId) -> Result<&mut FileData> {
        check_file(id)?;
        match &mut self.object_mut(id)?.body {
            ModelBody::Data(data) => Ok(data),
            _ => unreachable!("the kind in an id is the kind of its object"),
        }
    }

    fn set_attributes(&mut self, id: ObjectId, change: AttributeChange, time: Time) -> Result<()> {
        let AttributeChange {
            mode,
            size,
            set_ids,
            drops_capability,
            uid,
            gid,
            accessed,
            modified,
            flags,
            project,
        } = change;
        self.object_mut(id)?;
        check_mode(mode.unwrap_or(0))?;
        if flags.is_some() && !id.kind().has_inode_flags() {
            return Err(Error::Invalid("only files and directories have inode flags"));
        }
        if let Some(size) = size {
            self.set_size(id, size)?;
        }
        let modified = modified.or(size.map(|_| time));
        let object = self.object_mut(id)?;
        if drops_capability || size.is_some() {
            object.xattrs.remove(CAPABILITY_XATTR);
        }
        object.owner.mode = access::mode_after(mode.unwrap_or(object.owner.mode), set_ids);
        object.owner.uid = uid.unwrap_or(object.owner.uid);
        object.owner.gid = gid.unwrap_or(object.owner.gid);
        object.accessed = accessed.unwrap_or(object.accessed);
        object.modified = modified.unwrap_or(object.modified);
        object.changed = time;
        object.flags = flags.unwrap_or(object.flags);
        object.project = project.unwrap_or(object.project);
        object.changes += u64::from(size.is_some());
        if id.is_directory() && (mode.is_some() || uid.is_some() || gid.is_some() || flags.is_some()) {
            self.directory_changes += 1;
        }
        Ok(())
    }

    pub(super) fn put(
        &mut self,
        dir: ObjectId,
        name: &[u8],
        id: ObjectId,
        owner: Owner,
        bytes: &[u8],
        time: Time,
    ) -> Result<Applied> {
        let existing = self.entry(dir, name)?;
        if id.kind() != Kind::File {
            return Err(Error::Invalid("the value of a key must be a file"));
        }
        if bytes.len() > VALUE_MAX {
            return Err(Error::TooLarge);
        }
        let Some(existing) = existing else {
            self.create(dir, name, id, owner, Content::Bytes(bytes), time)?;
            return Ok(Applied { created: true, ..Applied::default() });
        };
        *self.file_mut(existing)? = FileData::from_bytes(bytes);
        self.written(existing, SetIds::Keep, time)?;
        Ok(Applied::default())
    }

    pub(super) fn erase(&mut self, dir: ObjectId, name: &[u8], time: Time) -> Result<()> {
        let id = self.entry(dir, name)?.ok_or(Error::NotFound)?;
        check_file(id)?;
        self.remove_entry(dir, name, id, time)
    }
}

fn done((): ()) -> Applied {
    Applied::default()
}

fn check_mode(mode: u16) -> Result<()> {
    if mode & !MODE_MASK == 0 { Ok(()) } else { Err(Error::Invalid("a mode must have at most twelve bits")) }
}

pub(super) fn check_file(id: ObjectId) -> Result<()> {
    match id.kind() {
        Kind::File => Ok(()),
        Kind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid("the object is no file")),
    }
}
