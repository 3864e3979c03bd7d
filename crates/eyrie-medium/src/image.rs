//! Crash images, decided lazily: every image that can be told apart, and no other.
//!
//! A line with stores still pending at the crash may hold any prefix of them. Most such lines are never looked at (an
//! unpublished extent, a dead slot), so deciding them up front would multiply images that nobody can tell apart. A
//! [`CrashImage`] decides a line when it is first accessed, following a script; whoever explores runs recovery once per
//! script, and gets the next script from the choices that were logged. This is exhaustive over what recovery reads.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::MemfdFlags;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::addr::LINE_SIZE;
use crate::mapping::{Mapping, Sentinel};
use crate::plan::Plan;
use crate::trace::{CrashPoint, Pending, Rule};
use crate::{Addr, Fault};

/// Memory that images have in common. Each image has what it changes for itself.
pub struct ImageBase {
    file: File,
    len: u64,
    fingerprint: u64,
}

/// What a line adds to the fingerprint of an image; nothing, if it is zeros.
fn fingerprint_of(line: u64, bytes: &[u8]) -> u64 {
    if bytes.iter().all(|&byte| byte == 0) { 0 } else { xxh3_64_with_seed(bytes, line) }
}

/// What lines from `first` on add to it.
fn fingerprint_from(first: u64, bytes: &[u8]) -> u64 {
    let lines = bytes.chunks(LINE_SIZE as usize).zip((first..).step_by(LINE_SIZE as usize));
    lines.fold(0, |sum, (line, at)| sum ^ fingerprint_of(at, line))
}

impl ImageBase {
    /// Memory that holds `bytes`.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is none.
    pub fn new(bytes: &[u8]) -> Result<ImageBase, Fault> {
        let file = rustix::fs::memfd_create(c"image", MemfdFlags::CLOEXEC).map(File::from);
        let filled =
            file.map_err(io::Error::from).and_then(|file| file.write_all_at(bytes, 0).map(|()| file));
        let file =
            filled.map_err(|source| Fault::Io { what: "making memory for images".to_string(), source })?;
        Ok(ImageBase { file, len: bytes.len() as u64, fingerprint: fingerprint_from(0, bytes) })
    }

    /// Its bytes.
    ///
    /// # Panics
    /// If the kernel cannot read memory.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.file.read_exact_at(&mut bytes, 0).expect("memory can be read");
        bytes
    }

    /// A number that tells its contents from others'. See [`CrashImage::fingerprint`].
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Changes what images to come have. Those that are there may see it or not. All of it is in one line or sector.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.len, "a store outside the image");
        let (first, within) = (offset - offset % LINE_SIZE, (offset % LINE_SIZE) as usize);
        let mut contents = vec![0; (within + bytes.len()).next_multiple_of(LINE_SIZE as usize)];
        self.file.read_exact_at(&mut contents, first).expect("memory can be read");
        self.fingerprint ^= fingerprint_from(first, &contents);
        contents[within..within + bytes.len()].copy_from_slice(bytes);
        self.fingerprint ^= fingerprint_from(first, &contents);
        self.file.write_all_at(bytes, offset).expect("memory that is there can be written");
    }

    /// A mapping of it for one image.
    pub(crate) fn map(&self, sentinel: &Sentinel) -> Result<Mapping, Fault> {
        Mapping::copy(&self.file, self.len, sentinel)
    }
}

