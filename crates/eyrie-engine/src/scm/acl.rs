//! ACLs: reading and setting them, and their inheritance by new objects.
//!
//! ACLs are extended attributes with flags in the cold attributes of the header. So a reader of an object
//! without ACLs only tests the flags, which it reads together with the mode.

use eyrie_medium::Medium;
use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};
use zerocopy::IntoBytes;

use super::Scm;
use super::features::Feature;
use super::locks::LockedParent;
use crate::access::{self, Acl};
use crate::engine::StoredProtection;
use crate::object::header::{Cold, Header, Hot, HotChange};
use crate::object::xattr::{self, XattrRoot};
use crate::op::AclKind;
use crate::transaction::Transaction;
use crate::volume::VolumeView;
use crate::{Applied, Error, Kind, ObjectId, Owner, Result, Time, XattrMode};

/// Returns an ACL of an object as the volume stores it. The mode of the object has the rights of the owner,
/// the mask and the others. Therefore a stored access ACL has zero in place of these rights.
fn stored(medium: &Medium, header: Header, cold: &Cold, kind: AclKind) -> Result<Option<Acl>> {
    if cold.flags & Cold::flag_of(kind) == 0 {
        return Ok(None);
    }
    let corrupt = |what| Error::corrupt(header.addr(), what);
    let bytes = xattr::value(medium, XattrRoot::of(header, cold), kind.name())?;
    let bytes = bytes.ok_or_else(|| corrupt("the header says that there is an ACL, but it is missing"))?;
    let acl = Acl::parse(&bytes).ok().flatten().filter(|acl| acl.check().is_ok());
    acl.map(Some).ok_or_else(|| corrupt("impossible ACL"))
}

impl VolumeView {
    /// Works as [`Engine::guards`](crate::Engine::guards).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_guards(&self, id: ObjectId) -> Result<StoredProtection> {
        let _pin = pin();
        let header = self.header(id)?;
        let (_, cold) = header.hot_and_cold(self.medium())?;
        let owner = Owner { mode: cold.mode, uid: cold.uid, gid: cold.gid };
        let access_acl =
            if cold.flags & Cold::ACCESS_ACL == 0 { None } else { self.access_acl(header, &cold)? };
        Ok(StoredProtection {
            owner,
            access_acl,
            has_default_acl: cold.flags & Cold::DEFAULT_ACL != 0,
            flags: cold.inode_flags(),
        })
    }

    /// Returns the access ACL of an object, completed with the rights that the mode of the object has. The
    /// caller holds a pin.
    #[cold]
    fn access_acl(&self, header: Header, cold: &Cold) -> Result<Option<Vec<u8>>> {
        let acl = stored(self.medium(), header, cold, AclKind::Access)?;
        Ok(acl.map(|acl| acl.with_mode(cold.mode).to_bytes()))
    }
}

impl Scm {
    /// Sets or removes an ACL, with the bits of the mode that the ACL decides.
    #[cold]
    pub(super) fn set_acl(
        &self,
        id: ObjectId,
        kind: AclKind,
        bytes: &[u8],
        drops_set_gid: bool,
        time: Time,
    ) -> Result<Applied> {
        let header = self.header(id)?;
        // If the object is stale and the ACL is wrong, the error is `Stale`, as in the model. Therefore the
        // error in `acl` is returned only after the read of the header.
        let acl = access::acl_of_op(id.kind(), kind, bytes);
        let _held = self.locks.hold(&[id]);
        let (hot, mut cold) = header.hot_and_cold(self.medium())?;
        let acl = acl?;
        let new = match kind {
            AclKind::Access => {
                cold.mode = access::mode_with(cold.mode, acl.as_ref(), drops_set_gid);
                acl.and_then(|acl| acl.to_stored())
            }
            AclKind::Default => acl.map(|acl| acl.to_bytes()),
        };
        let change = || self.change_acl(header, (&hot, cold), kind, new.as_deref(), time);
        if new.is_some() { self.with_feature(Feature::ACLS, change) } else { change() }
    }

