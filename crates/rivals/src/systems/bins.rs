//! Inshrinkerator (SoCC '24) as its paper has it (`paper`), and with exact clustering and mdl's coder (`bins`).
//!
//! Readings: a codebook for each tensor; sensitivity takes part in protecting, and in pruning where gradients are given
//! (the paper takes the better metric of the two). Protected numbers are bf16 beside the levels, "stored separately"
//! (section 6).

use crate::systems::{Coder, Kept, SystemPlan, Tensor, count, from_segments, segments};
use mdl_codec::{
    CodecError, Dtype, Result,
    engine_internals::{Cursor, put_varint},
    quant::{
        Codebook, Config, Metric, Points, Quantised, Role, Survey, Values, Verdict, cluster, kmeans,
        paper::{Levels, Variant, bins_of, decode, encode},
        quantise, reconstruct, rest,
    },
};

#[derive(Debug)]
pub(super) struct Bins {
    pub(super) config: Config,
    /// The paper's clustering and coder, or mdl's.
    pub(super) coder: Option<Variant>,
    /// Share of the frequency in a point's weight: 0.2 in the paper; 1 makes the squared error small.
    pub(super) sigma: f64,
}

impl Bins {
    /// Levels and codebook of a tensor; none where it must stay lossless.
    fn levels(&self, t: &Tensor<'_>, plan: &SystemPlan) -> Result<Option<(Quantised, Codebook)>> {
        let Some(thresholds) = &plan.thresholds else {
            return Ok(None);
        };
        let weights = Values::new(t.dtype, t.bytes)?;
        let gradient = t.gradient.map(|g| Values::new(Dtype::F32, g)).transpose()?;
        let cuts = thresholds.cuts(t.role());
        let points = Points::from_sketch(&rest(weights, gradient, &cuts)?, self.sigma)?;
        let bins = usize::from(self.config.bins_of(t.role()));
        let codebook = Codebook::new(&match self.coder {
            Some(_) => kmeans(&points, bins, 1),
            None => cluster(&points, bins),
        })?;
        // Where everything is pruned or protected there is no bin; one does no harm.
        let codebook = if codebook.is_empty() { Codebook::new(&[0.0])? } else { codebook };
        Ok(quantise(weights, gradient, &cuts, &codebook)?.map(|q| (q, codebook)))
    }
}

impl Coder for Bins {
    fn plan(&self, tensors: &[&Tensor<'_>]) -> Result<SystemPlan> {
        let mut survey = Survey::default();
        let (mut all, mut any) = (true, false);
        for t in tensors {
            let gradient = t.gradient.map(|g| Values::new(Dtype::F32, g)).transpose()?;
            let verdict = survey.add(t.role(), Values::new(t.dtype, t.bytes)?, gradient)?;
            all &= gradient.is_some() || verdict == Verdict::Lossless || t.role() == Role::Embedding;
            any |= gradient.is_some();
        }
        let mut config = self.config;
        if !(all && any) {
            config.metric = Metric::Magnitude;
        }
        Ok(SystemPlan { thresholds: Some(survey.thresholds(&config)?), ..SystemPlan::default() })
    }

    fn encode(&self, t: &Tensor<'_>, plan: &SystemPlan, parent: Option<&Kept>) -> Result<Option<Vec<u8>>> {
        let Some((q, codebook)) = self.levels(t, plan)? else {
            return Ok(None);
        };
        let Some(variant) = self.coder else {
            let bytes = reconstruct(t.dtype, &q, &codebook)?;
            return segments(t.dtype, &bytes, parent, None).map(Some);
        };
        let before = parent.and_then(|p| p.levels.as_ref());
        let before = before.map(|(l, b)| Levels::new(l, *b)).transpose()?;
        let stream = encode(variant, Levels::new(&q.levels, codebook.len() as u16)?, before)?;
        let mut out = Vec::new();
        for list in [codebook.bits(), &q.protected] {
            put_varint(&mut out, list.len() as u64);
            list.iter().for_each(|b| out.extend_from_slice(&b.to_le_bytes()));
        }
        out.extend_from_slice(&stream);
        Ok(Some(out))
    }

    fn decode(&self, body: &[u8], dtype: Dtype, shape: &[usize], parent: Option<&Kept>) -> Result<Kept> {
        let n = count(shape);
        let (bytes, levels) = if self.coder.is_none() {
            (from_segments(dtype, body, n * dtype.size(), parent)?, None)
        } else {
            let mut cursor = Cursor::new(body);
            let mut list = || {
                let n = cursor.varint()?;
                let raw = cursor.take(n.saturating_mul(2))?;
                Ok(raw.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b)).collect())
            };
            let (book, protected): (Vec<u16>, Vec<u16>) = (list()?, list()?);
            let values: Vec<f64> = book.iter().map(|&b| f64::from(mdl_codec::quant::numbers::from_bf16(b))).collect();
            let codebook = Codebook::new(&values).map_err(|_| CodecError::Corrupt("bad codebook"))?;
            let before = parent.and_then(|p| p.levels.as_ref());
            let before = before.map(|(l, b)| Levels::new(l, *b)).transpose()?;
            let levels = decode(cursor.rest(), n, before)?;
            let bins = bins_of(cursor.rest())?;
            let q = Quantised { levels, protected };
            let bytes = reconstruct(dtype, &q, &codebook).map_err(|_| CodecError::Corrupt("levels beyond the bins"))?;
            (bytes, Some((q.levels, bins)))
        };
        Ok(Kept { dtype, shape: shape.to_vec(), bytes, levels })
    }
}
