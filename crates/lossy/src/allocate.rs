//! Allocates lattice steps: each weight's step relative to the one parameter that all share.
//!
//! Between tensors steps go with sqrt(deviation / rms gradient), scaled so that the parameter's zero is the weights'
//! own deviation (geometric means over the elements); within a tensor rows and columns get factors of
//! sensitivity^(-1/3) (`mdl_codec::quant::lattice::Params`). The allocation is made once and then kept: a lattice that
//! moves makes every delta larger.

use crate::{
    model::{Model, Part},
    sensitivity::{Sensitivity, widen},
};
use mdl_codec::quant::lattice::{Lattice, Params};
use mdl_store::Result;
use std::collections::BTreeMap;

/// By the weight's label: its lattice at the parameter's zero, without a seed.
pub(crate) type Allocation = BTreeMap<String, Params>;

/// What decides a tensor's step.
struct Scale {
    label: String,
    elements: f64,
    /// log2 of the deviation and, where known, of the rms gradient.
    deviation: f64,
    gradient: Option<f64>,
    factors: Params,
}

/// Adds lattices for the weights that `known` lacks.
pub(crate) fn allocate(
    model: &Model,
    sensitivity: &Sensitivity,
    known: &Allocation,
    by_sensitivity: bool,
) -> Result<Allocation> {
    let mut scales = Vec::new();
    for (_, part, _) in model.weights() {
        scales.extend(scale(model, sensitivity, part, by_sensitivity)?);
    }
    // Without gradients for all there is no common scale for some.
    let all = scales.iter().all(|s| s.gradient.is_some());
    let wish = |s: &Scale| match s.gradient {
        Some(g) if all => (s.deviation - g) / 2.0,
        _ => s.deviation / 2.0,
    };
    let total: f64 = scales.iter().map(|s| s.elements).sum();
    let mean = |f: &dyn Fn(&Scale) -> f64| scales.iter().map(|s| s.elements * f(s)).sum::<f64>() / total;
    let shift = mean(&|s| s.deviation) - mean(&wish);
    let mut out = known.clone();
    for s in &scales {
        let step = ((wish(s) + shift) * 16.0).round().clamp(-1000.0, 1000.0) as i16;
        out.entry(s.label.clone()).or_insert_with(|| Params { step, ..s.factors.clone() });
    }
    Ok(out)
}

/// Step of a row in sixteenths of an octave; none if the row is on no lattice.
pub(crate) fn step_of_row(params: &Params, row: usize) -> Option<i32> {
    let factor = match params.rows.get(row) {
        // A row that is inherited has the factor of its error, which no lattice need have.
        Some(&bits) => Some(f32::from_bits(u32::from(bits) << 16)).filter(|f| f.is_normal() && *f > 0.0)?,
        None => 1.0,
    };
    Some(i32::from(params.step) + (factor.log2() * 16.0).round() as i32)
}

/// The finest and the coarsest factor of the columns, in sixteenths of an octave.
pub(crate) fn columns(params: &Params) -> (i32, i32) {
    let values = params.cols.iter().filter_map(|&bits| Params::value(bits));
    let sixteenths = values.map(|factor| (factor.log2() * 16.0).round() as i32);
    let all =
        sixteenths.fold(None, |all: Option<(i32, i32)>, f| Some(all.map_or((f, f), |(a, b)| (a.min(f), b.max(f)))));
    all.unwrap_or_default()
}

/// Mean square of the columns' factors.
pub(crate) fn mean_square_of_columns(params: &Params) -> f64 {
    let values = params.cols.iter().filter_map(|&bits| Params::value(bits)).map(f64::from);
    let (n, sum) = values.fold((0, 0.0), |(n, sum), v| (n + 1, sum + v * v));
    if n == 0 { 1.0 } else { sum / f64::from(n) }
}

/// None where the numbers give no scale: all equal, or not finite.
fn scale(model: &Model, sensitivity: &Sensitivity, part: &Part, by_sensitivity: bool) -> Result<Option<Scale>> {
    let values = widen(part.extent.dtype, &model.read(part)?);
    let deviation = deviation(&values);
    if !deviation.is_normal() {
        return Ok(None);
    }
    let squares = if by_sensitivity { sensitivity.squares(model, part)? } else { None };
    let mean = squares.as_ref().map(|s| s.iter().map(|&x| f64::from(x)).sum::<f64>() / s.len() as f64);
    let factors = match &squares {
        Some(s) => Params::from_sensitivity(0, None, &part.matrix(), s),
        None => Params::default(),
    };
    Ok(Some(Scale {
        label: model.label(part),
        elements: values.len() as f64,
        deviation: deviation.log2(),
        gradient: mean.filter(|m| m.is_finite()).map(|m| (m.sqrt() + 1e-12).log2()),
        factors,
    }))
}

