//! The progress of a copy, which the threads of the copy share, and the counts at the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use eyrie::Kind;
use serde_json::{Value, json};

use super::lock::unpoisoned;
use super::reporter::Reporter;
use super::side::CopyError;
use crate::failure::{Failure, Result};
use crate::{interrupt, text};

/// The progress of a copy.
pub struct Progress<'a> {
    reporter: &'a Reporter,
    tally: Tally,
    stop: AtomicBool,
    fatal: Mutex<Option<String>>,
}

impl<'a> Progress<'a> {
    /// Starts the progress of a copy.
    pub fn new(reporter: &'a Reporter) -> Progress<'a> {
        Progress { reporter, tally: Tally::default(), stop: AtomicBool::new(false), fatal: Mutex::new(None) }
    }

    /// Returns true if the copy must end, because of a fatal error or an interrupt.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || interrupt::requested()
    }

    /// Counts an entry that is complete in the target at `path`. Its copy wrote `bytes` bytes.
    pub fn completed(&self, kind: Kind, path: &Path, bytes: u64) {
        self.tally.add(kind);
        self.tally.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.reporter.completed(path, bytes);
    }

    /// Counts a hard link.
    pub fn linked(&self, path: &Path) {
        self.tally.links.fetch_add(1, Ordering::Relaxed);
        self.reporter.completed(path, 0);
    }

