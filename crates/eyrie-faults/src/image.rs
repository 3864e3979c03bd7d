//! Crash images, decided lazily. An exploration can make every image that recovery can distinguish. No two of
//! these images differ only in lines that recovery never reads.
//!
//! A store is *pending* at a crash if the crash may lose it. A line with pending stores may hold any prefix
//! of them after the crash. Recovery never reads most such lines (those of an unpublished extent, for
//! example). If every line were decided in advance, many images would differ only in lines that recovery
//! never reads. So a [`CrashImage`] decides a line at its first access. The possible contents of a line are
//! its *options*. A *script*, a list of numbers, names the option of each line that recovery reads. The
//! explorer runs recovery once for each script, and derives the next script from the choices of that run. So
//! it tries all combinations of options of the lines that recovery reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use eyrie_medium::sync::unpoisoned;
use eyrie_medium::{Addr, Caller, Fault, Mapped, Medium, Observer, SiteKind};

use crate::base::{ImageBase, fingerprint_from};
use crate::plan::FaultPlan;
use crate::points::{Choice, CrashPoint};
use crate::rule::{CrashRule, Pending, contents};

/// The pending stores of a crash, and the choices made so far. Clones share this state, and stay valid after
/// the medium is dropped.
#[derive(Clone)]
pub struct CrashImage {
    state: Arc<Mutex<Undecided>>,
    plan: FaultPlan,
    rule: CrashRule,
}

struct Undecided {
    stores: BTreeMap<Addr, Vec<(usize, Vec<u8>)>>,
    script: Vec<usize>,
    choices: Vec<Choice>,
    fingerprint: u64,
}

impl CrashImage {
    /// Makes an image of memory with these `pending` stores. Accesses decide lines one after the other. The
    /// line that is decided as number *n* (from 0) takes option `script[n]`. Lines past the end of the script
    /// take option 0.
    pub fn new(pending: Pending, script: Vec<usize>) -> CrashImage {
        let state = Undecided { stores: pending, script, choices: Vec::new(), fingerprint: 0 };
        CrashImage { state: Arc::new(Mutex::new(state)), plan: FaultPlan::default(), rule: CrashRule::Lines }
    }

    /// Makes an image of a crash of memory or of a disk. The line (or sector) that accesses decide as number
    /// *n* (from 0) takes option `script[n]`. Lines past the end of the script take option 0.
    pub fn of(point: &CrashPoint, script: Vec<usize>) -> CrashImage {
        CrashImage { rule: point.rule, ..CrashImage::new(point.pending.clone(), script) }
    }

    /// Returns the same image for a run with this plan.
    #[must_use]
    pub fn with(self, plan: FaultPlan) -> CrashImage {
        CrashImage { plan, ..self }
    }

    /// Returns the rule of the crash.
    pub fn rule(&self) -> CrashRule {
        self.rule
    }

    pub(crate) fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Returns the choices made so far, in order.
    pub fn choices(&self) -> Vec<Choice> {
        unpoisoned(self.state.lock()).choices.clone()
    }

    /// Returns the fingerprint of the choices so far, relative to the fingerprint of the image's base. The
    /// exclusive or of these two fingerprints is the fingerprint of the image. Two images of one base with
    /// equal fingerprints have equal contents except for undecided lines, unless two 64-bit hashes are equal
    /// by chance.
    pub fn fingerprint(&self) -> u64 {
        unpoisoned(self.state.lock()).fingerprint
    }

    /// Returns the script of the next image in depth-first order, after an image with these choices. Returns
    /// `None` after the last image.
    pub fn next_script(choices: &[Choice]) -> Option<Vec<usize>> {
        let last = choices.iter().rposition(|choice| choice.taken + 1 < choice.options)?;
        let mut script: Vec<usize> = choices[..=last].iter().map(|choice| choice.taken).collect();
        script[last] += 1;
        Some(script)
    }

