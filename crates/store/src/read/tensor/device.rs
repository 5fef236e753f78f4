//! Decodes a tensor and its delta chain in a device's memory.

use crate::read::TensorReader;
use mdl_codec::{CodecError, Device, Held, Span, Stored, scheme_of};
use mdl_objects::{Id, Kind, tensor_head};

/// A tensor, and its base where that is wanted and sound.
pub(crate) type HeldPair = (Box<dyn Held>, Option<Box<dyn Held>>);

impl TensorReader<'_> {
    /// The whole tensor in the device's memory and, `with_base`, what it was stored against; both verified by their
    /// ids. None: damaged.
    ///
    /// # Errors
    /// [`CodecError::Device`]: it has no room, or a pack has moved; the host is asked then.
    pub(crate) fn on_device(&self, device: &dyn Device, with_base: bool) -> Result<Option<HeldPair>, CodecError> {
        let base = self.base_level().filter(|_| with_base);
        let Some(mut held) = self.decode_there(device, base)? else {
            return Ok(None);
        };
        let under = base.and_then(|b| held.get_mut(b)?.take());
        let Some(own) = held.first_mut().and_then(Option::take) else {
            return Ok(None);
        };
        if !self.is_sound(device, 0, own.span())? {
            return Ok(None);
        }
        let under = match (base, under) {
            (Some(level), Some(under)) if self.is_sound(device, level, under.span())? => Some(under),
            _ => None,
        };
        Ok(Some((own, under)))
    }

    /// Everything that is needed, from the chain roots up; kept are the tensor itself and the level `also`.
    #[allow(clippy::type_complexity, reason = "a list of what is there, by level")]
    fn decode_there(
        &self,
        device: &dyn Device,
        also: Option<usize>,
    ) -> Result<Option<Vec<Option<Box<dyn Held>>>>, CodecError> {
        let mut users = vec![0usize; self.levels.len()];
        [Some(0), also].into_iter().flatten().for_each(|level| users[level] += 1);
        let mut pending = Vec::new();
        for (i, level) in self.levels.iter().enumerate() {
            if users[i] == 0 {
                continue;
            }
            let moved = |_| CodecError::Device("a pack has moved".to_owned());
            let segments = (0..self.segments()).map(|index| self.encoded(i, index)).collect::<Result<Vec<_>, _>>();
            let segments = segments.map_err(moved)?;
            let Ok(schemes) = segments.iter().map(|s| scheme_of(s)).collect::<Result<Vec<_>, _>>() else {
                return Ok(None);
            };
            let relatives = schemes.iter().map(|s| usize::from(s.relatives())).max().unwrap_or(0);
            let below: Vec<usize> = level.below.iter().take(relatives).copied().flatten().collect();
            below.iter().for_each(|&b| users[b] += 1);
            pending.push((i, segments, below));
        }
        let mut held: Vec<Option<Box<dyn Held>>> = self.levels.iter().map(|_| None).collect();
        for (i, segments, below) in pending.into_iter().rev() {
            let of = |n: usize| below.get(n).and_then(|&b| held[b].as_ref()).map(|h| h.span());
            let stored = Stored {
                dtype: self.header().dtype,
                len: usize::try_from(self.len).map_err(|_| CodecError::BadInput("too long"))?,
                segments: &segments,
                base: of(0),
                grand: of(1),
            };
            match device.decode(stored) {
                Ok(done) => held[i] = Some(done),
                Err(e @ CodecError::Device(_)) => return Err(e),
                Err(_) => return Ok(None),
            }
            for b in below {
                users[b] -= 1;
                if users[b] == 0 {
                    held[b] = None;
                }
            }
        }
        Ok(Some(held))
    }

    fn is_sound(&self, device: &dyn Device, level: usize, span: Span) -> Result<bool, CodecError> {
        let level = &self.levels[level];
        let head = tensor_head(level.header.dtype, &level.header.shape);
        let hash = device.hash(Kind::Tensor.context(), &[(head, span)])?;
        Ok(hash.first().is_some_and(|h| Id::from_bytes(*h) == level.at.record.id))
    }
}
