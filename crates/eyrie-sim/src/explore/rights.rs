//! Calls of built-in scripts that set and remove ACLs, capabilities and inode flags.

use std::fmt::Write as _;

use eyrie::AclKind;
use eyrie_engine::op::CAPABILITY_XATTR;

use crate::script::Call;

/// An ACL with one named user.
const ACL_OF_ONE: &[u8] = b"\x02\x00\x00\x00\
    \x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x04\x00\xe8\x03\x00\x00\
    \x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x06\x00\xff\xff\xff\xff\
    \x20\x00\x00\x00\xff\xff\xff\xff";

/// An ACL with one named group.
const ACL_OF_GROUP: &[u8] = b"\x02\x00\x00\x00\
    \x01\x00\x07\x00\xff\xff\xff\xff\x04\x00\x05\x00\xff\xff\xff\xff\
    \x08\x00\x07\x00\xd0\x07\x00\x00\x10\x00\x07\x00\xff\xff\xff\xff\
    \x20\x00\x05\x00\xff\xff\xff\xff";

/// An ACL with entries for the owner, the group and others only, so that a mode grants the same rights.
const ACL_OF_MODE: &[u8] = b"\x02\x00\x00\x00\
    \x01\x00\x06\x00\xff\xff\xff\xff\x04\x00\x04\x00\xff\xff\xff\xff\
    \x20\x00\x04\x00\xff\xff\xff\xff";

/// The value of `security.capability` that grants `CAP_DAC_OVERRIDE`, in the format of Linux.
const CAPABILITY: &[u8] = b"\x01\x00\x00\x02\x02\x00\x00\x00\0\0\0\0\0\0\0\0\0\0\0\0";

/// Returns calls that set and remove ACLs, and a call that sets a capability.
pub(super) fn calls() -> [Call; 5] {
    [
        set_acl("/a", AclKind::Access, ACL_OF_ONE),
        set_acl("/b", AclKind::Access, ACL_OF_GROUP),
        set_acl("/d", AclKind::Default, ACL_OF_GROUP),
        set_acl("/b", AclKind::Access, b""),
        set_capability("/a"),
    ]
}

fn set_capability(path: &str) -> Call {
    Call::Setxattr { path: path.into(), name: CAPABILITY_XATTR.to_vec(), value: CAPABILITY.to_vec() }
}

fn set_acl(path: &str, kind: AclKind, acl: &[u8]) -> Call {
    Call::Setxattr { path: path.into(), name: kind.name().to_vec(), value: acl.to_vec() }
}

/// Returns calls that set, inherit, change and remove ACLs. The volume must not have had an ACL before, so
/// that the first `setxattr` of this script also sets the feature bit of ACLs.
pub(super) fn acls() -> String {
    let mut text = "creat /a\nmkdir /d\ncreat /plain\n".to_string();
    let set = |text: &mut String, path: &str, kind: AclKind, acl: &[u8]| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", set_acl(path, kind, acl));
    };
    let (access, default) = (AclKind::Access, AclKind::Default);
    set(&mut text, "/a", access, ACL_OF_ONE);
    set(&mut text, "/d", default, ACL_OF_GROUP);
    set(&mut text, "/d", access, ACL_OF_ONE);
    text.push_str("tmpfile /d /d/t 300 4\ntmpfile /d /t 0 5 0600\n");
    text.push_str("creat /d/x\nmkdir /d/e\ncreat /d/e/y\nsymlink a /d/s\nput /d k 3000 1\n");
    text.push_str("chmod /d/x 0640\nchmod /a 0\nsetxattr /d/x user.one one\nwrite /d/x 0 100 3\n");
    set(&mut text, "/d/x", access, ACL_OF_GROUP);
    set(&mut text, "/a", access, ACL_OF_MODE);
    text.push_str("removexattr /d/e system.posix_acl_default\n");
    set(&mut text, "/d/e/y", access, b"");
    set(&mut text, "/a", access, ACL_OF_ONE);
    text.push_str("removexattr /d system.posix_acl_default\n");
    text + "rename /d/t /d/u whiteout\ncreat /d/after\nrename /d/x /x\nunlink /x\nunlink /a\nunlink /d/e/y\n"
}

/// Returns calls that set and remove inode flags, and calls that fail because of the flags.
pub(super) fn flags() -> String {
    let mut text = "creat /f\nwrite /f 0 9000 1\nmkdir /d\ncreat /d/x\n".to_string();
    for (path, flags) in
        [("/f", "a"), ("/d", "a"), ("/f", "i"), ("/d", "i"), ("/f", "ai"), ("/d", "-"), ("/f", "-")]
    {
        let _ = writeln!(text, "chattr {path} {flags}");
        text.push_str("append /f 5000 2\nwrite /f 0 100 3\ntruncate /f 100\nlink /f /d/h\ncreat /d/y\n");
        text.push_str(
            "rename /d/x /d/z\nunlink /d/x\nsetxattr /f user.one one\nchmod /d 0700\nput /d x 100 4\n",
        );
    }
    text
}

/// Returns calls that give a file a capability before each change of the file. Some of the changes remove it.
pub(super) fn capabilities() -> String {
    let mut text = "creat /f\nwrite /f 0 9000 1\nsetxattr /f user.one one\n".to_string();
    for change in [
        "write /f 8 8 2",
        "write /f 3 12 3",
        "write /f 4000 5000 4",
        "append /f 10 5",
        "append /f 5000 6",
        "truncate /f 100",
        "truncate /f 100",
        "removexattr /f user.one",
        "truncate /f 20000",
        "write /f 100 10 7",
        "fallocate /f punch-hole 4096 4096",
        "fallocate /f collapse-range 4096 4096",
        "chmod /f 4755",
        "chown /f 5 -1",
        "put / f 300 8",
        "batch / put f 5000 9 put g 10 10",
        "utimes /f 5 77",
        "removexattr /f security.capability",
        "link /f /h",
        "creat /h",
    ] {
        let _ = writeln!(text, "{}\n{change}", set_capability("/f"));
    }
    text
}
