//! `check`: proves that a volume is sound, or says where it is not.
//!
//! It walks everything from the root and compares what is said twice: entries and link counts, directories and their
//! parents, the storage that objects use and what the allocator thinks is free. It reads all extended attributes, looks at
//! every field that a reader hands on (`fields`), and changes nothing.
//!
//! Opening a volume checks what has a checksum. It refuses wrong redo records and two damaged superblocks, and does without
//! a damaged superblock copy, saved allocator or end of the journal. Only a time of creation is left to be looked at here.

mod fields;

use std::collections::HashMap;

use eyrie_medium::epoch::pin;
use eyrie_medium::{Addr, Fault};

use crate::object::collection::Collection;
use crate::object::header::Header;
use crate::object::xattr;
use crate::recovery::visit_object;
use crate::volume::layout::SUPERBLOCKS;
use crate::volume::{Marks, Volume};
use crate::{Error, Kind, ObjectId, Result};

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is wrong, a line each. None: the volume is sound.
    pub findings: Vec<String>,
    /// Directories (a count).
    pub directories: u64,
    /// Regular files (a count).
    pub files: u64,
    /// Other objects (a count).
    pub others: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

impl Report {
    /// Of a volume that could not be opened because of what is wrong in it.
    ///
    /// # Errors
    /// Those that say nothing about what is in it.
    pub(crate) fn of_error(error: Error) -> Result<Report> {
        let finding = match error {
            Error::Corrupt { addr, what } => format!("{addr}: {what}"),
            Error::Fault(fault @ (Fault::OutOfBounds { .. } | Fault::Misaligned { .. })) => fault.to_string(),
            other => return Err(other),
        };
        Ok(Report { findings: vec![finding], ..Report::default() })
    }

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

struct Check<'v> {
    volume: &'v Volume,
    marks: Marks,
    report: Report,
    /// Names found of each object that is no directory.
    names: HashMap<ObjectId, u32>,
    /// Directories to walk, with the directory each was found in.
    waiting: Vec<(ObjectId, ObjectId)>,
}

/// Compares everything in the volume with everything else in it: what `root` reaches, and the `orphans`, objects without
/// a name that are still open. Nothing may be changing it meanwhile.
///
/// # Errors
/// `Fault`; what is wrong with the volume is in the report.
pub fn check(volume: &Volume, root: ObjectId, orphans: &[ObjectId]) -> Result<Report> {
    let mut check = Check {
        volume,
        marks: volume.marks(),
        report: Report::default(),
        names: HashMap::new(),
        waiting: vec![(root, root)],
    };
    while let Some((id, parent)) = check.waiting.pop() {
        if check.object(id)? {
            check.directory(id, parent)?;
        }
    }
    check.links()?;
    if !fields::is_possible(volume.created()) {
        check.found(SUPERBLOCKS[0], "creation time with a second of nanoseconds or more");
    }
    for &orphan in orphans {
        check.object(orphan)?;
    }
    for finding in volume.space().compare(&check.marks) {
        check.report.findings.push(finding.to_string());
    }
    volume.medium().check()?;
    Ok(check.report)
}

impl Check<'_> {
    fn found(&mut self, addr: Addr, what: impl std::fmt::Display) {
        self.report.findings.push(format!("{addr}: {what}"));
    }

    /// Turns corruption into a finding; other errors pass.
    fn note(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(Error::Corrupt { addr, what }) => self.found(addr, what),
            Err(Error::Stale) => self.found(Addr::NULL, "entry that names a dead object"),
            Err(Error::Fault(Fault::OutOfBounds { addr, .. } | Fault::Misaligned { addr })) => {
                self.found(addr, "address outside the volume");
            }
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Marks an object's header and storage; whether it is sound and was not seen before.
    fn object(&mut self, id: ObjectId) -> Result<bool> {
        let _pin = pin();
        let addr = Addr::from_raw(id.place());
        match self.marks.mark_header(addr) {
            Err(overlap) => {
                self.found(addr, overlap.what());
                return Ok(false);
            }
            Ok(false) if id.is_directory() => {
                self.found(addr, "directory with two names");
                return Ok(false);
            }
            Ok(false) => return Ok(false),
            Ok(true) => {}
        }
        let before = self.report.findings.len();
        let marks = &self.marks;
        // It ends at the first overlap, so that a tree that leads back into itself ends, too.
        let visited = visit_object(self.volume, id, &mut |extent| {
            marks.mark_extent(extent).map_err(|overlap| Error::corrupt(extent.addr, overlap.what()))
        });
        self.note(visited)?;
        let xattrs = Header::of(id)
            .hot_and_cold(self.volume.medium())
            .and_then(|(_, cold)| xattr::visit(self.volume.medium(), cold.xattrs(), &mut |_, _| Ok(())));
        self.note(xattrs)?;
        if self.report.findings.len() == before {
            let checked = fields::check(self.volume, id);
            self.note(checked)?;
        }
        match id.kind() {
            Kind::Directory => self.report.directories += 1,
            Kind::File => self.report.files += 1,
            _ => self.report.others += 1,
        }
        Ok(self.report.findings.len() == before)
    }

    fn directory(&mut self, id: ObjectId, parent: ObjectId) -> Result<()> {
        let (collection, buckets, hot, cold) = {
            let _pin = pin();
            let (hot, cold) = Header::of(id).hot_and_cold(self.volume.medium())?;
            let collection = Collection::new(self.volume, hot.root);
            (collection, collection.bucket_count()?, hot, cold)
        };
        if cold.parent_or_device != parent.raw() {
            self.found(Addr::from_raw(id.place()), "directory whose parent is another");
        }
        if hot.selector.unlinked() {
            self.found(Addr::from_raw(id.place()), "named object that is marked unlinked");
        }
        let mut children = Vec::new();
        let visited = collection.visit_entries(0..buckets, &mut |_, child| {
            children.push(child);
            Ok(())
        });
        self.note(visited)?;
        self.note(collection.check_stamps(0..buckets))?;
        for child in children {
            if child.is_directory() {
                self.waiting.push((child, id));
                continue;
            }
            *self.names.entry(child).or_default() += 1;
            let _pin = pin();
            if self.object(child)? && child.kind() == Kind::File {
                let size = Header::of(child).hot(self.volume.medium())?.size;
                self.report.bytes = self.report.bytes.saturating_add(size);
            }
        }
        Ok(())
    }

    /// Compares link counts with names.
    fn links(&mut self) -> Result<()> {
        for (id, names) in std::mem::take(&mut self.names) {
            let _pin = pin();
            let addr = Addr::from_raw(id.place());
            match Header::of(id).hot_and_cold(self.volume.medium()) {
                Ok((_, cold)) if cold.links != names => {
                    self.found(addr, format_args!("{} links, {names} names", cold.links));
                }
                Ok((hot, _)) if hot.selector.unlinked() => {
                    self.found(addr, "named object that is marked unlinked")
                }
                Ok(_) => {}
                Err(error) => self.note(Err(error))?,
            }
        }
        Ok(())
    }
}
