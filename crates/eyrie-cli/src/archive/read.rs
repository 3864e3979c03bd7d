//! Reads the members of an archive. Every size in an archive is checked before it is used. The module `load`
//! checks the names.

use std::borrow::Cow;
use std::io::{self, BufReader, Read};
use std::ops::Range;

use eyrie::{Kind, Stat, Time};
use tar::{GnuExtSparseHeader, Header};

use super::member::{BLOCK_BYTES, Body, Member};
use super::pax::{self, MAX_RECORD_BYTES, Records};
use super::sparse::{self, whole};
use crate::failure::reason_of_io;
use crate::text;

/// The message for a member whose names and records have more than [`MAX_RECORD_BYTES`].
const TOO_MUCH: &str = "the description of a member needs more than 16 MiB of memory";
/// Maximum size of a file, in bytes.
const MAX_BYTES: u64 = i64::MAX.cast_unsigned();
/// Bytes of the read buffer.
const BUFFER_BYTES: usize = 256 << 10;
/// Maximum number of bytes that one read skips.
const SKIP_BYTES: usize = 32 << 10;

/// Result whose error is a reason for the user. After an error of [`ArchiveReader::next`], the reader must
/// not be used again.
pub type Result<T> = std::result::Result<T, String>;

/// The next member of an archive.
pub enum NextMember {
    /// A member. [`ArchiveReader::data`] reads its data.
    Member(Member),
    /// A member that cannot be loaded: its name, and the reason.
    Refused(Vec<u8>, String),
}

/// An archive that is being read.
pub struct ArchiveReader<R> {
    input: BufReader<R>,
    /// Number of bytes that were read.
    position: u64,
    /// Number of bytes of the current member that have not been read.
    left: u64,
    /// Number of bytes from the end of the data to the end of its block.
    padding: u64,
    /// Between two members, the records that apply to all later members.
    records: Records,
    /// The error of [`ArchiveReader::data`], after which the place of the next member is unknown.
    error: Option<String>,
}

impl<R: Read> ArchiveReader<R> {
    /// Starts reading an archive at its first member.
    pub fn new(input: R) -> ArchiveReader<R> {
        ArchiveReader {
            input: BufReader::with_capacity(BUFFER_BYTES, input),
            position: 0,
            left: 0,
            padding: 0,
            records: Records::default(),
            error: None,
        }
    }

