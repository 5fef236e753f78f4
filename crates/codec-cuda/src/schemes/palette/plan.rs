//! Palette plans: from counts to contexts and tables, by the codec's own rules.

use crate::schemes::palette::{Segment, Summary};
use mdl_codec::engine_internals::palette::{FamilyPlan, Head, PalettePlan};
use rayon::prelude::*;

/// The header of every segment, by its counts.
pub(super) fn heads(segments: &[Segment<'_>], counts: Vec<[Vec<u32>; 2]>, strays: &[Summary]) -> Vec<Head> {
    let jobs = segments.par_iter().zip(counts).zip(strays);
    jobs.map(|((s, counts), strays)| head(s, counts, strays)).collect()
}

fn head(s: &Segment<'_>, [near, far]: [Vec<u32>; 2], strays: &Summary) -> Head {
    let near = if near.is_empty() { by_place(s, &far) } else { near };
    let plan = PalettePlan::of_counts(&s.table, &near, s.base.is_some());
    if s.grandparent.is_some() {
        let family = FamilyPlan::of_counts(&s.table, far, strays.classes, strays.low);
        if plan.loses_to(&family, &s.table, s.n(), strays.count, strays.zero) {
            return family.head(&s.table, s.n(), strays.zero);
        }
    }
    plan.head(&s.table, strays.zero)
}

/// Counts by place from those by raw context, where its first axis has a step for each place.
fn by_place(s: &Segment<'_>, far: &[u32]) -> Vec<u32> {
    let ([places, moves, kinds], width) = (s.table.axes(), s.table.values.len() + 1);
    let mut near = vec![0; places * width];
    for (to, from) in near.chunks_exact_mut(width).zip(far.chunks_exact(moves * kinds * width)) {
        for row in from.chunks_exact(width) {
            to.iter_mut().zip(row).for_each(|(a, b)| *a += b);
        }
    }
    near
}
