//! The hint of an encoder: on which lattice a segment lies.

use crate::{
    Dtype, Result, Scheme,
    entropy::Cursor,
    quant::lattice::{Lattice, header},
    scheme_of,
    schemes::overlay,
};
use std::sync::Arc;

/// A lattice, and where on it a segment starts.
#[derive(Clone, Debug)]
pub struct Hint {
    pub(super) lattice: Arc<Lattice>,
    pub(super) start: usize,
}

impl Hint {
    /// The segment starts at element `start` of the lattice's tensor.
    #[must_use]
    pub fn new(lattice: Arc<Lattice>, start: usize) -> Hint {
        Hint { lattice, start }
    }

    /// The lattice that an encoded segment of `len` decoded bytes, or most of it, lies on; none if it is stored in
    /// another way.
    ///
    /// # Errors
    /// Bytes that no encoder wrote.
    pub fn from_encoded(dtype: Dtype, encoded: &[u8], len: usize) -> Result<Option<Hint>> {
        match scheme_of(encoded)? {
            Scheme::Lattice | Scheme::LatticeDelta | Scheme::LatticeDelta2 | Scheme::LatticeMoves => {
                let mut cursor = Cursor::new(encoded);
                cursor.u8()?;
                let lattice = header::get(&mut cursor, dtype, len / dtype.size())?.lattice;
                let start = lattice.known.start;
                Ok(Some(Hint::new(Arc::new(lattice), start)))
            }
            scheme if scheme.is_overlay() => {
                let (inner, _) = overlay::inner(&encoded[1..])?;
                Hint::from_encoded(dtype, inner, len)
            }
            _ => Ok(None),
        }
    }
}
