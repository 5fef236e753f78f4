//! The loops of differences to a base, on the widest vectors there are.

use crate::{
    entropy::{BitReader, BitWriter},
    schemes::{
        Numbers,
        delta::{Classes, loops},
    },
    simd::Simd,
};

#[cfg(target_arch = "x86_64")]
use crate::avx512::{self, Fields, GROUP, REACH};

/// Calls an AVX-512 kernel for numbers of 1, 2 or 4 bytes.
#[cfg(target_arch = "x86_64")]
macro_rules! sized {
    ($size:expr, $kernel:ident $(, $flag:literal)?; $($arg:expr),*) => {
        match $size {
            1 => avx512::$kernel::<1 $(, $flag)?>($($arg),*),
            2 => avx512::$kernel::<2 $(, $flag)?>($($arg),*),
            _ => avx512::$kernel::<4 $(, $flag)?>($($arg),*),
        }
    };
}

impl Simd {
    /// Whether there are kernels for these numbers.
    #[cfg(target_arch = "x86_64")]
    fn takes(self, numbers: Numbers) -> bool {
        self.avx512 && numbers.size <= 4
    }

    /// The entry of `map` for the exponent of each number of `base`, one for every byte of `out`.
    pub(crate) fn contexts(self, numbers: Numbers, map: &[u8; 256], base: &[u8], out: &mut [u8]) {
        assert_eq!(base.len(), out.len() * numbers.size);
        let mut _done = 0;
        #[cfg(target_arch = "x86_64")]
        if self.takes(numbers) {
            let field = numbers.exponent_field();
            // SAFETY: AVX-512 was detected.
            _done = unsafe { sized!(numbers.size, contexts; field, map, base, out) };
        }
        loops::contexts(numbers, map, &base[_done * numbers.size..], &mut out[_done..]);
    }

    /// Numbers from their base's, their symbols and the next raw bits.
    pub(crate) fn apply(
        self,
        classes: &Classes,
        symbols: &[u8],
        bits: &mut BitReader<'_>,
        base: &[u8],
        out: &mut [u8],
    ) {
        let size = classes.numbers.size;
        assert!(base.len() == symbols.len() * size && out.len() == base.len());
        let mut done = 0;
        #[cfg(target_arch = "x86_64")]
        if self.takes(classes.numbers) && classes.narrow {
            let (float, t) = (classes.numbers.is_float(), classes.t);
            let mut run = |data: &[u8], pos: usize, done: usize| {
                let (symbols, base, out) = (&symbols[done..], &base[done * size..], &mut out[done * size..]);
                // SAFETY: AVX-512 was detected; lengths and widths were checked here.
                let (n, end) = unsafe { sized!(size, apply; float, t, symbols, data, pos, base, out) };
                (done + n, end - pos)
            };
            let (data, pos) = bits.rest();
            let taken;
            (done, taken) = run(data, pos, done);
            bits.skip(taken as u32);
            let (data, pos) = bits.rest();
            if symbols.len() - done >= GROUP && data.len() < REACH {
                // The last bytes, with zeros behind them.
                let mut padded = [0; 2 * REACH];
                padded[..data.len()].copy_from_slice(data);
                let taken;
                (done, taken) = run(&padded, pos, done);
                bits.skip(taken as u32);
            }
        }
        loops::apply(classes, &symbols[done..], bits, &base[done * size..], &mut out[done * size..]);
    }

    /// Symbols of the differences of `raw` to `base`, with `t` bits in the class.
    pub(crate) fn differences(self, numbers: Numbers, t: u32, raw: &[u8], base: &[u8], out: &mut [u8]) {
        let size = numbers.size;
        assert!(base.len() == raw.len() && raw.len() == out.len() * size);
        let mut _done = 0;
        #[cfg(target_arch = "x86_64")]
        if self.takes(numbers) {
            let (float, mut none) = (numbers.is_float(), Fields::new());
            for group in out.as_chunks_mut::<GROUP>().0 {
                let (raw, base) = (&raw[_done * size..], &base[_done * size..]);
                // SAFETY: AVX-512 was detected; the group's numbers are in `raw` and `base`.
                unsafe { sized!(size, differences, false; float, t, raw, base, group, &mut none) };
                _done += GROUP;
            }
        }
        loops::symbols(numbers, t, &raw[_done * size..], &base[_done * size..], &mut out[_done..]);
    }

