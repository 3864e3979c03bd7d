//! The page that a run writes for a browser.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Doing, Result};
use crate::text;

/// The page of a report. The file is opened before the run, and written after the run. Therefore a page that
/// cannot be written is noticed early, and a run that fails leaves an old page unchanged.
pub(super) struct ReportPage<'a> {
    path: &'a Path,
    file: File,
    /// The path of a file that this run has made for the page. `None` after the page is written, so that the
    /// file stays.
    made: Option<PathBuf>,
}

impl ReportPage<'_> {
    pub fn open(path: &Path) -> Result<ReportPage<'_>> {
        let mut options = File::options();
        let there = options.write(true).open(path);
        let is_new = matches!(&there, Err(error) if error.kind() == io::ErrorKind::NotFound);
        let file = if is_new { options.create(true).truncate(false).open(path) } else { there };
        let file = file.doing("write", text::path(path))?;
        // If `path` is a symbolic link without a target, the open has made the target. After a failure the
        // run removes the target, and not the link of the user.
        let made = is_new.then(|| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
        Ok(ReportPage { path, file, made })
    }

    pub fn finish(mut self, html: &str) -> Result<()> {
        self.replace(html).doing("write", text::path(self.path))?;
        self.made = None;
        Ok(())
    }

    fn replace(&mut self, html: &str) -> io::Result<()> {
        // A device or a pipe has no bytes of an old page.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(html.as_bytes())
    }
}

impl Drop for ReportPage<'_> {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            let _ = std::fs::remove_file(made);
        }
    }
}
