//! AVX-512 kernels for differences to a base and rANS, 64 numbers at a time.
//!
//! As in `avx2`, two invariants carry all `unsafe`: the processor has the features that [`present`] asks for (`Simd`
//! checked), and every pointer stays inside its slice (stated at each loop).

mod apply;
mod contexts;
mod differences;
mod heads;
mod offsets;
mod rans;

pub(crate) use apply::{REACH, apply, contexts};
pub(crate) use contexts::tables_of;
pub(crate) use differences::{Fields, differences};
pub(crate) use heads::{fields, heads};
pub(crate) use offsets::offsets;
pub(crate) use rans::{rans_decode, rans_encode};

use std::arch::x86_64::*;

/// Numbers of a group.
pub(crate) const GROUP: usize = 64;

/// Whether this machine has every feature that the kernels are compiled for: those of Zen 4 and Ice Lake. Not under
/// Miri, which knows few of the instructions.
pub(crate) fn present() -> bool {
    macro_rules! all {
        ($($feature:tt),*) => { $(std::arch::is_x86_feature_detected!($feature))&&* };
    }
    !cfg!(miri)
        && all!(
            "avx512f",
            "avx512bw",
            "avx512cd",
            "avx512dq",
            "avx512vl",
            "avx512vbmi",
            "avx512vbmi2",
            "avx2",
            "popcnt"
        )
}

/// Does `work`, compiled for AVX-512.
///
/// # Safety
/// What [`present`] asks for.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
pub(crate) unsafe fn compiled<W: crate::simd::Work>(work: W) -> W::Output {
    work.run()
}

/// Sixteen numbers of `SIZE` bytes (1, 2 or 4), each at the top of 32 bits.
///
/// # Safety
/// AVX-512; 16 numbers at `from`.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
#[inline]
unsafe fn load_top<const SIZE: usize>(from: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        match SIZE {
            1 => _mm512_slli_epi32::<24>(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))),
            2 => _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))),
            _ => _mm512_loadu_si512(from.cast()),
        }
    }
}

/// What numbers of `SIZE` bytes at the top of 32 bits are flipped by, where they are negative: all their bits but the
/// sign. Integers are not flipped.
const fn flip_of(size: usize, float: bool) -> i32 {
    if float { (u32::MAX << (32 - 8 * size as u32) & 0x7fff_ffff) as i32 } else { 0 }
}

/// A vector of these bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
#[inline]
fn table(byte: impl Fn(usize) -> u8) -> __m512i {
    let bytes: [u8; 64] = std::array::from_fn(byte);
    // SAFETY: 64 bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}
