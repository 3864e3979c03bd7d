//! Errors of commands. Most print one line to standard error, with the action that failed, the place, and the
//! reason or advice. An error of a script begins with the name of the script instead. Errors of
//! `eyrie explore` may have more lines. A silent error prints nothing.

use std::fmt::{self, Display};
use std::io::{self, Write};

use eyrie::{CloseError, Errno};

use crate::text;

/// Exit status if a file, a volume or a key that the arguments name does not exist.
const NOT_FOUND: u8 = 3;
/// Exit status after an interrupt.
pub const INTERRUPTED: u8 = 130;

/// Result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// The error of a command: the text to print, which is one line except for `eyrie explore`, and the exit
/// status.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    text: String,
    /// True if the command must not continue with its next argument.
    ends: bool,
}

impl Failure {
    /// Makes a failure with exit status 1 from the action that failed, the place, and the reason or advice.
    pub fn new(what: impl Display, place: impl Display, why: impl Display) -> Failure {
        Failure::of_text(format_args!("{what}: {place}: {why}"))
    }

    /// Makes a failure with exit status 1 and the given text.
    pub fn of_text(text: impl Display) -> Failure {
        Failure { status: 1, text: text.to_string(), ends: false }
    }

    /// Makes a failure that prints nothing, because its text has been printed or none is needed.
    pub fn silent(status: u8) -> Failure {
        Failure { status, text: String::new(), ends: false }
    }

    /// Makes a failure with exit status 2, for wrong arguments.
    pub fn usage(what: impl Display, place: impl Display, why: impl Display) -> Failure {
        Failure::new(what, place, why).with_status(2)
    }

    /// Makes a failure with exit status 3, for something that does not exist.
    pub fn not_found(what: impl Display, place: impl Display, why: impl Display) -> Failure {
        Failure::new(what, place, why).with_status(NOT_FOUND)
    }

    /// Makes the failure of a call that failed with `errno`. The exit status is 3 for `ENOENT`, and otherwise
    /// 1.
    pub fn of_errno(errno: Errno, what: impl Display, place: impl Display, why: impl Display) -> Failure {
        let failure = Failure::new(what, place, why);
        if errno == Errno::NOENT { failure.with_status(NOT_FOUND) } else { failure }
    }

    /// Changes the exit status.
    #[must_use]
    pub fn with_status(mut self, status: u8) -> Failure {
        self.status = status;
        self
    }

    /// Appends a note to the text. A failure that prints nothing stays as it is.
    #[must_use]
    pub fn with_note(mut self, note: &str) -> Failure {
        if !self.text.is_empty() {
            self.text.push_str(note);
        }
        self
    }

    /// Marks a failure that ends the command, such as an interrupt: the next arguments are not tried.
    #[must_use]
    pub fn ending(mut self) -> Failure {
        self.ends = true;
        self
    }

    /// Returns true if the command must not continue with its next argument.
    pub fn ends_command(&self) -> bool {
        self.ends
    }

    /// Returns the exit status.
    pub fn status(&self) -> u8 {
        self.status
    }
}

/// Prints the text, which may be empty.
impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Makes the failure for an error of standard output. A closed pipe ends a command with status 0, unless its
/// earlier work has failed, because the reader of the pipe has read enough. A command that changes files
/// calls [`Output::need_no_reader`](crate::output::Output::need_no_reader), so no error of output ends it.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let failure = match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::silent(0),
            _ => Failure::new("cannot write", "standard output", reason_of_io(&error)),
        };
        failure.ending()
    }
}

/// Prints `text`, which may have several lines, to standard error. Ignores a closed standard error.
pub fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "eyrie: {text}");
}

/// Prints the text of a failure that does not decide the exit status.
pub fn print_failure(result: Result<()>) {
    if let Err(failure) = result
        && !failure.text.is_empty()
    {
        print_error(&failure.text);
    }
}

/// The failures of a command with several arguments. Each is printed immediately, and the command continues
/// with the next argument.
#[derive(Debug, Default)]
pub struct Failures {
    status: Option<u8>,
}

