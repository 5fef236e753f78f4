//! Integer logarithms and the code lengths that follow from them.

/// Fractional bits of every cost in this crate: costs are counted in 1/1024 of a bit.
pub(crate) const COST_BITS: u32 = 10;
const STEPS: usize = 1 << 10;

/// `TABLE[i]` is log2(1 + i/1024) in 1/65536, rounded down: made by repeated squaring, with integers only.
static TABLE: [u16; STEPS] = table();

const fn table() -> [u16; STEPS] {
    let mut t = [0u16; STEPS];
    let mut i = 0;
    while i < STEPS {
        // x in [1, 2) with 62 fractional bits would overflow on squaring; 31 are plenty for 16 bits of result.
        let mut x = ((STEPS + i) as u64) << 21;
        let mut bits = 0u16;
        let mut b = 0;
        while b < 16 {
            x = (x * x) >> 31;
            bits <<= 1;
            if x >= 1 << 32 {
                x >>= 1;
                bits |= 1;
            }
            b += 1;
        }
        t[i] = bits;
        i += 1;
    }
    t
}

/// log2 of `x` in 1/1024, rounded down to the table's grid; 0 for 0 and 1.
#[inline]
pub(crate) fn log2(x: u64) -> u64 {
    if x < 2 {
        return 0;
    }
    let msb = 63 - x.leading_zeros();
    let mantissa = if msb >= 10 { x >> (msb - 10) } else { x << (10 - msb) };
    u64::from(msb) << COST_BITS | u64::from(TABLE[mantissa as usize & (STEPS - 1)]) >> 6
}

/// log2 of a positive normal float in 1/1024, likewise.
pub(crate) fn log2_of_float(x: f64) -> i64 {
    let bits = x.to_bits();
    let mantissa = log2(bits & ((1 << 52) - 1) | 1 << 52) as i64;
    mantissa + (((bits >> 52) as i64 - 1023 - 52) << COST_BITS)
}

/// `c` times log2 of `c`, in 1/1024.
#[inline]
pub(crate) fn weighted(c: u32) -> u64 {
    match SMALL.get(c as usize) {
        Some(&w) => w.into(),
        None => u64::from(c) * log2(c.into()),
    }
}

/// [`weighted`] of small counts, of which small tensors have many.
static SMALL: [u32; 256] = {
    let mut all = [0; 256];
    let mut c = 2;
    while c < all.len() {
        let msb = c.ilog2();
        let mantissa = c << (10 - msb) & (STEPS - 1);
        all[c] = c as u32 * (msb << COST_BITS | (TABLE[mantissa] >> 6) as u32);
        c += 1;
    }
    all
};

/// Ideal length, in 1/1024 bits, of coding every counted symbol with its own frequency.
pub(crate) fn entropy(counts: &[u32]) -> u64 {
    entropy_of(counts.iter().copied())
}

/// [`entropy`] of counts that no slice has.
pub(crate) fn entropy_of(counts: impl Iterator<Item = u32>) -> u64 {
    let mut total = 0u64;
    let mut sum = 0u64;
    for c in counts {
        total += u64::from(c);
        sum += weighted(c);
    }
    (total * log2(total)).saturating_sub(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_close_and_monotone() {
        assert_eq!(log2(1), 0);
        assert_eq!(log2(2), 1024);
        assert_eq!(log2(1 << 40), 40 * 1024);
        let mut last = 0;
        for x in 1..100_000u64 {
            let l = log2(x);
            assert!(l >= last);
            last = l;
            assert!((l as f64 / 1024.0 - (x as f64).log2()).abs() < 0.003, "{x}");
        }
    }

    #[test]
    fn weights_of_small_counts_are_those_of_all() {
        for c in 0..2000u32 {
            assert_eq!(weighted(c), u64::from(c) * log2(c.into()));
        }
    }

    #[test]
    fn entropy_of_known_histograms() {
        assert_eq!(entropy(&[0, 7, 0]), 0);
        assert_eq!(entropy(&[8; 4]), 32 * 2 * 1024);
    }
}
