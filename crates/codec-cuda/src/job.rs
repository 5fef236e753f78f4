//! An encoding job: a segment, its bases and its hint.

use crate::{DeviceError, Result, View};
use mdl_codec::{Dtype, Scheme};

/// A segment to be encoded (at most mdl_codec::SEGMENT_BYTES, a whole number of elements, not empty; bases have the
/// same length).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encode<'a> {
    pub dtype: Dtype,
    pub raw: View<'a>,
    pub base: Option<View<'a>>,
    pub grandparent: Option<View<'a>>,
}

/// A segment to be decoded: `body` is what follows the scheme byte, on the host; `out` as long as the decoded segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decode<'a> {
    pub dtype: Dtype,
    pub scheme: Scheme,
    pub body: &'a [u8],
    pub base: Option<View<'a>>,
    pub grandparent: Option<View<'a>>,
    pub out: View<'a>,
}

impl<'a> Decode<'a> {
    /// Base and grandparent, where the scheme needs them.
    ///
    /// # Errors
    /// One is missing, or not as long as the segment.
    pub(crate) fn bases(&self) -> Result<[Option<View<'a>>; 2]> {
        let need = |given: Option<View<'a>>, count| match given {
            _ if self.scheme.bases() < count => Ok(None),
            Some(v) if v.len() == self.out.len() => Ok(Some(v)),
            _ => Err(DeviceError::Failed("a relative is missing or of another length".to_owned())),
        };
        Ok([need(self.base, 1)?, need(self.grandparent, 2)?])
    }
}
