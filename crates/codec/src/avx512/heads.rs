//! Heads of floats from symbols and the bit planes of their fields, and those planes from floats, 32 at a time: a plane
//! of 32 bits is a mask.

use crate::schemes::Cut;
use std::{arch::x86_64::*, mem::MaybeUninit};

/// The bit of a head that each bit of a field is, from bit 0 of the field up.
fn places(cut: Cut) -> [i16; 8] {
    let below = cut.field_bits() - 1;
    let place = |bit: u32| if bit == below { cut.shape.head_bits - 1 } else { bit };
    std::array::from_fn(|bit| (1u32 << place(bit as u32).min(15)) as i16)
}

/// Heads of whole groups of 32 elements, two bytes each, from their symbols and the planes of their fields.
///
/// # Safety
/// AVX-512; `out` has two bytes for every symbol of a whole group, `planes` its planes.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
pub(crate) unsafe fn heads(cut: Cut, symbols: &[u8], planes: &[u8], out: &mut [u8]) {
    let bits = cut.field_bits() as usize;
    let weights = places(cut).map(|place| _mm512_set1_epi16(place));
    let (lo, up) = (_mm512_set1_epi16(cut.lo as i16 - 1), _mm_cvtsi32_si128(bits as i32 - 1));
    let groups = symbols.as_chunks::<32>().0.iter().zip(planes.as_chunks::<4>().0.chunks_exact(bits));
    for ((group, planes), heads) in groups.zip(out.as_chunks_mut::<64>().0) {
        // SAFETY: the group has 32 symbols.
        let s = unsafe { _mm512_cvtepu8_epi16(_mm256_loadu_si256(group.as_ptr().cast())) };
        let key = _mm512_maskz_add_epi16(_mm512_test_epi16_mask(s, s), s, lo);
        let mut field = _mm512_setzero_si512();
        for (plane, weight) in planes.iter().zip(weights) {
            field = _mm512_mask_add_epi16(field, u32::from_le_bytes(*plane), field, weight);
        }
        // Symbols of damaged bytes may reach into the field's bits.
        let head = _mm512_or_si512(field, _mm512_sll_epi16(key, up));
        // SAFETY: 32 heads are 64 bytes.
        unsafe { _mm512_storeu_si512(heads.as_mut_ptr().cast(), head) };
    }
}

/// Appends the planes of the fields of whole groups of 32 elements of `SIZE` bytes (2 or 4) to `out`; returns how many
/// bytes of `raw` these are.
///
/// # Safety
/// AVX-512; `SIZE` is 2 or 4.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
pub(crate) unsafe fn fields<const SIZE: usize>(cut: Cut, raw: &[u8], out: &mut Vec<u8>) -> usize {
    let bits = cut.field_bits() as usize;
    let weights = places(cut).map(|place| _mm512_set1_epi16(place));
    let groups = raw.chunks_exact(32 * SIZE);
    let bytes = groups.len() * bits * 4;
    out.reserve(bytes);
    let room = &mut out.spare_capacity_mut()[..bytes];
    let upper: [u16; 32] = std::array::from_fn(|i| 2 * i as u16 + 1);
    // SAFETY: 64 bytes.
    let upper = unsafe { _mm512_loadu_si512(upper.as_ptr().cast()) };
    for (group, planes) in groups.zip(room.as_chunks_mut::<4>().0.chunks_exact_mut(bits)) {
        // SAFETY: the group has 32 elements of 2 or 4 bytes.
        let head = unsafe {
            let from = group.as_ptr();
            match SIZE {
                2 => _mm512_loadu_si512(from.cast()),
                _ => {
                    let second = _mm512_loadu_si512(from.add(64).cast());
                    _mm512_permutex2var_epi16(_mm512_loadu_si512(from.cast()), upper, second)
                }
            }
        };
        for (plane, weight) in planes.iter_mut().zip(weights) {
            *plane = _mm512_test_epi16_mask(head, weight).to_le_bytes().map(MaybeUninit::new);
        }
    }
    // SAFETY: every group has written its planes.
    unsafe { out.set_len(out.len() + bytes) };
    raw.len() / (32 * SIZE) * (32 * SIZE)
}
