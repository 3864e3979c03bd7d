//! Copies one object: its bytes and its extended attributes.

use eyrie_medium::epoch::pin;
use eyrie_medium::{Addr, PAGE_SIZE};

use super::path::NamePath;
use super::source::DamagedObject;
use super::tree::{NewName, Salvage};
use super::words;
use crate::access::{self, AclKind};
use crate::object::mfile::{self, SalvagedData, SalvagedPart};
use crate::object::xattr;
use crate::op::{DEVICE_MAX, TARGET_MAX, VALUE_MAX, is_target, is_xattr_name};
use crate::{Content, Error, Kind, ObjectId, Op, Result, SetIds, XattrMode};

/// Maximum number of bytes that are copied by one read and one write. A sealed file in one extent is an
/// exception, because it may be the value of a key, which one Op must create whole.
const COPY_BYTES: u64 = 1 << 20;

/// A readable range of a file.
struct ReadableRange {
    offset: u64,
    len: u64,
    addr: Addr,
    /// True if other files may have the same extent.
    is_shared: bool,
}

/// A lost range of a file, and the reason.
struct LostRange {
    offset: u64,
    len: u64,
    error: Error,
}

type SalvagedRange = std::result::Result<ReadableRange, LostRange>;

/// Returns the number of a device.
fn device(object: &DamagedObject) -> Result<u64> {
    let number = Some(object.device).filter(|&number| number <= DEVICE_MAX);
    number.ok_or(Error::Invalid("the number of the device is damaged"))
}