impl Failures {
    /// Prints the failure of one argument.
    ///
    /// # Errors
    /// Returns the failure if it ends the command, with the exit status of [`Failures::ended_by`].
    pub fn add(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(failure) if failure.ends => Err(self.ended_by(failure)),
            Err(failure) => {
                let status = joined(self.status.unwrap_or(0), failure.status);
                print_failure(Err(failure));
                self.status = Some(status);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Returns `failure`, which ends the command, with the exit status of the whole command: 130 after an
    /// interrupt, 1 if an earlier failure has another status, and otherwise the status that all failures
    /// have. The status 0 of a closed pipe does not count.
    pub fn ended_by(&self, failure: Failure) -> Failure {
        let status = joined(self.status.unwrap_or(0), failure.status);
        failure.with_status(status)
    }

    /// Fails if an argument failed.
    ///
    /// # Errors
    /// The failure has no text. Its exit status is that of all failures, or 1 if they differ.
    pub fn finish(self) -> Result<()> {
        self.status.map_or(Ok(()), |status| Err(Failure::silent(status)))
    }
}

/// Returns the exit status of a command that has failed with two statuses. The status 0 is that of a closed
/// pipe, and does not count.
fn joined(one: u8, other: u8) -> u8 {
    match (one, other) {
        (0, status) | (status, 0) => status,
        (INTERRUPTED, _) | (_, INTERRUPTED) => INTERRUPTED,
        (one, other) if one == other => one,
        _ => 1,
    }
}

/// Joins the result of a command that has printed with that of its earlier work. If both failed, prints the
/// failure of the earlier work and returns the other one. After a closed pipe, prints nothing and returns the
/// failure of the earlier work.
///
/// # Errors
/// The failure of `printed` unless its exit status is 0, or else that of `earlier`. If both failed and their
/// statuses differ, the status is 1, or 130 after an interrupt.
pub fn with_earlier(printed: Result<()>, earlier: Result<()>) -> Result<()> {
    match (printed, earlier) {
        (Err(failure), Err(earlier)) if failure.status != 0 => {
            let status = joined(failure.status, earlier.status);
            print_failure(Err(earlier));
            Err(failure.with_status(status))
        }
        (Err(failure), _) if failure.status != 0 => Err(failure),
        (printed, earlier) => earlier.and(printed),
    }
}

/// Joins the result of the work on a volume with the result of the close that follows. If both failed, prints
/// the failure of the close.
///
/// # Errors
/// The failure of the work, or else that of the close. If both failed, the exit status is that of the work,
/// or that of the close if the status of the work is 0 (a closed pipe) or 3 (only something is missing).
pub fn with_close<T>(result: Result<T>, closed: Result<()>) -> Result<T> {
    match (result, closed) {
        (Ok(value), closed) => closed.map(|()| value),
        (Err(failure), Ok(())) => Err(failure),
        (Err(failure), Err(closed)) => {
            let status = if matches!(failure.status, 0 | NOT_FOUND) { closed.status } else { failure.status };
            print_failure(Err(closed));
            Err(failure.with_status(status))
        }
    }
}

/// The number of entries that a command could not read. Each is reported immediately, and the command
/// continues with the next entry.
#[derive(Debug, Default)]
pub struct Skipped {
    count: u64,
}

impl Skipped {
    /// Reports and counts the entry at `place`.
    pub fn add(&mut self, place: impl Display, error: &eyrie::Error) {
        self.count += 1;
        print_error(&format!("cannot read: {place}: {}", reason(error)));
    }

    /// Fails if an entry was skipped.
    ///
    /// # Errors
    /// The message begins with `what`, such as "not everything was listed".
    pub fn finish(&self, what: &str, place: impl Display) -> Result<()> {
        require_complete(what, place, self.count)
    }
}

/// Fails with `what` unless `left_out`, the number of entries that the result lacks, is 0.
///
/// # Errors
/// The message has the number of missing entries.
pub fn require_complete(what: &str, place: impl Display, left_out: u64) -> Result<()> {
    if left_out == 0 {
        return Ok(());
    }
    let entries = text::counted(left_out, "entry", "entries");
    Err(Failure::new(what, place, format_args!("{entries} left out, see above")))
}

/// Turns errors into failures with the words of the command.
pub trait Doing<T> {
    /// Turns an error into the failure "cannot `what`", such as "cannot read", at `place`.
    fn doing(self, what: &str, place: impl Display) -> Result<T>;
}

impl<T> Doing<T> for eyrie::Result<T> {
    fn doing(self, what: &str, place: impl Display) -> Result<T> {
        self.map_err(|error| {
            Failure::of_errno(error.errno(), format_args!("cannot {what}"), place, reason(&error))
        })
    }
}

impl Doing<()> for std::result::Result<(), CloseError> {
    fn doing(self, what: &str, place: impl Display) -> Result<()> {
        self.map_err(eyrie::Error::from).doing(what, place)
    }
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &str, place: impl Display) -> Result<T> {
        self.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Failure::of_errno(errno, format_args!("cannot {what}"), place, reason_of_io(&error))
        })
    }
}

