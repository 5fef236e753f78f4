//! Streaming statistics of a tensor's elements.

use mdl_codec::Dtype;
use mdl_repo::to_f64;

/// Elements widened at a time, so that they stay in the cache.
const BATCH_BYTES: usize = 1 << 16;

/// Statistics; least, greatest, mean and deviation are over finite elements.
#[derive(Debug, Default)]
pub struct Stats {
    pub count: u64,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub zeros: u64,
    pub nan: u64,
    pub inf: u64,
    whole: Option<(i128, i128)>,
    finite: u64,
    mean: f64,
    /// Sum of squared distances to the mean.
    spread: f64,
    values: Vec<f64>,
}

impl Stats {
    pub fn add(&mut self, dtype: Dtype, bytes: &[u8]) {
        let mut values = std::mem::take(&mut self.values);
        for batch in bytes.chunks(BATCH_BYTES) {
            self.add_whole(dtype, batch);
            to_f64(dtype, batch, &mut values);
            self.add_values(&values);
        }
        self.values = values;
    }

    /// Whole numbers of 64 bits do not fit a float.
    fn add_whole(&mut self, dtype: Dtype, batch: &[u8]) {
        let words = batch.as_chunks::<8>().0.iter().copied();
        let ends = match dtype {
            Dtype::I64 => ends(words.map(i64::from_le_bytes).map(i128::from)),
            Dtype::U64 => ends(words.map(u64::from_le_bytes).map(i128::from)),
            _ => return,
        };
        let old = self.whole;
        self.whole = ends.map(|(a, b)| old.map_or((a, b), |(x, y)| (a.min(x), b.max(y)))).or(old);
    }

    /// The least and the greatest where elements of this type are whole numbers.
    pub fn whole(&self, dtype: Dtype) -> Option<(i128, i128)> {
        match dtype {
            Dtype::I64 | Dtype::U64 => self.whole,
            d if d.is_float() => None,
            _ => Some((self.min? as i128, self.max? as i128)),
        }
    }

    fn add_values(&mut self, values: &[f64]) {
        self.count += values.len() as u64;
        self.nan += values.iter().filter(|v| v.is_nan()).count() as u64;
        self.inf += values.iter().filter(|v| v.is_infinite()).count() as u64;
        self.zeros += values.iter().filter(|v| **v == 0.0).count() as u64;
        let finite = || values.iter().copied().filter(|v| v.is_finite());
        self.min = finite().chain(self.min).reduce(f64::min);
        self.max = finite().chain(self.max).reduce(f64::max);
        let n = finite().count() as f64;
        if n == 0.0 {
            return;
        }
        // Batches are joined by their means (Chan et al.), which keeps the digits that a sum of squares would lose.
        let mean = finite().sum::<f64>() / n;
        let spread: f64 = finite().map(|v| (v - mean) * (v - mean)).sum();
        let (old, gap) = (self.finite as f64, mean - self.mean);
        self.finite += n as u64;
        self.mean += gap * n / (old + n);
        self.spread += spread + gap * gap * old * n / (old + n);
    }

    pub fn mean(&self) -> Option<f64> {
        (self.finite > 0).then_some(self.mean)
    }

    /// Standard deviation of the population, as `numpy.std`.
    pub fn std(&self) -> Option<f64> {
        (self.finite > 0).then(|| (self.spread / self.finite as f64).sqrt())
    }
}

fn ends(numbers: impl Iterator<Item = i128>) -> Option<(i128, i128)> {
    numbers.fold(None, |ends, n| Some(ends.map_or((n, n), |(a, b): (i128, i128)| (a.min(n), b.max(n)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_add_up() {
        let values: Vec<f32> = (0..100_000).map(|i| 1e6 + (i % 1000) as f32).collect();
        let mut bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        bytes.extend([f32::NAN, f32::NEG_INFINITY, -0.0].iter().flat_map(|v| v.to_le_bytes()));
        let mut s = Stats::default();
        s.add(Dtype::F32, &bytes);
        assert_eq!((s.count, s.nan, s.inf, s.zeros), (100_003, 1, 1, 1));
        assert_eq!((s.min, s.max), (Some(-0.0), Some(1_000_999.0)));
        let n = 100_001.0;
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        assert!((s.mean().unwrap() - mean).abs() < 1e-6);
        let var = (values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() + mean * mean) / n;
        assert!((s.std().unwrap() - var.sqrt()).abs() / var.sqrt() < 1e-9);
    }

    #[test]
    fn large_whole_numbers_are_exact() {
        let mut s = Stats::default();
        let numbers = [i64::MIN, 3, i64::MAX - 1];
        numbers.iter().for_each(|n| s.add(Dtype::I64, &n.to_le_bytes()));
        assert_eq!(s.whole(Dtype::I64), Some((i64::MIN.into(), (i64::MAX - 1).into())));
        let mut s = Stats::default();
        s.add(Dtype::U8, &[7, 200]);
        assert_eq!((s.whole(Dtype::U8), s.whole(Dtype::F32)), (Some((7, 200)), None));
    }

    #[test]
    fn nothing_has_no_mean() {
        let s = Stats::default();
        assert_eq!((s.count, s.min, s.mean(), s.std()), (0, None, None, None));
    }
}
