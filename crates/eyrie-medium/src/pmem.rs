//! Persistent memory: each store writes its cache lines back, and the next fence makes these lines durable.
//!
//! Every store writes back its own lines immediately, so a fence needs no list of the stores that it orders.
//! The instruction that writes a line back is the first of `clwb`, `clflushopt` and `clflush` that the
//! processor has. Only `clwb` may keep the line in the caches.
//!
//! Bulk stores are *streamed*: non-temporal moves store to memory past the caches. For a cached store the
//! processor first fetches the line and later writes it back, so streaming moves half as many bytes. Short
//! stores are faster without streaming, because each streamed line waits for memory. Besides, small data,
//! such as names, should stay in the caches, because it is soon read again. Published measurements (Yang et
//! al., FAST 2020) put the break-even point at about 512 bytes.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::Arc;

use crate::addr::{Addr, LINE_SIZE};
use crate::copy::{self, whole_lines};
use crate::observe::Observer;
use crate::rules::{SafetyRule, broken};
use crate::site::Caller;

/// Minimum length of a streamed store, in bytes.
pub(crate) const STREAM_FROM: usize = 512;
const LINE: usize = LINE_SIZE as usize;

/// The instruction with which this processor writes a line back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Instruction {
    /// Keeps the line in the caches.
    Clwb,
    /// Evicts the line.
    ClflushOpt,
    /// Evicts the line, and waits for earlier evictions.
    Clflush,
}

impl Instruction {
    /// Returns the best instruction that this processor has.
    fn of_processor() -> Instruction {
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        #[allow(unused_unsafe, reason = "newer versions of Rust call this safe")]
        // SAFETY: every processor of this architecture has the instruction `cpuid`.
        let features = unsafe { if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 } };
        if features & CLWB != 0 {
            Instruction::Clwb
        } else if features & CLFLUSHOPT != 0 {
            Instruction::ClflushOpt
        } else {
            Instruction::Clflush
        }
    }

    /// Writes one line back.
    ///
    /// # Safety
    /// `line` is mapped.
    #[inline]
    unsafe fn write_back(self, line: *const u8) {
        // SAFETY: writing a mapped line back changes no byte, and `of_processor` has found that the processor
        // has this instruction.
        unsafe {
            match self {
                Instruction::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                Instruction::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                Instruction::Clflush => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
            }
        }
    }
}

/// Observes write-backs and fences, for tests.
struct WriteBackObserver {
    observer: Arc<dyn Observer>,
    /// The address at which segment 0 is mapped.
    base: usize,
}

// The functions are `#[cold]`, because only tests set an observer.
impl WriteBackObserver {
    #[cold]
    fn fence(&self, caller: Caller) {
        self.observer.fence(caller);
    }

    /// # Safety
    /// The bytes are mapped.
    #[cold]
    unsafe fn written_back(&self, first: *const u8, len: usize) {
        let mut bytes = vec![0; len];
        // SAFETY: the vector is as long as the mapped range.
        unsafe { copy::copy(bytes.as_mut_ptr(), first, len) };
        self.observer.after_write_back(Addr::from_raw((first.addr() - self.base) as u64), &bytes);
    }
}

/// The write-back instruction of this processor, and the observer of a test.
pub(crate) struct Pmem {
    instruction: Instruction,
    observer: Option<WriteBackObserver>,
}

impl Pmem {
    pub(crate) fn new() -> Pmem {
        Pmem { instruction: Instruction::of_processor(), observer: None }
    }

    /// Reports write-backs and fences to `observer`. Segment 0 is mapped at `base`.
    pub(crate) fn observe(&mut self, observer: Arc<dyn Observer>, base: *const u8) {
        self.observer = Some(WriteBackObserver { observer, base: base.addr() });
    }