/// Returns the reason and the advice of an error. Leaves out operation and path, because the command has
/// better words for them.
pub fn reason(error: &eyrie::Error) -> String {
    let text = error.to_string();
    let prefix = match error.path() {
        Some(path) => format!("{} {}: ", error.operation(), path.display()),
        None => format!("{}: ", error.operation()),
    };
    let why = text.strip_prefix(&prefix).unwrap_or(&text);
    match error.engine() {
        Some(_) if error.errno() == Errno::NOSPC => format!("{why}: make room there"),
        // Other messages of the engine name the cause, so the advice for their errno would add nothing.
        Some(_) => why.to_owned(),
        None => with_advice(why, error.errno()),
    }
}

/// Works like [`reason`], for an error of the standard library.
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
        Errno::NAMETOOLONG => "a name may have at most 255 bytes, and a path at most 4095",
        Errno::NOTEMPTY => "remove its contents first, or choose another name",
        Errno::ACCESS | Errno::PERM => "run as its owner, or as root",
        Errno::ISDIR => "name a file",
        Errno::NOTDIR => "check the path",
        Errno::LOOP => "there is a loop of symbolic links",
        _ => return why.to_owned(),
    };
    format!("{why}: {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed_pipe() -> Result<()> {
        Err(io::Error::from(io::ErrorKind::BrokenPipe).into())
    }

    fn status(result: Result<()>) -> u8 {
        result.map_or_else(|failure| failure.status(), |()| 0)
    }

    #[test]
    fn closed_pipe_keeps_the_status_of_earlier_failures() {
        let mut failures = Failures::default();
        assert_eq!(status(failures.add(closed_pipe())), 0);
        failures.add(Err(Failure::silent(NOT_FOUND))).unwrap();
        assert!(
            failures.add(closed_pipe()).is_err_and(|failure| failure.ends && failure.status == NOT_FOUND)
        );
        assert_eq!(status(failures.add(Err(Failure::silent(130).ending()))), 130);
    }

    #[test]
    fn status_of_nested_failures_is_that_of_all() {
        let failed = |status: u8| Err(Failure::silent(status));
        let ended = |earlier, last| {
            let mut failures = Failures::default();
            failures.add(failed(earlier)).unwrap();
            status(failures.add(Err(Failure::silent(last).ending())))
        };
        assert_eq!((ended(1, 3), ended(3, 3), ended(3, 0), ended(1, 130)), (1, 3, 3, 130));
        let both = |printed, earlier| status(with_earlier(failed(printed), failed(earlier)));
        assert_eq!((both(3, 1), both(3, 3), both(0, 3), both(130, 1)), (1, 3, 3, 130));
    }

    #[test]
    fn failed_close_is_in_the_status() {
        let closed = || Err(Failure::silent(1));
        assert_eq!(status(with_close(Ok(()), closed())), 1);
        assert_eq!(status(with_close(closed_pipe(), closed())), 1);
        assert_eq!(status(with_close(Err(Failure::silent(NOT_FOUND)), closed())), 1);
        assert_eq!(status(with_close(Err(Failure::silent(130)), closed())), 130);
        assert_eq!(status(with_close(Err(Failure::silent(NOT_FOUND)), Ok(()))), NOT_FOUND);
    }
}
