//! Block-wise absmax types: INT8, NF4 and FP4, the quantisation baselines of NeuZip (arXiv 2410.20650, section 3.3). No
//! entropy coder, no parent, as in bitsandbytes.
//!
//! INT8: a scale for each row (LLM.int8(), arXiv 2208.07339; its outlier columns are of activations). NF4 and FP4
//! (QLoRA, arXiv 2305.14314, section 3 and appendix E): a scale for each block of 64, `double` keeps those scales in 8
//! bits themselves, in blocks of 256 around their mean.

use crate::systems::{Coder, Kept, SystemPlan, Tensor, count, get_f32, kept, numbers, packed, row};
use mdl_codec::{CodecError, Dtype, Result, engine_internals::Cursor};

const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];
/// FP4's magnitudes: 2 exponent bits and one of mantissa, as bitsandbytes has them.
const FP4: [f32; 8] = [0.0, 0.005_208_333, 1.0 / 6.0, 0.25, 1.0 / 3.0, 0.5, 2.0 / 3.0, 1.0];
/// Scales that share a scale.
const SCALES: usize = 256;

/// Which type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Int8,
    Nf4,
    Fp4,
}

#[derive(Debug)]
pub(super) struct Blockwise {
    pub(super) kind: Type,
    /// Elements of a block; 0 is a row.
    pub(super) block: usize,
    pub(super) double: bool,
}

impl Type {
    /// Ascending, from -1 to 1.
    fn values(self) -> Vec<f32> {
        match self {
            Type::Int8 => (-127..=127).map(|i| i as f32 / 127.0).collect(),
            Type::Nf4 => NF4.to_vec(),
            Type::Fp4 => {
                let negative = FP4.iter().rev().map(|x| -x);
                negative.filter(|&x| x != 0.0).chain(FP4).collect()
            }
        }
    }
}

impl Blockwise {
    fn block(&self, shape: &[usize]) -> usize {
        if self.block == 0 { row(shape) } else { self.block }
    }
}

impl Coder for Blockwise {
    fn encode(&self, t: &Tensor<'_>, _: &SystemPlan, _: Option<&Kept>) -> Result<Option<Vec<u8>>> {
        let Some(values) = numbers(t)? else { return Ok(None) };
        let block = self.block(t.shape);
        let largest = |b: &[f32]| b.iter().fold(0f32, |m, x| m.max(x.abs()));
        let scales: Vec<f32> = values.chunks(block).map(largest).collect();
        let mut out = Vec::new();
        let scales = if self.double {
            put_scales(&mut out, &scales)
        } else {
            scales.iter().for_each(|s| out.extend_from_slice(&s.to_bits().to_le_bytes()));
            scales
        };
        let table = self.kind.values();
        let borders: Vec<f32> = table.windows(2).map(|p| (p[0] + p[1]) / 2.0).collect();
        let index = |x: f32, s: f32| {
            let x = if s > 0.0 { x / s } else { 0.0 };
            borders.partition_point(|&b| b < x) as u16
        };
        let pairs = values.chunks(block).zip(&scales);
        let indices = pairs.flat_map(|(b, &s)| b.iter().map(move |&x| (x, s))).map(|(x, s)| index(x, s));
        packed::put(&mut out, indices, packed::width(table.len()));
        Ok(Some(out))
    }

    fn decode(&self, body: &[u8], dtype: Dtype, shape: &[usize], _: Option<&Kept>) -> Result<Kept> {
        let (mut cursor, n, block) = (Cursor::new(body), count(shape), self.block(shape));
        let scales = if self.double {
            get_scales(&mut cursor, n.div_ceil(block))?
        } else {
            (0..n.div_ceil(block)).map(|_| get_f32(&mut cursor)).collect::<Result<Vec<_>, _>>()?
        };
        let table = self.kind.values();
        let indices = packed::get(&mut cursor, n, packed::width(table.len()))?;
        cursor.done()?;
        if indices.iter().any(|&i| usize::from(i) >= table.len()) {
            return Err(CodecError::Corrupt("a code that the type does not have"));
        }
        let blocks = indices.chunks(block).zip(&scales);
        let values: Vec<f32> =
            blocks.flat_map(|(b, &s)| b.iter().map(move |&i| (i, s))).map(|(i, s)| table[usize::from(i)] * s).collect();
        Ok(kept(dtype, shape, &values, None))
    }
}

/// Appends the mean of the scales and, for 256 at a time, a scale and 8 bits each; returns them as they come back.
fn put_scales(out: &mut Vec<u8>, scales: &[f32]) -> Vec<f32> {
    let mean = scales.iter().map(|&s| f64::from(s)).sum::<f64>() / scales.len().max(1) as f64;
    let mean = mean as f32;
    out.extend_from_slice(&mean.to_bits().to_le_bytes());
    let mut back = Vec::with_capacity(scales.len());
    for part in scales.chunks(SCALES) {
        let unit = part.iter().fold(0f32, |m, s| m.max((s - mean).abs())) / 127.0;
        out.extend_from_slice(&unit.to_bits().to_le_bytes());
        for s in part {
            let q = if unit > 0.0 { ((s - mean) / unit).round() as i8 } else { 0 };
            out.push(q as u8);
            back.push(scale(q, unit, mean));
        }
    }
    back
}

fn get_scales(cursor: &mut Cursor<'_>, n: usize) -> Result<Vec<f32>> {
    let mean = get_f32(cursor)?;
    let mut scales = Vec::new();
    while scales.len() < n {
        let unit = get_f32(cursor)?;
        let part = cursor.take(SCALES.min(n - scales.len()))?;
        scales.extend(part.iter().map(|&q| scale(q as i8, unit, mean)));
    }
    Ok(scales)
}

fn scale(q: i8, unit: f32, mean: f32) -> f32 {
    (f32::from(q) * unit + mean).clamp(0.0, f32::MAX)
}
