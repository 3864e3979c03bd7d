//! Standard output, which is buffered. A pipe or a file gets names as raw bytes, and lines of any length. A
//! terminal gets escaped names, lines that fit into its width and, by default, styles.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::os::unix::ffi::OsStrExt;

use clap::ColorChoice;
use clap::builder::styling::{AnsiColor, Style};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use eyrie::{Stat, Time};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::place::Inside;
use crate::text;

/// Standard output.
#[derive(Debug)]
pub struct Output {
    stream: BufWriter<Stdout>,
    terminal: bool,
    /// The width of the terminal. `None` without a terminal, and for a terminal that does not tell its width.
    columns: Option<usize>,
    styled: bool,
    /// True if bytes that cannot be written are discarded.
    needs_no_reader: bool,
    /// The first error of discarded bytes, unless the reader of a pipe has closed it.
    lost: Option<io::Error>,
}

impl Output {
    /// Wraps the standard output of this process.
    pub fn new() -> Output {
        let stdout = io::stdout();
        Output {
            terminal: stdout.is_terminal(),
            columns: columns(&stdout),
            styled: anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never,
            needs_no_reader: false,
            lost: None,
            stream: BufWriter::with_capacity(64 << 10, stdout),
        }
    }

    /// After this call, bytes that cannot be written are discarded. A closed pipe is then no error, and the
    /// next [`Write::flush`] returns any other error. A command that changes files calls this method, because
    /// it must complete its changes without a reader, too.
    pub fn need_no_reader(&mut self) {
        self.needs_no_reader = true;
    }

    /// Returns `none` in place of an error if no reader is needed.
    fn unless_lost<T>(&mut self, result: io::Result<T>, none: T) -> io::Result<T> {
        match result {
            Err(error) if self.needs_no_reader => {
                if error.kind() != io::ErrorKind::BrokenPipe {
                    self.lost.get_or_insert(error);
                }
                Ok(none)
            }
            result => result,
        }
    }

    /// Chooses if names and headings have styles. `Auto` leaves the choice to the terminal and the
    /// environment.
    pub fn set_color(&mut self, choice: ColorChoice) {
        match choice {
            ColorChoice::Auto => {}
            ColorChoice::Always => self.styled = true,
            ColorChoice::Never => self.styled = false,
        }
    }

    /// Prints a name: as raw bytes, or escaped on a terminal.
    pub fn name(&mut self, name: &[u8]) -> io::Result<()> {
        if self.terminal { self.write_all(text::escaped(name).as_bytes()) } else { self.write_all(name) }
    }

    /// Prints a place in a volume, with names as in [`Output::name`].
    pub fn place(&mut self, place: &Inside) -> io::Result<()> {
        self.name(place.volume.as_os_str().as_bytes())?;
        self.write_all(b":")?;
        self.name(place.path.as_os_str().as_bytes())
    }

    /// Prints a name in the colour of directories, if there are colours.
    pub fn directory_name(&mut self, name: &[u8]) -> io::Result<()> {
        let style = Style::new().fg_color(Some(AnsiColor::Blue.into())).bold();
        self.styled_name(style, name)
    }

    /// Prints a name in the colour of symbolic links, if there are colours.
    pub fn link_name(&mut self, name: &[u8]) -> io::Result<()> {
        self.styled_name(Style::new().fg_color(Some(AnsiColor::Cyan.into())), name)
    }

    fn styled_name(&mut self, style: Style, name: &[u8]) -> io::Result<()> {
        if !self.styled {
            return self.name(name);
        }
        write!(self, "{style}")?;
        self.name(name)?;
        write!(self, "{style:#}")
    }

    /// Prints a short heading on a line of its own.
    pub fn heading(&mut self, heading: &str) -> io::Result<()> {
        if self.styled {
            let bold = Style::new().bold();
            writeln!(self, "{bold}{heading}{bold:#}")
        } else {
            writeln!(self, "{heading}")
        }
    }

    /// Returns the width of the terminal, if standard output is a terminal that tells its width.
    pub fn columns(&self) -> Option<usize> {
        self.columns
    }

    /// Prints `text`. In a terminal, breaks lines between words. The lines after the first begin with
    /// `indent` spaces. A word that is longer than a line stays whole, so that it can be copied.
    pub fn wrapped(&mut self, text: &str, indent: usize) -> io::Result<()> {
        let columns = self.columns.unwrap_or(usize::MAX);
        writeln!(self, "{}", text::wrapped(text, indent, columns))
    }

    /// Prints a JSON value and the end of the line.
    pub fn json(&mut self, value: &Value) -> Result<()> {
        writeln!(self, "{value:#}")?;
        Ok(())
    }

    /// Prints a table.
    pub fn table(&mut self, table: &Table) -> io::Result<()> {
        for line in table.lines() {
            writeln!(self, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A JSON array that is printed item by item. A command that fails may leave the array without its end.
#[derive(Debug, Default)]
pub struct JsonArray {
    begun: bool,
}

impl JsonArray {
    /// Prints the next item.
    pub fn add(&mut self, item: &Value, output: &mut Output) -> Result<()> {
        let start = if self.begun { ",\n  " } else { "[\n  " };
        self.begun = true;
        // A line break in a JSON text is never part of a string.
        let item = format!("{item:#}").replace('\n', "\n  ");
        Ok(write!(output, "{start}{item}")?)
    }

    /// Prints the end of the array.
    pub fn finish(self, output: &mut Output) -> Result<()> {
        Ok(writeln!(output, "{}", if self.begun { "\n]" } else { "[]" })?)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(bytes);
        self.unless_lost(written, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.stream.flush();
        self.unless_lost(flushed, ())?;
        self.lost.take().map_or(Ok(()), Err)
    }
}

/// Returns the width of the terminal at `stdout`.
fn columns(stdout: &Stdout) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stdout).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Makes an empty table with this header. The columns `right_aligned` hold numbers.
pub fn table(header: &[&str], right_aligned: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for &index in right_aligned {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Adds a name to a JSON object as text. A name that is not UTF-8 is also added as hexadecimal bytes.
pub fn json_name(object: &mut Value, key: &str, name: &[u8]) {
    object[key] = json!(String::from_utf8_lossy(name));
    if std::str::from_utf8(name).is_err() {
        let digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        object[format!("{key}_hex")] = json!(digits);
    }
}

/// Returns the attributes of a file as JSON.
pub fn json_stat(stat: &Stat) -> Value {
    json!({
        "kind": text::kind_name(stat.kind),
        "mode": format!("{:04o}", stat.mode),
        "inode": stat.inode,
        "links": stat.links,
        "uid": stat.uid,
        "gid": stat.gid,
        "device": stat.device,
        "size": stat.size,
        "allocated": stat.allocated,
        "accessed": json_time(stat.accessed),
        "modified": json_time(stat.modified),
        "changed": json_time(stat.changed),
    })
}

/// Returns a time as JSON.
pub fn json_time(time: Time) -> Value {
    json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds })
}
