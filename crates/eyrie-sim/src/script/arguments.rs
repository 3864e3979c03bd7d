//! Arguments of a call: words that become paths, numbers and names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::vec::IntoIter;

use eyrie::{FallocateMode, InodeFlags, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, RenameMode, Time};

use super::call::{fallocate_name, flags_name, quota_kind_name};
use super::{KeyChange, MAX_WRITTEN_BYTES};
use crate::seconds::Seconds;
use crate::word::{Problem, Token};

type Result<T> = std::result::Result<T, Problem>;

/// The largest set of permission bits.
const MAX_MODE: u64 = 0o7777;

/// The words after the name of a call, from left to right.
pub(super) struct CallArguments<'a> {
    call: &'a [u8],
    /// The syntax of the call, for errors.
    usage: String,
    rest: IntoIter<Token<'a>>,
}

impl<'a> CallArguments<'a> {
    pub(super) fn new(call: &'a [u8], usage: String, rest: IntoIter<Token<'a>>) -> CallArguments<'a> {
        CallArguments { call, usage, rest }
    }

    fn next(&mut self) -> Result<Token<'a>> {
        self.rest.next().ok_or_else(|| Problem::new(self.call, self.usage.clone()))
    }

    /// Checks that no word is left.
    pub(super) fn end(mut self) -> Result<()> {
        match self.rest.next() {
            None => Ok(()),
            Some(token) => {
                Err(Problem::new(token.text, format!("the end of the line (syntax: {})", self.usage)))
            }
        }
    }

    /// Reads a path.
    pub(super) fn path(&mut self, name: &str) -> Result<OsString> {
        self.name(name).map(OsString::from_vec)
    }

    /// Reads a name. The name must not contain a NUL byte, because the first NUL byte ends a name in a system
    /// call.
    pub(super) fn name(&mut self, name: &str) -> Result<Vec<u8>> {
        let token = self.next()?;
        if token.value.contains(&0) {
            return Err(Problem::new(token.text, format!("{name}, without a NUL byte")));
        }
        Ok(token.value)
    }

    /// Reads arbitrary bytes.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>> {
        Ok(self.next()?.value)
    }

    /// Reads the changes of a batch, up to the end of the line.
    pub(super) fn changes(&mut self) -> Result<Vec<KeyChange>> {
        let mut changes = Vec::new();
        while let Some(token) = self.rest.next() {
            changes.push(match &token.value[..] {
                b"put" => {
                    KeyChange::Put { key: self.bytes()?, length: self.written()?, seed: self.number("SEED")? }
                }
                b"erase" => KeyChange::Erase { key: self.bytes()? },
                _ => return Err(Problem::new(token.text, "put or erase")),
            });
        }
        Ok(changes)
    }

    /// Reads a number of 64 bits.
    pub(super) fn number(&mut self, name: &str) -> Result<u64> {
        let token = self.next()?;
        number(&token, name)
    }

    /// Reads the length of a write.
    pub(super) fn written(&mut self) -> Result<u64> {
        let token = self.next()?;
        match number(&token, "LENGTH")? {
            length if length > MAX_WRITTEN_BYTES => {
                Err(Problem::new(token.text, "LENGTH of at most 1G: no call writes more"))
            }
            length => Ok(length),
        }
    }

    /// Reads permission bits.
    pub(super) fn mode(&mut self) -> Result<u16> {
        let token = self.next()?;
        mode(&token)
    }

    /// Reads permission bits, or returns `default` at the end of the line.
    pub(super) fn mode_or(&mut self, default: u16) -> Result<u16> {
        self.rest.next().map_or(Ok(default), |token| mode(&token))
    }

    /// Reads a user or group id. As in chown(2), -1 means no change.
    pub(super) fn id(&mut self, name: &str) -> Result<Option<u32>> {
        let token = self.next()?;
        if token.value == b"-1" {
            return Ok(None);
        }
        let id = decimal(&token.value).and_then(|id| u32::try_from(id).ok()).filter(|&id| id != u32::MAX);
        let expected = || format!("{name}, a number below 4294967295, or -1 to leave it as it is");
        id.map(Some).ok_or_else(|| Problem::new(token.text, expected()))
    }

    /// Reads a time.
    pub(super) fn time(&mut self, name: &str) -> Result<Time> {
        let token = self.next()?;
        let time = std::str::from_utf8(&token.value).ok().and_then(Seconds::parse);
        let expected = || format!("{name}, seconds since 1970 such as 1700000000 or 1.000000005");
        time.map(|Seconds(time)| time).ok_or_else(|| Problem::new(token.text, expected()))
    }

    /// Reads the mode of a rename, or returns `Replace` at the end of the line.
    pub(super) fn rename_mode(&mut self) -> Result<RenameMode> {
        let Some(token) = self.rest.next() else { return Ok(RenameMode::Replace) };
        match &token.value[..] {
            b"noreplace" => Ok(RenameMode::NoReplace),
            b"exchange" => Ok(RenameMode::Exchange),
            b"whiteout" => Ok(RenameMode::Whiteout),
            b"noreplace-whiteout" => Ok(RenameMode::NoReplaceWhiteout),
            _ => Err(Problem::new(token.text, "noreplace, exchange, whiteout or noreplace-whiteout")),
        }
    }

    /// Reads a set of inode flags.
    pub(super) fn flags(&mut self) -> Result<InodeFlags> {
        let token = self.next()?;
        let (append_only, immutable) = (InodeFlags::APPEND_ONLY, InodeFlags::IMMUTABLE);
        let sets = [InodeFlags::empty(), append_only, immutable, append_only | immutable];
        let known = sets.into_iter().find(|&flags| flags_name(flags).as_bytes() == token.value);
        known.ok_or_else(|| Problem::new(token.text, "FLAGS, one of -, a, i and ai"))
    }

    /// Reads a number of 32 bits.
    pub(super) fn number_of_32_bits(&mut self, name: &str) -> Result<u32> {
        let token = self.next()?;
        let expected = || format!("{name}, a number below 2^32");
        number(&token, name)?.try_into().map_err(|_| Problem::new(token.text, expected()))
    }

    /// Reads an account of quotas.
    pub(super) fn account(&mut self) -> Result<QuotaId> {
        let token = self.next()?;
        let kinds = [QuotaKind::User, QuotaKind::Group, QuotaKind::Tree];
        let kind = kinds.into_iter().find(|&kind| quota_kind_name(kind).as_bytes() == token.value);
        let kind = kind.ok_or_else(|| Problem::new(token.text, "user, group or tree"))?;
        Ok(QuotaId { kind, number: self.number_of_32_bits("ID")? })
    }

    /// Reads the limits of an account.
    pub(super) fn limits(&mut self) -> Result<QuotaLimits> {
        let mut limit = |soft, hard| -> Result<QuotaLimit> {
            Ok(QuotaLimit { soft: self.number(soft)?, hard: self.number(hard)?, deadline: 0 })
        };
        Ok(QuotaLimits {
            bytes: limit("SOFT-BYTES", "HARD-BYTES")?,
            files: limit("SOFT-FILES", "HARD-FILES")?,
        })
    }

    /// Reads the mode of a fallocate.
    pub(super) fn fallocate_mode(&mut self) -> Result<FallocateMode> {
        let token = self.next()?;
        let known =
            FallocateMode::ALL.into_iter().find(|&mode| fallocate_name(mode).as_bytes() == token.value);
        let names = || FallocateMode::ALL.map(fallocate_name).join(", ");
        known.ok_or_else(|| Problem::new(token.text, format!("MODE, one of {}", names())))
    }
}

