//! Bulk copies between private memory and memory that other threads and processes may change.
//!
//! The copies are inline assembly, so the compiler assumes nothing about the bytes, and a race is not
//! undefined behaviour. A read may find any mix of old and new bytes. Callers validate the bytes that they
//! read.
//!
//! A copy may also tear a word of eight aligned bytes that another thread stores with one instruction. The
//! manuals of processors promise whole words neither for unaligned moves of 16 bytes nor for `rep movsb`. In
//! a measurement on an AMD EPYC, `rep movsb` tore words, also between aligned addresses. The other moves tore
//! none. A caller that needs a whole word loads the word as an atomic instead (`Medium::load`).

use std::arch::asm;

use crate::addr::LINE_SIZE;

const LINE: usize = LINE_SIZE as usize;
/// Minimum length at which `rep movsb` is faster than a loop of 16-byte moves, on processors with fast string
/// moves.
const REP_FROM: usize = 512;

/// Copies `len` bytes from `src` to `dst`.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, and the two ranges do not overlap. No other thread
/// accesses the private side during the call.
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller keeps the contract, and each function gets a length that it permits.
    unsafe {
        match len {
            0..16 => copy_short(dst, src, len),
            16..REP_FROM => copy_medium(dst, src, len),
            _ => copy_long(dst, src, len),
        }
    }
}

/// Copies less than 16 bytes.
///
/// # Safety
/// As [`copy`], with `len` below 16.
#[inline]
unsafe fn copy_short(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: each move stays within `len` bytes of both sides. The two moves of a pair overlap, because
    // `len` is less than twice their width.
    unsafe {
        if len >= 8 {
            asm!("mov {t}, [{s}]", "mov {u}, [{s} + {n} - 8]", "mov [{d}], {t}", "mov [{d} + {n} - 8], {u}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len, t = out(reg) _, u = out(reg) _,
                options(nostack, preserves_flags));
        } else if len >= 4 {
            asm!("mov {t:e}, [{s}]", "mov {u:e}, [{s} + {n} - 4]",
                "mov [{d}], {t:e}", "mov [{d} + {n} - 4], {u:e}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len, t = out(reg) _, u = out(reg) _,
                options(nostack, preserves_flags));
        } else {
            for i in 0..len {
                asm!("mov {t}, [{s} + {i}]", "mov [{d} + {i}], {t}",
                    s = in(reg) src, d = in(reg) dst, i = in(reg) i, t = out(reg_byte) _,
                    options(nostack, preserves_flags));
            }
        }
    }
}

/// Copies 16 bytes or more by 16-byte moves.
///
/// # Safety
/// As [`copy`], with `len` at least 16.
#[inline]
unsafe fn copy_medium(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: each move of the loop ends within `len`, because `len` is at least 16 and the loop ends when 16
    // bytes or less are left. The move after the loop ends exactly at `len`.
    unsafe {
        asm!(
            "2:",
            "movdqu {x}, [{s} + {i}]",
            "movdqu [{d} + {i}], {x}",
            "add {i}, 16",
            "cmp {i}, {last}",
            "jb 2b",
            "movdqu {x}, [{s} + {last}]",
            "movdqu [{d} + {last}], {x}",
            s = in(reg) src, d = in(reg) dst, last = in(reg) len - 16, i = inout(reg) 0_usize => _,
            x = out(xmm_reg) _,
            options(nostack));
    }
}

/// Copies by `rep movsb`.
///
/// # Safety
/// As [`copy`].
#[inline]
unsafe fn copy_long(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: `rep movsb` moves exactly `len` bytes; the ABI keeps the direction flag clear.
    unsafe {
        asm!("rep movsb", inout("rdi") dst => _, inout("rsi") src => _, inout("rcx") len => _,
            options(nostack, preserves_flags));
    }
}

/// Sets `len` bytes at `dst` to zero.
///
/// # Safety
/// `dst` is writable for `len` bytes.
#[inline]
pub(crate) unsafe fn zero(dst: *mut u8, len: usize) {
    // SAFETY: `rep stosb` stores exactly `len` bytes; the ABI keeps the direction flag clear.
    unsafe {
        asm!("rep stosb", inout("rdi") dst => _, inout("rcx") len => _, in("al") 0_u8,
            options(nostack, preserves_flags));
    }
}

/// Copies whole lines past the caches. `len` is a multiple of 64, and not 0. Other threads may see these
/// stores in any order until a store fence.
///
/// # Safety
/// As [`copy`]; `dst` is aligned to 64 bytes.
pub(crate) unsafe fn stream(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(len != 0 && len.is_multiple_of(64) && dst.addr().is_multiple_of(64));
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX, and the caller keeps the contract.
        return unsafe { stream_wide(dst, src, len) };
    }
    // SAFETY: the loop moves 64 bytes at a time, `len` bytes in all.
    unsafe {
        asm!(
            "2:",
            "movdqu {a}, [{s} + {i}]",
            "movdqu {b}, [{s} + {i} + 16]",
            "movdqu {c}, [{s} + {i} + 32]",
            "movdqu {e}, [{s} + {i} + 48]",
            "movntdq [{d} + {i}], {a}",
            "movntdq [{d} + {i} + 16], {b}",
            "movntdq [{d} + {i} + 32], {c}",
            "movntdq [{d} + {i} + 48], {e}",
            "add {i}, 64",
            "cmp {i}, {n}",
            "jb 2b",
            s = in(reg) src, d = in(reg) dst, n = in(reg) len, i = inout(reg) 0_usize => _,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _,
            options(nostack));
    }
}