    /// Decides every undecided line in the range, and stores its bytes.
    fn decide(&self, mapped: Mapped<'_>, addr: Addr, len: u64) -> Result<(), Fault> {
        let mut state = unpoisoned(self.state.lock());
        let first = addr.align_down(self.rule.unit());
        let end = Addr::from_raw(addr.raw() + len.max(1));
        let lines: Vec<Addr> = state.stores.range(first..end).map(|(&line, _)| line).collect();
        for line in lines {
            let stores = state.stores.remove(&line).unwrap_or_default();
            let mut bytes = vec![0; self.rule.unit() as usize];
            mapped.read(line, &mut bytes)?;
            let contents = contents(&bytes, &stores);
            // The limit is needed because a script of another run may name an option that this line does not
            // have.
            let taken = state.script.get(state.choices.len()).copied().unwrap_or(0).min(contents.len() - 1);
            state.choices.push(Choice { line, taken, options: contents.len() });
            let from = line.offset();
            // The exclusive or removes the old bytes of the line from the fingerprint and adds the new bytes.
            state.fingerprint ^=
                fingerprint_from(from, &contents[0]) ^ fingerprint_from(from, &contents[taken]);
            mapped.write(line, &contents[taken])?;
        }
        Ok(())
    }

    /// Drops the pending stores of whole lines (or sectors) that the caller is about to overwrite, because no
    /// later read can find their old contents.
    pub(crate) fn forget(&self, addr: Addr, len: u64) {
        let mut state = unpoisoned(self.state.lock());
        let end = Addr::from_raw(addr.raw() + len);
        let stored: Vec<Addr> = state.stores.range(addr..end).map(|(&line, _)| line).collect();
        for line in stored {
            state.stores.remove(&line);
        }
    }
}

impl Observer for CrashImage {
    fn before_read(&self, mapped: Mapped<'_>, addr: Addr, len: u64, caller: Caller) -> Result<(), Fault> {
        self.plan.access(SiteKind::Read, addr, len, caller)?;
        self.decide(mapped, addr, len)
    }

    fn before_store(&self, mapped: Mapped<'_>, addr: Addr, len: u64, caller: Caller) -> Result<(), Fault> {
        self.plan.access(SiteKind::Write, addr, len, caller)?;
        self.decide(mapped, addr, len)
    }

    fn before_publish(
        &self,
        mapped: Mapped<'_>,
        addr: Addr,
        len: u64,
        caller: Caller,
    ) -> Result<bool, Fault> {
        self.plan.access(SiteKind::Publish, addr, len, caller)?;
        self.decide(mapped, addr, len)?;
        Ok(self.plan.point(SiteKind::Publish, caller))
    }

    fn flush(&self, caller: Caller) {
        self.plan.point(SiteKind::Flush, caller);
    }

    fn compares_checksum(&self, caller: Caller) -> bool {
        self.plan.point(SiteKind::Checksum, caller)
    }

    fn before_call(&self, kind: SiteKind, caller: Caller) -> Result<(), Fault> {
        self.plan.call(kind, caller).map_or(Ok(()), |failure| Err(failure.into()))
    }
}

/// Makes a medium with a copy-on-write mapping of `base`. Each access decides the undecided lines of `image`
/// in its range.
///
/// # Errors
/// [`Fault::Io`] when there is no memory.
pub fn crash_medium(base: &ImageBase, image: CrashImage) -> Result<Medium, Fault> {
    Ok(base.copy()?.observed_by(Arc::new(image)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use eyrie_medium::{LINE_SIZE, SegmentId};

    use super::*;

    fn line(number: u64) -> Addr {
        Addr::new(SegmentId(0), number * LINE_SIZE)
    }

    #[test]
    fn every_prefix_of_every_read_line_comes_up_once() {
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
            let image = CrashImage::new(pending.clone(), taken);
            let medium = crash_medium(&base, image.clone()).expect("memory");
            let mut out = [[0; 9]; 2];
            for (number, bytes) in out.iter_mut().enumerate() {
                medium.read(line(number as u64 + 1), bytes).expect("in bounds");
            }
            seen.push((out[0][0], out[0][8], out[1][0]));
            script = CrashImage::next_script(&image.choices());
            let (pending, rule) = (pending.clone(), CrashRule::Lines);
            let point = CrashPoint { after: 0, mark: None, site: None, pending, rule };
            assert!(point.decided(&base, &image.choices()) == medium.snapshot());
            let contents = ImageBase::new(&medium.snapshot()).expect("memory");
            assert_eq!(contents.fingerprint(), base.fingerprint() ^ image.fingerprint());
            fingerprints.insert(contents.fingerprint());
        }
        assert_eq!(fingerprints.len(), seen.len());
        seen.sort_unstable();
        // Line 1 has four prefixes, and line 2 has two. Line 3 is never read.
        assert_eq!(
            seen,
            [(0, 0, 0), (0, 0, 9), (1, 0, 0), (1, 0, 9), (2, 0, 0), (2, 0, 9), (2, 3, 0), (2, 3, 9)]
        );
    }
}
