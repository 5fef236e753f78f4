//! AVX2 kernels for `rans`, `bitplane`, `float` and `low`, eight to 32 elements at a time.
//!
//! All `unsafe` of the crate is here and at the calls in `simd`. Two invariants carry it: the processor has AVX2 and
//! POPCNT (the caller checked), and every pointer stays inside its slice (checked once per group, stated at each loop).

mod expand;
mod offsets;
mod parts;
mod rans;
mod spread;
mod values;

pub(crate) use expand::expand;
pub(crate) use offsets::offsets;
pub(crate) use parts::{heads, put_planes};
pub(crate) use rans::{rans_decode, rans_encode};
pub(crate) use spread::least_spread;
pub(crate) use values::{positions, upper_halves};

/// Does `work`, compiled for AVX2.
///
/// # Safety
/// The processor has AVX2 and POPCNT.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn compiled<W: crate::simd::Work>(work: W) -> W::Output {
    work.run()
}
