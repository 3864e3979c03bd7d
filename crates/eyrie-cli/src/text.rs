//! Numbers and names as text for users.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie::{Kind, PagedOptions};

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// The message about a size that cannot be parsed.
const SIZES: &str = "sizes are written like 4G, 512M or 1048576";

/// The limit of [`parse_size`], above the size of every volume.
const SIZE_LIMIT: u64 = 1 << 62;
/// Maximum size of a file, in bytes.
const FILE_MAX: u64 = i64::MAX.cast_unsigned();

/// Formats `1536` as `1.5 KiB`.
pub fn size(bytes: u64) -> String {
    let mut unit = 0;
    let mut value = bytes as f64;
    // The limit is below 1024, because a value from 1023.5 on would be rounded to "1024" of a unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 99.95 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Formats `1536` as `1.5K`, rounded up, as `du -h` prints it and `sort -h` sorts it.
pub fn short_size(bytes: u64) -> String {
    const LETTERS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    // The result is a number of units if `parts` is 1, and of tenths of a unit if `parts` is 10. It is
    // rounded up.
    let scaled = |unit: u32, parts: u128| (u128::from(bytes) * parts).div_ceil(1 << (10 * unit));
    while scaled(unit, 1) >= 1024 {
        unit += 1;
    }
    let (whole, tenths) = (scaled(unit, 1), scaled(unit, 10));
    let letter = LETTERS[unit as usize];
    if unit == 0 || tenths >= 100 {
        format!("{whole}{letter}")
    } else {
        format!("{}.{}{letter}", tenths / 10, tenths % 10)
    }
}

/// Parses a size such as `4G`, `512M`, `1.5g`, `64KiB` or plain bytes. Units are powers of 1024.
///
/// # Errors
/// Fails with a message for the user.
pub fn parse_size(argument: &str) -> Result<u64, String> {
    match parse_bytes(argument)? {
        bytes @ 1..SIZE_LIMIT => Ok(bytes),
        _ => Err(SIZES.to_owned()),
    }
}

/// Works like [`parse_size`], for the memory for pages, which has a minimum size.
///
/// # Errors
/// Fails with a message for the user.
pub fn parse_memory(argument: &str) -> Result<u64, String> {
    match parse_size(argument)? {
        bytes if bytes < PagedOptions::MIN_MEMORY_BYTES => {
            Err(format!("the minimum is {}", size(PagedOptions::MIN_MEMORY_BYTES)))
        }
        bytes => Ok(bytes),
    }
}

/// Works like [`parse_size`], but also accepts 0, and sizes up to that of the largest file.
///
/// # Errors
/// Fails with a message for the user.
pub fn parse_bytes(argument: &str) -> Result<u64, String> {
    let digits = argument.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(argument.len());
    let (number, unit) = argument.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(SIZES.to_owned()),
    };
    let scale = (1_u64 << shift) as f64;
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(1 << shift),
        Err(_) => number.parse::<f64>().ok().map(|number| (number * scale) as u64),
    };
    bytes.filter(|&bytes| bytes <= FILE_MAX).ok_or_else(|| SIZES.to_owned())
}

/// Formats `53353` as `53,353`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count and its noun: `1 file`, `2 files`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Returns the letter for a kind in `ls -l`.
pub fn kind_letter(kind: Kind) -> char {
    match kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    }
}

/// Returns the word for a kind.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "character device",
        Kind::BlockDevice => "block device",
    }
}

/// Formats kind and mode as `drwxr-xr-x`.
pub fn mode(kind: Kind, mode: u16) -> String {
    let mut out = String::with_capacity(10);
    out.push(kind_letter(kind));
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// Formats the bytes of a name as one line of text. Control characters and backslashes are escaped. Bytes
/// that are not UTF-8 become `\xNN`.
pub fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                control if control.is_control() => {
                    let mut buffer = [0; 4];
                    hex(&mut out, control.encode_utf8(&mut buffer).as_bytes());
                }
                other => out.push(other),
            }
        }
        hex(&mut out, chunk.invalid());
    }
    out
}

fn hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

/// Formats a path as one line of text, as [`escaped`] does.
pub fn path(path: &Path) -> String {
    escaped(path.as_os_str().as_bytes())
}

/// Breaks `text` between words into lines of at most `columns` characters. The lines after the first begin
/// with `indent` spaces. A word that is longer than a line stays whole.
pub fn wrapped(text: &str, indent: usize, columns: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut used = 0;
    // The spaces at the start of the text belong to its first word.
    let begin = text.len() - text.trim_start().len();
    for (index, word) in text[begin..].split(' ').enumerate() {
        let length = word.chars().count();
        if index == 0 {
            out.push_str(&text[..begin]);
            used = begin;
        } else if used + 1 + length > columns {
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        } else {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let text = "  size   one two three";
        assert_eq!(wrapped(text, 9, usize::MAX), text);
        assert_eq!(wrapped(text, 9, text.len()), text);
        assert_eq!(wrapped(text, 9, 16), "  size   one two\n         three");
        assert_eq!(wrapped(text, 2, 8), "  size\n  one\n  two\n  three");
        assert_eq!(wrapped("a/long/word b", 0, 5), "a/long/word\nb");
        assert_eq!(wrapped("", 2, 5), "");
    }

    #[test]
    fn sizes_are_parsed_and_printed() {
        assert_eq!(parse_size("4G"), Ok(4 << 30));
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("1.5k"), Ok(1536));
        assert_eq!(parse_size("1048576"), Ok(1 << 20));
        for wrong in ["", "0", "G", "4X", "-1", "99999999999999999999T", "1..2G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_bytes("9223372036854775807"), Ok(i64::MAX as u64));
        assert!(parse_bytes("9223372036854775808").is_err() && parse_size("4611686018427387904").is_err());
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(4 << 30), "4.0 GiB");
        assert_eq!(size((1 << 30) - 4096), "1.0 GiB");
        assert_eq!((parse_bytes("0"), parse_bytes("2k")), (Ok(0), Ok(2048)));
        for (bytes, short) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 << 10, "10K"),
            ((10 << 10) + 1, "11K"),
            ((1 << 20) - 1, "1.0M"),
            (3 << 29, "1.5G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(short_size(bytes), short);
        }
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn modes_and_names_are_printed() {
        assert_eq!(mode(Kind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(Kind::File, 0o6644), "-rwSr-Sr--");
        assert_eq!(escaped(b"a\nb\xff\\"), "a\\nb\\xff\\\\");
    }
}
