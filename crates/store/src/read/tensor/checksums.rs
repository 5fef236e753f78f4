//! Verifies what a tensor is stored as before parts of it are read.

use super::TensorReader;
use crate::Result;

impl TensorReader<'_> {
    /// Makes sure, once in a process, that what the tensor is stored as is what was written: to be asked before parts
    /// are used.
    pub(crate) fn check_stored(&self) -> Result<()> {
        self.wherever(|reader| reader.levels.iter().try_for_each(|l| self.odb.check_payload(&l.at)))
    }
}