    /// Stores or removes an ACL, and stores the attributes in `cold`. The caller holds the lock of the
    /// object.
    fn change_acl(
        &self,
        header: Header,
        (hot, mut cold): (&Hot, Cold),
        kind: AclKind,
        new: Option<&[u8]>,
        time: Time,
    ) -> Result<Applied> {
        let mut transaction = Transaction::begin(&self.volume);
        let (root, flag) = (XattrRoot::of(header, &cold), Cold::flag_of(kind));
        if let Some(bytes) = new {
            let set = xattr::set(&mut transaction, root, kind.name(), bytes, XattrMode::Set)?;
            (cold.xattr_root, cold.flags) = (set.raw(), cold.flags | flag);
        } else if cold.flags & flag != 0 {
            let rest = xattr::remove(&mut transaction, root, kind.name())?;
            (cold.xattr_root, cold.flags) = (rest.raw(), cold.flags & !flag);
        }
        cold.set_changed(time);
        header.change_cold(&mut transaction, hot, &cold, HotChange::cold(hot))?;
        // New rights of a directory make cached paths invalid.
        if header.kind() == Kind::Directory {
            self.volume
                .board()
                .changing_directories(|| self.commit_charged(&mut transaction, header, &[], time))?;
        } else {
            self.commit_charged(&mut transaction, header, &[], time)?;
        }
        Ok(Applied::default())
    }

    /// Gives a new object the project id and the ACLs that it inherits from its directory. The object is
    /// written, but nothing leads to it yet. The caller holds the lock of an entry of the directory. Returns
    /// `Stale` if the mode of `owner` has [`Owner::INHERITS`], but the directory has no default ACL any more.
    #[inline]
    pub(super) fn inherit(
        &self,
        transaction: &mut Transaction<'_>,
        parent: &LockedParent,
        id: ObjectId,
        owner: Owner,
    ) -> Result<()> {
        if parent.project != 0 && !broken(SafetyRule::NewObjectIsOfItsTree) {
            self.inherit_project(transaction, parent.project, id)?;
        }
        if !parent.has_default_acl {
            return if owner.mode & Owner::INHERITS == 0 { Ok(()) } else { Err(Error::Stale) };
        }
        if id.kind() == Kind::Symlink { Ok(()) } else { self.inherit_from(transaction, parent.id, id) }
    }

    #[cold]
    fn inherit_project(&self, transaction: &mut Transaction<'_>, project: u32, id: ObjectId) -> Result<()> {
        let place = Header::of(id).cold_line(0);
        let new = Cold { project, ..self.medium().read_value(place)? };
        transaction.write(place, new.as_bytes())
    }

    #[cold]
    fn inherit_from(&self, transaction: &mut Transaction<'_>, dir: ObjectId, id: ObjectId) -> Result<()> {
        let medium = self.medium();
        let header = self.header(dir)?;
        let (_, cold) = header.hot_and_cold(medium)?;
        let Some(acl) = stored(medium, header, &cold, AclKind::Default)? else { return Ok(()) };
        let place = Header::of(id).cold_line(0);
        let mut new: Cold = medium.read_value(place)?;
        new.mode = acl.inherited(new.mode);
        let (access, default) = (acl.to_stored(), id.is_directory().then(|| acl.to_bytes()));
        let mut attributes: Vec<(&[u8], &[u8])> = Vec::new();
        for (kind, bytes) in [(AclKind::Access, &access), (AclKind::Default, &default)] {
            if let Some(bytes) = bytes {
                attributes.push((kind.name(), bytes));
                new.flags |= Cold::flag_of(kind);
            }
        }
        if !attributes.is_empty() {
            new.xattr_root = xattr::first(transaction, &attributes)?.raw();
        }
        transaction.write(place, new.as_bytes())
    }
}
