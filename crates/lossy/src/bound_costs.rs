//! What each bound costs: the bytes that the chosen candidate would take less without it.

use crate::{
    bounds::Bounds,
    make::{Choice, Keep, Maker, Setting},
};
use mdl_store::Result;

/// What a bound costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundCost {
    /// Its name in a policy.
    pub bound: &'static str,
    /// Bytes that the chosen candidate takes for it: without it the same steps or bins take so many less.
    pub bytes: i64,
}

impl Setting<'_> {
    /// Makes the chosen candidate again, each time without one of the bounds. Nothing is measured: whether the gate
    /// would still let it through is not known.
    pub(super) fn bound_costs(&self, choice: Option<&Choice>) -> Result<Vec<BoundCost>> {
        let Some(choice) = choice else { return Ok(Vec::new()) };
        let all = self.policy.bounds;
        let without = [
            ("weight", all.weight, Bounds { weight: f64::INFINITY, ..all }),
            ("update", all.update, Bounds { update: f64::INFINITY, ..all }),
            ("first", all.first, Bounds { first: f64::INFINITY, ..all }),
        ];
        let bytes = |bounds| Ok(Maker { bounds, ..self.maker(0) }.make(choice, Keep::Nowhere)?.bytes as i64);
        let with = bytes(all)?;
        let finite = without.into_iter().filter(|(_, bound, _)| bound.is_finite());
        finite.map(|(bound, _, rest)| Ok(BoundCost { bound, bytes: with - bytes(rest)? })).collect()
    }
}
