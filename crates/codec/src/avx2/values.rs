//! Palette indices to numbers, 32 at a time.

use std::arch::x86_64::*;

/// Numbers of 4 bytes whose lower halves are zero, by their places among at most 32 upper halves; whole groups of 32 of
/// them. Returns how many were written. A place beyond the list gives anything.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn upper_halves(upper: &[u16], places: &[u8], out: &mut [u8]) -> usize {
    let mut bytes = [[0u8; 16]; 4];
    for (i, v) in upper.iter().take(32).enumerate() {
        let [low, high] = v.to_le_bytes();
        bytes[i / 16][i % 16] = low;
        bytes[2 + i / 16][i % 16] = high;
    }
    // SAFETY: each list has 16 bytes.
    let tables = bytes.map(|b| unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(b.as_ptr().cast())) });
    let fifteen = _mm256_set1_epi8(15);
    let zero = _mm256_setzero_si256();
    let groups = places.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<128>().0);
    let mut done = 0;
    for (places, out) in groups {
        // SAFETY: 32 places.
        let p = unsafe { _mm256_loadu_si256(places.as_ptr().cast()) };
        // Bit 4 of each byte, moved to its top, picks between the two lists.
        let (at, second) = (_mm256_and_si256(p, fifteen), _mm256_slli_epi16::<3>(p));
        let pick = |a, b| _mm256_blendv_epi8(_mm256_shuffle_epi8(a, at), _mm256_shuffle_epi8(b, at), second);
        let (low, high) = (pick(tables[0], tables[1]), pick(tables[2], tables[3]));
        // Numbers 0 to 7 and 16 to 23; 8 to 15 and 24 to 31.
        let (a, b) = (_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high));
        let (a0, a1) = (_mm256_unpacklo_epi16(zero, a), _mm256_unpackhi_epi16(zero, a));
        let (b0, b1) = (_mm256_unpacklo_epi16(zero, b), _mm256_unpackhi_epi16(zero, b));
        let to = out.as_mut_ptr();
        // SAFETY: four vectors are 128 bytes.
        unsafe {
            _mm256_storeu_si256(to.cast(), _mm256_permute2x128_si256::<0x20>(a0, a1));
            _mm256_storeu_si256(to.add(32).cast(), _mm256_permute2x128_si256::<0x20>(b0, b1));
            _mm256_storeu_si256(to.add(64).cast(), _mm256_permute2x128_si256::<0x31>(a0, a1));
            _mm256_storeu_si256(to.add(96).cast(), _mm256_permute2x128_si256::<0x31>(b0, b1));
        }
        done += 32;
    }
    done
}

/// [`crate::schemes::palette::positions`] among whole groups of 32; returns how many symbols were looked at.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn positions(symbol: u8, symbols: &[u8], from: usize, out: &mut Vec<u32>) -> usize {
    let wanted = _mm256_set1_epi8(symbol as i8);
    let groups = symbols.as_chunks::<32>().0;
    for (g, group) in groups.iter().enumerate() {
        // SAFETY: 32 symbols.
        let s = unsafe { _mm256_loadu_si256(group.as_ptr().cast()) };
        let mut mask = _mm256_movemask_epi8(_mm256_cmpeq_epi8(s, wanted)) as u32;
        while mask != 0 {
            out.push((from + 32 * g) as u32 + mask.trailing_zeros());
            mask &= mask - 1;
        }
    }
    32 * groups.len()
}
