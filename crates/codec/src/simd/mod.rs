//! CPU feature detection: which instructions this run may use.

mod delta;
mod rans;

#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};
use crate::{
    entropy::LANES,
    quant::{
        cluster,
        lattice::{cells, decode::CONTEXTS, moves},
    },
    schemes::{Cut, bitplane, low, palette},
};

/// Elements that are worked on at a time, so that intermediate bytes stay in the first-level cache.
pub(crate) const CHUNK: usize = 1024;

/// Elements of a block that are decoded before its neighbour's turn: fewer, and no page of either is read for long
/// enough to be fetched ahead.
pub(crate) const TURN: usize = 32 * CHUNK;

/// Permission to use vector instructions. The fast variants can only be made here, on a machine that has AVX2 and
/// POPCNT (and the AVX-512 that `avx512::present` asks for), which is what makes calling the `unsafe` functions behind
/// them sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simd {
    avx2: bool,
    avx512: bool,
}

/// Plain code that is compiled for every set of instructions. `run`, and what its loops call, is `#[inline(always)]`: a
/// function (or closure) that stands alone is compiled once, for the least of processors.
pub(crate) trait Work {
    type Output;
    fn run(self) -> Self::Output;
}

/// Methods that call a plain function as it is compiled for this machine's instructions. The function, and what its
/// loops call, is `#[inline(always)]`.
macro_rules! compiled {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) by $plain:path;)*) => {
        impl Simd {
            $($(#[$doc])*
            pub(crate) fn $name(self, $($arg: $type),*) {
                #[cfg(target_arch = "x86_64")]
                if self.avx512 {
                    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,popcnt")]
                    fn widest($($arg: $type),*) {
                        $plain($($arg),*);
                    }
                    // SAFETY: AVX-512 was detected.
                    return unsafe { widest($($arg),*) };
                }
                #[cfg(target_arch = "x86_64")]
                if self.avx2 {
                    #[target_feature(enable = "avx2,popcnt")]
                    fn wide($($arg: $type),*) {
                        $plain($($arg),*);
                    }
                    // SAFETY: AVX2 was detected.
                    return unsafe { wide($($arg),*) };
                }
                $plain($($arg),*);
            })*
        }
    };
}

compiled! {
    /// Symbols of the elements in `raw`.
    symbols(cut: Cut, raw: &[u8], out: &mut [u8]) by Cut::symbols;
    /// Raw fields of the elements in `raw`.
    fields(cut: Cut, raw: &[u8], out: &mut [u8]) by Cut::fields;
    /// [`low::low_halves`].
    low_halves(group: &[u8], out: &mut [u8]) by low::low_halves;
    /// [`low::join_halves`].
    join_halves(data: &[u8], heads: &[u8], group: &mut [u8]) by low::join_halves;
}

