//! Records of the pax format: pairs of key and value. They stand before the member that they describe.

use std::collections::BTreeMap;

use eyrie::{InodeFlags, Time};

use crate::copy::Xattrs;

/// Key: the name of the next member.
pub const PATH: &str = "path";
/// Key: the target of a link.
pub const LINK_PATH: &str = "linkpath";
/// Key: the number of stored bytes.
pub const SIZE: &str = "size";
/// Key: the user id.
pub const UID: &str = "uid";
/// Key: the group id.
pub const GID: &str = "gid";
/// Key: the time of modification.
pub const MTIME: &str = "mtime";
/// Key: the time of access.
pub const ATIME: &str = "atime";

/// Key: the inode flags, as the tar programs of BSD write them.
pub const FLAGS: &str = "SCHILY.fflags";

/// Key: the project id. Other programs ignore the key.
pub const PROJECT: &str = "EYRIE.project";

/// The start of a key that names an extended attribute.
const XATTR: &[u8] = b"SCHILY.xattr.";

/// Maximum of the memory for the records that apply to one member, and of the size of one description, in
/// bytes.
pub const MAX_RECORD_BYTES: u64 = 16 << 20;

/// Bytes of memory that a record needs beside its key and its value: both vectors, and the headers of their
/// allocations.
const RECORD_BYTES: usize = 2 * (size_of::<Vec<u8>>() + 16);

/// Nanoseconds in a second.
const SECOND: u32 = 1_000_000_000;

/// Records in their order. [`Records::get`] uses the last of several records with one key.
#[derive(Default, Debug)]
pub struct Records {
    list: Vec<(Vec<u8>, Vec<u8>)>,
    /// Number of records at the start of the list that apply to all later members.
    global: usize,
    bytes: usize,
}

impl Records {
    /// Adds a record.
    pub fn push(&mut self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) {
        self.add(key.as_ref(), value.into());
    }

    fn add(&mut self, key: &[u8], value: Vec<u8>) {
        self.bytes += RECORD_BYTES + key.len() + value.len();
        self.list.push((key.to_vec(), value));
    }

    /// Appends the records of `more`, which apply to the next member.
    pub fn extend(&mut self, more: Records) {
        self.bytes += more.bytes;
        self.list.extend(more.list);
    }

    /// Adds the records of `more`, which apply to all later members. The records of the next member are
    /// stronger.
    pub fn extend_global(&mut self, more: Records) {
        self.bytes += more.bytes;
        let (at, count) = (self.global, more.list.len());
        self.list.splice(at..at, more.list);
        self.global += count;
    }

    /// Removes the records that do not apply to all later members.
    pub fn end_member(&mut self) {
        for (key, value) in self.list.drain(self.global..) {
            self.bytes -= RECORD_BYTES + key.len() + value.len();
        }
    }

    /// Returns true if the records need more memory than [`MAX_RECORD_BYTES`].
    pub fn are_too_large(&self) -> bool {
        self.bytes as u64 > MAX_RECORD_BYTES
    }