fn deviation(values: &[f32]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
    let square = values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
    square.sqrt()
}

/// The allocation as bytes (docs/format.md, "Allocation"): for each tensor the length of its label (u32) and the label;
/// step (i16), numbers of rows' and columns' factors (u32 each), and the factors (bf16).
pub(crate) fn to_bytes(allocation: &Allocation) -> Vec<u8> {
    let mut out = Vec::new();
    for (label, params) in allocation {
        out.extend_from_slice(&(label.len() as u32).to_le_bytes());
        out.extend_from_slice(label.as_bytes());
        out.extend_from_slice(&params.step.to_le_bytes());
        for list in [&params.rows, &params.cols] {
            out.extend_from_slice(&(list.len() as u32).to_le_bytes());
        }
        out.extend(params.rows.iter().chain(&params.cols).flat_map(|f| f.to_le_bytes()));
    }
    out
}

/// Reads what [`to_bytes`] wrote; none if there is anything else in it.
pub(crate) fn all_from_bytes(bytes: &[u8]) -> Option<Allocation> {
    let (mut rest, mut all) = (bytes, Allocation::new());
    while !rest.is_empty() {
        let (label, params) = entry(&mut rest)?;
        all.insert(label, params);
    }
    Some(all)
}

/// Reads what [`to_bytes`] wrote; a tensor that the model has no more, or whose shape is another one, is left out.
pub(crate) fn from_bytes(bytes: &[u8], model: &Model) -> Allocation {
    let parts: BTreeMap<String, &Part> = model.weights().map(|(_, p, _)| (model.label(p), p)).collect();
    let mut rest = bytes;
    let mut out = Allocation::new();
    while let Some((label, params)) = entry(&mut rest) {
        let fits = |p: &&Part| fits(&params, p);
        if parts.get(&label).is_some_and(fits) {
            out.insert(label, params);
        }
    }
    out
}

/// Whether a tensor can have these steps; rows whose factor is none of a lattice's are on none.
pub(crate) fn fits(params: &Params, part: &Part) -> bool {
    let on_lattice = |&bits: &u16| if Params::value(bits).is_none() { Params::factor(0) } else { bits };
    let rows = params.rows.iter().map(on_lattice).collect();
    Lattice::new(&Params { rows, ..params.clone() }, part.extent.dtype, &part.matrix()).is_ok()
}

fn entry(rest: &mut &[u8]) -> Option<(String, Params)> {
    let label = take(rest, 4).and_then(|n| take(rest, number(n)))?;
    let step = take(rest, 2)?;
    let step = i16::from_le_bytes([step[0], step[1]]);
    let (rows, cols) = (number(take(rest, 4)?), number(take(rest, 4)?));
    let mut list = |n: usize| {
        let bytes = take(rest, n.checked_mul(2)?)?;
        Some(bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b)).collect::<Vec<u16>>())
    };
    let params = Params { step, rows: list(rows)?, cols: list(cols)?, seed: None };
    Some((String::from_utf8_lossy(label).into_owned(), params))
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(n)?;
    *rest = tail;
    Some(head)
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | usize::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_read_back_and_no_cut_of_it_panics() {
        let params = Params { step: -7, rows: vec![0x3f80, 0x4000], cols: Vec::new(), seed: None };
        let all = Allocation::from([("m:a".to_owned(), params.clone()), ("m:b".to_owned(), Params::default())]);
        let bytes = to_bytes(&all);
        let mut rest = bytes.as_slice();
        assert_eq!(entry(&mut rest), Some(("m:a".to_owned(), params)));
        assert_eq!(entry(&mut rest), Some(("m:b".to_owned(), Params::default())));
        assert_eq!(entry(&mut rest), None);
        let whole: Vec<usize> = (0..=bytes.len()).filter(|&n| all_from_bytes(&bytes[..n]).is_some()).collect();
        assert_eq!(whole, [0, bytes.len() / 2 + 2, bytes.len()]);
        assert_eq!(entry(&mut [0xff; 64].as_slice()), None);
    }
}
