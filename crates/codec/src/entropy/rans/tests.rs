//! Streams come back on every set of instructions, whatever is done to them.

use super::*;
use crate::entropy::tables::normalise;

fn noise(n: usize, bits: u32) -> Vec<u8> {
    let mut x = 88172645463325252u64;
    let mut step = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..n).map(|_| (step() & step() & ((1 << bits) - 1)) as u8).collect()
}

#[test]
fn every_length_and_alphabet_round_trips_on_every_path() {
    for bits in [0, 1, 3, 8] {
        for n in [0, 1, 31, 32, 33, 64, 1000, 4099, 9000] {
            let symbols = noise(n, bits);
            let ctx: Vec<u8> = (0..n).map(|i| (i / 7 % 3) as u8).collect();
            let mut counts = [[0u32; 256]; 3];
            let mut flat = [0u32; 256];
            for (&s, &c) in symbols.iter().zip(&ctx) {
                counts[usize::from(c)][usize::from(s)] += 1;
                flat[usize::from(s)] += 1;
            }
            flat[9] += 1;
            counts.iter_mut().for_each(|c| c[9] += 1);
            for (freqs, ctx) in [(vec![normalise(&flat)], None), (counts.map(|c| normalise(&c)).to_vec(), Some(ctx))] {
                let mut stream = vec![7u8];
                let table = EncTable::new(&freqs);
                encode(Simd::scalar(), &table, &symbols, ctx.as_deref(), &mut stream);
                for simd in Simd::all() {
                    let mut fast = vec![7u8];
                    encode(simd, &table, &symbols, ctx.as_deref(), &mut fast);
                    assert_eq!(stream, fast);
                }
                let table = DecTable::new(&freqs).unwrap();
                for simd in Simd::all() {
                    let mut out = vec![0u8; n];
                    decode(simd, &table, &stream[1..], ctx.as_deref(), &mut out).unwrap();
                    assert_eq!(out, symbols);
                    let mut short = stream[1..].to_vec();
                    short.truncate(short.len() - 2);
                    assert!(decode(simd, &table, &short, ctx.as_deref(), &mut out).is_err());
                }
            }
        }
    }
}

#[test]
fn streams_side_by_side_are_decoded_as_alone() {
    let lengths = [5000, 64, 4097, 1234];
    let all: Vec<Vec<u8>> = lengths.iter().map(|&n| noise(n + 7, 6).split_off(7)).collect();
    let contexts: Vec<Vec<u8>> = lengths.iter().map(|&n| (0..n).map(|i| (i / 5 % 2) as u8).collect()).collect();
    let mut counts = [[1u32; 256]; 2];
    all.iter().flatten().for_each(|&s| counts[usize::from(s & 1)][usize::from(s)] += 1);
    let freqs = counts.map(|c| normalise(&c));
    let (enc, dec) = (EncTable::new(&freqs), DecTable::new(&freqs).unwrap());
    for with in [false, true] {
        let mut streams = vec![Vec::new(); 4];
        for i in 0..4 {
            let ctx = with.then_some(&contexts[i][..]);
            encode(Simd::detect(), &enc, &all[i], ctx, &mut streams[i]);
        }
        // As they are; then with one word cut off, added or changed.
        for damage in 0..40 {
            let mut streams = streams.clone();
            let at = damage * 31 % (streams[2].len() - 1);
            match damage % 4 {
                _ if damage < 4 => {}
                0 => drop(streams[2].drain(at / 2 * 2..at / 2 * 2 + 2)),
                1 => streams[0][at] ^= 0x5a,
                2 => streams[2][at] ^= 1,
                _ => streams[3].truncate(STATE_BYTES + 2 * (damage % 7)),
            }
            for k in 1..=4 {
                let mut results = Vec::new();
                for simd in Simd::all() {
                    let mut out: Vec<Vec<u8>> = lengths[..k].iter().map(|&n| vec![0; n]).collect();
                    let mut lanes: Vec<Lanes<'_>> = streams[..k].iter().map(|s| Lanes::new(s).unwrap()).collect();
                    let mut next: Vec<Next<'_, '_>> = Vec::new();
                    for (i, (stream, out)) in lanes.iter_mut().zip(&mut out).enumerate() {
                        next.push(Next { stream, ctx: with.then_some(&contexts[i][..]), out });
                    }
                    let ended = take(simd, &dec, &mut next).is_ok() && lanes.iter().all(|l| l.done().is_ok());
                    assert!(damage >= 4 || (ended && out[..] == all[..k]));
                    results.push(ended.then_some(out));
                }
                assert!(results.iter().all(|r| *r == results[0]), "{damage} {k}");
            }
        }
    }
}
