//! From counts to plans, by the codec's own rules. Neighbours: `look` and `strays` counted; `mdl_codec::seams::palette` decides. It must not
//! have rules of its own.

use super::look::Segment;
use super::strays::Strays;
use mdl_codec::seams::palette::{FamilyPlan, Head, Plan};
use rayon::prelude::*;

/// The header of every segment: by counts of symbols by place (or none, where those by raw context tell), and by raw context.
pub(super) fn heads(segments: &[Segment<'_>], counts: Vec<(Vec<u32>, Vec<u32>)>, strays: &Strays<'_>) -> Vec<Head> {
    let jobs: Vec<_> = segments.iter().zip(counts).enumerate().collect();
    let one = |(i, (s, (near, far))): (usize, (&Segment<'_>, (Vec<u32>, Vec<u32>)))| {
        let zero = strays.zero.get(i).copied().unwrap_or_default();
        let near = if near.is_empty() { by_place(s, &far) } else { near };
        let plan = Plan::of_counts(&s.table, &near, s.base.is_some());
        if s.grand.is_none() {
            return plan.head(&s.table, zero);
        }
        let classes = strays.classes.get(i).copied().unwrap_or([0; 256]);
        let family = FamilyPlan::of_counts(&s.table, far, classes, strays.low(i));
        if plan.loses_to(&family, &s.table, s.n(), strays.count(i), zero) {
            family.head(&s.table, s.n(), zero)
        } else {
            plan.head(&s.table, zero)
        }
    };
    jobs.into_par_iter().map(one).collect()
}

/// Counts by place from those by raw context, where its first axis has a step for each place.
fn by_place(s: &Segment<'_>, far: &[u32]) -> Vec<u32> {
    let ([places, moves, kinds], width) = (s.table.axes(), s.table.values().len() + 1);
    let mut near = vec![0; places * width];
    for (to, from) in near
        .chunks_exact_mut(width)
        .zip(far.chunks_exact(moves * kinds * width))
    {
        for row in from.chunks_exact(width) {
            to.iter_mut().zip(row).for_each(|(a, b)| *a += b);
        }
    }
    near
}
