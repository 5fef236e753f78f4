//! Thresholds and codebooks of a bin configuration, for a whole model.
//!
//! Embeddings share one codebook and all other weights another (Inshrinkerator, section 5: the same number of bins
//! everywhere but in embeddings).

use crate::{
    make::values_of,
    model::{Model, Part},
    policy_toml::Book,
    refused,
    sensitivity::Sensitivity,
};
use mdl_codec::{
    CodecError, Engine,
    quant::{Codebook, Config, Cuts, Metric, Role, Sketch, Survey, Thresholds, Values, Verdict, rest_of},
};
use mdl_store::Result;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Codebooks as a record keeps them: bf16 bits, ascending by value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Books {
    pub embedding: Vec<u16>,
    pub other: Vec<u16>,
}

/// What bins need to know of a model, and the configuration prepared last.
#[derive(Debug, Default)]
pub(crate) struct BinTables {
    /// The parent's codebooks.
    pub parent: Option<Books>,
    counted: Option<Counted>,
    /// Sketches of what is neither pruned nor protected, embeddings first, and for which thresholds.
    sketches: Option<(Thresholds, [Sketch; 2])>,
    ready: Option<([Codebook; 2], Thresholds)>,
}

/// What the first pass over a model's weights found.
#[derive(Debug, Default)]
struct Counted {
    survey: Survey,
    /// Whether gradients were counted.
    with_gradients: bool,
    /// Of what can be quantised, a sketch for each role and grid of keys: cuts are made by both, and nothing is lost
    /// in it that a second pass without gradients would find.
    sketches: Vec<(Role, Sketch)>,
    /// Parts that have to stay lossless.
    lossless: HashSet<usize>,
}

/// Whether a configuration prunes or protects by gradients. Elsewhere they change nothing.
pub(crate) fn needs_gradients(config: &Config) -> bool {
    config.protect > 0.0 || (config.prune > 0.0 && config.metric == Metric::Sensitivity)
}

fn group(role: Role) -> usize {
    usize::from(role != Role::Embedding)
}

impl BinTables {
    /// Starts with the parent's codebooks, and knows nothing yet of the model.
    pub fn of_parent(parent: Option<Books>) -> BinTables {
        BinTables { parent, ..BinTables::default() }
    }

    /// Works out thresholds and codebooks.
    pub fn prepare(
        &mut self,
        engine: &dyn Engine,
        model: &Model,
        sensitivity: &Sensitivity,
        config: &Config,
        book: Book,
    ) -> Result<()> {
        // Gradients are as large as the weights: they are read where they decide something.
        let needed = Some(sensitivity).filter(|_| needs_gradients(config));
        let counted = match self.counted.take() {
            Some(counted) if counted.with_gradients || needed.is_none() => counted,
            _ => Counted::from_model(engine, model, needed)?,
        };
        let counted = self.counted.insert(counted);
        let thresholds = counted.survey.thresholds(config).map_err(refused)?;
        if self.sketches.as_ref().is_none_or(|(t, _)| *t != thresholds) {
            let sketches = counted.rest(engine, model, needed, &thresholds)?;
            self.sketches = Some((thresholds.clone(), sketches));
        }
        let Some((_, sketches)) = &self.sketches else {
            return Ok(());
        };
        let [e, o] = sketches;
        let books = self.parent.as_ref().map(|b| [&b.embedding, &b.other]);
        let make = |i: usize, sketch: &Sketch, bins: u16| {
            let old = books.map(|b| from_bits(b[i])).filter(|b| b.len() == usize::from(bins));
            match (book, old.map(|b| Codebook::new(&b))) {
                (Book::Keep, Some(old)) => old,
                (Book::Warm, Some(old)) => old?.warmed(sketch),
                _ => Codebook::exact(sketch, bins),
            }
        };
        let codebooks = [make(0, e, config.embedding_bins), make(1, o, config.bins)];
        let [e, o] = codebooks.map(|c| c.map_err(refused));
        self.ready = Some(([e?, o?], thresholds));
        Ok(())
    }

    /// Whether the parent's codebooks have as many bins as the configuration wants.
    pub fn has_parent_of(&self, config: &Config) -> bool {
        let fits = |book: &Vec<u16>, bins: u16| book.is_empty() || book.len() == usize::from(bins);
        self.parent.as_ref().is_some_and(|b| fits(&b.embedding, config.embedding_bins) && fits(&b.other, config.bins))
    }

    /// Thresholds and codebook for a role, as prepared.
    pub fn for_role(&self, role: Role) -> Option<(Cuts, &Codebook)> {
        let (books, thresholds) = self.ready.as_ref()?;
        Some((thresholds.cuts(role), &books[group(role)]))
    }

    /// The codebooks, as prepared.
    pub fn books(&self) -> Option<Books> {
        let ([e, o], _) = self.ready.as_ref()?;
        Some(Books { embedding: e.bits().to_vec(), other: o.bits().to_vec() })
    }
}

fn from_bits(bits: &[u16]) -> Vec<f64> {
    bits.iter().map(|&b| f64::from(f32::from_bits(u32::from(b) << 16))).collect()
}

