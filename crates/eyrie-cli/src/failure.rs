//! One clear line per error: what, where, what to do.

use std::fmt::{self, Display};
use std::io;

use eyrie::Errno;

/// Result of the commands.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a command ends early, and with which exit status.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    line: String,
}

impl Failure {
    /// The ordinary failure, exit status 1: what could not be done, on what, why or what to do.
    pub fn new(what: impl Display, place: impl Display, why: impl Display) -> Failure {
        Failure { status: 1, line: format!("{what}: {place}: {why}") }
    }

    /// A failure that has its own words for what, where and why, exit status 1.
    pub fn of_line(line: impl Display) -> Failure {
        Failure { status: 1, line: line.to_string() }
    }

    /// A failure whose line has been written already, or needs none.
    pub fn silent(status: u8) -> Failure {
        Failure { status, line: String::new() }
    }

    /// Wrong arguments, exit status 2.
    pub fn usage(what: impl Display, place: impl Display, why: impl Display) -> Failure {
        Failure::new(what, place, why).with_status(2)
    }

    /// The same failure with another exit status.
    #[must_use]
    pub fn with_status(mut self, status: u8) -> Failure {
        self.status = status;
        self
    }

    /// The same failure with something more to say.
    #[must_use]
    pub fn with_note(mut self, note: &str) -> Failure {
        self.line.push_str(note);
        self
    }

    /// The exit status.
    pub fn status(&self) -> u8 {
        self.status
    }
}

/// Empty when there is nothing left to say.
impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// An error of the standard output. Whoever closed the pipe has read enough.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::silent(0),
            _ => Failure::new("cannot write", "standard output", reason_of_io(&error)),
        }
    }
}

/// Gives an error the words of the command.
pub trait Doing<T> {
    /// What was being done, and on what.
    fn doing(self, what: &str, place: impl Display) -> Result<T>;
}

impl<T> Doing<T> for eyrie::Result<T> {
    fn doing(self, what: &str, place: impl Display) -> Result<T> {
        self.map_err(|error| Failure::new(format_args!("cannot {what}"), place, reason(&error)))
    }
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &str, place: impl Display) -> Result<T> {
        self.map_err(|error| Failure::new(format_args!("cannot {what}"), place, reason_of_io(&error)))
    }
}

/// Why, and what to do; without operation and path, which the command knows better.
pub fn reason(error: &eyrie::Error) -> String {
    let text = error.to_string();
    let prefix = match error.path() {
        Some(path) => format!("{} {}: ", error.operation(), path.display()),
        None => format!("{}: ", error.operation()),
    };
    let why = text.strip_prefix(&prefix).unwrap_or(&text);
    match error.engine() {
        Some(_) if error.errno() == Errno::NOSPC => format!("{why}: make room there"),
        // The engine's own words say what to do.
        Some(_) => why.to_owned(),
        None => with_advice(why, error.errno()),
    }
}

/// As [`reason`], of an error of the standard library.
pub fn reason_of_io(error: &io::Error) -> String {
    let text = error.to_string();
    let why = text.split(" (os error").next().unwrap_or(&text);
    match Errno::from_io_error(error) {
        Some(errno) => with_advice(why, errno),
        None => why.to_owned(),
    }
}

fn with_advice(why: &str, errno: Errno) -> String {
    let advice = match errno {
        Errno::NOENT => "check the spelling",
        Errno::EXIST => "choose another name, or remove it first",
        Errno::NOSPC | Errno::DQUOT => "make room there, or use a larger volume",
        Errno::NAMETOOLONG => "a name has at most 255 bytes, a path at most 4095",
        Errno::NOTEMPTY => "remove its contents first, or choose another name",
        Errno::ACCESS | Errno::PERM => "run as its owner, or as root",
        Errno::LOOP => "there is a loop of symbolic links",
        _ => return why.to_owned(),
    };
    format!("{why}: {advice}")
}