    /// Returns the value of a key. An empty value cancels the earlier records with this key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        let (_, value) = self.list.iter().rfind(|(known, _)| known == key.as_bytes())?;
        (!value.is_empty()).then_some(value)
    }

    /// Returns the value of a key as a number. `None` means that the key has no value, and `Some(None)` that
    /// the value is not a number below 2^64.
    pub fn number(&self, key: &str) -> Option<Option<u64>> {
        self.get(key).map(parse_number)
    }

    /// Returns all records in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list.iter().map(|(key, value)| (&key[..], &value[..]))
    }

    /// Adds an extended attribute. In the name, `=` is escaped because it ends a key, and `%` because it
    /// begins an escape.
    pub fn push_xattr(&mut self, name: &[u8], value: &[u8]) {
        let mut key = XATTR.to_vec();
        for &byte in name {
            match byte {
                b'=' => key.extend_from_slice(b"%3D"),
                b'%' => key.extend_from_slice(b"%25"),
                _ => key.push(byte),
            }
        }
        self.push(key, value);
    }

    /// Returns the extended attributes, each with its last value.
    pub fn xattrs(&self) -> Xattrs {
        let mut xattrs = BTreeMap::new();
        for (key, value) in &self.list {
            let Some(mut rest) = key.strip_prefix(XATTR) else { continue };
            let mut name = Vec::new();
            while let Some((&byte, after)) = rest.split_first() {
                let (byte, after) = match rest {
                    [b'%', b'3', b'D', after @ ..] => (b'=', after),
                    [b'%', b'2', b'5', after @ ..] => (b'%', after),
                    _ => (byte, after),
                };
                name.push(byte);
                rest = after;
            }
            xattrs.insert(name, value.clone());
        }
        xattrs.into_iter().collect()
    }

    /// Returns the records as they are written to an archive.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (key, value) in &self.list {
            // The length of a record includes the digits of the length.
            let rest = key.len() + value.len() + 3;
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length = rest + length.to_string().len();
            }
            out.extend_from_slice(format!("{length} ").as_bytes());
            out.extend_from_slice(key);
            out.push(b'=');
            out.extend_from_slice(value);
            out.push(b'\n');
        }
        out
    }

    /// Parses records. Returns `None` if `bytes` are not records. Ends early if the records [are too
    /// large](Records::are_too_large).
    pub fn decode(mut bytes: &[u8]) -> Option<Records> {
        let mut records = Records::default();
        while !bytes.is_empty() && !records.are_too_large() {
            let digits = bytes.iter().position(|&byte| byte == b' ')?;
            let length = usize::try_from(parse_number(&bytes[..digits])?).ok()?;
            let record = bytes.get(digits + 1..length)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|&byte| byte == b'=')?;
            records.add(&record[..equals], record[equals + 1..].to_vec());
            bytes = &bytes[length..];
        }
        Some(records)
    }
}

/// Parses a number that has only decimal digits.
pub fn parse_number(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Prints a time as a decimal number of seconds.
pub fn format_time(time: Time) -> String {
    match time {
        Time { seconds, nanoseconds: 0 } => seconds.to_string(),
        Time { seconds, nanoseconds } if seconds >= 0 => format!("{seconds}.{nanoseconds:09}"),
        // The nanoseconds of a time count forward from its seconds. In a negative decimal number, the digits
        // count away from zero.
        Time { seconds, nanoseconds } => format!("-{}.{:09}", -(seconds + 1), SECOND - nanoseconds),
    }
}

/// Parses a time. Digits after the ninth decimal place are dropped.
pub fn parse_time(text: &[u8]) -> Option<Time> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let point = digits.iter().position(|&byte| byte == b'.').unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or_default());
    if whole.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |place: usize| fraction.get(place).map_or(0, |digit| u32::from(digit - b'0'));
    let nanoseconds = (0..9).fold(0, |sum, place| sum * 10 + digit(place));
    let whole = parse_number(whole)?;
    Some(match (negative, nanoseconds) {
        (false, _) => Time::new(i64::try_from(whole).ok()?, nanoseconds),
        (true, 0) => Time::new(0_i64.checked_sub_unsigned(whole)?, 0),
        (true, _) => Time::new((-1_i64).checked_sub_unsigned(whole)?, SECOND - nanoseconds),
    })
}

/// Returns inode flags as text.
pub fn format_flags(flags: InodeFlags) -> String {
    let names = [(InodeFlags::IMMUTABLE, "schg"), (InodeFlags::APPEND_ONLY, "sappnd")];
    let set: Vec<&str> =
        names.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| *name).collect();
    set.join(",")
}

