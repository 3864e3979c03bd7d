//! Limits of names, values and sizes, and the name of a special extended attribute.

/// Maximum length of the name of an entry or key, in bytes.
///
/// ```
/// use eyrie_engine::op::{NAME_MAX, VALUE_MAX};
///
/// fn fits(key: &[u8], value: &[u8]) -> bool {
///     (1..=NAME_MAX).contains(&key.len()) && value.len() <= VALUE_MAX
/// }
/// # assert!(fits(b"egg", b"blue"));
/// ```
pub const NAME_MAX: usize = 255;
/// Maximum size of a file, in bytes.
pub const FILE_MAX: u64 = i64::MAX as u64;
/// Maximum length of the value of a key, in bytes: 64 MiB.
pub const VALUE_MAX: usize = 64 << 20;
/// Maximum length of the name of an extended attribute, in bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// Maximum length of the value of an extended attribute, in bytes. Also the maximum total length of all
/// values of one object.
pub const XATTR_SIZE_MAX: usize = 64 << 10;
/// Maximum total length of the names of an object's extended attributes, in bytes. The total includes the
/// zero byte that follows each name in the list that Linux returns.
pub const XATTR_LIST_MAX: usize = 64 << 10;

/// Name of the extended attribute with the capabilities of a program. Each change of the bytes of a file
/// removes this attribute in the same commit, even a change by the superuser.
pub const CAPABILITY_XATTR: &[u8] = b"security.capability";
/// Maximum length of the target of a symbolic link, in bytes.
pub const TARGET_MAX: usize = 4095;
/// Largest device number that `mknod` takes, in the encoding of `makedev`.
pub const DEVICE_MAX: u64 = u32::MAX as u64;

/// True if `name` is a valid name of an extended attribute. A zero byte is refused, because the calls of
/// Linux take names that end at the first zero byte.
pub(crate) fn is_xattr_name(name: &[u8]) -> bool {
    (1..=XATTR_NAME_MAX).contains(&name.len()) && !name.contains(&0)
}

/// True if `target` is a valid target of a symbolic link. A zero byte is refused, because the calls of Linux
/// take targets that end at the first zero byte.
pub fn is_target(target: &[u8]) -> bool {
    (1..=TARGET_MAX).contains(&target.len()) && !target.contains(&0)
}
