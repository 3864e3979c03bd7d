//! The reports of a copy: a progress bar, paths on standard output with `-v`, and failures on standard error.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::place::join;
use crate::text;

/// The form of the reports of a copy.
#[derive(Debug)]
pub enum Style {
    /// A progress bar, if standard error is a terminal.
    Bar,
    /// Nothing but failures.
    Quiet,
    /// A line on standard output for each finished path.
    Paths,
    /// A line on standard output for each finished path and its source, as `cp -v` prints it.
    Pairs,
}

impl Style {
    /// Returns the form for a command with the flags `--verbose` and `--quiet`.
    pub fn of(verbose: bool, quiet: bool) -> Style {
        match (verbose, quiet) {
            (true, _) => Style::Paths,
            (false, true) => Style::Quiet,
            (false, false) => Style::Bar,
        }
    }
}

/// Reports on a copy.
#[derive(Debug)]
pub struct Reporter {
    style: Style,
    /// True if failures are not printed.
    silent: bool,
    source: PathBuf,
    /// The prefix of printed paths in the target.
    target: String,
    /// The path of the copy in its file system, and the target as the command line names it. Printed paths
    /// begin with the second path in place of the first, and have no prefix.
    named: Option<(PathBuf, PathBuf)>,
    /// The name of the command, for the progress bar and for failures.
    pub(super) what: &'static str,
    bar: ProgressBar,
}

impl Reporter {
    /// Makes a reporter. Messages show paths of the source below `source`, and paths of the target with the
    /// prefix `target`. `what` is the name of the command, for the progress bar and for failures.
    pub fn new(source: &Path, target: String, what: &'static str, style: Style) -> Reporter {
        // A bar and lines on one terminal would overwrite each other.
        let has_bar = match style {
            Style::Bar => true,
            Style::Quiet => false,
            Style::Paths | Style::Pairs => !io::stdout().is_terminal(),
        };
        let shown = has_bar && io::stderr().is_terminal();
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
        Reporter { style, silent: false, source: source.to_owned(), target, named: None, what, bar }
    }

    /// Shows the path `root` of the target, and the paths below it, as `to` and paths below `to`. `to` is the
    /// target as the command line names it.
    #[must_use]
    pub fn with_name(self, root: &Path, to: &Path) -> Reporter {
        Reporter { named: Some((root.to_owned(), to.to_owned())), ..self }
    }

    /// Works like [`Reporter::new`], but shows the progress out of a known number of entries.
    pub fn with_total(source: &Path, target: String, what: &'static str, entries: u64) -> Reporter {
        Reporter {
            style: Style::Bar,
            silent: false,
            source: source.to_owned(),
            target,
            named: None,
            what,
            bar: bar(what, entries),
        }
    }

    /// Makes a reporter that reports nothing.
    #[cfg(test)]
    pub fn silent() -> Reporter {
        Reporter {
            style: Style::Bar,
            silent: true,
            source: PathBuf::new(),
            target: String::new(),
            named: None,
            what: "copy",
            bar: ProgressBar::hidden(),
        }
    }

    /// Reports that `path` is complete in the target.
    pub(super) fn completed(&self, path: &Path, bytes: u64) {
        self.bar.inc(1);
        if bytes >= 16 << 20 {
            self.bar.set_message(text::path(path));
        }
        match &self.style {
            Style::Bar | Style::Quiet => {}
            Style::Paths => print_line(&self.target_place(path)),
            Style::Pairs => {
                let relative = self.named.as_ref().and_then(|(root, _)| path.strip_prefix(root).ok());
                let source = self.place(relative.unwrap_or(Path::new("")));
                print_line(&format!("'{source}' -> '{}'", self.target_place(path)));
            }
        }
    }

    /// Reports that `relative` could not be copied.
    pub(super) fn failed(&self, relative: &Path, why: &str) {
        if self.silent {
            return;
        }
        let (what, place) = (self.what, self.place(relative));
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "eyrie: cannot {what}: {place}: {why}");
        });
    }

    /// Returns the path of `relative` in the source, for messages.
    pub(super) fn place(&self, relative: &Path) -> String {
        text::path(&join(&self.source, relative))
    }

    /// Returns `path`, which is a path in the target, for messages: with the target's name or prefix.
    pub fn target_place(&self, path: &Path) -> String {
        if let Some((root, to)) = &self.named
            && let Ok(relative) = path.strip_prefix(root)
        {
            return text::path(&join(to, relative));
        }
        format!("{}{}", self.target, text::path(path))
    }

    /// Removes the progress bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Prints a line to standard output at once. The copy continues if standard output is closed.
pub fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
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
