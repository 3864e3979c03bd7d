//! The list of those ranges of a file that have data. GNU tar writes this list in several forms. This module
//! parses and checks all of them, and writes the form of version 1.0.

use std::ops::Range;

use tar::GnuSparseHeader;

use super::member::BLOCK_BYTES;
use super::pax::{Records, parse_number};

/// Key: the true name of the member. The header has another name, for programs that do not know this format.
pub const NAME: &str = "GNU.sparse.name";
/// Key: the size of the file, which includes its holes, in version 1.0.
pub const REAL_SIZE: &str = "GNU.sparse.realsize";
/// Key: the size of the file in older versions.
const OLD_SIZE: &str = "GNU.sparse.size";
/// Key: the first number of the version.
pub const MAJOR: &str = "GNU.sparse.major";
/// Key: the second number of the version.
pub const MINOR: &str = "GNU.sparse.minor";
/// Key: all offsets and lengths, in version 0.1.
const MAP: &str = "GNU.sparse.map";
/// Key: one offset, in version 0.0.
const OFFSET: &str = "GNU.sparse.offset";
/// Key: one length, in version 0.0.
const LENGTH: &str = "GNU.sparse.numbytes";

/// Maximum number of ranges in the list of one file. A file with this number of ranges or more is dumped with
/// zeros in place of its holes, because [`encode`] may add one range to the list. The file is refused instead
/// if it is larger than [`data_bytes_max`](eyrie::Posix::data_bytes_max).
pub const MAX_RUNS: usize = 1 << 22;

/// The form in which a member with holes lists its ranges.
pub enum SparseVersion {
    /// In the first blocks of the data of the member.
    InData,
    /// In the records before its header: these offsets and lengths.
    InRecords(Vec<(u64, u64)>),
}

/// Returns the form of the list of ranges, or `None` if the records describe a file without holes.
///
/// # Errors
/// Fails if the version is unknown, a value is not a number, or an offset has no length.
pub fn version(records: &Records) -> Result<Option<SparseVersion>, String> {
    const WRONG: &str = "a list of data ranges is wrong";
    if let Some(major) = records.get(MAJOR) {
        return match (major, records.get(MINOR)) {
            (b"1", Some(b"0")) => Ok(Some(SparseVersion::InData)),
            _ => Err("a list of data ranges is of an unknown version".to_owned()),
        };
    }
    let numbers: Option<Vec<u64>> = match records.get(MAP) {
        Some(map) => map.split(|&byte| byte == b',').map(parse_number).collect(),
        None => records
            .iter()
            .filter(|(key, _)| *key == OFFSET.as_bytes() || *key == LENGTH.as_bytes())
            .map(|(_, value)| parse_number(value))
            .collect(),
    };
    let numbers = numbers.ok_or(WRONG)?;
    if numbers.is_empty() && records.get(OLD_SIZE).is_none() {
        return Ok(None);
    }
    if numbers.len() % 2 != 0 {
        return Err(WRONG.to_owned());
    }
    Ok(Some(SparseVersion::InRecords(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())))
}

/// Returns the size of the file, which includes its holes, or `None` if this size is missing or is not a
/// number.
pub fn real_size(records: &Records) -> Option<u64> {
    records.number(REAL_SIZE).or_else(|| records.number(OLD_SIZE))?
}

/// Returns the offsets and lengths of the ranges in one header of the oldest sparse format. Unused entries
/// are skipped.
pub fn runs_of_header(places: &[GnuSparseHeader]) -> Result<Vec<(u64, u64)>, String> {
    let wrong = |_| "a list of data ranges is wrong".to_owned();
    let used = places.iter().filter(|place| !place.is_empty());
    used.map(|place| Ok((place.offset().map_err(wrong)?, place.length().map_err(wrong)?))).collect()
}

/// Returns the ranges of a file without holes.
pub fn whole(size: u64) -> Vec<Range<u64>> {
    std::iter::once(0..size).filter(|run| !run.is_empty()).collect()
}

