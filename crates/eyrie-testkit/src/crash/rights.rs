//! A volume whose objects have ACLs, capabilities, inode flags, project ids, and owners with limits.

use eyrie_engine::access::AclKind;
use eyrie_engine::op::CAPABILITY_XATTR;
use eyrie_engine::quota::{QuotaId, QuotaKind, QuotaLimit, QuotaLimits};
use eyrie_engine::{AttributeChange, InodeFlags, Kind, RenameMode, XattrMode};

use super::path_op::{create, directory, file, put, rename, unlink, write, xattr};
use super::{CaseVolume, PathOp};
use crate::acls::acl;
use crate::ops::InitialContent;

/// The limited user, and the project id of the limited tree.
pub(super) const LIMITED: u32 = 9;

/// Returns the limits of [`LIMITED`]. The objects of [`guarded`] stay below them.
pub(super) fn limits() -> QuotaLimits {
    let limit = |soft, hard| QuotaLimit { soft, hard, deadline: 0 };
    QuotaLimits { bytes: limit(100 << 10, 200 << 10), files: limit(20, 40) }
}

/// Returns a volume some of whose objects have the rare properties: ACLs, capabilities, inode flags, project
/// ids, and owners with limits.
pub(super) fn guarded() -> CaseVolume {
    let acl =
        |path: &str, kind, index, rights| PathOp::SetAcl { path: path.into(), kind, acl: acl(index, rights) };
    let set = |path: &str, change| PathOp::SetAttributes { path: path.into(), change };
    let none = AttributeChange::default();
    let capability = std::str::from_utf8(CAPABILITY_XATTR).expect("ASCII");
    let account = |kind| QuotaId { kind, number: LIMITED };
    let changes = [
        PathOp::SetLimits { account: account(QuotaKind::Tree), limits: limits() },
        directory("d"),
        // The objects below inherit this ACL and this project id.
        acl("d", AclKind::Default, 6, 0o7654),
        set("d", AttributeChange { project: Some(LIMITED), ..none }),
        file("d/x", 60),
        directory("d/e"),
        put("d/k", 3000),
        file("d/gone", 10),
        acl("d/e", AclKind::Access, 5, 0o7777),
        file("a", 100),
        // Sixty entries need an extent.
        acl("a", AclKind::Access, 9, 0o4321),
        file("tree", 40_000),
        write("tree", 9000, 100),
        acl("tree", AclKind::Access, 4, 0o6666),
        set("tree", AttributeChange { mode: Some(0o6755), uid: Some(LIMITED), ..none }),
        xattr("tree", capability, 20, XattrMode::Set),
        file("b", 5000),
        xattr("b", capability, 24, XattrMode::Set),
        xattr("b", "user.one", 40, XattrMode::Set),
        create("s", Kind::Symlink, InitialContent::Bytes(super::path_op::bytes(30, 3))),
        rename("d/gone", "e", RenameMode::Whiteout),
        file("f", 10),
        unlink("f"),
        set("b", AttributeChange { flags: Some(InodeFlags::APPEND_ONLY), ..none }),
        set("d/e", AttributeChange { flags: Some(InodeFlags::IMMUTABLE), ..none }),
    ];
    CaseVolume::after("rights", true, &changes)
}

/// Returns changes of the objects of [`guarded`], and of their limits.
pub(super) fn changes() -> Vec<PathOp> {
    let set = |path: &str, change| PathOp::SetAttributes { path: path.into(), change };
    let none = AttributeChange::default();
    let limit = |kind, number| PathOp::SetLimits { account: QuotaId { kind, number }, limits: limits() };
    let remove = |path: &str, kind| PathOp::SetAcl { path: path.into(), kind, acl: Vec::new() };
    vec![
        limit(QuotaKind::User, LIMITED),
        limit(QuotaKind::Tree, LIMITED),
        PathOp::RemoveXattr { path: String::new(), name: "trusted.eyrie.quota".into() },
        file("d/new", 5000),
        directory("d/new"),
        put("d/k", 5000),
        put("d/new", 100),
        write("d/x", 50, 100),
        write("tree", 9000, 100),
        unlink("d/x"),
        rename("d/x", "d/y", RenameMode::Whiteout),
        rename("a", "d/a", RenameMode::Replace),
        set("d/x", AttributeChange { project: Some(0), ..none }),
        set("a", AttributeChange { project: Some(LIMITED), uid: Some(LIMITED), ..none }),
        set("d/x", AttributeChange { mode: Some(0o600), ..none }),
        set("b", AttributeChange { flags: Some(InodeFlags::default()), ..none }),
        remove("a", AclKind::Access),
        remove("d", AclKind::Default),
        remove("d/x", AclKind::Access),
        PathOp::SetAcl { path: "d/x".into(), kind: AclKind::Access, acl: acl(9, 0o4444) },
    ]
}
