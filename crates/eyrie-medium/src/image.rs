//! Crash images, decided lazily: every image that can be told apart, and no other.
//!
//! A line with stores still pending at the crash may hold any prefix of them. Most such lines are never looked at (an
//! unpublished extent, a dead slot), so deciding them up front would multiply images that nobody can tell apart. A
//! [`CrashImage`] decides a line when it is first accessed, following a script; whoever explores runs recovery once per
//! script, and gets the next script from the choices that were logged. This is exhaustive over what recovery reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Addr;
use crate::addr::LINE_SIZE;
use crate::trace::Pending;

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
}

struct State {
    undecided: BTreeMap<Addr, Vec<(usize, Vec<u8>)>>,
    script: Vec<usize>,
    log: Vec<Choice>,
}

impl CrashImage {
    /// An image with these `pending` stores; the n-th line to be accessed takes option `script[n]`, or 0 past its end.
    pub fn new(pending: Pending, script: Vec<usize>) -> CrashImage {
        let state = State { undecided: pending, script, log: Vec::new() };
        CrashImage { state: Arc::new(Mutex::new(state)) }
    }

    /// The choices made so far, in order.
    pub fn choices(&self) -> Vec<Choice> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).log.clone()
    }

    /// The script of the next image to run after one that made these choices: depth first; `None` after the last.
    pub fn next_script(choices: &[Choice]) -> Option<Vec<usize>> {
        let last = choices.iter().rposition(|choice| choice.taken + 1 < choice.options)?;
        let mut script: Vec<usize> = choices[..=last].iter().map(|choice| choice.taken).collect();
        script[last] += 1;
        Some(script)
    }

    /// Decides every undecided line in the range. `load` and `store` access one line of the memory beneath.
    pub(crate) fn touch(
        &self,
        addr: Addr,
        len: u64,
        load: impl Fn(Addr) -> [u8; LINE_SIZE as usize],
        store: impl Fn(Addr, &[u8; LINE_SIZE as usize]),
    ) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let first = addr.align_down(LINE_SIZE);
        let end = Addr::from_raw(addr.raw() + len.max(1));
        let lines: Vec<Addr> = state.undecided.range(first..end).map(|(&line, _)| line).collect();
        for line in lines {
            let stores = state.undecided.remove(&line).unwrap_or_default();
            let mut contents = vec![load(line)];
            for (within, bytes) in stores {
                let mut next = contents[contents.len() - 1];
                next[within..within + bytes.len()].copy_from_slice(&bytes);
                if next != contents[contents.len() - 1] {
                    contents.push(next);
                }
            }
            let taken = state.script.get(state.log.len()).copied().unwrap_or(0).min(contents.len() - 1);
            state.log.push(Choice { line, taken, options: contents.len() });
            store(line, &contents[taken]);
        }
    }
}

#[cfg(test)]
mod tests {
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
        let mut seen = Vec::new();
        let mut script = Some(Vec::new());
        while let Some(taken) = script {
            let medium = Medium::image(&[0; 4096], CrashImage::new(pending.clone(), taken)).expect("memory");
            let mut out = [[0; 9]; 2];
            for (number, bytes) in out.iter_mut().enumerate() {
                medium.read(line(number as u64 + 1), bytes).expect("in bounds");
            }
            seen.push((out[0][0], out[0][8], out[1][0]));
            script = CrashImage::next_script(&medium.crash_image().expect("an image").choices());
        }
        seen.sort_unstable();
        // Four prefixes of line 1, two of line 2; line 3 is never read.
        assert_eq!(
            seen,
            [(0, 0, 0), (0, 0, 9), (1, 0, 0), (1, 0, 9), (2, 0, 0), (2, 0, 9), (2, 3, 0), (2, 3, 9)]
        );
    }
}
