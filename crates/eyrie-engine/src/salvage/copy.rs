//! Copies one object: its bytes, its extended attributes.

use eyrie_medium::Addr;
use eyrie_medium::epoch::pin;

use super::source::Object;
use super::tree::Salvage;
use super::words;
use crate::object::mfile::{self, Part};
use crate::object::xattr;
use crate::op::{DEVICE_MAX, TARGET_MAX, is_target, is_xattr_name};
use crate::{Content, Error, Kind, ObjectId, Op, Result, SetIds, XattrMode};

/// Bytes that are read and written at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// Largest value of a key, in bytes.
const MAX_VALUE: u64 = 64 << 20;

/// Where a new object goes.
pub(super) struct Place<'a> {
    pub dir: ObjectId,
    pub name: &'a [u8],
    /// The names from the root on, this one the last.
    pub path: &'a [Vec<u8>],
}

/// A range of a file that is there.
struct Range {
    offset: u64,
    len: u64,
    addr: Addr,
}

/// A range of a file that is not, and why.
struct Lost {
    offset: u64,
    len: u64,
    error: Error,
}

type Either = std::result::Result<Range, Lost>;

impl Salvage<'_> {
    /// Makes an object that is no directory, and the bytes of it that can be read; its id.
    ///
    /// # Errors
    /// Those of the target, and `Corrupt` when there would be nothing left of it.
    pub(super) fn copy_object(&mut self, object: &Object, place: &Place<'_>) -> Result<ObjectId> {
        let id = match object.id.kind() {
            Kind::File => self.copy_file(object, place)?,
            Kind::Symlink => {
                let target = self.whole(object, TARGET_MAX as u64)?;
                let target = target.filter(|target| is_target(target));
                let target = target.ok_or(Error::Invalid("the target of the link cannot be read"))?;
                self.create(object, place, Content::Bytes(&target))?
            }
            Kind::CharDevice | Kind::BlockDevice => {
                if object.device > DEVICE_MAX {
                    return Err(Error::Invalid("the number of the device is damaged"));
                }
                self.create(object, place, Content::Device(object.device))?
            }
            _ => self.create(object, place, Content::Empty)?,
        };
        self.finish(object, id, place.path)?;
        Ok(id)
    }

    /// Copies extended attributes, then what everything before would change.
    pub(super) fn finish(&mut self, object: &Object, id: ObjectId, path: &[Vec<u8>]) -> Result<()> {
        self.copy_xattrs(object, id, path)?;
        self.set_attributes(object, id)
    }

    pub(super) fn set_attributes(&self, object: &Object, id: ObjectId) -> Result<()> {
        let (change, time) = (object.change(), object.changed);
        self.to.apply(&Op::SetAttributes { id, change, time })?;
        Ok(())
    }

    fn create(&mut self, object: &Object, place: &Place<'_>, content: Content<'_>) -> Result<ObjectId> {
        self.make(object.id.kind(), |id| {
            let (dir, name, owner, time) = (place.dir, place.name, object.owner(), object.created);
            Op::Create { dir, name, id, owner, content, time }
        })
    }

    fn copy_file(&mut self, object: &Object, place: &Place<'_>) -> Result<ObjectId> {
        if let Some(bytes) = self.whole(object, if object.is_sealed { MAX_VALUE } else { CHUNK_BYTES })? {
            self.done.bytes += bytes.len() as u64;
            if object.is_sealed {
                return self.make(Kind::File, |id| {
                    let (dir, name, owner, time) = (place.dir, place.name, object.owner(), object.created);
                    Op::Put { dir, name, id, owner, data: &bytes, time }
                });
            }
            return self.create(object, place, Content::Bytes(&bytes));
        }
        let id = self.create(object, place, Content::Empty)?;
        match self.copy_ranges(object, id, place.path) {
            Ok(()) => Ok(id),
            Err(error) => {
                // Half a file that has no room is none.
                let time = object.changed;
                self.to.apply(&Op::Unlink { dir: place.dir, name: place.name, time })?;
                Err(error)
            }
        }
    }

    /// All bytes of an object that has at most `most`, all of them readable and in one place.
    fn whole(&self, object: &Object, most: u64) -> Result<Option<Vec<u8>>> {
        let _pin = pin();
        if object.size > most || object.root.height() != 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; object.size as usize];
        let mut is_whole = true;
        self.parts(object, &mut |part| {
            is_whole &= match part {
                Ok(Range { offset: 0, len, addr }) if len == object.size => {
                    self.from.medium().read(addr, &mut bytes).is_ok()
                }
                _ => false,
            };
            Ok(())
        })?;
        // A null root of some size is a hole, which stays one.
        Ok((is_whole && (object.size == 0 || !object.root.is_null())).then_some(bytes))
    }

    /// Shows the ranges of a file that are there, and what is not.
    fn parts(&self, object: &Object, show: &mut dyn FnMut(Either) -> Result<()>) -> Result<()> {
        let from = &self.from;
        mfile::salvage(from.medium(), object.root, object.size, &mut |part| match part {
            Part::Node(_) => Ok(()),
            Part::Lost(offset, len, error) => show(Err(Lost { offset, len, error })),
            Part::Data(offset, len, extent) => match from.volume.require_data(extent.addr, len) {
                Ok(()) => show(Ok(Range { offset, len, addr: extent.addr })),
                Err(error) => show(Err(Lost { offset, len, error })),
            },
        })
    }

    fn copy_ranges(&mut self, object: &Object, id: ObjectId, path: &[Vec<u8>]) -> Result<()> {
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
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        let mut end = 0;
        for Range { offset, len, addr } in ranges {
            let mut at = 0;
            while at < len {
                let part = &mut buffer[..CHUNK_BYTES.min(len - at) as usize];
                let read = {
                    let _pin = pin();
                    self.from.medium().read(addr.add(at), part)
                };
                let (start, bytes) = (offset + at, part.len() as u64);
                match read {
                    Ok(()) => {
                        self.to.apply(&Op::Write {
                            id,
                            offset: start,
                            data: part,
                            set_ids: SetIds::Keep,
                            time: object.changed,
                        })?;
                        self.done.bytes += bytes;
                        end = start + bytes;
                    }
                    Err(fault) => lost.push(Lost { offset: start, len: bytes, error: fault.into() }),
                }
                at += bytes;
            }
        }
        if end != object.size {
            self.to.apply(&Op::SetSize {
                id,
                size: object.size,
                set_ids: SetIds::Keep,
                time: object.changed,
            })?;
        }
        lost.sort_by_key(|lost| lost.offset);
        if let Some(Lost { offset, error, .. }) = lost.first() {
            let bytes = lost.iter().fold(0_u64, |sum, lost| sum.saturating_add(lost.len));
            let what = format!("{bytes} bytes are lost, the first at {offset}: {}", words(error));
            self.lose(path, &what);
        }
        Ok(())
    }

    fn copy_xattrs(&mut self, object: &Object, id: ObjectId, path: &[Vec<u8>]) -> Result<()> {
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
        for (name, value) in found {
            if !is_xattr_name(&name) {
                self.lose(path, "an extended attribute is lost: its name has a zero byte");
                continue;
            }
            let (mode, time) = (XattrMode::Set, object.changed);
            self.to.apply(&Op::SetXattr { id, name: &name, value: &value, mode, time })?;
        }
        if let Err(error) = read {
            self.lose(path, &format!("extended attributes are lost: {}", words(&error)));
        }
        Ok(())
    }
}