    /// Writes back every line of a range. The next fence makes these lines durable.
    ///
    /// # Safety
    /// The range is mapped.
    pub(crate) unsafe fn write_back(&self, place: *const u8, len: usize) {
        let ahead = place.addr() % LINE;
        // SAFETY: mappings begin and end with whole pages, so a line with one mapped byte is wholly mapped.
        unsafe {
            let first = place.sub(ahead);
            let len = if broken(SafetyRule::LineIsWrittenBack) { len - ahead.min(len) } else { len };
            for at in (0..ahead + len).step_by(LINE) {
                self.instruction.write_back(first.add(at));
            }
            self.note(first, (ahead + len).next_multiple_of(LINE));
        }
    }

    /// Copies a range of at least [`STREAM_FROM`] bytes past the caches. Whole lines are streamed. The bytes
    /// before and after these lines are stored and written back, because a partial line cannot be streamed.
    ///
    /// # Safety
    /// As [`copy::copy`]; `dst` is mapped.
    pub(crate) unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize) {
        let (ahead, lines) = whole_lines(dst, len);
        // SAFETY: the three parts make up the range. The middle part has whole lines only.
        unsafe {
            copy::copy(dst, src, ahead);
            self.write_back(dst, ahead);
            copy::stream(dst.add(ahead), src.add(ahead), lines);
            self.note(dst.add(ahead), lines);
            copy::copy(dst.add(ahead + lines), src.add(ahead + lines), len - ahead - lines);
            if !broken(SafetyRule::StreamedEndIsWrittenBack) {
                self.write_back(dst.add(ahead + lines), len - ahead - lines);
            }
        }
    }

    /// Sets a range of at least [`STREAM_FROM`] bytes to zero, in the same way as [`Pmem::copy`].
    ///
    /// # Safety
    /// As [`copy::zero`]; `dst` is mapped.
    pub(crate) unsafe fn zero(&self, dst: *mut u8, len: usize) {
        let (ahead, lines) = whole_lines(dst, len);
        // SAFETY: as in `copy`.
        unsafe {
            copy::zero(dst, ahead);
            self.write_back(dst, ahead);
            copy::stream_zero(dst.add(ahead), lines);
            self.note(dst.add(ahead), lines);
            copy::zero(dst.add(ahead + lines), len - ahead - lines);
            self.write_back(dst.add(ahead + lines), len - ahead - lines);
        }
    }

    /// Orders stores: earlier stores of this thread are durable before any later one.
    #[inline]
    pub(crate) fn fence(&self, caller: Caller) {
        if broken(SafetyRule::FenceFollowsWriteBacks) {
            return;
        }
        // SAFETY: a fence accesses no memory. `sfence` waits for earlier write-backs and streamed stores of
        // this thread, which the processor may otherwise reorder.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
        if let Some(observer) = &self.observer {
            observer.fence(caller);
        }
    }

    /// Reports whole lines that were written back or streamed.
    ///
    /// # Safety
    /// The lines are mapped.
    #[inline]
    unsafe fn note(&self, first: *const u8, len: usize) {
        if let Some(observer) = self.observer.as_ref().filter(|_| len > 0) {
            // SAFETY: the caller keeps the same contract: the lines are mapped.
            unsafe { observer.written_back(first, len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_back_changes_no_byte() {
        let best = Instruction::of_processor();
        let has = |instruction: &Instruction| *instruction as u8 >= best as u8;
        for instruction in [Instruction::Clwb, Instruction::ClflushOpt, Instruction::Clflush] {
            let mut bytes = [7_u8; 2 * LINE];
            bytes[LINE] = 8;
            if has(&instruction) {
                // SAFETY: the array is mapped.
                unsafe { instruction.write_back(bytes.as_ptr().add(LINE)) };
            }
            assert!(bytes[..LINE].iter().all(|&byte| byte == 7) && bytes[LINE] == 8, "{instruction:?}");
        }
    }

    #[test]
    fn range_splits_at_lines() {
        let lines = |at: usize, len| whole_lines(std::ptr::without_provenance(at), len);
        assert_eq!(lines(128, 640), (0, 640));
        assert_eq!(lines(129, 640), (63, 576));
        assert_eq!(lines(191, 513), (1, 512));
        assert_eq!(lines(192, 527), (0, 512));
        assert_eq!(lines(130, 10), (10, 0));
    }
}
