//! Symbols in contexts to palette indices, and indices to numbers, many at a time.

use crate::{schemes::palette::Table, simd::Simd};

/// Replaces symbols by what they stand for in the context of `places`: [`super::lookup::turn`] of each.
pub(super) fn turn_all(symbols: &mut [u8], places: &[u8], values: usize) {
    let k = values as u8;
    for (s, &p) in symbols.iter_mut().zip(places) {
        // The sum of two places may need nine bits: what is missing up to `k` tells.
        let left = k.wrapping_sub(*s);
        let turned = if p >= left { p.wrapping_sub(left) } else { s.wrapping_add(p) };
        *s = if *s >= k { k } else { turned };
    }
}

/// The symbols of places (or the exception) in the context of other places: [`super::lookup::turn_back`] of each.
pub(super) fn turn_all_back(symbols: &mut [u8], places: &[u8], values: usize) {
    let k = values as u8;
    for (s, &p) in symbols.iter_mut().zip(places) {
        let apart = s.wrapping_sub(p);
        let turned = if *s >= p { apart } else { apart.wrapping_add(k) };
        *s = if *s >= k { k } else { turned };
    }
}

/// Numbers by their places; those of exceptions are anything.
pub(super) fn numbers(simd: Simd, table: &Table, places: &[u8], out: &mut [u8]) {
    match table.numbers.size {
        2 => wide::<2>(table, places, out),
        4 => {
            let upper: Vec<u16> = table.values.iter().map(|v| (v >> 16) as u16).collect();
            let halves = table.values.iter().all(|v| v & 0xffff == 0);
            if !(halves && simd.upper_halves(&upper, places, out)) {
                wide::<4>(table, places, out);
            }
        }
        _ => wide::<8>(table, places, out),
    }
}

fn wide<const N: usize>(table: &Table, places: &[u8], out: &mut [u8]) {
    let mut values = [[0u8; N]; 256];
    for (to, v) in values.iter_mut().zip(&table.values) {
        to.copy_from_slice(&v.to_le_bytes()[..N]);
    }
    for (o, &p) in out.as_chunks_mut::<N>().0.iter_mut().zip(places) {
        *o = values[usize::from(p)];
    }
}

/// Appends the indices at which `symbol` stands, each plus `from`.
pub(crate) fn positions(symbol: u8, symbols: &[u8], from: usize, out: &mut Vec<u32>) {
    let at = symbols.iter().enumerate().filter(|(_, s)| **s == symbol);
    out.extend(at.map(|(i, _)| (from + i) as u32));
}

#[cfg(test)]
mod tests {
    use super::{
        super::lookup::{turn, turn_back},
        *,
    };
    use crate::{Dtype, schemes::diff::Numbers};

    #[test]
    fn turning_many_is_turning_each() {
        for values in [1usize, 2, 31, 128, 129, 200, 255] {
            for p in 0..values as u8 {
                let all: Vec<u8> = (0..=values as u8).collect();
                let mut turned = all.clone();
                turn_all(&mut turned, &vec![p; all.len()], values);
                assert!(all.iter().zip(&turned).all(|(&s, &t)| t == turn(s, p, values)), "{values} {p}");
                let mut back = all.clone();
                turn_all_back(&mut back, &vec![p; all.len()], values);
                assert!(all.iter().zip(&back).all(|(&i, &b)| b == turn_back(i, p, values)), "{values} {p}");
            }
        }
    }

    #[test]
    fn positions_are_found() {
        for n in [0, 1, 31, 32, 33, 200] {
            let symbols: Vec<u8> = (0..n).map(|i| (i * i % 11) as u8).collect();
            for s in 0..12 {
                let (mut plain, mut fast) = (vec![7], vec![7]);
                positions(s, &symbols, 5, &mut plain);
                Simd::detect().positions(s, &symbols, 5, &mut fast);
                assert_eq!(plain, fast);
            }
        }
    }

    #[test]
    fn numbers_are_the_same_on_every_path() {
        for values in [1u64, 5, 16, 17, 32, 33, 255] {
            let list = (0..values).map(|v| (v * 0x00c1 + 0x3c07) << 16).collect();
            let table = Table::new(Numbers::from_dtype(Dtype::F32), list);
            for n in [0, 1, 31, 32, 33, 1000] {
                let places: Vec<u8> = (0..n).map(|i| (i * 7 % values) as u8).collect();
                let mut out = [vec![1u8; 4 * n as usize], vec![2; 4 * n as usize]];
                numbers(Simd::scalar(), &table, &places, &mut out[0]);
                numbers(Simd::detect(), &table, &places, &mut out[1]);
                assert_eq!(out[0], out[1]);
                let right =
                    |(e, &p): (&[u8; 4], &u8)| u64::from(u32::from_le_bytes(*e)) == table.values[usize::from(p)];
                assert!(out[0].as_chunks().0.iter().zip(&places).all(right));
            }
        }
    }
}