    /// Returns the next member, or `None` at the end mark.
    ///
    /// # Errors
    /// Fails if the input cannot be read, is not an archive, is damaged or ends early. Fails again after an
    /// error of [`ArchiveReader::data`].
    pub fn next(&mut self) -> Result<Option<NextMember>> {
        if let Some(why) = self.error.take() {
            return Err(why);
        }
        self.skip(self.left + self.padding)?;
        let mut records = std::mem::take(&mut self.records);
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            // `x` and the older `X` have records for the next member, and `g` has records for all later
            // members. In the formats of GNU tar, `L` has a long name, and `K` a long link target.
            match header.entry_type().as_byte() {
                b'x' | b'X' => records.extend(self.records(&header)?),
                b'g' => records.extend_global(self.records(&header)?),
                b'L' => records.push(pax::PATH, self.text(&header)?),
                b'K' => records.push(pax::LINK_PATH, self.text(&header)?),
                // `V` has the label of a tape. It is skipped, because a label is not a file.
                b'V' => {
                    let size = self.number(header.entry_size())?;
                    self.skip(padded(size))?;
                }
                _ => {
                    let member = self.member(&header, &records)?;
                    records.end_member();
                    self.records = records;
                    return Ok(Some(member));
                }
            }
            if records.are_too_large() {
                return self.broken(TOO_MUCH);
            }
        }
    }

    /// Fills `out` with the next bytes of the current member.
    pub fn data(&mut self, out: &mut [u8]) -> Result<()> {
        self.fill(out).inspect_err(|why| self.error = Some(why.clone()))?;
        self.left = self.left.saturating_sub(out.len() as u64);
        Ok(())
    }

    /// Reads to the end of the input. Otherwise `SIGPIPE` could kill the program that writes the archive into
    /// a pipe. Ends early if `stop` returns true.
    pub fn read_to_end(&mut self, stop: impl Fn() -> bool) {
        let mut scratch = [0; SKIP_BYTES];
        // The end mark has been read, so an error in the bytes after it is ignored.
        while !stop() && self.input.read(&mut scratch).is_ok_and(|count| count > 0) {}
    }

    fn broken<T>(&self, what: &str) -> Result<T> {
        Err(format!("the archive is damaged before byte {}: {what}", self.position))
    }

    fn number<T>(&self, result: io::Result<T>) -> Result<T> {
        result.or_else(|_| self.broken("a header has an invalid number"))
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<()> {
        match self.input.read_exact(out) {
            Ok(()) => {
                self.position += out.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                if self.position == 0 {
                    return Err("not an archive: it is empty or too short".to_owned());
                }
                Err(format!("the archive ends early, after byte {}: it was cut off", self.position))
            }
            Err(error) => Err(format!("cannot read the archive: {}", reason_of_io(&error))),
        }
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        let mut scratch = [0; SKIP_BYTES];
        let mut left = bytes;
        while left > 0 {
            let room = usize::try_from(left).unwrap_or(usize::MAX).min(SKIP_BYTES);
            self.fill(&mut scratch[..room])?;
            left -= room as u64;
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    /// Returns the next header, or `None` at the end mark.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut header = Header::new_old();
        self.fill(header.as_mut_bytes())?;
        let bytes = header.as_bytes();
        if bytes.iter().all(|&byte| byte == 0) {
            // Two blocks of zeros are the end mark. Some programs write only one, so an error after the first
            // is ignored.
            let mut second = [0; BLOCK_BYTES];
            return match self.fill(&mut second) {
                Ok(()) if second.iter().any(|&byte| byte != 0) => self.broken("a header has only zeros"),
                _ => Ok(None),
            };
        }
        // The checksum is the sum of all bytes of the header, with spaces in place of the checksum itself.
        let field = 148..156;
        let sum = |value: fn(u8) -> i64| -> i64 {
            let rest = bytes.iter().enumerate().filter(|(index, _)| !field.contains(index));
            rest.map(|(_, &byte)| value(byte)).sum::<i64>() + 8 * i64::from(b' ')
        };
        let said = header.cksum().map_or(-1, i64::from);
        // Some old programs added signed bytes, so both sums are accepted.
        if said == sum(i64::from) || said == sum(|byte| i64::from(byte.cast_signed())) {
            return Ok(Some(header));
        }
        if self.position == BLOCK_BYTES as u64 {
            return Err("not an archive of `tar`: if it is compressed, decompress it first".to_owned());
        }
        self.broken("a header has a wrong checksum")
    }

    /// Reads the data of a member that describes the next member.
    fn description(&mut self, header: &Header) -> Result<Vec<u8>> {
        let size = self.number(header.entry_size())?;
        if size > MAX_RECORD_BYTES {
            return self.broken(TOO_MUCH);
        }
        let mut bytes = Vec::new();
        // The size in the header may be wrong, so memory grows with the bytes that are read.
        let read = self.input.by_ref().take(size).read_to_end(&mut bytes);
        self.position += bytes.len() as u64;
        if let Err(error) = read {
            return Err(format!("cannot read the archive: {}", reason_of_io(&error)));
        }
        // If bytes are missing, `skip` returns the error for an early end.
        let missing = size - bytes.len() as u64;
        self.skip(missing + padded(size) - size)?;
        Ok(bytes)
    }

    fn records(&mut self, header: &Header) -> Result<Records> {
        let bytes = self.description(header)?;
        match Records::decode(&bytes) {
            Some(records) => Ok(records),
            None => self.broken("the records of a member are invalid"),
        }
    }

    /// Reads a long name or link target, which ends at a NUL or at the end of the data.
    fn text(&mut self, header: &Header) -> Result<Vec<u8>> {
        let mut bytes = self.description(header)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        Ok(bytes)
    }

    fn member(&mut self, header: &Header, records: &Records) -> Result<NextMember> {
        let letter = header.entry_type().as_byte();
        let size = match records.number(pax::SIZE) {
            // A hard link has no data, although its header may have the size of the file.
            _ if letter == b'1' => 0,
            Some(Some(size)) => size,
            Some(None) => return self.broken("a size is not a number"),
            None => self.number(header.entry_size())?,
        };
        if size > MAX_BYTES {
            return self.broken("a member is larger than any file can be");
        }
        (self.left, self.padding) = (size, padded(size) - size);
        let name = [sparse::NAME, pax::PATH].into_iter().find_map(|key| records.get(key));
        let name = name.map_or_else(|| header.path_bytes().into_owned(), <[u8]>::to_vec);
        let target = || {
            let target = records.get(pax::LINK_PATH).map(<[u8]>::to_vec);
            target.or_else(|| header.link_name_bytes().map(Cow::into_owned)).unwrap_or_default()
        };
        let mut file_size = size;
        // The letter of a file is `0`, NUL in the oldest format, or `7` for a file that should be contiguous.
        let (kind, body) = match letter {
            b'0' | 0 | b'7' if !name.ends_with(b"/") => {
                let runs;
                (file_size, runs) = self.file(records, size)?;
                (Kind::File, Body::File(runs))
            }
            b'S' => {
                // A header without the fields of GNU tar does not have the size of the whole file. Any number
                // will do, because `runs_in_headers` then returns an error.
                file_size = self.number(header.as_gnu().map_or(Ok(u64::MAX), tar::GnuHeader::real_size))?;
                let runs = self.runs_in_headers(header)?;
                (Kind::File, Body::File(self.checked(&runs, file_size)?))
            }
            b'1' => (Kind::File, Body::Link(target())),
            b'2' => (Kind::Symlink, Body::Symlink(target())),
            b'3' => (Kind::CharDevice, Body::Special),
            b'4' => (Kind::BlockDevice, Body::Special),
            b'6' => (Kind::Fifo, Body::Special),
            // In the oldest format a member whose name ends with a slash is a directory. `D` is a directory
            // whose data lists its entries.
            b'5' | b'D' | b'0' | 0 | b'7' => (Kind::Directory, Body::Directory),
            other => {
                let why = format!("a volume cannot hold a member of type {:?}", char::from(other));
                return Ok(NextMember::Refused(name, why));
            }
        };
        Ok(match attributes(header, records, kind, file_size) {
            Ok(stat) => {
                let flags = records.get(pax::FLAGS).map(pax::parse_flags).unwrap_or_default();
                let project = records.number(pax::PROJECT).flatten();
                let project = project.and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
                NextMember::Member(Member { name, stat, xattrs: records.xattrs(), flags, project, body })
            }
            Err(why) => NextMember::Refused(name, why),
        })
    }

    /// Reads the size of a file (with its holes), and the ranges that have data.
    fn file(&mut self, records: &Records, stored: u64) -> Result<(u64, Vec<Range<u64>>)> {
        let Some(version) = sparse::version(records).or_else(|what| self.broken(&what))? else {
            return Ok((stored, whole(stored)));
        };
        let size = sparse::real_size(records).map_or_else(|| self.broken("a size is missing"), Ok)?;
        let runs = match version {
            sparse::SparseVersion::InRecords(runs) => runs,
            sparse::SparseVersion::InData => self.runs_in_data()?,
        };
        Ok((size, self.checked(&runs, size)?))
    }

    fn checked(&self, runs: &[(u64, u64)], size: u64) -> Result<Vec<Range<u64>>> {
        if size > MAX_BYTES {
            return self.broken("a member is larger than any file can be");
        }
        sparse::checked(runs, size, self.left).or_else(|what| self.broken(&what))
    }

    /// Reads the ranges of a sparse file in the oldest sparse format. The first ranges are in the header.
    /// Further ranges are in blocks after the header.
    fn runs_in_headers(&mut self, header: &Header) -> Result<Vec<(u64, u64)>> {
        let Some(gnu) = header.as_gnu() else { return self.broken("a list of data ranges is missing") };
        let mut runs = sparse::runs_of_header(&gnu.sparse).or_else(|what| self.broken(&what))?;
        let mut more = gnu.is_extended();
        while more {
            let mut block = GnuExtSparseHeader::new();
            self.fill(block.as_mut_bytes())?;
            runs.extend(sparse::runs_of_header(block.sparse()).or_else(|what| self.broken(&what))?);
            if runs.len() > sparse::MAX_RUNS {
                return self.broken("a list of data ranges is too long");
            }
            more = block.is_extended();
        }
        Ok(runs)
    }

    /// Reads the list of ranges at the start of the data: the number of ranges, then offset and length of
    /// each, one number on each line.
    fn runs_in_data(&mut self) -> Result<Vec<(u64, u64)>> {
        let before = self.left;
        let count = self.line()?;
        if count > sparse::MAX_RUNS as u64 {
            return self.broken("a list of data ranges is too long");
        }
        let mut runs = Vec::new();
        for _ in 0..count {
            runs.push((self.line()?, self.line()?));
        }
        let used = before - self.left;
        let rest = padded(used) - used;
        if rest > self.left {
            return self.broken("a list of data ranges is longer than its data");
        }
        // The data of the member follow, but `skip` sets both counts to 0. So the counts are kept here.
        let (left, padding) = (self.left - rest, self.padding);
        self.skip(rest)?;
        (self.left, self.padding) = (left, padding);
        Ok(runs)
    }

    fn line(&mut self) -> Result<u64> {
        let mut digits = Vec::new();
        loop {
            let mut byte = [0];
            // A number below 2^64 has at most 20 digits.
            if self.left == 0 || digits.len() > 20 {
                return self.broken("a list of data ranges is wrong");
            }
            self.data(&mut byte)?;
            if byte == *b"\n" {
                break;
            }
            digits.push(byte[0]);
        }
        pax::parse_number(&digits).map_or_else(|| self.broken("a list of data ranges is wrong"), Ok)
    }
}

/// Rounds a size up to whole blocks, in bytes.
fn padded(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES as u64).saturating_mul(BLOCK_BYTES as u64)
}

