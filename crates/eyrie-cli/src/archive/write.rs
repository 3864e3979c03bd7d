//! Writes the members of an archive.

use std::io::{self, Write};

use eyrie::{Kind, Stat};
use tar::{EntryType, Header};

use super::member::{BLOCK_BYTES, Body, Member};
use super::pax::{self, Records};
use super::sparse;

/// Maximum length of a name in a header, in bytes.
const NAME_BYTES: usize = 100;
/// The largest user or group id that fits in a header.
const MAX_ID: u64 = 0o777_7777;
/// The largest size or time that fits in a header.
const MAX_NUMBER: u64 = 0o777_7777_7777;

/// An archive that is being written.
pub struct ArchiveWriter<W> {
    output: W,
    /// Number of bytes of the current member that are still to be written.
    left: u64,
    /// Number of zeros from the end of the data to the end of its block.
    padding: usize,
}

impl<W: Write> ArchiveWriter<W> {
    /// Makes an archive without members.
    pub fn new(output: W) -> ArchiveWriter<W> {
        ArchiveWriter { output, left: 0, padding: 0 }
    }

    /// Begins a member. If the member is a file, the caller writes the bytes of its ranges with
    /// [`ArchiveWriter::data`] next.
    ///
    /// Cuts the ranges of a file at its size. A file of a served volume may have grown after its size was
    /// read, and the ranges would then contradict the size.
    pub fn member(&mut self, member: &mut Member) -> io::Result<()> {
        if let Body::File(runs) = &mut member.body {
            sparse::cut(runs, member.stat.size);
        }
        let member = &*member;
        let mut header = Header::new_ustar();
        let mut records = records(member);
        let runs = match &member.body {
            Body::File(runs) => &runs[..],
            _ => &[],
        };
        let stored: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let holes = (stored < member.stat.size && member.stat.is_file()).then(|| {
            records.push(sparse::MAJOR, "1");
            records.push(sparse::MINOR, "0");
            records.push(sparse::NAME, &member.name[..]);
            records.push(sparse::REAL_SIZE, member.stat.size.to_string());
            sparse::encode(runs, member.stat.size)
        });
        let list = holes.as_deref().unwrap_or_default();
        let size = stored + list.len() as u64;
        attributes(&mut header, &member.stat, size, &mut records);
        header.set_entry_type(entry_type(member));
        if let (Some(ustar), Body::Symlink(target) | Body::Link(target)) =
            (header.as_ustar_mut(), &member.body)
        {
            put(&mut ustar.linkname, target, pax::LINK_PATH, &mut records);
        }
        if let Some(ustar) = header.as_ustar_mut() {
            if holes.is_some() {
                // The true name is in the records. A program that does not know these records extracts the
                // list of ranges and the data, without the holes. The other name in the header keeps such a
                // program from replacing a file that has the true name.
                let name = [b"GNUSparseFile/", &member.name[..]].concat();
                ustar.name[..name.len().min(NAME_BYTES)].copy_from_slice(&name[..name.len().min(NAME_BYTES)]);
            } else {
                put(&mut ustar.name, &member.name, pax::PATH, &mut records);
            }
        }
        header.set_cksum();
        self.records(&records)?;
        self.output.write_all(header.as_bytes())?;
        self.output.write_all(list)?;
        (self.left, self.padding) = (stored, padding(size));
        self.end_of_data()
    }

    /// Writes the next bytes of the file that was begun last.
    pub fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        self.left -= bytes.len() as u64;
        self.end_of_data()
    }

    /// Writes the end mark.
    pub fn finish(mut self) -> io::Result<()> {
        self.output.write_all(&[0; 2 * BLOCK_BYTES])?;
        self.output.flush()
    }

    fn end_of_data(&mut self) -> io::Result<()> {
        if self.left > 0 {
            return Ok(());
        }
        self.output.write_all(&[0; BLOCK_BYTES][..self.padding])
    }

    /// Writes a member with records, which describe the next member.
    fn records(&mut self, records: &Records) -> io::Result<()> {
        let bytes = records.encode();
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        if let Some(ustar) = header.as_ustar_mut() {
            ustar.name[..10].copy_from_slice(b"PaxHeaders");
        }
        header.set_cksum();
        self.output.write_all(header.as_bytes())?;
        self.output.write_all(&bytes)?;
        self.output.write_all(&[0; BLOCK_BYTES][..padding(bytes.len() as u64)])
    }
}

/// Returns the number of bytes from `size` to the end of a block.
fn padding(size: u64) -> usize {
    (size.next_multiple_of(BLOCK_BYTES as u64) - size) as usize
}

/// Returns the records that do not depend on the header: times, inode flags, project id and
/// extended attributes.
fn records(member: &Member) -> Records {
    let mut records = Records::default();
    records.push(pax::MTIME, pax::format_time(member.stat.modified));
    records.push(pax::ATIME, pax::format_time(member.stat.accessed));
    if !member.flags.is_empty() {
        records.push(pax::FLAGS, pax::format_flags(member.flags));
    }
    if member.project != 0 {
        records.push(pax::PROJECT, member.project.to_string());
    }
    for (name, value) in &member.xattrs {
        records.push_xattr(name, value);
    }
    records
}

/// Puts mode, owner, time, device and stored size into a header. An id or a size that is too large for the
/// header becomes a record. The caller has made the records with the exact times.
fn attributes(header: &mut Header, stat: &Stat, size: u64, records: &mut Records) {
    let mut fitting = |key: &str, number: u64, most: u64| {
        if number > most {
            records.push(key, number.to_string());
        }
        number.min(most)
    };
    header.set_uid(fitting(pax::UID, stat.uid.into(), MAX_ID));
    header.set_gid(fitting(pax::GID, stat.gid.into(), MAX_ID));
    header.set_size(fitting(pax::SIZE, size, MAX_NUMBER));
    header.set_mode(stat.mode.into());
    header.set_mtime(u64::try_from(stat.modified.seconds).unwrap_or(0).min(MAX_NUMBER));
    if let (Kind::CharDevice | Kind::BlockDevice, Some(ustar)) = (stat.kind, header.as_ustar_mut()) {
        ustar.set_device_major(rustix::fs::major(stat.device));
        ustar.set_device_minor(rustix::fs::minor(stat.device));
    }
}

/// Puts a name into its field. A name that does not fit is also put into a record.
fn put(field: &mut [u8; NAME_BYTES], name: &[u8], key: &str, records: &mut Records) {
    let room = name.len().min(NAME_BYTES);
    field[..room].copy_from_slice(&name[..room]);
    if room < name.len() {
        records.push(key, name);
    }
}

fn entry_type(member: &Member) -> EntryType {
    match (&member.body, member.stat.kind) {
        (Body::Directory, _) => EntryType::Directory,
        (Body::Symlink(_), _) => EntryType::Symlink,
        (Body::Link(_), _) => EntryType::Link,
        (_, Kind::CharDevice) => EntryType::Char,
        (_, Kind::BlockDevice) => EntryType::Block,
        (_, Kind::Fifo) => EntryType::Fifo,
        _ => EntryType::Regular,
    }
}
