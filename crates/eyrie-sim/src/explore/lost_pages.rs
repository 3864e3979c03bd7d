//! Lost pages: a disk with checksums of its pages loses some of them, or cannot read a checksum page. Each
//! call must then return an error or the right result, and later changes must still become durable.

use std::ops::Range;
use std::sync::Arc;

use eyrie::{Credentials, PosixExt, Pxfs};
use eyrie_engine::Engine;
use eyrie_engine::scm::Scm;
use eyrie_faults::{CrashRule, SimulatedDisk};
use eyrie_medium::{Medium, PAGE_SIZE};

use super::images::Counts;
use super::medium::{RUN_MEMORY, RunMedium, options};
use super::record::StartVolume;
use super::recovered::caught;
use crate::compare::{TreeParts, difference, tree, try_tree};
use crate::script::Script;

/// Size of the volume, in bytes. Each of its two checksum pages has the entries of 1024 pages.
const BYTES: u64 = 8 << 20;
/// Position of the second checksum page on the disk, in pages. Without the first checksum page no volume
/// opens, because that page has the checksums of the tables.
const CHECKSUM_PAGE: usize = 1025;
/// Number of pages that a checksum page and the 1024 pages with entries there take on the disk.
const COVERED: usize = 1025;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn open(disk: &SimulatedDisk) -> Result<Scm, String> {
    Scm::open_on(Medium::paged(Arc::new(disk.clone()), options(RUN_MEMORY)).map_err(text)?).map_err(text)
}

/// Replaces pages of the disk by zeros. The volume must not open with other contents.
fn lose(start: &StartVolume, lost: Range<usize>) -> Result<(), String> {
    let mut image = start.image().to_vec();
    image[lost.start * PAGE_SIZE as usize..lost.end * PAGE_SIZE as usize].fill(0);
    let Ok(engine) = open(&SimulatedDisk::holding(&image)) else { return Ok(()) };
    let Ok(found) = try_tree(&engine, TreeParts::ALL) else { return Ok(()) };
    difference(&found, &tree(start.model())).map_or(Ok(()), Err)
}

/// Writes a file while the disk cannot read the second checksum page. Before the write, no page with an entry
/// there is in use.
fn write_with_unreadable_page(start: &StartVolume) -> Result<(), String> {
    let disk = SimulatedDisk::holding(start.image());
    disk.make_bad(CHECKSUM_PAGE as u64, true);
    // The file is larger than 1024 pages, so some of its pages have their entries in the second checksum
    // page.
    let bytes = vec![7; 6_000_000];
    let write = || {
        let engine = Arc::new(open(&disk)?);
        let files = Pxfs::new(Arc::clone(&engine), Credentials::root());
        files.write("/more", &bytes).map_err(text)?;
        engine.sync().map_err(text)?;
        drop(files);
        Arc::into_inner(engine).ok_or("the engine is still in use")?.close().map_err(text)
    };
    write().map_err(|what: String| format!("with an unreadable checksum page: {what}"))?;
    disk.make_bad(CHECKSUM_PAGE as u64, false);
    let files = Pxfs::new(Arc::new(open(&disk)?), Credentials::root());
    match files.read("/more") {
        Ok(found) if found == bytes => Ok(()),
        Ok(_) => Err("a file has other bytes than were written".to_string()),
        Err(error) => Err(text(error)),
    }
}

/// Loses ranges of pages that begin at the second checksum page, or at the page after it. Then makes the
/// second checksum page of another disk unreadable, and writes a file on that disk. Ends early if
/// `should_continue` returns false.
///
/// # Errors
/// Fails if a volume has other contents, or no longer accepts changes.
pub(super) fn explore(should_continue: &mut dyn FnMut() -> bool) -> Result<Counts, String> {
    let script =
        Script::parse("lost pages", b"creat /f\nwrite /f 0 5M 1\nsync\n").expect("a constant script");
    let medium = RunMedium { checksums: true, ..RunMedium::of(CrashRule::Sectors, BYTES) };
    let empty = StartVolume::on(medium).map_err(text)?;
    let start = empty.after_script(&script).map_err(text)?;
    let mut counts = Counts::default();
    let first = [CHECKSUM_PAGE, CHECKSUM_PAGE + 1];
    let ranges =
        first.iter().flat_map(|&first| [1, 2, 200, COVERED - 1, COVERED].map(|len| first..first + len));
    for lost in ranges {
        if !should_continue() {
            return Ok(counts);
        }
        counts.images += 1;
        caught(|| lose(&start, lost.clone()))
            .unwrap_or_else(Err)
            .map_err(|what| format!("the pages {lost:?} of the disk are zeros: {what}"))?;
    }
    counts.images += 1;
    caught(|| write_with_unreadable_page(&empty)).unwrap_or_else(Err)?;
    Ok(counts)
}
