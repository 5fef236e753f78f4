//! Scheme "planes": a segment coded without a base. Floats are cut into symbol, raw field and low bytes; anything else
//! into its bytes. Here is the plan that the header states.

mod decode;
mod encode;
mod pieces;

use crate::entropy::Cursor;

use crate::{
    CodecError, Dtype, Result,
    schemes::{Cut, Shape, low},
};

pub use decode::Reader;
pub(crate) use encode::encode;
pub use encode::{Coding, Exceptions, Window, reference, stride};
pub use pieces::Pieces;

/// What the header says besides the planes' coders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanesPlan {
    /// How heads are cut; without it there is no head and every byte of an element is a plane of its own.
    pub cut: Option<Cut>,
    /// Whether low bytes are planes of their own rather than groups with shared trailing zeros.
    pub low_planes: bool,
}

/// Value of the header's `k` that says "no head".
const NO_HEAD: u8 = 255;

impl PlanesPlan {
    /// Every byte a plane.
    pub const BYTES: PlanesPlan = PlanesPlan { cut: None, low_planes: true };

    /// Low bytes of an element of `size` bytes.
    pub fn low(self, size: usize) -> usize {
        self.cut.map_or(size, |c| c.shape.low_bytes())
    }

    /// Whether low bytes come in groups.
    pub fn grouped(self, size: usize) -> bool {
        self.low(size) > 0 && !self.low_planes
    }

    fn put(self, out: &mut Vec<u8>) {
        match self.cut {
            None => out.push(NO_HEAD),
            Some(c) => {
                out.extend_from_slice(&[c.k as u8, u8::from(self.low_planes)]);
                if c.windowed() {
                    out.extend_from_slice(&c.lo.to_le_bytes());
                }
            }
        }
    }

    fn get(cursor: &mut Cursor<'_>, dtype: Dtype) -> Result<Self> {
        let k = cursor.u8()?;
        if k == NO_HEAD {
            return Ok(PlanesPlan::BYTES);
        }
        let shape = Shape::from_dtype(dtype).ok_or(CodecError::Corrupt("heads in a type that has none"))?;
        if k > 8 {
            return Err(CodecError::Corrupt("bad cut"));
        }
        let low_planes = match cursor.u8()? {
            0 => false,
            1 => true,
            _ => return Err(CodecError::Corrupt("bad low mode")),
        };
        let mut cut = Cut { shape, k: k.into(), lo: 1 };
        if cut.windowed() {
            cut.lo = cursor.u16()?;
        }
        if cut.valid() { Ok(PlanesPlan { cut: Some(cut), low_planes }) } else { Err(CodecError::Corrupt("bad cut")) }
    }

    /// Symbols of every plane in a block of `m` elements.
    pub fn plane_sizes(self, size: usize, m: usize) -> Vec<usize> {
        let mut sizes = vec![m; usize::from(self.cut.is_some())];
        if self.grouped(size) {
            sizes.push(m.div_ceil(low::GROUP));
        } else {
            sizes.extend(std::iter::repeat_n(m, self.low(size)));
        }
        sizes
    }
}