/// Returns the attributes that the header and the records give to a member of this kind and size. If the time
/// of access is missing, the time of modification replaces it.
///
/// # Errors
/// Fails if a user id, a group id or a time of the records cannot be parsed, or if an id has more than 32
/// bits.
fn attributes(header: &Header, records: &Records, kind: Kind, size: u64) -> Result<Stat> {
    let id = |key: &str, field: &[u8], parsed: io::Result<u64>| {
        // Some programs leave an id blank, and GNU tar reads a blank id as 0. Any other invalid id is
        // refused.
        let is_blank = field.iter().all(|byte| matches!(byte, 0 | b' '));
        let number = records.number(key).unwrap_or_else(|| if is_blank { Some(0) } else { parsed.ok() });
        let number = number.ok_or_else(|| format!("its {key} is not a number"))?;
        u32::try_from(number).map_err(|_| format!("its {key} {number} is too large"))
    };
    let time = |key: &str| match records.get(key) {
        Some(text) => {
            let wrong = || format!("its {key} {} is not a time", text::escaped(text));
            pax::parse_time(text).map(Some).ok_or_else(wrong)
        }
        None => Ok(None),
    };
    // Formats before pax store negative times in two's complement.
    let in_header = Time::new(header.mtime().unwrap_or(0).cast_signed(), 0);
    let modified = time(pax::MTIME)?.unwrap_or(in_header);
    let major = header.device_major().ok().flatten().unwrap_or(0);
    let minor = header.device_minor().ok().flatten().unwrap_or(0);
    let mut stat = Stat::new(kind);
    stat.mode = (header.mode().unwrap_or(0) & 0o7777) as u16;
    stat.links = 1;
    stat.uid = id(pax::UID, &header.as_old().uid, header.uid())?;
    stat.gid = id(pax::GID, &header.as_old().gid, header.gid())?;
    stat.device = rustix::fs::makedev(major, minor);
    stat.size = size;
    stat.accessed = time(pax::ATIME)?.unwrap_or(modified);
    stat.modified = modified;
    stat.changed = modified;
    Ok(stat)
}