/// Hands every weight that is not left out to `each`, with its number, and with its gradient where a source of these is
/// given.
fn weights(
    model: &Model,
    sensitivity: Option<&Sensitivity>,
    left_out: &HashSet<usize>,
    mut each: impl FnMut(usize, Role, Values<'_>, Option<Values<'_>>) -> std::result::Result<(), CodecError>,
) -> Result<()> {
    for (i, part, role) in model.weights().filter(|(i, ..)| !left_out.contains(i)) {
        let part: &Part = part;
        let gradient = sensitivity.map_or(Ok(None), |s| s.gradient(part))?;
        let raw = model.read(part)?;
        let mut work = || {
            let weights = Values::new(part.extent.dtype, &raw)?;
            each(i, role, weights, values_of(gradient.as_ref())?)
        };
        work().map_err(refused)?;
    }
    Ok(())
}

impl Counted {
    fn from_model(engine: &dyn Engine, model: &Model, sensitivity: Option<&Sensitivity>) -> Result<Counted> {
        let mut all = Counted { with_gradients: sensitivity.is_some(), ..Counted::default() };
        weights(model, sensitivity, &HashSet::new(), |i, role, w, g| {
            let (sketch, verdict) = match g {
                Some(g) => {
                    let [sketch, sensitivities] = engine.survey(w, g)?;
                    let verdict = all.survey.add_counted(role, &sketch, &sensitivities);
                    (sketch, verdict)
                }
                None => {
                    let sketch = engine.sketch(w)?;
                    let verdict = all.survey.add_sketch(role, &sketch);
                    (sketch, verdict)
                }
            };
            match verdict {
                Verdict::Counted => all.keep(role, sketch),
                // A tensor with NaNs stays as it is and moves no bin.
                Verdict::Lossless => {
                    all.lossless.insert(i);
                }
            }
            Ok(())
        })?;
        Ok(all)
    }

    fn keep(&mut self, role: Role, sketch: Sketch) {
        let alike = |(r, s): &&mut (Role, Sketch)| *r == role && s.grid() == sketch.grid();
        match self.sketches.iter_mut().find(alike) {
            Some((_, all)) => all.merge(&sketch),
            None => self.sketches.push((role, sketch)),
        }
    }

    /// Sketches of what is neither pruned nor protected, embeddings first.
    fn rest(
        &self,
        engine: &dyn Engine,
        model: &Model,
        sensitivity: Option<&Sensitivity>,
        thresholds: &Thresholds,
    ) -> Result<[Sketch; 2]> {
        if sensitivity.is_none() {
            return Ok(self.rest_by_magnitude(thresholds));
        }
        let mut sketches = [Sketch::default(), Sketch::default()];
        weights(model, sensitivity, &self.lossless, |_, role, w, g| {
            sketches[group(role)].merge(&engine.rest(w, g, &thresholds.cuts(role))?);
            Ok(())
        })?;
        Ok(sketches)
    }

    /// As `rest`, where no gradient decides anything, without reading a tensor again.
    fn rest_by_magnitude(&self, thresholds: &Thresholds) -> [Sketch; 2] {
        let mut sketches = [Sketch::default(), Sketch::default()];
        for (role, sketch) in &self.sketches {
            sketches[group(*role)].merge(&rest_of(sketch, &thresholds.cuts(*role)));
        }
        sketches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_codec::{CpuEngine, Dtype, quant::rest};

    #[test]
    fn sketches_that_are_kept_give_what_reading_again_gives() {
        let element = |dtype, x: f32| match dtype {
            Dtype::F64 => f64::from(x).to_le_bytes().to_vec(),
            Dtype::F32 => x.to_le_bytes().to_vec(),
            // Some number of about this size.
            Dtype::F16 => ((x.to_bits() >> 16 & 0x8000 | (x.to_bits() >> 13).wrapping_sub(112 << 10) & 0x3FFF) as u16)
                .to_le_bytes()
                .to_vec(),
            _ => ((x.to_bits() >> 16) as u16).to_le_bytes().to_vec(),
        };
        let dtypes = [Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64];
        // Every mixture of dtypes in some order, in roles that are pruned apart and share a codebook.
        for mask in 1..16 {
            let tensors: Vec<(Role, Dtype, Vec<u8>)> = (0..12)
                .filter(|i| mask >> (i % 4) & 1 == 1)
                .map(|i| {
                    let role = [Role::Linear, Role::Attention, Role::Embedding][i % 3];
                    let number = |j: usize| ((i * 7919 + j * 104_729) as f32).sin() * (i + 1) as f32 * 0.01;
                    let bytes = (0..3000).flat_map(|j| element(dtypes[i % 4], number(j))).collect();
                    (role, dtypes[i % 4], bytes)
                })
                .collect();
            let mut counted = Counted::default();
            for (role, dtype, bytes) in &tensors {
                let sketch = CpuEngine::new().sketch(Values::new(*dtype, bytes).unwrap()).unwrap();
                assert_eq!(counted.survey.add_sketch(*role, &sketch), Verdict::Counted);
                counted.keep(*role, sketch);
            }
            for (prune, protect) in [(0.0, 0.0), (0.3, 0.0), (0.3, 0.01), (1.0, 0.0)] {
                let config = Config { prune, protect, ..Config::default() };
                let thresholds = counted.survey.thresholds(&config).unwrap();
                let mut read = [Sketch::default(), Sketch::default()];
                for (role, dtype, bytes) in &tensors {
                    let values = Values::new(*dtype, bytes).unwrap();
                    read[group(*role)].merge(&rest(values, None, &thresholds.cuts(*role)).unwrap());
                }
                assert_eq!(counted.rest_by_magnitude(&thresholds), read, "{mask:04b}, {config:?}");
            }
        }
    }
}
