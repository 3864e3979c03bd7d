//! The errors of an answer.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use eyrie_engine::Error;
use eyrie_medium::{Addr, Fault};

/// Defines the numbers of the errors that have no further values.
macro_rules! plain_errors {
    ($($number:literal $error:ident)*) => {
        fn number_of(error: &Error) -> Option<u32> {
            match error {
                $(Error::$error => Some($number),)*
                _ => None,
            }
        }

        fn plain(number: u32) -> Option<Error> {
            match number {
                $($number => Some(Error::$error),)*
                _ => None,
            }
        }
    };
}

plain_errors! {
    1 NotFound
    2 Exists
    3 NotDirectory
    4 IsDirectory
    5 NotEmpty
    6 NameTooLong
    7 TooLarge
    8 TooManyLinks
    9 NoXattr
    10 XattrName
    11 XattrTooLarge
    12 XattrsFull
    13 ConditionFailed
    14 NoSpace
    15 Stale
    16 AccessDenied
    17 NotPermitted
    18 OpenedReadOnly
    19 ServiceEnded
    20 NotReserved
    21 LockConflict
    22 Deadlock
    23 TooManyLocks
    24 QuotaExceeded
    25 OtherTree
    26 DirectoryFull
}

const INVALID: u32 = 100;
const UNSUPPORTED: u32 = 101;
const CORRUPT: u32 = 102;
const FAULT: u32 = 103;
const CHECKSUM: u32 = 104;
const READ_ONLY: u32 = 105;
const HOST_FULL: u32 = 106;
const HOST_ERROR: u32 = 107;

/// Returns the number, the address and the text of an error. An error of the host has its errno in the place
/// of the address. All other errors without an address have 0.
pub fn send_error(error: &Error) -> (u32, u64, String) {
    match error {
        Error::Invalid(what) => (INVALID, 0, (*what).to_owned()),
        Error::Unsupported(what) => (UNSUPPORTED, 0, (*what).to_owned()),
        Error::Corrupt { addr, what } => (CORRUPT, addr.raw(), (*what).to_owned()),
        Error::Fault(Fault::Checksum { addr }) => (CHECKSUM, addr.raw(), String::new()),
        Error::Fault(Fault::ReadOnly) => (READ_ONLY, 0, String::new()),
        Error::Fault(Fault::HostFull) => (HOST_FULL, 0, String::new()),
        Error::Fault(Fault::Io { what, source }) => match source.raw_os_error() {
            Some(errno) => (HOST_ERROR, errno as u64, what.clone()),
            None => (FAULT, 0, error.to_string()),
        },
        plain => match number_of(plain) {
            Some(number) => (number, 0, String::new()),
            None => (FAULT, 0, plain.to_string()),
        },
    }
}

/// Returns the error that the service has sent.
pub fn received_error(number: u32, address: u64, text: &str) -> Error {
    match number {
        INVALID => Error::Invalid(interned(text)),
        UNSUPPORTED => Error::Unsupported(interned(text)),
        CORRUPT => Error::corrupt(Addr::from_raw(address), interned(text)),
        CHECKSUM => Error::Fault(Fault::Checksum { addr: Addr::from_raw(address) }),
        READ_ONLY => Error::Fault(Fault::ReadOnly),
        HOST_FULL => Error::Fault(Fault::HostFull),
        HOST_ERROR => io_fault(text, io::Error::from_raw_os_error(address as i32)),
        number => plain(number).unwrap_or_else(|| io_fault("the service", io::Error::other(text))),
    }
}

/// Returns a text that lives as long as the process. The engine has some hundred different texts. If services
/// send more than `MOST` different texts, the others become one common text.
fn interned(text: &str) -> &'static str {
    static TEXTS: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    const MOST: usize = 1000;
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let texts = texts.get_or_insert_default();
    if let Some(known) = texts.get(text) {
        return known;
    }
    if texts.len() >= MOST {
        return "refused by the service";
    }
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    texts.insert(text);
    text
}

/// Returns the fault of a failed call to the host.
pub fn io_fault(what: &str, source: io::Error) -> Error {
    Error::Fault(Fault::Io { what: what.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use eyrie_engine::Errno;

    use super::*;

    #[test]
    fn errors_arrive_as_they_were() {
        let corrupt = Error::corrupt(Addr::from_raw(64), "a test");
        let page = Fault::Checksum { addr: Addr::from_raw(4096) };
        let faults = [page, Fault::ReadOnly, Fault::HostFull].map(Error::Fault);
        let plain = [Error::NotFound, Error::ServiceEnded, Error::DirectoryFull];
        let others = [Error::Invalid("a reason"), corrupt].into_iter().chain(plain);
        let full = [Errno::NOSPC, Errno::IO].map(|errno| {
            let source = io::Error::from_raw_os_error(errno.into());
            Error::Fault(Fault::Io { what: "writing the journal".to_owned(), source })
        });
        for error in others.chain(faults).chain(full) {
            let (number, address, text) = send_error(&error);
            let received = received_error(number, address, &text);
            assert_eq!((received.to_string(), received.errno()), (error.to_string(), error.errno()));
        }
        assert!(received_error(9999, 0, "unknown").to_string().contains("unknown"));
    }
}
