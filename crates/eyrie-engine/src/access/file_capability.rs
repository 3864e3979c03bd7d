//! The values of `security.capability`, the extended attribute with the capabilities that a program gets when
//! it is executed. The format is that of Linux.

use crate::{Error, Result};

/// `VFS_CAP_FLAGS_EFFECTIVE`: the capabilities are effective as soon as the program starts.
const EFFECTIVE: u32 = 1;
/// `VFS_CAP_REVISION_2`, whose values have 20 bytes.
const REVISION_2: u32 = 2 << 24;
/// `VFS_CAP_REVISION_3`, whose values end with the user id of the root of a user namespace.
const REVISION_3: u32 = 3 << 24;
const BYTES_2: usize = 20;
const BYTES_3: usize = 24;

/// Returns the value that is stored for `value`. As on Linux, revision 3 for user id 0 becomes revision 2.
///
/// # Errors
/// `Invalid` for a value that Linux refuses. Linux accepts an empty value, but then cannot read it.
pub fn stored_capability(value: &[u8]) -> Result<Vec<u8>> {
    let invalid = Error::Invalid("not a value of security.capability");
    let Some((magic, rest)) = value.split_first_chunk() else { return Err(invalid) };
    let magic = u32::from_le_bytes(*magic);
    let user = rest.last_chunk().map_or(0, |user| u32::from_le_bytes(*user));
    match (magic & !EFFECTIVE, value.len()) {
        (REVISION_2, BYTES_2) => Ok(value.to_vec()),
        (REVISION_3, BYTES_3) if user == 0 => {
            let head = (REVISION_2 | magic & EFFECTIVE).to_le_bytes();
            Ok([&head, &value[size_of::<u32>()..BYTES_2]].concat())
        }
        (REVISION_3, BYTES_3) if user != u32::MAX => Ok(value.to_vec()),
        _ => Err(invalid),
    }
}

/// Refuses a value that no call stores.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_stored_capability(value: &[u8]) -> Result<()> {
    let stored = stored_capability(value)?;
    if stored == value { Ok(()) } else { Err(Error::Invalid("security.capability in another form")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(magic: u32, user: Option<u32>) -> Vec<u8> {
        let words = [magic, 0x400, 7, 0, 0].into_iter().chain(user);
        words.flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn values_are_those_that_linux_takes() {
        for effective in [0, EFFECTIVE] {
            let second = value(REVISION_2 | effective, None);
            assert_eq!(stored_capability(&second).expect("valid"), second);
            let third = value(REVISION_3 | effective, Some(1000));
            assert_eq!(stored_capability(&third).expect("valid"), third);
            let of_root = value(REVISION_3 | effective, Some(0));
            assert_eq!(stored_capability(&of_root).expect("valid"), second);
            assert!(check_stored_capability(&second).is_ok() && check_stored_capability(&of_root).is_err());
        }
        let wrong = [
            Vec::new(),
            b"abc".to_vec(),
            value(REVISION_2 | 2, None),
            value(1 << 24, None),
            value(REVISION_2, Some(0)),
            value(REVISION_3, None),
            value(REVISION_3, Some(u32::MAX)),
        ];
        for value in wrong {
            assert!(stored_capability(&value).is_err(), "{value:?}");
        }
    }
}