impl Salvage<'_> {
    /// Creates an object that is not a directory, with all its readable bytes. Returns its id.
    ///
    /// # Errors Errors of the new volume, which then has no part of the object, unless the removal fails,
    /// too. `Invalid` if the target of a symbolic link cannot be read, or if the number of a device is
    /// damaged.
    pub(super) fn copy_object(&mut self, object: &DamagedObject, place: &NewName<'_>) -> Result<ObjectId> {
        self.cloned.begin_object();
        let (id, bytes) = match object.id.kind() {
            Kind::File => self.copy_file(object, place)?,
            Kind::Symlink => {
                let target = self.target(object)?;
                (self.create(object, place, Content::Bytes(&target))?, 0)
            }
            Kind::CharDevice | Kind::BlockDevice => {
                let number = device(object)?;
                (self.create(object, place, Content::Device(number))?, 0)
            }
            _ => (self.create(object, place, Content::Empty)?, 0),
        };
        if let Err(error) = self.finish(object, id, place.path) {
            return Err(self.without_copy(object, place, error));
        }
        self.done.bytes += bytes;
        Ok(id)
    }

    /// Removes an incomplete copy, because the new volume has refused a part of it with `error`, for example
    /// because the volume is full. Returns this error, or that of the removal. After a fault the salvage
    /// ends, so the copy stays.
    fn without_copy(&mut self, object: &DamagedObject, place: &NewName<'_>, error: Error) -> Error {
        self.cloned.forget_object();
        if matches!(error, Error::Fault(_)) {
            return error;
        }
        let (dir, name, time) = (place.dir, place.name, object.changed);
        self.to.apply_above_limits(&Op::Unlink { dir, name, time }).err().unwrap_or(error)
    }

    /// Checks that the contents of an object can be copied. Does not check that the name of the copy is free.
    ///
    /// # Errors
    /// `Invalid` as [`Salvage::copy_object`].
    pub(super) fn check_content(&self, object: &DamagedObject) -> Result<()> {
        match object.id.kind() {
            Kind::Symlink => self.target(object).map(drop),
            Kind::CharDevice | Kind::BlockDevice => device(object).map(drop),
            _ => Ok(()),
        }
    }

    /// Returns the target of a symbolic link.
    fn target(&self, object: &DamagedObject) -> Result<Vec<u8>> {
        let target = self.whole(object, TARGET_MAX as u64)?.filter(|target| is_target(target));
        target.ok_or(Error::Invalid("the target of the link cannot be read"))
    }

    /// Copies the extended attributes, and then sets mode, owner and times. The times are set last, because
    /// each earlier Op on the object changed some of them.
    pub(super) fn finish(&mut self, object: &DamagedObject, id: ObjectId, path: &NamePath) -> Result<()> {
        self.copy_xattrs(object, id, path)?;
        self.set_attributes(object, id)
    }

    pub(super) fn set_attributes(&self, object: &DamagedObject, id: ObjectId) -> Result<()> {
        let (change, time) = (object.change(), object.changed);
        self.to.apply_above_limits(&Op::SetAttributes { id, change, time })?;
        Ok(())
    }

    fn create(
        &mut self,
        object: &DamagedObject,
        place: &NewName<'_>,
        content: Content<'_>,
    ) -> Result<ObjectId> {
        self.make(object.id.kind(), |id| {
            let (dir, name, owner, time) = (place.dir, place.name, object.owner(), object.created);
            Op::Create { dir, name, id, owner, content, time }
        })
    }

    /// Creates a file with the readable bytes of `object`. Returns its id and the number of bytes.
    fn copy_file(&mut self, object: &DamagedObject, place: &NewName<'_>) -> Result<(ObjectId, u64)> {
        if let Some(bytes) =
            self.whole(object, if object.is_sealed { VALUE_MAX as u64 } else { COPY_BYTES })?
        {
            // A sealed file is the value of a key, or a file that had a view. The two look the same. One
            // `Op::Put` creates the copy, so that it is sealed, too.
            let id = if object.is_sealed {
                // A put would replace the value of another object with this name.
                if self.to.lookup(place.dir, place.name)?.is_some() {
                    return Err(Error::Exists);
                }
                self.make(Kind::File, |id| {
                    let (dir, name, owner, time) = (place.dir, place.name, object.owner(), object.created);
                    Op::Put { dir, name, id, owner, data: &bytes, time }
                })
            } else {
                self.create(object, place, Content::Bytes(&bytes))
            }?;
            return Ok((id, bytes.len() as u64));
        }
        let id = self.create(object, place, Content::Empty)?;
        match self.copy_ranges(object, id, place.path) {
            Ok(bytes) => Ok((id, bytes)),
            Err(error) => Err(self.without_copy(object, place, error)),
        }
    }

    /// Returns all bytes of an object. Returns `None` if the object has more than `most` bytes, if a byte is
    /// unreadable, or if the bytes are not in one extent. Also returns `None` for a hole, and for a shared
    /// extent of an unsealed file, because the caller then copies range by range and can clone.
    fn whole(&self, object: &DamagedObject, most: u64) -> Result<Option<Vec<u8>>> {
        let _pin = pin();
        // The ranges of a shared extent are cloned, except in a sealed file, which one Op must create.
        let is_cloned = object.file.root.is_shared() && !object.is_sealed;
        if object.file.size > most || object.file.root.height() != 0 || is_cloned {
            return Ok(None);
        }
        let mut bytes = vec![0; object.file.size as usize];
        let mut is_whole = true;
        self.parts(object, &mut |part| {
            is_whole &= match part {
                Ok(ReadableRange { offset: 0, len, addr, .. }) if len == object.file.size => {
                    self.from.medium().read(addr, &mut bytes).is_ok()
                }
                _ => false,
            };
            Ok(())
        })?;
        // A file with a null root and a size above 0 is one hole. For such a file the call returns `None`, so
        // that the copy has a hole too.
        Ok((is_whole && (object.file.size == 0 || !object.file.root.is_null())).then_some(bytes))
    }

    /// Calls `show` with the readable and the lost ranges of a file.
    fn parts(&self, object: &DamagedObject, show: &mut dyn FnMut(SalvagedRange) -> Result<()>) -> Result<()> {
        let from = &self.from;
        mfile::salvage(from.medium(), object.file, &mut |part| match part {
            SalvagedPart::Node(_) => Ok(()),
            SalvagedPart::Lost(offset, len, error) => show(Err(LostRange { offset, len, error })),
            SalvagedPart::Data(SalvagedData { offset, len, extent, is_shared }) => {
                match from.volume.require_data(extent.addr, len) {
                    Ok(()) => show(Ok(ReadableRange { offset, len, addr: extent.addr, is_shared })),
                    Err(error) => show(Err(LostRange { offset, len, error })),
                }
            }
        })
    }

    /// Copies the readable ranges of a file. Returns the number of copied bytes.
    fn copy_ranges(&mut self, object: &DamagedObject, id: ObjectId, path: &NamePath) -> Result<u64> {
        let mut ranges = Vec::new();
        let mut lost = Vec::new();
        {
            let _pin = pin();
            self.parts(object, &mut |part| {
                match part {
                    Ok(range) => ranges.push(range),
                    Err(loss) => lost.push(loss),
                }
                Ok(())
            })?;
        }
        let mut buffer = vec![0; COPY_BYTES as usize];
        let (mut end, mut copied) = (0, 0);
        for ReadableRange { offset, len, addr, is_shared } in ranges {
            let mut at = 0;
            // The end of a part that could not be read as a whole. The pages of this part are read one by
            // one, so that only damaged pages are lost.
            let mut single = 0;
            while at < len {
                let (start, place) = (offset + at, addr.add(at));
                if is_shared {
                    let target = (id, start, len - at);
                    let cloned = self.cloned.clone_run(self.to, place, target, object.changed)?;
                    if cloned > 0 {
                        at += cloned;
                        copied += cloned;
                        end = offset + at;
                        continue;
                    }
                }
                // A page that an earlier copy has is cloned, not written again. So a part ends before the
                // next such page.
                let run = if is_shared { self.cloned.new_run(place, len - at) } else { COPY_BYTES };
                let most = if at < single { PAGE_SIZE } else { COPY_BYTES.min(run) };
                let part = &mut buffer[..most.min(len - at) as usize];
                let read = {
                    let _pin = pin();
                    self.from.medium().read(place, part)
                };
                let bytes = part.len() as u64;
                match read {
                    Ok(()) => {
                        self.to.apply_above_limits(&Op::Write {
                            id,
                            offset: start,
                            data: part,
                            set_ids: SetIds::Keep,
                            time: object.changed,
                        })?;
                        copied += bytes;
                        end = start + bytes;
                        if is_shared {
                            self.cloned.note(place, (id, start, bytes));
                        }
                    }
                    Err(_) if bytes > PAGE_SIZE => {
                        single = at + bytes;
                        continue;
                    }
                    Err(fault) => lost.push(LostRange { offset: start, len: bytes, error: fault.into() }),
                }
                at += bytes;
            }
        }
        // The file may end with a hole or a lost range. No write covered that end, so the size is set.
        if end != object.file.size {
            self.to.apply_above_limits(&Op::SetSize {
                id,
                size: object.file.size,
                set_ids: SetIds::Keep,
                time: object.changed,
            })?;
        }
        lost.sort_by_key(|lost| lost.offset);
        if let Some(LostRange { offset, error, .. }) = lost.first() {
            let bytes = lost.iter().fold(0_u64, |sum, lost| sum.saturating_add(lost.len));
            let what = format!("{bytes} bytes are lost, the first at {offset}: {}", words(error));
            self.lose(path, &what);
        }
        Ok(copied)
    }

    fn copy_xattrs(&mut self, object: &DamagedObject, id: ObjectId, path: &NamePath) -> Result<()> {
        let mut found = Vec::new();
        let read = {
            let _pin = pin();
            let medium = self.from.medium();
            xattr::visit(medium, object.xattrs, &mut |name, value| {
                let mut bytes = vec![0; value.bytes];
                medium.read(value.addr, &mut bytes)?;
                found.push((name.to_vec(), bytes));
                Ok(())
            })
        };
        for (name, mut value) in found {
            if !is_xattr_name(&name) {
                self.lose(path, "an extended attribute is lost: its name has a zero byte");
                continue;
            }
            let (mode, time) = (XattrMode::Set, object.changed);
            let kind = AclKind::of_name(&name);
            if kind == Some(AclKind::Access) {
                access::restore_mode(&mut value, object.owner().mode);
            }
            let op = match kind {
                Some(kind) => Op::SetAcl { id, kind, acl: &value, drops_set_gid: false, time },
                None => Op::SetXattr { id, name: &name, value: &value, mode, time },
            };
            match self.to.apply_above_limits(&op) {
                Ok(_) => {}
                Err(error) if error.is_full() || matches!(error, Error::Fault(_)) => return Err(error),
                Err(error) => {
                    let (name, reason) = (name.escape_ascii(), words(&error));
                    self.lose(path, &format!("the extended attribute {name} is lost: {reason}"));
                }
            }
        }
        if let Err(error) = read {
            self.lose(path, &format!("extended attributes are lost: {}", words(&error)));
        }
        Ok(())
    }
}
