//! Serialised tables of small numbers, and counts scaled to probabilities.

use crate::{
    CodecError, Result,
    entropy::{BitReader, BitWriter, Cursor},
};

/// Probabilities are multiples of 2^-12.
pub(crate) const PROB_BITS: u32 = 12;
/// The sum of all frequencies of a table.
pub(crate) const PROB_ONE: u32 = 1 << PROB_BITS;

/// Scales `counts` to frequencies that sum to 4096, none of a present symbol below 1. All-zero counts give zeros.
///
/// Each symbol gets its share rounded down; what is left goes to the largest remainders (ties: lower symbol first), and
/// what rare symbols took too much is taken back from the largest frequencies one by one.
pub fn normalise(counts: &[u32; 256]) -> [u16; 256] {
    let total: u64 = counts.iter().map(|&c| u64::from(c)).sum();
    let mut freqs = [0u16; 256];
    if total == 0 {
        return freqs;
    }
    let mut order: Vec<(u64, usize)> = Vec::with_capacity(256);
    let mut sum = 0u32;
    for (s, &c) in counts.iter().enumerate().filter(|(_, c)| **c > 0) {
        let scaled = u64::from(c) << PROB_BITS;
        freqs[s] = (scaled / total).max(1) as u16;
        sum += u32::from(freqs[s]);
        if scaled >= total {
            order.push((scaled % total, s));
        }
    }
    if sum <= PROB_ONE {
        order.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let missing = (PROB_ONE - sum) as usize;
        for &(_, s) in order.iter().take(missing) {
            freqs[s] += 1;
        }
        let short = missing - missing.min(order.len());
        freqs[largest(&freqs)] += short as u16;
    }
    while sum > PROB_ONE {
        // Shares of 64 at a time would do as well for huge surpluses; the surplus is at most the alphabet's size.
        freqs[largest(&freqs)] -= 1;
        sum -= 1;
    }
    freqs
}

fn largest(freqs: &[u16; 256]) -> usize {
    let mut best = 0;
    for (s, &f) in freqs.iter().enumerate() {
        if f > freqs[best] {
            best = s;
        }
    }
    best
}

/// Appends `values` (each at most 4096, at least one nonzero): first and last present symbol, then for each symbol
/// between them a nibble. Nibble 0 starts a run of zeros (the next nibble + 1 of them); with `exact`, nibble n in
/// 1..=13 is the bit length of the value and its n-1 lower bits follow; without it, the nibble is the value itself.
pub(crate) fn put(out: &mut Vec<u8>, values: &[u16; 256], exact: bool) {
    let first = values.iter().position(|&v| v > 0).unwrap_or(0);
    let last = values.iter().rposition(|&v| v > 0).unwrap_or(0);
    out.extend_from_slice(&[first as u8, last as u8]);
    let mut w = BitWriter::with_capacity(256);
    let mut s = first;
    while s <= last {
        let v = u64::from(values[s]);
        if v == 0 {
            let run = values[s..=last].iter().take(16).take_while(|&&v| v == 0).count();
            w.put(0, 4);
            w.put(run as u64 - 1, 4);
            s += run;
            continue;
        }
        if exact {
            let len = 64 - v.leading_zeros();
            w.put(u64::from(len), 4);
            w.put(v ^ 1 << (len - 1), len - 1);
        } else {
            w.put(v, 4);
        }
        s += 1;
    }
    out.extend_from_slice(&w.finish());
}

/// Reads what [`put`] wrote.
pub(crate) fn get(cursor: &mut Cursor<'_>, exact: bool) -> Result<[u16; 256]> {
    const BAD: CodecError = CodecError::Corrupt("bad table");
    let first = usize::from(cursor.u8()?);
    let last = usize::from(cursor.u8()?);
    let mut values = [0u16; 256];
    let mut r = BitReader::new(cursor.rest());
    let mut s = first;
    if first > last {
        return Err(BAD);
    }
    while s <= last {
        let n = r.get(4) as u32;
        if n == 0 {
            s += r.get(4) as usize + 1;
        } else if exact {
            if n > 13 {
                return Err(BAD);
            }
            values[s] = (1 << (n - 1) | r.get(n - 1)) as u16;
            s += 1;
        } else {
            values[s] = n as u16;
            s += 1;
        }
    }
    let used = r.bytes_used();
    cursor.take(used)?;
    if s != last + 1 || values[first] == 0 || values[last] == 0 {
        return Err(BAD);
    }
    Ok(values)
}

/// Bytes that [`put`] would write.
pub(crate) fn size(values: &[u16; 256], exact: bool) -> usize {
    let mut v = Vec::with_capacity(300);
    put(&mut v, values, exact);
    v.len()
}

/// Reads frequencies and checks that they sum to 4096.
pub(crate) fn get_freqs(cursor: &mut Cursor<'_>) -> Result<[u16; 256]> {
    let f = get(cursor, true)?;
    if f.iter().map(|&v| u32::from(v)).sum::<u32>() != PROB_ONE {
        return Err(CodecError::Corrupt("frequencies do not sum to one"));
    }
    Ok(f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(usize, u32)]) -> [u32; 256] {
        let mut c = [0; 256];
        for &(s, n) in pairs {
            c[s] = n;
        }
        c
    }

    #[test]
    fn normalised_frequencies_sum_to_one_and_keep_rare_symbols() {
        let mut all = vec![counts(&[(3, 1)]), counts(&[(0, 1), (255, u32::MAX)]), [1; 256], [u32::MAX; 256]];
        let mut steep = [1u32; 256];
        steep[7] = 1 << 30;
        all.push(steep);
        all.push(std::array::from_fn(|i| (i * i) as u32));
        for c in all {
            let f = normalise(&c);
            assert_eq!(f.iter().map(|&v| u32::from(v)).sum::<u32>(), PROB_ONE);
            assert!(c.iter().zip(f).all(|(&c, f)| (c > 0) == (f > 0)));
        }
        assert_eq!(normalise(&[0; 256]), [0; 256]);
    }

    #[test]
    fn tables_come_back() {
        for c in [counts(&[(3, 1)]), counts(&[(0, 1), (200, 5), (255, 9)]), [1; 256]] {
            let f = normalise(&c);
            let mut b = Vec::new();
            put(&mut b, &f, true);
            let mut cur = Cursor::new(&b);
            assert_eq!(get_freqs(&mut cur), Ok(f));
            assert!(cur.done().is_ok());
            assert_eq!(b.len(), size(&f, true));
        }
    }
}
