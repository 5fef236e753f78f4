//! Decodes a tensor and its delta chain in a device's memory.

use crate::{Result, read::TensorReader};
use mdl_codec::{CodecError, Device, EncodedTensor, Held, Span, scheme_of};
use mdl_objects::{Id, Kind, tensor_head};

/// What is decoded of the levels.
type HeldLevels = Vec<Option<Box<dyn Held>>>;
/// A tensor, and its base where that is wanted and sound.
pub(crate) type HeldPair = (Box<dyn Held>, Option<Box<dyn Held>>);

impl TensorReader<'_> {
    /// The whole tensor in the device's memory and, `with_base`, what it was stored against; both verified by their
    /// ids. None: damaged. [`CodecError::Device`]: it has no room, or a pack has moved; the host is asked then.
    pub(crate) fn on_device(&self, device: &dyn Device, with_base: bool) -> Result<Option<HeldPair>, CodecError> {
        let base = self.base_level().filter(|_| with_base);
        let mut held = match self.decode_on_device(device, base) {
            Ok(held) => held,
            Err(Some(e)) => return Err(e),
            Err(None) => return Ok(None),
        };
        let under = base.and_then(|b| held.get_mut(b)?.take());
        let Some(own) = held.first_mut().and_then(Option::take) else { return Ok(None) };
        if !self.is_sound(device, 0, own.span())? {
            return Ok(None);
        }
        let under = match (base, under) {
            (Some(level), Some(under)) if self.is_sound(device, level, under.span())? => Some(under),
            _ => None,
        };
        Ok(Some((own, under)))
    }

    /// The tensor and the level `also`, among their places. An error of none: damaged.
    fn decode_on_device(&self, device: &dyn Device, also: Option<usize>) -> Result<HeldLevels, Option<CodecError>> {
        let read = |level| {
            let moved = |_| CodecError::Device("a pack has moved".to_owned());
            let segments = (0..self.segments()).map(|index| self.encoded(level, index)).collect::<Result<Vec<_>, _>>();
            let segments = segments.map_err(moved)?;
            let schemes =
                segments.iter().map(|s| scheme_of(s)).collect::<Result<Vec<_>, _>>().map_err(|_| None::<CodecError>)?;
            Ok((segments, schemes.iter().map(|s| s.bases()).max().unwrap_or(0)))
        };
        // A device's segments are those of one level.
        let joins = |_: &[Vec<u8>]| false;
        let decode = |_, segments: Vec<Vec<u8>>, bases: [Option<&Box<dyn Held>>; 2]| {
            let [base, grandparent] = bases.map(|held| held.map(|h| h.span()));
            let len = usize::try_from(self.len).map_err(|_| CodecError::BadInput("too long"))?;
            let stored = EncodedTensor { dtype: self.header().dtype, len, segments: &segments, base, grandparent };
            device.decode(stored).map_err(|e| Some(e).filter(|e| matches!(e, CodecError::Device(_))))
        };
        self.decode_levels::<_, Box<dyn Held>, _>([Some(0), also], read, joins, (decode, drop))
    }

    fn is_sound(&self, device: &dyn Device, level: usize, span: Span) -> Result<bool, CodecError> {
        let level = &self.levels[level];
        let head = tensor_head(level.header.dtype, &level.header.shape);
        let hash = device.hash(Kind::Tensor.context(), &[(head, span)])?;
        Ok(hash.first().is_some_and(|h| Id::from_bytes(*h) == level.at.record.id))
    }
}
