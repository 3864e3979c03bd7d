//! Draws and makes random calls on extended attributes.

use crate::acls::{ACL_COUNT, GOOD_ACL_COUNT, acl};
use eyrie::posix::Posix;
use eyrie::{Errno, PosixExt, Target, XattrMode};
use eyrie_engine::access::AclKind;
use eyrie_engine::op::CAPABILITY_XATTR;
use rand::Rng;

use super::values::{Answer, CallPath, PathBytes, Random, path};
use eyrie_sim::compare::Xattrs;

/// Names in every namespace, and in no namespace. The longest values of all settable names fit into 64 KiB
/// together. Eyrie has this limit for the attributes of an object, and the kernel has no such limit.
const NAMES: [&str; 9] = [
    "user.a",
    "user.b",
    "trusted.a",
    "security.eyrie",
    "user.\u{e9} \u{1f985}",
    "user.",
    "other.a",
    "system.other",
    "user",
];
/// Number of settable names, which are the first ones.
const SETTABLE: usize = 5;
/// Lengths of values, in bytes.
const LENGTHS: [usize; 6] = [0, 1, 5, 100, 3000, 6000];
/// Values of capabilities. The first two are stored as they are. The third has revision 3 and the user id 0,
/// so Linux shows it with revision 2. The others are refused.
const CAPABILITIES: &[&[u8]] = &[
    CAPABILITY,
    b"\x00\x00\x00\x03\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xe8\x03\0\0",
    b"\x01\x00\x00\x03\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x03\x00\x00\x02\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"short",
];
/// The value of `security.capability` that grants `CAP_DAC_OVERRIDE`.
pub(super) const CAPABILITY: &[u8] = b"\x01\x00\x00\x02\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// Sizes of buffers, in bytes.
const SIZES: [usize; 7] = [0, 1, 4, 6, 100, 4096, 70_000];

/// A call on an object's extended attributes.
#[expect(missing_docs, reason = "they are the calls of `Posix` and their arguments")]
#[derive(Clone, PartialEq, Eq)]
pub enum XattrCall {
    Get { name: PathBytes, size: usize },
    List { size: usize },
    Set { name: PathBytes, value: Vec<u8>, mode: XattrMode },
    Remove { name: PathBytes },
}

/// Shows a call without the bytes of its value.
impl std::fmt::Debug for XattrCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let escaped = |name: &PathBytes| name.escape_ascii().to_string();
        match self {
            XattrCall::Get { name, size } => write!(f, "Get {{ {}, size: {size} }}", escaped(name)),
            XattrCall::List { size } => write!(f, "List {{ size: {size} }}"),
            XattrCall::Set { name, value, mode } => {
                write!(f, "Set {{ {}, length: {}, {mode:?} }}", escaped(name), value.len())
            }
            XattrCall::Remove { name } => write!(f, "Remove {{ {} }}", escaped(name)),
        }
    }
}

/// Makes the call. Lists have no defined order, so their names are sorted in the answer.
pub(super) fn perform_xattr<P: Posix>(
    fs: &P,
    of: Target<'_, P::Handle>,
    call: &XattrCall,
) -> eyrie::Result<Answer> {
    let done = |()| Answer::Done;
    match call {
        XattrCall::Get { name, size } => fill(*size, |out| fs.getxattr(of, name, out)),
        XattrCall::List { size } => {
            let answer = fill(*size, |out| fs.listxattr(of, out))?;
            let Answer::Bytes(list) = answer else { return Ok(answer) };
            let mut names: Vec<&[u8]> = list.split_inclusive(|&byte| byte == 0).collect();
            names.sort_unstable();
            Ok(Answer::Bytes(names.concat()))
        }
        XattrCall::Set { name, value, mode } => fs.setxattr(of, name, value, *mode).map(done),
        XattrCall::Remove { name } => fs.removexattr(of, name).map(done),
    }
}

/// Makes a call with a buffer of `size` bytes, and returns the bytes in the buffer. For size 0, returns the
/// size that the call reports.
fn fill(size: usize, call: impl FnOnce(&mut [u8]) -> eyrie::Result<usize>) -> eyrie::Result<Answer> {
    let mut out = vec![0xee; size];
    let count = call(&mut out)?;
    if size == 0 {
        return Ok(Answer::Count(count as u64));
    }
    out.truncate(count);
    Ok(Answer::Bytes(out))
}

