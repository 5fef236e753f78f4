//! Quantises optimizer moments as a policy says.

use crate::{
    candidate::Draft,
    model::{Model, Part, Treatment, moment},
    policy_toml::Moments,
    refused,
};
use mdl_codec::{
    Engine,
    quant::{
        Values,
        lattice::Lattice,
        moments::{Bits, Moment, STEP, quantise, quantise_pair},
    },
};
use mdl_store::{Result, write::Hints};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The outcome for the moments.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    /// The files that hold them, by their name in the tree.
    pub files: HashMap<String, PathBuf>,
    /// The lattices of those that lie on one.
    pub hints: Hints,
}

/// A reconstruction, and the lattice it lies on.
type Rec = (Vec<u8>, Option<Lattice>);

/// Writes the files that hold moments, with reconstructions in their place, below `dir`. Moments that cannot be
/// quantised (NaN, infinities, a negative v) stay as they are.
pub(crate) fn replace(engine: &dyn Engine, model: &Model, dir: &Path, spec: Moments) -> Result<Replaced> {
    let mut out = Replaced::default();
    let is_moment = |p: &&Part| matches!(p.treatment, Treatment::Moment(_));
    // First moments go with the second moment of the same parameter.
    let mut seconds: HashMap<(usize, String), &Part> = HashMap::new();
    for part in model.parts.iter().filter(is_moment) {
        if let Some((weight, Moment::Second)) = moment(&part.name) {
            seconds.entry((part.file, weight)).or_insert(part);
        }
    }
    for (index, container) in model.files.iter().enumerate() {
        let mine: Vec<&Part> = model.parts.iter().filter(|p| p.file == index).filter(is_moment).collect();
        if mine.is_empty() {
            continue;
        }
        let rel = container.file.rel.clone();
        let draft = Draft::copy(&container.file.path, dir, &rel)?;
        let mut put = |part: &Part, (bytes, lattice): Rec| {
            if let Some(lattice) = lattice {
                out.hints.insert(rel.clone(), part.extent.name.clone(), Arc::new(lattice));
            }
            draft.patch(part.extent.offset, &bytes)
        };
        let mut done: Vec<&str> = Vec::new();
        if spec == Moments::Factored {
            for first in &mine {
                let Some((weight, Moment::First)) = moment(&first.name) else {
                    continue;
                };
                if let Some(v) = seconds.get(&(index, weight))
                    && let Some((m_rec, v_rec)) = pair(engine, model, first, v)?
                {
                    put(first, m_rec)?;
                    put(v, v_rec)?;
                    done.extend([first.extent.name.as_str(), v.extent.name.as_str()]);
                }
            }
        }
        for part in mine {
            if !done.contains(&part.extent.name.as_str())
                && let Some(bytes) = alone(model, part, spec)?
            {
                put(part, (bytes, None))?;
            }
        }
        out.files.insert(rel, draft.finish(container)?);
    }
    Ok(out)
}

fn alone(model: &Model, part: &Part, spec: Moments) -> Result<Option<Vec<u8>>> {
    let Treatment::Moment(kind) = part.treatment else {
        return Ok(None);
    };
    let bits = if spec == Moments::Log8 { Bits::Eight } else { Bits::Four };
    let raw = model.read(part)?;
    let values = Values::new(part.extent.dtype, &raw).map_err(refused)?;
    quantise(kind, bits, values, &part.shape).map_err(refused)
}

fn pair(engine: &dyn Engine, model: &Model, first: &Part, second: &Part) -> Result<Option<(Rec, Rec)>> {
    if first.shape != second.shape {
        return Ok(None);
    }
    let (m, v) = (model.read(first)?, model.read(second)?);
    let work = || {
        let (m, v) = (Values::new(first.extent.dtype, &m)?, Values::new(second.extent.dtype, &v)?);
        let Some(pair) = quantise_pair(m, v, &first.shape, STEP, engine)? else {
            return Ok(None);
        };
        let lattices = [
            Lattice::new(&pair.first_lattice, first.extent.dtype, &first.shape)?,
            Lattice::new(&pair.second_lattice, second.extent.dtype, &second.shape)?,
        ];
        let [on_m, on_v] = lattices.map(Some);
        Ok(Some(((pair.first, on_m), (pair.second, on_v))))
    };
    work().map_err(refused)
}
