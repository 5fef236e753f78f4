//! Finds a system's smallest encoding within an error bound.

use crate::{
    compare::{Checkpoint, Measured, measure},
    systems::{State, ladder, system},
};
use mdl_store::{RepoError, Result};

/// The system at its coarsest level whose relative L2 error is at most `most`; `None` where not even the finest is. The
/// ladder is searched by halving, errors taken to fall along it; the level that is returned was measured.
pub fn at_error(
    text: &str,
    checkpoint: &Checkpoint,
    before: Option<(&Checkpoint, &State)>,
    most: f64,
) -> Result<Option<Measured>> {
    let usage = |message| RepoError::Usage { message, hint: "the comparison's help lists systems and settings".into() };
    let levels = ladder(text).map_err(usage)?;
    let (mut low, mut high, mut best) = (0, levels.len(), None);
    while low < high {
        let middle = (low + high) / 2;
        let found = measure(&system(&levels[middle]).map_err(usage)?, checkpoint, before)?;
        if found.relative_error <= most {
            best = Some(found);
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(best)
}
