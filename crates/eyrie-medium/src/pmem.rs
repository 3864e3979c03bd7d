//! Persistent memory: bringing stores out of the processor's caches, before a fence makes them count.
//!
//! Every store writes its own lines back as soon as it is made, so a fence needs to know nothing of what it orders. Lines
//! are written back by the best instruction of the processor, of which all but `clwb` also evict them.
//!
//! Bulk stores are *streamed*: stored with non-temporal moves, which go to memory past the caches. A cached store must
//! first fetch the line that it overwrites and then write it back, so past a few lines streaming moves half as much. Below
//! that it loses: each streamed line waits for memory, and leaves the caches although small things (names, bucket pages)
//! are soon read again. Published measurements (Yang et al., FAST 2020) let the two meet at about 512 bytes.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};

use crate::addr::LINE_SIZE;
use crate::copy;
use crate::rules::{SafetyRule, broken};
#[cfg(feature = "testing")]
use crate::written::WrittenBack;

/// Stores of so many bytes are streamed.
pub(crate) const STREAM_FROM: usize = 512;
const LINE: usize = LINE_SIZE as usize;

/// How this processor writes a line back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Instruction {
    /// Keeps the line in the caches.
    Clwb,
    /// Evicts it.
    ClflushOpt,
    /// Evicts it, one line after the other.
    Clflush,
}

impl Instruction {
    fn of_processor() -> Instruction {
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        #[allow(unused_unsafe, reason = "newer versions of Rust call this safe")]
        // SAFETY: every processor of this architecture has the instruction.
        let features = unsafe { if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 } };
        if features & CLWB != 0 {
            Instruction::Clwb
        } else if features & CLFLUSHOPT != 0 {
            Instruction::ClflushOpt
        } else {
            Instruction::Clflush
        }
    }

    /// # Safety
    /// `line` is mapped.
    #[inline]
    unsafe fn write_back(self, line: *const u8) {
        // SAFETY: writing a mapped line back changes no byte; the processor has the instruction.
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

/// What persistent memory needs beyond its mapping.
pub(crate) struct Pmem {
    instruction: Instruction,
    #[cfg(feature = "testing")]
    pub(crate) written: Option<WrittenBack>,
}

impl Pmem {
    pub(crate) fn new() -> Pmem {
        Pmem {
            instruction: Instruction::of_processor(),
            #[cfg(feature = "testing")]
            written: None,
        }
    }

    /// Writes every line of a range back; a fence makes it count.
    ///
    /// # Safety
    /// The range is mapped.
    pub(crate) unsafe fn write_back(&self, place: *const u8, len: usize) {
        let ahead = place.addr() % LINE;
        // SAFETY: mappings begin and end with pages, so a line that has a mapped byte is mapped as a whole.
        unsafe {
            let first = place.sub(ahead);
            let len = if broken(SafetyRule::LineIsWrittenBack) { len - ahead.min(len) } else { len };
            for at in (0..ahead + len).step_by(LINE) {
                self.instruction.write_back(first.add(at));
                self.note(first.add(at), LINE);
            }
        }
    }

    /// Copies a range of at least [`STREAM_FROM`] bytes past the caches: whole lines by streaming, and what is ahead of
    /// them and after them by stores that are written back.
    ///
    /// # Safety
    /// As [`copy::copy`]; `dst` is mapped.
    pub(crate) unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize) {
        let (ahead, lines) = whole_lines(dst, len);
        // SAFETY: the three parts make up the range; the middle one is of whole lines.
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

    /// Sets a range of at least [`STREAM_FROM`] bytes to zero, as [`Pmem::copy`] copies.
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

    /// Every store of this thread so far persists before any later one, and at the latest now.
    #[inline]
    pub(crate) fn fence(&self) {
        if broken(SafetyRule::FenceFollowsWriteBacks) {
            return;
        }
        // SAFETY: a fence accesses nothing.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
        #[cfg(feature = "testing")]
        if let Some(written) = &self.written {
            written.fence();
        }
    }

    /// Notes whole lines that have been written back or streamed.
    ///
    /// # Safety
    /// They are mapped.
    #[inline]
    unsafe fn note(&self, first: *const u8, len: usize) {
        #[cfg(feature = "testing")]
        if let Some(written) = &self.written {
            // SAFETY: passed on.
            unsafe { written.lines(first, len) };
        }
        #[cfg(not(feature = "testing"))]
        let _ = (first, len);
    }
}

/// Of a range: bytes ahead of its first whole line, and bytes of whole lines.
fn whole_lines(dst: *const u8, len: usize) -> (usize, usize) {
    let ahead = (dst.addr().next_multiple_of(LINE) - dst.addr()).min(len);
    (ahead, (len - ahead) / LINE * LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_leaves_the_bytes_as_they_are() {
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
    fn a_range_is_cut_at_lines() {
        let lines = |at: usize, len| whole_lines(std::ptr::without_provenance(at), len);
        assert_eq!(lines(128, 640), (0, 640));
        assert_eq!(lines(129, 640), (63, 576));
        assert_eq!(lines(191, 513), (1, 512));
        assert_eq!(lines(192, 527), (0, 512));
        assert_eq!(lines(130, 10), (10, 0));
    }
}