    /// As [`differences`](Self::differences); appends their raw bits, too.
    pub(crate) fn differences_and_bits(
        self,
        classes: &Classes,
        raw: &[u8],
        base: &[u8],
        out: &mut [u8],
        bits: &mut BitWriter,
    ) {
        let size = classes.numbers.size;
        assert!(base.len() == raw.len() && raw.len() == out.len() * size);
        let mut _done = 0;
        #[cfg(target_arch = "x86_64")]
        if self.takes(classes.numbers) {
            let (float, t, mut fields) = (classes.numbers.is_float(), classes.t, Fields::new());
            for group in out.as_chunks_mut::<GROUP>().0 {
                let (raw, base) = (&raw[_done * size..], &base[_done * size..]);
                // SAFETY: AVX-512 was detected; the group's numbers are in `raw` and `base`.
                unsafe { sized!(size, differences, true; float, t, raw, base, group, &mut fields) };
                bits.put_all(&fields.bits[..fields.count], &fields.widths[..fields.count]);
                _done += GROUP;
            }
        }
        loops::symbols_and_bits(classes, &raw[_done * size..], &base[_done * size..], &mut out[_done..], bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        /// Numbers that differ from those of `base` in some of their low bits: in none, or in all.
        fn near(&mut self, size: usize, base: &[u8]) -> Vec<u8> {
            let mut out = base.to_vec();
            for number in out.chunks_exact_mut(size) {
                let changed = self.next() >> (self.next() % 64);
                number.iter_mut().zip(changed.to_le_bytes()).for_each(|(b, c)| *b ^= c);
            }
            out
        }

        fn bytes(&mut self, n: usize) -> Vec<u8> {
            (0..n).map(|_| self.next() as u8).collect()
        }
    }

    #[test]
    fn every_path_makes_the_same_symbols_and_bits_and_undoes_them() {
        let mut noise = Noise(88172645463325252);
        let exponents = std::array::from_fn(|e| (e * 7) as u8);
        for dtype in Dtype::ALL {
            let numbers = Numbers::from_dtype(dtype);
            for n in [0, 1, 63, 64, 65, 200, 1000] {
                let base = noise.bytes(n * numbers.size);
                let raw = noise.near(numbers.size, &base);
                for t in 0..=numbers.max_t() {
                    let classes = Classes::new(numbers, t, |_| false);
                    let mut first = None;
                    for simd in Simd::all() {
                        let (mut ctx, mut symbols, mut again) = (vec![0; n], vec![0; n], vec![1; n]);
                        simd.contexts(numbers, &exponents, &base, &mut ctx);
                        simd.differences(numbers, t, &raw, &base, &mut again);
                        let mut bits = BitWriter::default();
                        bits.put(5, 3);
                        simd.differences_and_bits(&classes, &raw, &base, &mut symbols, &mut bits);
                        let bits = bits.finish();
                        assert_eq!(symbols, again);
                        let mut out = vec![1; raw.len()];
                        let mut reader = BitReader::new(&bits);
                        reader.get(3);
                        simd.apply(&classes, &symbols, &mut reader, &base, &mut out);
                        assert!(reader.ended_well() && out == raw, "{dtype} {n} {t} {simd:?}");
                        let all = (ctx, symbols, bits);
                        assert!(*first.get_or_insert_with(|| all.clone()) == all, "{dtype} {n} {t} {simd:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn bits_that_are_cut_short_read_as_zeros_on_every_path() {
        let mut noise = Noise(7);
        for dtype in [Dtype::F32, Dtype::BF16, Dtype::I16, Dtype::F8E4M3, Dtype::I32, Dtype::F64] {
            let numbers = Numbers::from_dtype(dtype);
            for round in 0..200 {
                let n = noise.next() as usize % 700;
                let t = (noise.next() % 3) as u32 % (numbers.max_t() + 1);
                // Symbols that an encoder would not make for the type, too; wide ones only in some rounds.
                let most = if round % 4 == 0 { 255 } else { (63 << t) + 1 };
                let symbols: Vec<u8> = (0..n).map(|_| (noise.next() % (most + 1)).min(255) as u8).collect();
                let classes = Classes::new(numbers, t, |s| symbols.contains(&s));
                let (base, cut) = (noise.bytes(n * numbers.size), noise.next() as usize % (3 * n + 1));
                let bits = noise.bytes(cut);
                let results: Vec<_> = Simd::all()
                    .into_iter()
                    .map(|simd| {
                        let mut out = vec![1; base.len()];
                        let mut reader = BitReader::new(&bits);
                        simd.apply(&classes, &symbols, &mut reader, &base, &mut out);
                        (out, reader.bytes_used())
                    })
                    .collect();
                assert!(results.iter().all(|r| *r == results[0]), "{dtype} {round}");
            }
        }
    }
}