/// As [`stream`], by moves of 32 bytes.
///
/// # Safety
/// As [`stream`], on a processor with AVX.
#[target_feature(enable = "avx")]
unsafe fn stream_wide(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the loop moves 64 bytes at a time, `len` bytes in all.
    unsafe {
        asm!(
            "2:",
            "vmovdqu {a}, [{s} + {i}]",
            "vmovdqu {b}, [{s} + {i} + 32]",
            "vmovntdq [{d} + {i}], {a}",
            "vmovntdq [{d} + {i} + 32], {b}",
            "add {i}, 64",
            "cmp {i}, {n}",
            "jb 2b",
            s = in(reg) src, d = in(reg) dst, n = in(reg) len, i = inout(reg) 0_usize => _,
            a = out(ymm_reg) _, b = out(ymm_reg) _,
            options(nostack));
    }
    // While the upper halves of the registers are in use, later 16-byte moves would be slow.
    std::arch::x86_64::_mm256_zeroupper();
}

/// Copies past the caches, and ends with a store fence. Therefore all stores of the copy come before every
/// later store of the thread, as the stores of [`copy`] do. An ordinary store to a line outside the caches
/// first fetches the line. This copy does not.
///
/// # Safety
/// As [`copy`].
pub(crate) unsafe fn copy_past_caches(dst: *mut u8, src: *const u8, len: usize) {
    let (ahead, lines) = whole_lines(dst, len);
    let tail = ahead + lines;
    // SAFETY: the three parts make up the range, and the middle part has whole lines only. A fence accesses
    // no memory.
    unsafe {
        copy(dst, src, ahead);
        if lines > 0 {
            stream(dst.add(ahead), src.add(ahead), lines);
        }
        copy(dst.add(tail), src.add(tail), len - tail);
        asm!("sfence", options(nostack, preserves_flags));
    }
}

/// Splits a range. Returns the number of bytes before its first whole line, and the number of bytes of its
/// whole lines.
pub(crate) fn whole_lines(dst: *const u8, len: usize) -> (usize, usize) {
    let ahead = (dst.addr().next_multiple_of(LINE) - dst.addr()).min(len);
    (ahead, (len - ahead) / LINE * LINE)
}

/// Sets whole lines to zero past the caches, in the same way as [`stream`].
///
/// # Safety
/// As [`zero`]; `dst` is aligned to 64 bytes.
pub(crate) unsafe fn stream_zero(dst: *mut u8, len: usize) {
    debug_assert!(len != 0 && len.is_multiple_of(64) && dst.addr().is_multiple_of(64));
    // SAFETY: the loop stores 64 bytes at a time, `len` bytes in all.
    unsafe {
        asm!(
            "pxor {a}, {a}",
            "2:",
            "movntdq [{d} + {i}], {a}",
            "movntdq [{d} + {i} + 16], {a}",
            "movntdq [{d} + {i} + 32], {a}",
            "movntdq [{d} + {i} + 48], {a}",
            "add {i}, 64",
            "cmp {i}, {n}",
            "jb 2b",
            d = in(reg) dst, n = in(reg) len, i = inout(reg) 0_usize => _, a = out(xmm_reg) _,
            options(nostack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_copies_exactly() {
        let src: Vec<u8> = (0..2100_u32).map(|i| (i * 7 % 251) as u8).collect();
        for len in 0..2000 {
            let mut dst = vec![0xee_u8; len + 32];
            // SAFETY: both vectors are longer than `len` plus the offsets.
            unsafe { copy(dst.as_mut_ptr().add(16), src.as_ptr().add(3), len) };
            assert_eq!(dst[16..16 + len], src[3..3 + len], "length {len}");
            assert!(
                dst[..16].iter().chain(&dst[16 + len..]).all(|&b| b == 0xee),
                "length {len} wrote outside the range"
            );
            let mut dst = vec![0xee_u8; len + 32];
            // SAFETY: as above.
            unsafe { copy_past_caches(dst.as_mut_ptr().add(16), src.as_ptr().add(3), len) };
            assert_eq!(dst[16..16 + len], src[3..3 + len], "length {len}, past the caches");
            assert!(dst[..16].iter().chain(&dst[16 + len..]).all(|&b| b == 0xee));
            // SAFETY: as above.
            unsafe { zero(dst.as_mut_ptr().add(16), len) };
            assert!(dst[16..16 + len].iter().all(|&b| b == 0) && dst[16 + len] == 0xee);
        }
    }
}
