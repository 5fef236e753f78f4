//! Which instructions this run may use. Neighbours: `rans`, `bitplane` and `float` ask it for their fast path and fall
//! back to plain Rust. It must not know any format: both paths give the same bytes.

use crate::bits::Cursor;
use crate::float::Cut;
use crate::rans::{DecTable, LANES};
use crate::{CodecError, bitplane};

/// Permission to use vector instructions. The fast variant can only be made by [`Simd::detect`] on a machine that has
/// AVX2, which is what makes calling the `unsafe` functions behind it sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Simd {
    avx2: bool,
}

impl Simd {
    /// The best this machine offers.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        let avx2 = std::arch::is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        let avx2 = false;
        Simd { avx2 }
    }

    /// Plain Rust only.
    pub(crate) fn scalar() -> Self {
        Simd { avx2: false }
    }

    /// Decodes whole groups of 32 symbols while at least 32 words are left. Returns symbols done and bytes of `words`
    /// used; nothing done is always a right answer.
    pub(crate) fn rans_decode(
        self,
        _table: &DecTable,
        _state: &mut [u32; LANES],
        _words: &[u8],
        _ctx: Option<&[u8]>,
        _out: &mut [u8],
    ) -> (usize, usize) {
        (0, 0)
    }

    /// Symbols of the elements in `raw`.
    pub(crate) fn symbols(self, cut: Cut, raw: &[u8], out: &mut [u8]) {
        cut.symbols(raw, out);
    }

    /// Raw fields of the elements in `raw`.
    pub(crate) fn fields(self, cut: Cut, raw: &[u8], out: &mut [u8]) {
        cut.fields(raw, out);
    }

    /// Writes heads made of symbols and fields into `out`.
    pub(crate) fn put_heads(self, cut: Cut, symbols: &[u8], fields: &[u8], out: &mut [u8]) {
        cut.put_heads(symbols, fields, out);
    }

    /// Appends bit planes.
    pub(crate) fn put_planes(self, fields: &[u8], bits: u32, out: &mut Vec<u8>) {
        bitplane::put(fields, bits, out);
    }

    /// Reads bit planes.
    pub(crate) fn get_planes(self, cursor: &mut Cursor<'_>, bits: u32, out: &mut [u8]) -> Result<(), CodecError> {
        bitplane::get(cursor, bits, out)
    }
}
