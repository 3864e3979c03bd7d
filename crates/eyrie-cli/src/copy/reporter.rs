//! The reports of a copy: a progress bar, paths on standard output with `-v`, and failures on standard error.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::place::join;
use crate::text;

/// Reports on a copy.
#[derive(Debug)]
pub struct Reporter {
    verbose: bool,
    quiet: bool,
    source: PathBuf,
    /// The prefix of printed paths in the target.
    target: String,
    bar: ProgressBar,
}

impl Reporter {
    /// Makes a reporter. Messages show paths of the source below `source`, and paths of the target with the
    /// prefix `target`. With `verbose` every finished path is printed to standard output.
    pub fn new(source: &Path, target: String, what: &'static str, verbose: bool) -> Reporter {
        let shown = io::stderr().is_terminal() && !(verbose && io::stdout().is_terminal());
        let bar = if shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {prefix}: {human_pos} entries in {elapsed} {msg}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(what);
        if shown {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Reporter { verbose, quiet: false, source: source.to_owned(), target, bar }
    }

    /// Works as [`Reporter::new`], but shows the progress out of a known number of entries.
    pub fn with_total(source: &Path, target: String, what: &'static str, entries: u64) -> Reporter {
        Reporter { verbose: false, quiet: false, source: source.to_owned(), target, bar: bar(what, entries) }
    }

    /// Makes a reporter that reports nothing.
    #[cfg(test)]
    pub fn silent() -> Reporter {
        Reporter {
            verbose: false,
            quiet: true,
            source: PathBuf::new(),
            target: String::new(),
            bar: ProgressBar::hidden(),
        }
    }

    /// Reports that `path` is complete in the target.
    pub(super) fn completed(&self, path: &Path, bytes: u64) {
        self.bar.inc(1);
        if bytes >= 16 << 20 {
            self.bar.set_message(text::path(path));
        }
        if self.verbose {
            let line = format!("{}\n", self.target_place(path));
            let mut out = io::stdout().lock();
            // The copy continues if standard output is closed.
            let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        }
    }

    /// Reports that `relative` could not be copied.
    pub(super) fn failed(&self, relative: &Path, why: &str) {
        if self.quiet {
            return;
        }
        let place = self.place(relative);
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "eyrie: cannot copy: {place}: {why}");
        });
    }

    /// Returns the path of `relative` in the source, for messages.
    pub(super) fn place(&self, relative: &Path) -> String {
        text::path(&join(&self.source, relative))
    }

    /// Returns `path`, which is a path in the target, with the prefix of the target, for messages.
    pub fn target_place(&self, path: &Path) -> String {
        format!("{}{}", self.target, text::path(path))
    }

    /// Removes the progress bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Makes a progress bar for a known number of entries. The bar is shown only if standard error is a terminal.
pub fn bar(what: &'static str, entries: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(entries);
    let template = "{prefix:>10} {bar:30} {human_pos} of {human_len} ({eta} left)";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_prefix(what);
    bar
}