impl Simd {
    /// The best this machine offers.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        let avx2 = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("popcnt");
        #[cfg(target_arch = "x86_64")]
        let avx512 = avx2 && avx512::present();
        #[cfg(not(target_arch = "x86_64"))]
        let (avx2, avx512) = (false, false);
        Simd { avx2, avx512 }
    }

    /// Every set of instructions that this machine offers, from the least.
    pub(crate) fn all() -> Vec<Self> {
        let best = Simd::detect();
        let mut all = vec![Simd::scalar(), Simd { avx512: false, ..best }, best];
        all.dedup();
        all
    }

    /// Plain Rust only.
    pub(crate) fn scalar() -> Self {
        Simd { avx2: false, avx512: false }
    }

    /// Does `work` compiled for this machine's instructions: plain loops get wider, no bit changes.
    pub(crate) fn compiled<W: Work>(self, work: W) -> W::Output {
        #[cfg(target_arch = "x86_64")]
        if self.avx512 {
            // SAFETY: AVX-512 was detected.
            return unsafe { avx512::compiled(work) };
        }
        #[cfg(target_arch = "x86_64")]
        if self.avx2 {
            // SAFETY: AVX2 was detected.
            return unsafe { avx2::compiled(work) };
        }
        work.run()
    }

    /// The table of each raw context.
    #[inline(always)]
    pub(crate) fn tables_of(self, map: &[u8; CONTEXTS], raw: &[u16; LANES], out: &mut [u8; LANES]) {
        #[cfg(target_arch = "x86_64")]
        if self.avx512 {
            // SAFETY: AVX-512 was detected.
            return unsafe { avx512::tables_of(map, raw, out) };
        }
        for (o, &r) in out.iter_mut().zip(raw) {
            *o = map[usize::from(r) % CONTEXTS];
        }
    }

    /// [`cells::offsets`] of the pairs from `first` on.
    #[inline(always)]
    pub(crate) fn offsets(self, seed: u64, first: u64, out: &mut [[f32; 2]]) {
        let mut _done = 0;
        #[cfg(target_arch = "x86_64")]
        if self.avx512 {
            // SAFETY: AVX-512 was detected.
            _done = unsafe { avx512::offsets(seed, first, out) };
        } else if self.avx2 {
            // SAFETY: AVX2 was detected.
            _done = unsafe { avx2::offsets(seed, first, out) };
        }
        for (i, o) in out.iter_mut().enumerate().skip(_done) {
            *o = cells::offsets(seed, first.wrapping_add(i as u64));
        }
    }

    /// [`moves::expand_plain`]; the masks are below 16 each.
    #[inline(always)]
    pub(crate) fn expand(self, masks: &[u8; moves::MASKS], steps: &[i8], levels: &mut [i32; moves::GROUP]) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.avx2
            && let Some(steps) = steps.first_chunk()
        {
            // SAFETY: AVX2 was detected; a mask of more bits shifts out of its byte.
            return unsafe { avx2::expand(masks, steps, levels) };
        }
        moves::expand_plain(masks, steps, levels)
    }

    /// [`cluster::least_spread`].
    #[inline]
    pub(crate) fn least_spread(self, parts: [&[f64]; 4], whole: [f64; 3]) -> (usize, f64) {
        #[cfg(target_arch = "x86_64")]
        if self.avx2 && parts[0].len() >= 4 && parts.iter().all(|p| p.len() == parts[0].len()) {
            // SAFETY: AVX2 was detected; the lists are equally long.
            return unsafe { avx2::least_spread(parts, whole) };
        }
        cluster::least_spread(parts, whole)
    }

    /// [`palette::positions`].
    pub(crate) fn positions(self, symbol: u8, symbols: &[u8], from: usize, out: &mut Vec<u32>) {
        let mut _done = 0;
        #[cfg(target_arch = "x86_64")]
        if self.avx2 {
            // SAFETY: AVX2 was detected.
            _done = unsafe { avx2::positions(symbol, symbols, from, out) };
        }
        palette::positions(symbol, &symbols[_done..], from + _done, out);
    }

    /// Numbers of 4 bytes whose lower halves are zero, by their places in the list of upper halves. False when there is
    /// no fast path: then nothing was done.
    pub(crate) fn upper_halves(self, upper: &[u16], places: &[u8], out: &mut [u8]) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self.avx2 && upper.len() <= 32 && out.len() == 4 * places.len() {
            // SAFETY: AVX2 was detected.
            let done = unsafe { avx2::upper_halves(upper, places, out) };
            let rest = out[4 * done..].as_chunks_mut::<4>().0;
            for (o, &p) in rest.iter_mut().zip(&places[done..]) {
                let v = upper.get(usize::from(p)).copied().unwrap_or(0);
                *o = (u32::from(v) << 16).to_le_bytes();
            }
            return true;
        }
        let _ = (upper, places, out);
        false
    }

    /// Appends the bit planes of the raw fields of the elements in `raw`.
    pub(crate) fn put_fields(self, cut: Cut, raw: &[u8], out: &mut Vec<u8>) {
        let mut fields = [0u8; CHUNK];
        let bits = cut.field_bits();
        let mut _done = 0;
        #[cfg(target_arch = "x86_64")]
        if self.avx512 && matches!(cut.shape.size, 2 | 4) && cut.shape.head_bits == 16 {
            // SAFETY: AVX-512 was detected.
            _done = match cut.shape.size {
                2 => unsafe { avx512::fields::<2>(cut, raw, out) },
                _ => unsafe { avx512::fields::<4>(cut, raw, out) },
            };
        }
        let raw = &raw[_done..];
        for part in raw.chunks(CHUNK * cut.shape.size) {
            let fields = &mut fields[..part.len() / cut.shape.size];
            self.fields(cut, part, fields);
            let mut _done = 0;
            #[cfg(target_arch = "x86_64")]
            if self.avx2 {
                _done = fields.len() / bitplane::GROUP * bitplane::GROUP;
                // SAFETY: AVX2 was detected.
                unsafe { avx2::put_planes(&fields[.._done], bits, out) };
            }
            bitplane::put(&fields[_done..], bits, out);
        }
    }

    /// Heads (two bytes each) from symbols and the bit planes of the raw fields; `planes` has as many bytes as the
    /// symbols need.
    pub(crate) fn heads(self, cut: Cut, symbols: &[u8], planes: &[u8], out: &mut [u8]) {
        let mut _done = 0;
        #[cfg(target_arch = "x86_64")]
        if self.avx2 {
            _done = symbols.len() / bitplane::GROUP * bitplane::GROUP;
            let (symbols, out) = (&symbols[.._done], &mut out[..2 * _done]);
            // SAFETY: AVX2 or AVX-512 was detected.
            match self.avx512 {
                true => unsafe { avx512::heads(cut, symbols, planes, out) },
                false => unsafe { avx2::heads(cut, symbols, planes, out) },
            }
        }
        let rest = &planes[bitplane::size(_done, cut.field_bits())..];
        let mut fields = [0u8; CHUNK];
        let fields = &mut fields[..symbols.len() - _done];
        bitplane::get(rest, cut.field_bits(), fields);
        let out = out[2 * _done..].as_chunks_mut::<2>().0;
        for ((o, &s), &f) in out.iter_mut().zip(&symbols[_done..]).zip(fields.iter()) {
            *o = cut.head(s, f).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, schemes::Shape};

    #[test]
    fn tables_of_contexts_are_the_same_on_every_path() {
        let map: [u8; CONTEXTS] = std::array::from_fn(|i| ((i * i * 40_503) >> 7) as u8);
        for from in 0..CONTEXTS as u16 {
            // Those past the end as well.
            let raw: [u16; LANES] = std::array::from_fn(|i| from.wrapping_add(i as u16 * 2_089));
            for simd in Simd::all() {
                let mut found = [0; LANES];
                simd.tables_of(&map, &raw, &mut found);
                assert_eq!(found, raw.map(|r| map[usize::from(r) % CONTEXTS]), "{simd:?} {from}");
            }
        }
    }

    #[test]
    fn heads_and_fields_are_the_same_on_every_path() {
        for dtype in Dtype::ALL {
            let Some(shape) = Shape::from_dtype(dtype) else { continue };
            for cut in (0..8).flat_map(|k| [1, 700].map(|lo| Cut { shape, k, lo })).filter(|c| c.valid()) {
                for n in [0, 1, 31, 32, 33, 100, 1500] {
                    let mix = |i: usize| (i * i * 40_503 + i * 977 + (i >> 3)) as u8;
                    let raw: Vec<u8> = (0..n * shape.size).map(mix).collect();
                    let symbols: Vec<u8> = (0..n.min(CHUNK)).map(|i| mix(i + 5)).collect();
                    let all = Simd::all().into_iter().map(|simd| {
                        let (mut planes, mut heads, mut cut_off) = (vec![9], vec![1; 2 * symbols.len()], vec![1; n]);
                        simd.put_fields(cut, &raw, &mut planes);
                        simd.heads(cut, &symbols, &planes[1..], &mut heads);
                        simd.symbols(cut, &raw, &mut cut_off);
                        (planes, heads, cut_off)
                    });
                    let all: Vec<_> = all.collect();
                    assert!(all.iter().all(|a| *a == all[0]), "{dtype} {cut:?} {n}");
                }
            }
        }
    }
}
