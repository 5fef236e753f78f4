//! Seeded mutation of bytes, for the test that runs on the stable toolchain.

use crate::{Target, mend::words};

/// Longest input that mutation makes.
pub const LONGEST: usize = 64 << 10;

/// xorshift64*: the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Started from any number.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.bits() >> 32) as usize).checked_rem(n).unwrap_or(0)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// The last ones: the ends of 32 and of 64 bits, signed or not, and the last multiple of eight.
const EDGES: [u64; 14] = [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 1 << 31, !0 >> 32, !0 >> 1, 1 << 63, !7, !0];

/// One to four changes, words and other inputs spliced in, then mended three times out of four.
pub fn mutate(target: &Target, data: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        change(words::for_target(target.name), data, other, random);
    }
    data.truncate(LONGEST);
    if !random.once_in(4) {
        (target.mend)(data);
    }
}

fn change(words: &[&[u8]], data: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(data.len() + 1);
    let end = (at + 1 + random.below(32)).min(data.len());
    match random.below(11) {
        way @ 0..=3 => {
            if let Some(byte) = data.get_mut(at) {
                *byte = match way {
                    0 | 1 => *byte ^ (1 << random.below(8)),
                    2 => byte.wrapping_add(random.below(9) as u8).wrapping_sub(4),
                    _ => random.bits() as u8,
                };
            }
        }
        4 => number(data, at, random),
        5 => drop(data.drain(at.min(end)..end)),
        6 => {
            let copy: Vec<u8> = data.get(at..end).unwrap_or_default().to_vec();
            insert(data, random.below(data.len() + 1), &copy);
        }
        7 => {
            let noise: Vec<u8> = (0..=random.below(8)).map(|_| random.bits() as u8).collect();
            insert(data, at, &noise);
        }
        8 => {
            let from = random.below(other.len() + 1);
            let to = (from + 1 + random.below(64)).min(other.len());
            insert(data, at, other.get(from..to).unwrap_or_default());
        }
        9 if random.once_in(4) => data.truncate(at),
        _ => {
            if let Some(word) = words.get(random.below(words.len())) {
                insert(data, at, word);
            }
        }
    }
}

/// Writes one of the numbers that break things over one to eight bytes.
fn number(data: &mut [u8], at: usize, random: &mut Random) {
    let edge = EDGES[random.below(EDGES.len())].wrapping_add(random.below(3) as u64).to_le_bytes();
    let len = 1 << random.below(4);
    for (to, from) in data.iter_mut().skip(at).zip(&edge[..len]) {
        *to = *from;
    }
}

/// Puts bytes in between.
pub fn insert(data: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let tail = data.split_off(at.min(data.len()));
    data.extend_from_slice(bytes);
    data.extend_from_slice(&tail);
}