/// Removes the bytes after `size` from the ranges of a file.
pub fn cut(runs: &mut Vec<Range<u64>>, size: u64) {
    runs.retain_mut(|run| {
        run.end = run.end.min(size);
        !run.is_empty()
    });
}

/// Checks the ranges of a file of `size` bytes, of which `stored` are in the archive, and returns those that
/// are not empty.
///
/// # Errors
/// Fails if ranges overlap, are out of order, end after the file, or do not add up to `stored`.
pub fn checked(runs: &[(u64, u64)], size: u64, stored: u64) -> Result<Vec<Range<u64>>, String> {
    let mut ranges = Vec::new();
    let (mut end, mut sum) = (0, 0);
    for &(offset, length) in runs {
        let next = offset.checked_add(length).filter(|&next| offset >= end && next <= size);
        end = next.ok_or("a list of data ranges is wrong")?;
        // The sum is at most `size`, because ranges do not overlap.
        sum += length;
        if length > 0 {
            ranges.push(offset..end);
        }
    }
    if sum != stored {
        return Err("a list of data ranges does not match the size of its data".to_owned());
    }
    Ok(ranges)
}

/// Returns the list of ranges that stands before the data in version 1.0, padded to whole blocks. If the file
/// ends with a hole, the list ends with an empty range at the end of the file, because other programs expect
/// this range.
pub fn encode(runs: &[Range<u64>], size: u64) -> Vec<u8> {
    let closing = runs.last().is_none_or(|last| last.end < size);
    let mut out = format!("{}\n", runs.len() + usize::from(closing)).into_bytes();
    for run in runs {
        out.extend_from_slice(format!("{}\n{}\n", run.start, run.end - run.start).as_bytes());
    }
    if closing {
        out.extend_from_slice(format!("{size}\n0\n").as_bytes());
    }
    out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_lists_of_ranges_are_refused() {
        assert_eq!(checked(&[(0, 5), (10, 5), (20, 0)], 20, 10), Ok(vec![0..5, 10..15]));
        assert_eq!(checked(&[], 1 << 62, 0), Ok(vec![]));
        for wrong in [
            &[(5, 5), (0, 5)][..],
            &[(0, 5), (4, 6)],
            &[(0, 21)],
            &[(u64::MAX, 2)],
            &[(0, 4)],
            &[(0, u64::MAX), (u64::MAX, u64::MAX)],
        ] {
            assert!(checked(wrong, 20, 10).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn records_of_older_versions_are_parsed() {
        let runs = |text: &[(&str, &str)]| {
            let mut records = Records::default();
            text.iter().for_each(|(key, value)| records.push(key, *value));
            match version(&records) {
                Ok(Some(SparseVersion::InRecords(runs))) => Ok(runs),
                Ok(Some(SparseVersion::InData)) => Err("in data"),
                Ok(None) => Err("none"),
                Err(_) => Err("wrong"),
            }
        };
        assert_eq!(runs(&[(MAP, "0,5,10,5")]), Ok(vec![(0, 5), (10, 5)]));
        let single = [(OLD_SIZE, "20"), (OFFSET, "0"), (LENGTH, "5"), (OFFSET, "10"), (LENGTH, "5")];
        assert_eq!(runs(&single), Ok(vec![(0, 5), (10, 5)]));
        assert_eq!(runs(&[(OLD_SIZE, "20")]), Ok(vec![]));
        assert_eq!(runs(&[(MAJOR, "1"), (MINOR, "0")]), Err("in data"));
        assert_eq!(runs(&[("path", "x")]), Err("none"));
        assert_eq!(runs(&[(MAJOR, "2"), (MINOR, "0")]), Err("wrong"));
        assert_eq!(runs(&[(MAP, "0,5,10")]), Err("wrong"));
        assert_eq!(runs(&[(MAP, "0,x")]), Err("wrong"));
        assert_eq!(runs(&[(OFFSET, "1")]), Err("wrong"));
    }
}