    /// Counts an entry whose owner could not be kept.
    pub fn owner_lost(&self) {
        self.tally.owners_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an entry whose inode flags could not be kept.
    pub fn flags_lost(&self) {
        self.tally.flags_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an entry whose project id could not be kept.
    pub fn project_lost(&self) {
        self.tally.projects_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an entry whose times could not be kept.
    pub fn time_lost(&self) {
        self.tally.times_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an extended attribute that was kept.
    pub fn xattr_kept(&self) {
        self.tally.xattrs.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an extended attribute that could not be kept. The empty name stands for all attributes of an
    /// entry.
    pub fn xattr_lost(&self, name: &[u8], why: &str) {
        let end = name.iter().position(|&byte| byte == b'.').unwrap_or(name.len());
        let namespace = if name.is_empty() { "unknown".to_owned() } else { text::escaped(&name[..end]) };
        let mut lost = unpoisoned(self.tally.xattrs_lost.lock());
        let (count, _) = lost.entry(namespace).or_insert_with(|| (0, why.to_owned()));
        *count += 1;
    }

    /// Counts the entry `relative`, which could not be copied. Reports its error at once, unless the error is
    /// fatal or an interrupt. A fatal error stops the copy, and [`Progress::outcome`] returns the first one.
    pub fn failed(&self, relative: &Path, error: &CopyError) {
        self.tally.failed.fetch_add(1, Ordering::Relaxed);
        match error {
            CopyError::Source(why) => self.reporter.failed(relative, why),
            CopyError::Target(why) => self.reporter.failed(relative, &format!("in the target: {why}")),
            CopyError::Fatal(why) => {
                let mut fatal = unpoisoned(self.fatal.lock());
                fatal.get_or_insert_with(|| why.clone());
                self.stop.store(true, Ordering::Relaxed);
            }
            CopyError::Interrupted => {}
        }
    }

    /// Ends the copy and returns its counts. `to` is the root of the copy in the target.
    ///
    /// # Errors
    /// Fails if a fatal error stopped the copy. After an interrupt, fails with exit status 130.
    pub fn outcome(self, to: &Path) -> Result<Tally> {
        self.reporter.finish();
        let to = self.reporter.target_place(to);
        let done = self.tally.summary();
        if let Some(why) = unpoisoned(self.fatal.into_inner()) {
            let what = format_args!("cannot {} all", self.reporter.what);
            return Err(Failure::new(what, to, format_args!("{why}; copied so far: {done}")));
        }
        if interrupt::requested() {
            let what = format!("copied so far: {done}");
            return Err(Failure::new("interrupted", to, what).with_status(interrupt::STATUS).ending());
        }
        Ok(self.tally)
    }
}

/// The counts of a copy. Except for `bytes` and the extended attributes, they are numbers of entries.
#[derive(Debug, Default)]
pub struct Tally {
    files: AtomicU64,
    directories: AtomicU64,
    symlinks: AtomicU64,
    links: AtomicU64,
    others: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    owners_lost: AtomicU64,
    times_lost: AtomicU64,
    flags_lost: AtomicU64,
    projects_lost: AtomicU64,
    xattrs: AtomicU64,
    /// For each namespace, the number of extended attributes that were not kept, and the reason for the first
    /// of them.
    xattrs_lost: Mutex<BTreeMap<String, (u64, String)>>,
}

impl Tally {
    fn add(&self, kind: Kind) {
        let counter = match kind {
            Kind::File => &self.files,
            Kind::Directory => &self.directories,
            Kind::Symlink => &self.symlinks,
            _ => &self.others,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of copied entries, including hard links.
    pub fn entries(&self) -> u64 {
        [&self.files, &self.directories, &self.symlinks, &self.links, &self.others]
            .iter()
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns the number of bytes that were written to the copied files.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of entries that could not be copied.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns the counts as JSON.
    pub fn json(&self) -> Value {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let lost = unpoisoned(self.xattrs_lost.lock());
        let lost: Vec<Value> = lost
            .iter()
            .map(|(namespace, (count, why))| json!({ "namespace": namespace, "count": count, "reason": why }))
            .collect();
        json!({
            "entries": self.entries(),
            "files": count(&self.files),
            "directories": count(&self.directories),
            "symlinks": count(&self.symlinks),
            "hard_links": count(&self.links),
            "special_files": count(&self.others),
            "bytes": self.bytes(),
            "failed": self.failed(),
            "owners_not_kept": count(&self.owners_lost),
            "times_not_kept": count(&self.times_lost),
            "flags_not_kept": count(&self.flags_lost),
            "projects_not_kept": count(&self.projects_lost),
            "xattrs": count(&self.xattrs),
            "xattrs_not_kept": lost,
        })
    }

    /// Returns the counts as text.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        for (counter, one, many) in [
            (&self.files, "file", "files"),
            (&self.directories, "directory", "directories"),
            (&self.symlinks, "symbolic link", "symbolic links"),
            (&self.links, "hard link", "hard links"),
            (&self.others, "special file", "special files"),
        ] {
            let count = counter.load(Ordering::Relaxed);
            if count > 0 {
                parts.push(text::counted(count, one, many));
            }
        }
        let entries = text::counted(self.entries(), "entry", "entries");
        let mut summary = format!("{entries}, {}", text::size(self.bytes()));
        if !parts.is_empty() {
            summary.push_str(&format!(" ({})", parts.join(", ")));
        }
        let lost = self.owners_lost.load(Ordering::Relaxed);
        if lost > 0 {
            summary.push_str(&format!(
                "; {} with another owner, because only root can give files away",
                text::count(lost)
            ));
        }
        let lost = self.times_lost.load(Ordering::Relaxed);
        if lost > 0 {
            summary.push_str(&format!(
                "; {} with another time, because the target cannot store theirs",
                text::count(lost)
            ));
        }
        let lost = self.flags_lost.load(Ordering::Relaxed);
        if lost > 0 {
            summary.push_str(&format!(
                "; {} without inode flags, because only root can set flags",
                text::count(lost)
            ));
        }
        let lost = self.projects_lost.load(Ordering::Relaxed);
        if lost > 0 {
            summary.push_str(&format!(
                "; {} without project ids, because only root can set project ids",
                text::count(lost)
            ));
        }
        if let Some(lost) = self.lost_xattrs() {
            summary.push_str(&format!("; {lost}"));
        }
        summary
    }

    /// Returns a text about the extended attributes that were not kept, or `None` if all were kept.
    pub fn lost_xattrs(&self) -> Option<String> {
        let lost = unpoisoned(self.xattrs_lost.lock());
        let total: u64 = lost.values().map(|(count, _)| count).sum();
        let parts: Vec<String> = lost
            .iter()
            .map(|(namespace, (count, why))| format!("{} of {namespace}: {why}", text::count(*count)))
            .collect();
        let total_shown = text::counted(total, "extended attribute", "extended attributes");
        (total > 0).then(|| format!("{total_shown} not kept ({})", parts.join("; ")))
    }
}
