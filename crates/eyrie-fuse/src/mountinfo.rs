//! The kernel's table of mounts. Its paths need not be UTF-8.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;

/// The table of the mounts that this process sees.
pub const TABLE: &str = "/proc/self/mountinfo";

/// A line of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountLine<'a> {
    /// Number of the mount.
    pub id: u64,
    /// Major and minor number of the file system's device.
    pub device: (u32, u32),
    /// The mount point.
    pub point: PathBuf,
    /// Type of the file system.
    pub kind: &'a [u8],
    /// The source of the mount, which is the volume if the type is `fuse.eyrie`.
    pub source: PathBuf,
}

impl MountLine<'_> {
    /// Returns the lines of a table.
    pub fn all(table: &[u8]) -> impl DoubleEndedIterator<Item = MountLine<'_>> {
        table.split(|&byte| byte == b'\n').filter_map(MountLine::of)
    }

    fn of(line: &[u8]) -> Option<MountLine<'_>> {
        let mut fields = line.split(|&byte| byte == b' ');
        let id = number(fields.next()?)?;
        // The fields between these are the number of the mount below, and the root of the mount.
        let mut device = fields.nth(1)?.splitn(2, |&byte| byte == b':');
        let device = (number(device.next()?)?, number(device.next()?)?);
        let point = unescaped(fields.nth(1)?);
        // The number of fields before the separator varies.
        let mut file_system = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, source) = (file_system.next()?, unescaped(file_system.next()?));
        Some(MountLine { id, device, point, kind, source })
    }
}

fn number<T: FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Decodes a field, in which spaces, tabs, line breaks and backslashes are octal numbers.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = std::str::from_utf8(tail.get(..3).unwrap_or_default()).unwrap_or_default();
        match u8::from_str_radix(code, 8) {
            Ok(decoded) if byte == b'\\' => {
                bytes.push(decoded);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn fields_of_lines_are_decoded() {
        assert_eq!(unescaped(br"/mnt/a\040b\134c"), Path::new(r"/mnt/a b\c"));
        assert_eq!(unescaped(br"plain\"), Path::new(r"plain\"));
        let table = b"4 1 0:5 / /mnt rw shared:1 master:2 - fuse.eyrie /a\\040b rw\nnonsense\n";
        let lines: Vec<_> = MountLine::all(table).collect();
        let (point, source) = (PathBuf::from("/mnt"), PathBuf::from("/a b"));
        assert_eq!(lines, [MountLine { id: 4, device: (0, 5), point, kind: b"fuse.eyrie", source }]);
    }
}