/// Parses decimal digits.
fn decimal(word: &[u8]) -> Option<u64> {
    radix(word, 10)
}

fn radix(digits: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    // `from_str_radix` also accepts a leading `+`, which these numbers may not have.
    let is_number = !text.is_empty() && text.chars().all(|digit| digit.is_digit(radix));
    is_number.then(|| u64::from_str_radix(text, radix).ok()).flatten()
}

/// Parses a number with an optional unit.
fn number(token: &Token<'_>, name: &str) -> Result<u64> {
    let (digits, shift) = match token.value.split_last() {
        Some((b'K', digits)) => (digits, 10),
        Some((b'M', digits)) => (digits, 20),
        Some((b'G', digits)) => (digits, 30),
        Some((b'T', digits)) => (digits, 40),
        _ => (&token.value[..], 0),
    };
    let (digits, base) = match digits.strip_prefix(b"0x") {
        Some(digits) => (digits, 16),
        None => (digits, 10),
    };
    let is_number = !digits.is_empty() && digits.iter().all(|&byte| char::from(byte).is_digit(base));
    if !is_number {
        return Err(Problem::new(token.text, format!("{name}, a number such as 4096, 0x1000 or 4K")));
    }
    let value = radix(digits, base).and_then(|value| value.checked_mul(1 << shift));
    value.ok_or_else(|| Problem::new(token.text, format!("{name}, a number below 2^64")))
}

fn mode(token: &Token<'_>) -> Result<u16> {
    let mode = radix(&token.value, 8).filter(|&mode| mode <= MAX_MODE);
    let expected = "MODE, octal digits such as 0644, at most 7777";
    mode.map(|mode| mode as u16).ok_or_else(|| Problem::new(token.text, expected))
}