/// The different contents that a line may have after a crash: as it must be at least, and after each of what is pending.
pub(crate) fn contents(line: &[u8], pending: &[(usize, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut contents = vec![line.to_vec()];
    let mut last = line.to_vec();
    for (within, bytes) in pending {
        last[*within..within + bytes.len()].copy_from_slice(bytes);
        if Some(&last) != contents.last() {
            contents.push(last.clone());
        }
    }
    contents
}

/// One line that was decided: how many different contents it could have, and which it got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The line.
    pub line: Addr,
    /// Which of the contents, from 0 (none of the pending stores) on.
    pub taken: usize,
    /// How many different contents there were (at least 1).
    pub options: usize,
}

/// The undecided part of a crash image. A clone is the same image, which outlives the medium.
#[derive(Clone)]
pub struct CrashImage {
    state: Arc<Mutex<State>>,
    plan: Plan,
    rule: Rule,
}

struct State {
    undecided: BTreeMap<Addr, Vec<(usize, Vec<u8>)>>,
    script: Vec<usize>,
    log: Vec<Choice>,
    fingerprint: u64,
}

impl CrashImage {
    /// An image with these `pending` stores; the n-th line to be accessed takes option `script[n]`, or 0 past its end.
    pub fn new(pending: Pending, script: Vec<usize>) -> CrashImage {
        let state = State { undecided: pending, script, log: Vec::new(), fingerprint: 0 };
        CrashImage { state: Arc::new(Mutex::new(state)), plan: Plan::default(), rule: Rule::Lines }
    }

    /// An image of a crash; the n-th line (or sector) to be accessed takes option `script[n]`, or 0 past its end.
    pub fn of(point: &CrashPoint, script: Vec<usize>) -> CrashImage {
        CrashImage { rule: point.rule, ..CrashImage::new(point.pending.clone(), script) }
    }

    /// The same image, for a run with this plan.
    #[must_use]
    pub fn with(self, plan: Plan) -> CrashImage {
        CrashImage { plan, ..self }
    }

    /// What may persist of stores.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The choices made so far, in order.
    pub fn choices(&self) -> Vec<Choice> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).log.clone()
    }

    /// What the choices so far make of the fingerprint of the image's base, which is to be combined with it by exclusive
    /// or: images with the same result have the same contents, but for lines that nobody looked at (and as surely as
    /// hashes of 64 bits differ).
    pub fn fingerprint(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).fingerprint
    }

    /// The script of the next image to run after one that made these choices: depth first; `None` after the last.
    pub fn next_script(choices: &[Choice]) -> Option<Vec<usize>> {
        let last = choices.iter().rposition(|choice| choice.taken + 1 < choice.options)?;
        let mut script: Vec<usize> = choices[..=last].iter().map(|choice| choice.taken).collect();
        script[last] += 1;
        Some(script)
    }

    /// Decides every undecided line in the range. `load` and `store` access the memory beneath.
    pub(crate) fn touch(
        &self,
        addr: Addr,
        len: u64,
        load: impl Fn(Addr, &mut [u8]),
        store: impl Fn(Addr, &[u8]),
    ) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let first = addr.align_down(self.rule.unit());
        let end = Addr::from_raw(addr.raw() + len.max(1));
        let lines: Vec<Addr> = state.undecided.range(first..end).map(|(&line, _)| line).collect();
        for line in lines {
            let stores = state.undecided.remove(&line).unwrap_or_default();
            let mut bytes = vec![0; self.rule.unit() as usize];
            load(line, &mut bytes);
            let contents = contents(&bytes, &stores);
            let taken = state.script.get(state.log.len()).copied().unwrap_or(0).min(contents.len() - 1);
            state.log.push(Choice { line, taken, options: contents.len() });
            let from = line.offset();
            state.fingerprint ^=
                fingerprint_from(from, &contents[0]) ^ fingerprint_from(from, &contents[taken]);
            store(line, &contents[taken]);
        }
    }

    /// Says that whole lines (or sectors) of the range are about to be stored: what they had makes no difference.
    pub(crate) fn forget(&self, addr: Addr, len: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Addr::from_raw(addr.raw() + len);
        let stored: Vec<Addr> = state.undecided.range(addr..end).map(|(&line, _)| line).collect();
        for line in stored {
            state.undecided.remove(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Medium, SegmentId};

    fn line(number: u64) -> Addr {
        Addr::new(SegmentId(0), number * LINE_SIZE)
    }

    #[test]
    fn every_prefix_of_every_line_that_is_read_comes_up_once() {
        let pending: Pending = [
            (line(1), vec![(0, vec![1]), (0, vec![2]), (8, vec![3])]),
            (line(2), vec![(0, vec![9])]),
            (line(3), vec![(0, vec![7])]),
        ]
        .into();
        let base = ImageBase::new(&[0; 4096]).expect("memory");
        let (mut seen, mut fingerprints) = (Vec::new(), BTreeSet::new());
        let mut script = Some(Vec::new());
        while let Some(taken) = script {
            let medium = Medium::image(&base, CrashImage::new(pending.clone(), taken)).expect("memory");
            let mut out = [[0; 9]; 2];
            for (number, bytes) in out.iter_mut().enumerate() {
                medium.read(line(number as u64 + 1), bytes).expect("in bounds");
            }
            seen.push((out[0][0], out[0][8], out[1][0]));
            let image = medium.crash_image().expect("an image");
            script = CrashImage::next_script(&image.choices());
            let (pending, rule) = (pending.clone(), Rule::Lines);
            let point = CrashPoint { after: 0, mark: None, site: None, pending, rule };
            assert!(point.decided(&base, &image.choices()) == medium.snapshot());
            let contents = ImageBase::new(&medium.snapshot()).expect("memory");
            assert_eq!(contents.fingerprint(), base.fingerprint() ^ image.fingerprint());
            fingerprints.insert(contents.fingerprint());
        }
        assert_eq!(fingerprints.len(), seen.len());
        seen.sort_unstable();
        // Four prefixes of line 1, two of line 2; line 3 is never read.
        assert_eq!(
            seen,
            [(0, 0, 0), (0, 0, 9), (1, 0, 0), (1, 0, 9), (2, 0, 0), (2, 0, 9), (2, 3, 0), (2, 3, 9)]
        );
    }
}