impl Random {
    /// Returns a call, and its path if the caller must not draw one. A call with an empty or too long name,
    /// or with a too long value, gets the root directory as its path. Such a call needs a valid path, because
    /// kernels differ in the order in which they check the path and the name.
    pub(super) fn xattr_call(&mut self) -> (Option<CallPath>, XattrCall) {
        if self.0.random_ratio(1, 15) {
            let (name, length) = self.one_of(&[("", 0), ("n", 0), ("user.a", 65_537)]);
            let name = if name == "n" { vec![b'n'; 256] } else { name.as_bytes().to_vec() };
            let call = match length {
                0 => self.named_xattr_call(name),
                _ => XattrCall::Set { name, value: vec![0; length], mode: XattrMode::Set },
            };
            return (Some("/".into()), call);
        }
        if self.0.random_ratio(1, 3) {
            return (None, self.acl_call());
        }
        if self.0.random_ratio(1, 6) {
            return (None, self.capability_call());
        }
        let last = self.one_of(&[1, 2, SETTABLE, SETTABLE, NAMES.len()]);
        let name = NAMES[self.0.random_range(0..last)].as_bytes().to_vec();
        (None, self.named_xattr_call(name))
    }

    fn acl_call(&mut self) -> XattrCall {
        let name = self.one_of(&AclKind::ALL).name().to_vec();
        match self.0.random_range(0..10) {
            0..2 => XattrCall::Get { name, size: self.one_of(&SIZES) },
            2 => XattrCall::Remove { name },
            _ => {
                let count = if self.0.random_ratio(1, 6) { ACL_COUNT } else { GOOD_ACL_COUNT };
                let index = self.0.random_range(0..count);
                // Many rights are granted. With few rights, most calls below a directory would be refused.
                let rights = if self.0.random_ratio(1, 3) { u32::MAX } else { self.0.random() };
                let mode =
                    self.one_of(&[XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
                XattrCall::Set { name, value: acl(index, rights), mode }
            }
        }
    }

    fn capability_call(&mut self) -> XattrCall {
        let name = CAPABILITY_XATTR.to_vec();
        match self.0.random_range(0..10) {
            0..2 => XattrCall::Get { name, size: self.one_of(&SIZES) },
            2 => XattrCall::Remove { name },
            _ => {
                let value = self.one_of(CAPABILITIES).to_vec();
                let mode =
                    self.one_of(&[XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
                XattrCall::Set { name, value, mode }
            }
        }
    }

    fn named_xattr_call(&mut self, name: PathBytes) -> XattrCall {
        match self.0.random_range(0..10) {
            0..2 => XattrCall::Get { name, size: self.one_of(&SIZES) },
            2..4 => XattrCall::List { size: self.one_of(&SIZES) },
            4..6 => XattrCall::Remove { name },
            _ => {
                let value = vec![self.0.random(); self.one_of(&LENGTHS)];
                let mode = self.one_of(&[XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
                XattrCall::Set { name, value, mode }
            }
        }
    }
}

/// True if root can set attributes of all settable names, an ACL and a capability on `fs`, and a new file has
/// no attributes. Otherwise the comparison leaves extended attributes out.
pub(super) fn has_all<P: Posix>(fs: &P) -> bool {
    let probe = || -> eyrie::Result<bool> {
        fs.write("/probe", "")?;
        let is_new = fs.xattr_names("/probe")?.is_empty();
        for name in &NAMES[..SETTABLE] {
            fs.setxattr("/probe".into(), name.as_bytes(), b"", XattrMode::Create)?;
        }
        fs.setxattr("/probe".into(), AclKind::Access.name(), &acl(4, 0), XattrMode::Set)?;
        fs.setxattr("/probe".into(), CAPABILITY_XATTR, CAPABILITY, XattrMode::Set)?;
        Ok(is_new)
    };
    let has_all = probe().unwrap_or(false);
    // An error is ignored, because the probe may not exist.
    let _ = fs.unlink("/probe".into());
    has_all
}

/// Removes all settable extended attributes, all ACLs and the capability of the root directory.
pub(super) fn clear<P: Posix>(fs: &P) {
    for name in &NAMES[..SETTABLE] {
        // An error is ignored, because the attribute seldom exists.
        let _ = fs.removexattr("/".into(), name.as_bytes());
    }
    for name in [AclKind::Access.name(), AclKind::Default.name(), CAPABILITY_XATTR] {
        let _ = fs.removexattr("/".into(), name);
    }
}

/// Returns all extended attributes of an object.
pub(super) fn all<P: Posix>(fs: &P, file: &[u8]) -> Result<Xattrs, Errno> {
    let all = || -> eyrie::Result<Xattrs> {
        let names = fs.symlink_xattr_names(path(file))?;
        let value = |name: Vec<u8>| fs.symlink_xattr(path(file), &name).map(|value| (name, value));
        names.into_iter().map(value).collect()
    };
    all().map_err(|error| error.errno())
}