/// Parses inode flags. Ignores flags that a volume does not have.
pub fn parse_flags(text: &[u8]) -> InodeFlags {
    let flag = |name: &[u8]| match name {
        b"schg" | b"schange" | b"simmutable" | b"immutable" => InodeFlags::IMMUTABLE,
        b"sappnd" | b"sappend" | b"append" => InodeFlags::APPEND_ONLY,
        _ => InodeFlags::empty(),
    };
    text.split(|byte| *byte == b',').map(flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_hold_any_bytes_of_any_length() {
        for length in (0..1100).chain([9_970, 9_999, 10_000, 100_000]) {
            let mut records = Records::default();
            let value: Vec<u8> =
                (0..length).map(|index| [b'\n', b'=', b' ', b'9', 0xff][index % 5]).collect();
            records.push("first", value.clone());
            records.push("second", "x");
            let decoded = Records::decode(&records.encode()).unwrap();
            assert_eq!(decoded.get("first").unwrap_or_default(), value, "{length}");
            assert_eq!(decoded.get("second"), Some(&b"x"[..]));
        }
        assert_eq!(Records::decode(b"").unwrap().iter().count(), 0);
        assert_eq!(Records::decode(b"30 mtime=1350244992.023960108\n").unwrap().iter().count(), 1);
        for wrong in [
            &b"5 a=\n\n"[..],
            b"6 a=b",
            b"7 a=b\n",
            b"6 abc\n",
            b" a=b\n",
            b"-6 a=b\n",
            b"0 a=b\n",
            b"2 a=b\n",
            b"99999999999999999999999 a=b\n",
            b"\0\0\0\0",
        ] {
            assert!(Records::decode(wrong).is_none(), "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn flags_are_read_as_they_are_written() {
        for bits in [0, 0x10, 0x20, 0x30] {
            let flags = InodeFlags::from_bits_truncate(bits);
            assert_eq!(parse_flags(format_flags(flags).as_bytes()), flags);
        }
        assert_eq!(format_flags(InodeFlags::all()), "schg,sappnd");
        assert_eq!(parse_flags(b"nodump,append"), InodeFlags::APPEND_ONLY);
    }

    #[test]
    fn xattr_records_hold_any_names() {
        let mut records = Records::default();
        let names: [&[u8]; 6] =
            [b"user.a", b"user.=", b"user.%3D", b"user.%", b"user.\xff\n ", b"user.empty"];
        for name in names {
            records.push_xattr(name, b"before");
            records.push_xattr(name, if name == b"user.empty" { b"" } else { b"=\n\0" });
        }
        let decoded = Records::decode(&records.encode()).unwrap().xattrs();
        let mut expected = names
            .map(|name| (name.to_vec(), if name == b"user.empty" { Vec::new() } else { b"=\n\0".to_vec() }));
        expected.sort();
        assert_eq!(decoded, expected);
        let mut records = Records::default();
        records.push("SCHILY.xattr.user.100%", "value");
        records.push("SCHILY.xattr", "none");
        assert_eq!(records.xattrs(), [(b"user.100%".to_vec(), b"value".to_vec())]);
    }

    #[test]
    fn last_record_counts_and_empty_one_cancels() {
        let mut records = Records::default();
        records.push("path", "first");
        records.push("path", "second");
        assert_eq!(records.get("path"), Some(&b"second"[..]));
        records.push("path", "");
        assert_eq!(records.get("path"), None);
    }

    #[test]
    fn times_are_decimal_before_and_after_1970() {
        for (time, text) in [
            (Time::new(0, 0), "0"),
            (Time::new(7, 999_999_999), "7.999999999"),
            (Time::new(-1, 999_999_999), "-0.000000001"),
            (Time::new(-5, 5), "-4.999999995"),
            (Time::new(-5, 0), "-5"),
            (Time::new(i64::MAX, 1), "9223372036854775807.000000001"),
            (Time::new(i64::MIN, 0), "-9223372036854775808"),
            (Time::new(i64::MIN, 1), "-9223372036854775807.999999999"),
        ] {
            assert_eq!(format_time(time), text);
            assert_eq!(parse_time(text.as_bytes()), Some(time), "{text}");
        }
        assert_eq!(parse_time(b"1.5"), Some(Time::new(1, 500_000_000)));
        assert_eq!(parse_time(b"1.0000000019"), Some(Time::new(1, 1)));
        for wrong in ["", "-", ".5", "1.x", "x", "+1", "9223372036854775808", "-9223372036854775808.1", "1e9"]
        {
            assert_eq!(parse_time(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
