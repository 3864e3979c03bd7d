//! `check`: shows that a volume is sound, or lists its contradictions.
//!
//! The check walks all objects from the root and compares all redundant information. It compares entries with
//! link counts, directories with their parents, the storage that objects use with the free storage of the
//! allocator, and the pointers to shared pages with the counts of the allocator. The check also reads all
//! extended attributes, and checks every field that readers pass on unchecked (`fields`). It changes nothing.
//!
//! The open of the volume has verified the superblock, except the time of creation. The check therefore looks
//! at only this field of the superblock. An open refuses two damaged copies of the superblock, and recovery
//! refuses wrong redo records. An open tolerates one damaged copy of the superblock, a damaged saved
//! allocator, and a damaged end of the journal.

mod fields;

use std::collections::HashMap;

use eyrie_medium::epoch::pin;
use eyrie_medium::{Addr, Fault, PAGE_SIZE};

use crate::object::collection::Collection;
use crate::object::header::Header;
use crate::object::visit::visit_object;
use crate::object::xattr::{self, XattrRoot};
use crate::tables::layout::{HEADER_BYTES, SUPERBLOCKS};
use crate::volume::{Marks, Volume};
use crate::{Error, Kind, ObjectId, Result};

/// The result of a check.
///
/// ```
/// # fn f(report: eyrie_engine::check::Report) {
/// println!("{}", if report.is_clean() { "sound" } else { "damaged" });
/// for finding in &report.findings {
///     eprintln!("{finding}");
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The problems, one line each. A sound volume has an empty list.
    pub findings: Vec<String>,
    /// Number of directories.
    pub directories: u64,
    /// Number of regular files.
    pub files: u64,
    /// Number of other objects.
    pub others: u64,
    /// Total size of all sound regular files that have a name, in bytes.
    pub bytes: u64,
    /// Storage that sharing saves, in bytes: one page for each pointer to a shared page, except the first
    /// pointer to the page.
    pub saved_by_sharing: u64,
}

impl Report {
    /// Returns a report with one finding.
    #[doc(hidden)]
    pub fn of_finding(finding: String) -> Report {
        Report { findings: vec![finding], ..Report::default() }
    }

    /// Returns the report about a volume whose open failed with `error`.
    ///
    /// # Errors
    /// `error` itself, unless it is `Corrupt`, or a fault of an address or a checksum.
    pub(crate) fn of_error(error: Error) -> Result<Report> {
        let finding = match error {
            Error::Corrupt { addr, what } => format!("{addr}: {what}"),
            Error::Fault(
                fault @ (Fault::OutOfBounds { .. } | Fault::Misaligned { .. } | Fault::Checksum { .. }),
            ) => fault.to_string(),
            other => return Err(other),
        };
        Ok(Report::of_finding(finding))
    }

    /// True if the volume is sound.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

struct Check<'v> {
    volume: &'v Volume,
    marks: Marks,
    report: Report,
    /// Number of names found for each object that is not a directory.
    names: HashMap<ObjectId, u32>,
    /// Directories that are not walked yet, each with the directory that contains it.
    waiting: Vec<(ObjectId, ObjectId)>,
}

/// Compares all redundant information in the volume: in the objects that `root` reaches, in the `orphans`,
/// and in the allocator. Orphans are objects without a name that handles keep alive. Callers make sure that
/// nothing changes the volume meanwhile.
///
/// # Errors
/// `Fault`. A problem of the volume is a finding in the report, not an error.
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
        check.found(SUPERBLOCKS[0], "creation time with a billion nanoseconds or more");
    }
    for &orphan in orphans {
        check.object(orphan)?;
    }
    check.report.saved_by_sharing = check.marks.saved_by_sharing();
    for finding in volume.space().compare(&check.marks) {
        check.report.findings.push(finding.to_string());
    }
    volume.medium().check()?;
    Ok(check.report)
}

