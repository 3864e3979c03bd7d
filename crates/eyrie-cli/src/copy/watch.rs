//! Who is told of a copy: the progress bar, standard output with `-v`, and standard error for failures.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::text;

/// Follows a copy.
#[derive(Debug)]
pub struct Watch {
    verbose: bool,
    quiet: bool,
    source: PathBuf,
    /// What goes before the paths of the target.
    target: String,
    bar: ProgressBar,
}

impl Watch {
    /// Paths of the source are shown under `source`, those of the target after `target`; with `verbose` every finished
    /// path goes to standard output.
    pub fn new(source: &Path, target: String, what: &'static str, verbose: bool) -> Watch {
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
        Watch { verbose, quiet: false, source: source.to_owned(), target, bar }
    }

    /// As [`Watch::new`], with the number of entries known.
    pub fn with_total(source: &Path, target: String, what: &'static str, entries: u64) -> Watch {
        Watch { verbose: false, quiet: false, source: source.to_owned(), target, bar: bar(what, entries) }
    }

    /// Tells nobody.
    #[cfg(test)]
    pub fn nobody() -> Watch {
        Watch {
            verbose: false,
            quiet: true,
            source: PathBuf::new(),
            target: String::new(),
            bar: ProgressBar::hidden(),
        }
    }

    /// `path` is in the target, all of it.
    pub(super) fn completed(&self, path: &Path, bytes: u64) {
        self.bar.inc(1);
        if bytes >= 16 << 20 {
            self.bar.set_message(text::path(path));
        }
        if self.verbose {
            let line = format!("{}\n", self.target_place(path));
            let mut out = io::stdout().lock();
            // The copy goes on when nobody reads any more.
            let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        }
    }

    /// `relative` could not be copied.
    pub(super) fn failed(&self, relative: &Path, why: &str) {
        if self.quiet {
            return;
        }
        let place = self.place(relative);
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "eyrie: cannot copy: {place}: {why}");
        });
    }

    /// The source's path of `relative`, to be shown.
    pub(super) fn place(&self, relative: &Path) -> String {
        text::path(&super::under(&self.source, relative))
    }

    /// The target's `path`, to be shown.
    pub fn target_place(&self, path: &Path) -> String {
        format!("{}{}", self.target, text::path(path))
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A bar over a known number of entries, shown only on a terminal.
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
