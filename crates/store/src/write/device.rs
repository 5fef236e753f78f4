//! Ingests tensors in a device's memory: hashed, compared with their parents' and encoded there, so that only encodings
//! come to the host.

use crate::{
    Result,
    write::{
        BaseTensors, Ingest, Sink, Source,
        base::{BaseRef, base_of},
    },
};
use mdl_codec::{CodecError, Device, Encoded, Held, Resident, Span, quant::lattice::Lattice};
use mdl_files::Extent;
use mdl_objects::{Id, Kind, tensor_head};
use std::{collections::HashSet, sync::Arc};

/// A tensor that is new, and what it is stored against.
struct New {
    /// Place in the batch.
    at: usize,
    base: Option<Below>,
    lattice: Option<Arc<Lattice>>,
}

/// A base in the device's memory, and its own base.
struct Below {
    at: BaseRef,
    base: Box<dyn Held>,
    grandparent: Option<Box<dyn Held>>,
}

/// Where a tensor lies, if it lies in a device's memory.
pub(super) fn span_of(source: &dyn Source, e: &Extent) -> Option<Span> {
    source.on_device(e.offset, e.byte_len()?).filter(|s| !s.is_empty())
}

impl Ingest<'_> {
    /// Ingests a batch of tensors whose bytes lie there. Nothing where the device cannot: then the host does.
    pub(super) fn batch_on_device(
        &mut self,
        batch: &[Extent],
        spans: &[Span],
        rel: &str,
        bases: &BaseTensors,
    ) -> Result<Option<Vec<Id>>> {
        let odb = self.odb;
        // All of a batch lie on one device: what does not is refused below, and read.
        let Some(device) = spans.first().and_then(|s| odb.engine().device(s.device())) else {
            return Ok(None);
        };
        let heads = batch.iter().map(|e| tensor_head(e.dtype, &e.shape));
        let Ok(ids) = device.hash(Kind::Tensor.context(), &heads.zip(spans.iter().copied()).collect::<Vec<_>>()) else {
            return Ok(None);
        };
        let ids: Vec<Id> = ids.into_iter().map(Id::from_bytes).collect();
        let mut seen = HashSet::new();
        let mut news = Vec::new();
        for (at, (e, id)) in batch.iter().zip(&ids).enumerate() {
            if !matches!(self.sink, Sink::Pack(_)) || !seen.insert(*id) || self.has(id)? {
                continue;
            }
            let Ok(base) = self.below(device, e, id, bases) else {
                return Ok(None);
            };
            let lattice = self.hints.lattice(rel, e);
            news.push(New { at, base, lattice });
        }
        let Some(encoded) = encode(device, batch, spans, &news) else {
            return Ok(None);
        };
        for (new, segments) in news.iter().zip(encoded) {
            self.append(&batch[new.at], ids[new.at], rel, &segments, new.base.as_ref().map(|b| b.at))?;
        }
        batch.iter().for_each(|e| self.progress.advance(e.byte_len().unwrap_or(0)));
        Ok(Some(ids))
    }

    /// The parent's tensor of the same name, decoded there and verified. A damaged one is none.
    fn below(
        &self,
        device: &dyn Device,
        e: &Extent,
        id: &Id,
        bases: &BaseTensors,
    ) -> Result<Option<Below>, CodecError> {
        let Some(found) = base_of(self.odb, bases, e, id, self.policy.chains) else {
            return Ok(None);
        };
        let held = found.reader.on_device(device, found.at.grandparent.is_some())?;
        Ok(held.map(|(base, grandparent)| Below { at: found.at, base, grandparent }))
    }
}

fn encode(device: &dyn Device, batch: &[Extent], spans: &[Span], news: &[New]) -> Option<Vec<Vec<Encoded>>> {
    let resident = news.iter().map(|new| Resident {
        dtype: batch[new.at].dtype,
        content: spans[new.at],
        base: new.base.as_ref().map(|b| b.base.span()),
        grandparent: new.base.as_ref().and_then(|b| b.grandparent.as_ref()).map(|g| g.span()),
        lattice: new.lattice.as_ref(),
    });
    device.encode(&resident.collect::<Vec<_>>()).ok()
}