/// Returns true if an object has bytes on one of the pages `damaged`, which are in ascending order. Also
/// returns true if the storage of the object cannot be found, because a page does not match its checksum or
/// the disk cannot read it.
pub fn is_on_pages(volume: &Volume, id: ObjectId, damaged: &[Addr]) -> bool {
    let is_hit = |start: u64, bytes: u64| {
        let first = damaged.partition_point(|page| page.offset() + PAGE_SIZE <= start);
        damaged.get(first).is_some_and(|page| page.offset() < start + bytes)
    };
    let mut hit = is_hit(Addr::from_raw(id.place()).offset(), HEADER_BYTES);
    // The nodes of a damaged file may occur any number of times in its tree. Therefore the search limits the
    // number of extents that are not shared, such as nodes.
    let mut left = volume.space().most_extents() + 1;
    let visited = visit_object(volume, id, &mut |extent, is_shared| {
        hit |= is_hit(extent.addr.offset(), extent.class.bytes());
        let is_over = hit || left == 0;
        left = left.saturating_sub(usize::from(!is_shared));
        if is_over { Err(Error::corrupt(extent.addr, "the end of the search")) } else { Ok(()) }
    });
    hit || matches!(visited, Err(Error::Fault(Fault::Checksum { .. } | Fault::Io { .. })))
}

impl Check<'_> {
    fn found(&mut self, addr: Addr, what: impl std::fmt::Display) {
        self.report.findings.push(format!("{addr}: {what}"));
    }

    /// Turns corruption of an object into a finding. Returns other errors.
    fn note(&mut self, id: ObjectId, result: Result<()>) -> Result<()> {
        match result {
            Err(Error::Corrupt { addr, what }) => self.found(addr, what),
            Err(Error::Stale) => self.found(Addr::from_raw(id.place()), "entry that names a dead object"),
            Err(Error::Fault(Fault::OutOfBounds { addr, .. } | Fault::Misaligned { addr })) => {
                self.found(addr, "address outside the volume");
            }
            Err(Error::Fault(Fault::Checksum { addr })) => {
                self.found(addr, "page that does not match its checksum");
            }
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Marks an object's header and storage, and checks its extended attributes and fields. Returns true if
    /// the object is sound and was not marked before.
    fn object(&mut self, id: ObjectId) -> Result<bool> {
        let _pin = pin();
        let addr = Addr::from_raw(id.place());
        match self.marks.mark_header(addr) {
            Err(overlap) => {
                self.found(addr, overlap.reason());
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
        let mut shares = false;
        // The walk ends at the first overlap. Therefore it also ends on a tree with a loop.
        let visited = visit_object(self.volume, id, &mut |extent, is_shared| {
            shares |= is_shared;
            marks.mark(extent, is_shared).map_err(|overlap| Error::corrupt(extent.addr, overlap.reason()))
        });
        if shares && !self.volume.has_shared_extents() {
            let what =
                "shared extent in a volume whose superblock does not name the feature of shared extents";
            self.found(addr, what);
        }
        self.note(id, visited)?;
        let xattrs = Header::of(id).hot_and_cold(self.volume.medium()).and_then(|(_, cold)| {
            let root = XattrRoot::of(Header::of(id), &cold);
            xattr::visit(self.volume.medium(), root, &mut |_, _| Ok(()))
        });
        self.note(id, xattrs)?;
        // Fields of a damaged object are not checked, because a finding reports its damage already.
        if self.report.findings.len() == before {
            let checked = fields::check(self.volume, id);
            self.note(id, checked)?;
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
            self.found(Addr::from_raw(id.place()), "directory with a wrong parent");
        }
        if hot.selector.unlinked() {
            self.found(Addr::from_raw(id.place()), "named object that is marked unlinked");
        }
        let mut children = Vec::new();
        let visited = collection.visit_entries(0..buckets, &mut |_, child| {
            children.push(child);
            Ok(())
        });
        self.note(id, visited)?;
        self.note(id, collection.check_stamps(0..buckets))?;
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

    /// Compares link counts with the number of names, and finds named objects that are marked unlinked.
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
                Err(error) => self.note(id, Err(error))?,
            }
        }
        Ok(())
    }
}
