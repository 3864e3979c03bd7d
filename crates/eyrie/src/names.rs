//! File names that stand for keys.
//!
//! A key is 1 to 255 bytes of any kind. Some keys are escaped: those that contain `/` or NUL, those that
//! begin with `%kv%`, and the keys `.` and `..`. Any other key is its own file name. The file name of an
//! escaped key is `%kv%` followed by the key, in which `/`, NUL, `%` and the first `.` of `.` and `..` are
//! written `%XX` in upper-case hexadecimal.
//!
//! Every key has exactly one file name. No volume shows a file name that begins with `%kv%` and belongs to no
//! key.

use std::borrow::Cow;

use eyrie_engine::op::NAME_MAX;

use crate::{Errno, Error, Result};

/// The start of the file name of an escaped key.
///
/// ```
/// use eyrie::names::{LONGEST, MARK, encode};
///
/// assert!(encode(b"a/b").starts_with(MARK));
/// assert_eq!(encode(&[b'/'; 255]).len(), LONGEST);
/// ```
pub const MARK: &[u8] = b"%kv%";
/// Maximum length of the file name of a key, in bytes: the mark, and three bytes for each byte of the key.
pub const LONGEST: usize = MARK.len() + 3 * NAME_MAX;

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Fails with `EINVAL` or `ENAMETOOLONG` unless a key has 1 to 255 bytes.
pub(crate) fn check_key(key: &[u8], operation: &'static str) -> Result<()> {
    match key.len() {
        0 => Err(Error::with_reason(Errno::INVAL, operation, "a key must have at least one byte")),
        1..=NAME_MAX => Ok(()),
        _ => Err(Error::with_reason(Errno::NAMETOOLONG, operation, "a key must have at most 255 bytes")),
    }
}

/// Returns true if a file name begins with [`MARK`]. [`decode`] then tells if an escaped key has this name.
///
/// ```
/// assert!(eyrie::names::may_be_escaped(b"%kv%a%2Fb"));
/// ```
#[inline]
pub fn may_be_escaped(name: &[u8]) -> bool {
    name.starts_with(MARK)
}

/// Returns the file name of a key.
///
/// ```
/// assert_eq!(&*eyrie::names::encode(b"a/b"), b"%kv%a%2Fb");
/// assert_eq!(&*eyrie::names::encode(b"plain"), b"plain");
/// ```
pub fn encode(key: &[u8]) -> Cow<'_, [u8]> {
    if is_file_name(key) { Cow::Borrowed(key) } else { Cow::Owned(escape(key)) }
}

/// Returns the key that a file name stands for, or `None` if the file name belongs to no key.
///
/// ```
/// assert_eq!(eyrie::names::decode(b"%kv%a%2Fb").as_deref(), Some(&b"a/b"[..]));
/// assert_eq!(eyrie::names::decode(b"%kv%"), None);
/// ```
pub fn decode(name: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(escaped) = name.strip_prefix(MARK) else {
        return is_file_name(name).then_some(Cow::Borrowed(name));
    };
    let key = unescape(escaped)?;
    // Only the spelling of `encode` is accepted, so that a key has only one file name.
    (!key.is_empty() && *encode(&key) == *name).then_some(Cow::Owned(key))
}

fn is_file_name(key: &[u8]) -> bool {
    let plain = |byte: &u8| !matches!(byte, b'/' | 0);
    !matches!(key, b"" | b"." | b"..") && !may_be_escaped(key) && key.iter().all(plain)
}

fn escape(key: &[u8]) -> Vec<u8> {
    let mut name = MARK.to_vec();
    let dots = matches!(key, b"." | b"..");
    for (index, &byte) in key.iter().enumerate() {
        if matches!(byte, b'/' | 0 | b'%') || dots && index == 0 {
            name.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        } else {
            name.push(byte);
        }
    }
    name
}

fn unescape(escaped: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(escaped.len());
    let mut rest = escaped.iter();
    while let Some(&byte) = rest.next() {
        key.push(match byte {
            b'%' => digit(*rest.next()?)? << 4 | digit(*rest.next()?)?,
            plain => plain,
        });
    }
    Some(key)
}

fn digit(byte: u8) -> Option<u8> {
    DIGITS.iter().position(|&digit| digit == byte).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        let bytes =
            prop_oneof![Just(b'%'), Just(b'/'), Just(b'.'), Just(0), Just(b'k'), Just(b'v'), any::<u8>()];
        let tail = prop::collection::vec(bytes, 1..40);
        (any::<bool>(), tail).prop_map(|(marked, tail)| if marked { [MARK, &tail].concat() } else { tail })
    }

    fn names() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            Just("%2F".to_owned()),
            Just("%25".to_owned()),
            Just("%00".to_owned()),
            Just("%2E".to_owned()),
            Just("%2f".to_owned()),
            "[%.a-f0-9]{1,2}",
        ];
        prop::collection::vec(part, 0..6).prop_map(|parts| [MARK, parts.concat().as_bytes()].concat())
    }

    proptest! {
        #[test]
        fn name_of_a_key_decodes_to_the_key(key in keys()) {
            let name = encode(&key);
            prop_assert!(!name.contains(&b'/') && !name.contains(&0));
            prop_assert!(!matches!(&*name, b"" | b"." | b".."));
            prop_assert!(name.len() <= LONGEST);
            let decoded = decode(&name);
            prop_assert_eq!(decoded.as_deref(), Some(&*key));
        }

        #[test]
        fn decoded_name_encodes_to_itself(name in names()) {
            if let Some(key) = decode(&name) {
                prop_assert_eq!(&*encode(&key), &*name);
            }
        }
    }

    #[test]
    fn names_of_special_keys() {
        for (key, name) in [
            (&b"plain"[..], &b"plain"[..]),
            (b".hidden", b".hidden"),
            (b"100%", b"100%"),
            (b".", b"%kv%%2E"),
            (b"..", b"%kv%%2E."),
            (b"a/b", b"%kv%a%2Fb"),
            (b"\0", b"%kv%%00"),
            (b"%kv%", b"%kv%%25kv%25"),
            (b"/100%", b"%kv%%2F100%25"),
        ] {
            assert_eq!(&*encode(key), name);
            assert_eq!(decode(name).as_deref(), Some(key));
        }
        for nothing in ["%kv%", "%kv%plain", "%kv%a%2fb", "%kv%%2", "%kv%%2E%2E", "%kv%%41/", ""] {
            assert_eq!(decode(nothing.as_bytes()), None, "{nothing}");
        }
    }
}
