//! Symbol counts by context.

use crate::{
    entropy::{ByExponent, Histogram},
    schemes::palette::turn_back,
};

/// Counts of symbols (places, or the exception) without contexts.
pub(super) fn alone(symbols: &[u8]) -> ByExponent {
    let mut all = Histogram::new();
    all.add(symbols);
    let mut by = ByExponent::new();
    by.insert(0, &all.total());
    by
}

/// Counts of symbols in the context of places, all below `values`: places are turned into symbols when they are
/// counted.
pub(super) fn joint(symbols: &[u8], places: &[u8], values: usize) -> ByExponent {
    if symbols.len() < values * values {
        // Few numbers among many pairs: clearing a count of every pair would take longer than counting.
        let mut by = ByExponent::new();
        symbols.iter().zip(places).for_each(|(&s, &p)| by.add(p, turn_back(s, p, values)));
        return by;
    }
    // Two counters, so that equal neighbours wait less for each other.
    let width = values + 1;
    let mut counts = vec![0u32; 2 * values * width];
    let (even, odd) = counts.split_at_mut(values * width);
    let pairs = symbols.as_chunks::<2>().0.iter().zip(places.as_chunks::<2>().0);
    let at = |s: u8, p: u8| usize::from(p) * width + usize::from(s);
    for (s, p) in pairs {
        even[at(s[0], p[0])] += 1;
        odd[at(s[1], p[1])] += 1;
    }
    if let (1, Some((&s, &p))) = (symbols.len() % 2, symbols.last().zip(places.last())) {
        even[at(s, p)] += 1;
    }
    even.iter_mut().zip(odd.iter()).for_each(|(a, b)| *a += b);
    let mut by = ByExponent::new();
    for (p, row) in even.chunks_exact(width).enumerate() {
        let mut turned = [0u32; 256];
        for (i, &n) in row.iter().enumerate() {
            turned[usize::from(turn_back(i as u8, p as u8, values))] += n;
        }
        if row.iter().any(|&n| n > 0) {
            by.insert(p as u8, &turned);
        }
    }
    by
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::contexts::cluster;

    #[test]
    fn few_numbers_are_counted_as_many() {
        let values = 20;
        let symbols: Vec<u8> = (0..values * values).map(|i| (i * 7 % (values + 1)) as u8).collect();
        let places: Vec<u8> = (0..values * values).map(|i| (i * i % values) as u8).collect();
        let few = symbols.len() - 1;
        let (a, b) = (joint(&symbols[..few], &places[..few], values), joint(&symbols, &places, values));
        let mut last = ByExponent::new();
        last.add(places[few], turn_back(symbols[few], places[few], values));
        let counts = |by: &ByExponent| cluster(by).0.into_iter().map(|c| (c.first, c.counts)).collect::<Vec<_>>();
        assert_eq!(counts(&a.merge(&last)), counts(&b));
    }
}
