//! Batched encoding of many segments by the CPU engine's rules: samples go to the host, which decides; the passes run
//! on the device.

use crate::{
    Encode, Result, Session, View,
    copy::{gather, gather_lists},
    schemes,
};
use mdl_codec::{
    Bases, CpuEngine, Encoded, Scheme,
    engine_internals::{
        Choice, PlanesPlan, choose_by, lattice::elements, lattice_wins, number_size, pays, sample_ranges,
        wants_without_grand, with_or_without_grand, zstd_ranges,
    },
    quant::lattice::Hint,
};
use rayon::prelude::*;
use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

/// A segment, and the lattice it is thought to lie on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub segment: Encode<'a>,
    pub hint: Option<&'a Hint>,
}

/// The encoding of a segment; none where no encoding is shorter than the bytes.
type Outcome = Option<Encoded>;

/// Encodes segments, none of them empty, as [`mdl_codec::Engine::encode`] does each.
pub(crate) fn encode(session: &Session, cpu: &CpuEngine, jobs: &[Job<'_>]) -> Result<Vec<Encoded>> {
    let all = best(session, cpu, jobs)?;
    let mut done = finish(session, jobs, all)?;
    let short = |(i, j): (usize, &Job<'_>)| wants_without_grand(j.segment.raw.len(), done[i].scheme).then_some(i);
    let again: Vec<usize> = jobs.iter().enumerate().filter_map(short).collect();
    let without = |&i: &usize| Job { segment: Encode { grandparent: None, ..jobs[i].segment }, ..jobs[i] };
    let without: Vec<Job<'_>> = again.iter().map(without).collect();
    let rest = finish(session, &without, best(session, cpu, &without)?)?;
    for (i, without) in again.into_iter().zip(rest) {
        let with = std::mem::replace(&mut done[i], Encoded { bytes: Vec::new(), scheme: Scheme::Stored });
        done[i] = with_or_without_grand(with, without);
    }
    Ok(done)
}

/// The encodings; the bytes of segments that are stored as they are come now.
fn finish(session: &Session, jobs: &[Job<'_>], all: Vec<Outcome>) -> Result<Vec<Encoded>> {
    let stored = jobs.iter().zip(&all).filter(|(_, o)| o.is_none());
    let views: Vec<View<'_>> = stored.map(|(j, _)| j.segment.raw).collect();
    let mut raw = gather(session, &views)?.into_iter();
    let mut stored = || Encoded {
        bytes: [vec![Scheme::Stored as u8], raw.next().unwrap_or_default()].concat(),
        scheme: Scheme::Stored,
    };
    Ok(all.into_iter().map(|outcome| outcome.unwrap_or_else(&mut stored)).collect())
}

/// The smallest encoding of each with these bases.
fn best(session: &Session, cpu: &CpuEngine, jobs: &[Job<'_>]) -> Result<Vec<Outcome>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let (samples, chosen) = choose(session, jobs)?;
    let hinted: Vec<(usize, (Encode<'_>, &Hint))> =
        jobs.iter().enumerate().filter_map(|(i, j)| Some((i, (j.segment, j.hint?)))).collect();
    let mut lattices: Vec<Option<Encoded>> = vec![None; jobs.len()];
    let mut others = Vec::with_capacity(hinted.len());
    for (i, (segment, hint)) in hinted {
        lattices[i] = moves(session, cpu, segment, hint)?;
        if lattices[i].is_none() {
            others.push((i, (segment, hint)));
        }
    }
    let on = schemes::lattice::encode(session, &others.iter().map(|h| h.1).collect::<Vec<_>>())?;
    for ((i, (segment, hint)), made) in others.iter().zip(on) {
        lattices[*i] = match made {
            None => overlay(session, cpu, *segment, hint)?,
            made => made,
        };
    }
    let settled = |i: &usize| matches!(&lattices[*i], Some(e) if lattice_wins(e.bytes.len(), chosen[*i].1));
    let open: Vec<usize> = (0..jobs.len()).filter(|i| !settled(i)).collect();
    let mut plain: Vec<Option<Outcome>> = jobs.iter().map(|_| None).collect();
    let made = as_chosen(session, cpu, jobs, &open, &chosen, samples)?;
    open.into_iter().zip(made).for_each(|(i, made)| plain[i] = Some(made));
    let all = lattices.into_iter().zip(plain).zip(jobs);
    Ok(all.map(|((lattice, plain), job)| smaller(lattice, plain, job)).collect())
}

/// What is kept of an encoding on the lattice and, where that did not settle it, the one that the estimate chose.
fn smaller(lattice: Option<Encoded>, plain: Option<Outcome>, job: &Job<'_>) -> Outcome {
    let len = |plain: &Outcome| plain.as_ref().map_or(job.segment.raw.len() + 1, |e| e.bytes.len());
    match (lattice, plain) {
        (Some(lattice), None) => shorter(lattice, job),
        (Some(lattice), Some(plain)) if lattice.bytes.len() <= len(&plain) => Some(lattice),
        (_, plain) => plain.flatten(),
    }
}

fn shorter(encoded: Encoded, job: &Job<'_>) -> Outcome {
    Some(encoded).filter(|e| pays(e.bytes.len(), job.segment.raw.len()))
}

type Chosen = Vec<(Choice, u64)>;

/// What the estimate says of each, and the samples it says it from.
fn choose(session: &Session, jobs: &[Job<'_>]) -> Result<(Vec<Vec<u8>>, Chosen)> {
    let ranges = |j: &Job<'_>| sample_ranges(j.segment.raw.len(), number_size(j.segment.dtype));
    let mut lists: Vec<Vec<View<'_>>> = jobs.iter().map(|j| parts(j.segment.raw, &ranges(j))).collect();
    lists.extend(jobs.iter().map(|j| j.segment.base.map_or_else(Vec::new, |b| parts(b, &ranges(j)))));
    let mut samples = gather_lists(session, &lists)?;
    let bases = samples.split_off(jobs.len());
    let ask = |i: usize, pieces: &dyn Fn() -> Vec<u8>| {
        let Job { segment, .. } = &jobs[i];
        let base = segment.base.map(|_| bases[i].as_slice());
        choose_by(segment.dtype, segment.raw.len(), &samples[i], base, pieces)
    };
    let first: Vec<((Choice, u64), bool)> = (0..jobs.len())
        .into_par_iter()
        .map(|i| {
            let asked = AtomicBool::new(false);
            let chosen = ask(i, &|| {
                asked.store(true, Ordering::Relaxed);
                Vec::new()
            });
            (chosen, asked.into_inner())
        })
        .collect();
    // zstd is asked about few segments: only theirs come to the host.
    let curious: Vec<usize> = (0..jobs.len()).filter(|&i| first[i].1).collect();
    let wanted = |&i: &usize| {
        let Encode { raw, dtype, .. } = jobs[i].segment;
        parts(raw, &zstd_ranges(raw.len(), number_size(dtype)))
    };
    let pieces = gather_lists(session, &curious.iter().map(wanted).collect::<Vec<_>>())?;
    let mut chosen: Chosen = first.into_iter().map(|f| f.0).collect();
    let second: Chosen = curious.par_iter().zip(&pieces).map(|(&i, p)| ask(i, &|| p.clone())).collect();
    curious.iter().zip(second).for_each(|(&i, c)| chosen[i] = c);
    Ok((samples, chosen))
}

/// The plan of each segment that the estimate has coded as planes, without a base; none of the others.
pub(crate) fn plans(session: &Session, segments: &[Encode<'_>]) -> Result<Vec<Option<PlanesPlan>>> {
    let jobs: Vec<Job<'_>> = segments.iter().map(|&segment| Job { segment, hint: None }).collect();
    let plan = |(choice, _): (Choice, u64)| match choice {
        Choice::Planes(plan) => Some(plan),
        _ => None,
    };
    Ok(choose(session, &jobs)?.1.into_iter().map(plan).collect())
}

fn parts<'a>(of: View<'a>, ranges: &[Range<usize>]) -> Vec<View<'a>> {
    ranges.iter().map(|r| of.part(r.clone())).collect()
}

/// Encodes the segments `open` as the estimate chose.
fn as_chosen(
    session: &Session,
    cpu: &CpuEngine,
    jobs: &[Job<'_>],
    open: &[usize],
    chosen: &Chosen,
    mut samples: Vec<Vec<u8>>,
) -> Result<Vec<Outcome>> {
    let (mut planes, mut deltas, mut sparse, mut palettes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut made: Vec<Option<Encoded>> = vec![None; jobs.len()];
    let of = |scheme| move |bytes| Encoded { bytes, scheme };
    for &i in open {
        let segment = jobs[i].segment;
        match chosen[i].0 {
            Choice::Delta if segment.base.is_some() => deltas.push((i, segment)),
            Choice::Sparse if segment.base.is_some() => sparse.push((i, segment)),
            Choice::Planes(plan) => planes.push((i, (segment, plan))),
            Choice::Palette => palettes.push((i, (segment, std::mem::take(&mut samples[i])))),
            _ => {}
        }
    }
    let (places, list): (Vec<_>, Vec<_>) = planes.into_iter().unzip();
    let done = schemes::planes::encode(session, &list)?;
    places.into_iter().zip(done).for_each(|(i, bytes)| made[i] = bytes.map(of(Scheme::Planes)));
    let (places, list): (Vec<_>, Vec<_>) = deltas.into_iter().unzip();
    let done = schemes::delta::encode(session, &list)?;
    places.into_iter().zip(done).for_each(|(i, bytes)| made[i] = Some(of(Scheme::Delta)(bytes)));
    let (places, list): (Vec<_>, Vec<_>) = sparse.into_iter().unzip();
    let done = schemes::sparse::encode(session, &list)?;
    places.into_iter().zip(done).for_each(|(i, bytes)| made[i] = bytes.map(of(Scheme::Sparse)));
    let (places, list): (Vec<_>, Vec<_>) = palettes.into_iter().unzip();
    let done = schemes::palette::encode(session, &list)?;
    places.into_iter().zip(done).for_each(|(i, done)| made[i] = done);
    let one = |&i: &usize| match made[i].take() {
        Some(encoded) => Ok(shorter(encoded, &jobs[i])),
        None => on_host(session, cpu, jobs[i].segment, chosen[i].0),
    };
    open.iter().map(one).collect()
}

/// Segments that no pass on the device encodes: zstd, and the odd case that a scheme's module passes on.
fn on_host(session: &Session, cpu: &CpuEngine, segment: Encode<'_>, choice: Choice) -> Result<Outcome> {
    with_bytes(session, segment, |raw, bases| {
        let made = cpu.encode_chosen(choice, segment.dtype, raw, bases);
        // Lengths were checked before: what may fail is that zstd refuses.
        made.ok().filter(|e| e.scheme != Scheme::Stored)
    })
}

/// A segment whose base is on its lattice: the host encodes it, if it is.
fn moves(session: &Session, cpu: &CpuEngine, segment: Encode<'_>, hint: &Hint) -> Result<Outcome> {
    let lengths = [segment.base, segment.grandparent].map(|b| b.map(|b| b.len()));
    if segment.base.is_none() || elements(hint, segment.dtype, segment.raw.len(), lengths).is_err() {
        return Ok(None);
    }
    with_bytes(session, segment, |raw, bases| {
        let (scheme, bytes) = cpu.encode_moves(hint, segment.dtype, raw, bases.base?)?;
        Some(Encoded { bytes, scheme })
    })
}

/// A segment that is not on its lattice: the host looks whether some of its rows are.
fn overlay(session: &Session, cpu: &CpuEngine, segment: Encode<'_>, hint: &Hint) -> Result<Outcome> {
    let lengths = [segment.base, segment.grandparent].map(|b| b.map(|b| b.len()));
    if elements(hint, segment.dtype, segment.raw.len(), lengths).is_err() {
        return Ok(None);
    }
    with_bytes(session, segment, |raw, bases| {
        let (scheme, bytes) = cpu.encode_overlay(hint, segment.dtype, raw, bases)?;
        Some(Encoded { bytes, scheme })
    })
}

/// What `work` makes of a segment and its bases on the host.
fn with_bytes<T>(session: &Session, segment: Encode<'_>, work: impl FnOnce(&[u8], Bases<'_>) -> T) -> Result<T> {
    let Encode { raw, base, grandparent, .. } = segment;
    let views: Vec<View<'_>> = [Some(raw), base, grandparent].into_iter().flatten().collect();
    let bytes = gather(session, &views)?;
    let at = |i: usize| bytes.get(i).map(Vec::as_slice);
    let bases = Bases { base: base.and(at(1)), grandparent: base.and(grandparent).and(at(2)) };
    Ok(work(at(0).unwrap_or_default(), bases))
}
