//! Lattice encoder: reconstructions to segments.

use crate::{
    Encode, Kernel, Result, Session, View, copy,
    layout::Load,
    schemes::{
        lattice::{Coded, GROUP, Lines, Subject, THREADS, columns, look},
        rans,
    },
};
use mdl_codec::{
    Encoded, Scheme,
    engine_internals::lattice::{Head, elements},
    quant::lattice::Hint,
};
use rayon::prelude::*;

const CONTEXTS: Kernel = Kernel::new("lattice", "lattice_contexts");
const LOW: Kernel = Kernel::new("lattice", "lattice_low");
/// Segments at a time: their blocks are rows of a grid.
const JOBS: usize = 2048;

/// Encodes segments on the lattices of their hints, with the bases where that pays: what `CpuEngine::encode_as`
/// gives for a lattice. None where the values are not on the lattice, or the CPU would refuse for another reason.
pub(crate) fn encode(session: &Session, jobs: &[(Encode<'_>, &Hint)]) -> Result<Vec<Option<Encoded>>> {
    let mut out = Vec::with_capacity(jobs.len());
    for jobs in jobs.chunks(JOBS) {
        out.extend(batch(session, jobs)?);
    }
    Ok(out)
}

/// A segment that is on its lattice, as it will be encoded.
struct Chosen<'a> {
    job: usize,
    scheme: Scheme,
    coded: Coded<'a>,
    head: Head,
    /// Of `RansSymbol`.
    table: Vec<u64>,
}

fn batch(session: &Session, jobs: &[(Encode<'_>, &Hint)]) -> Result<Vec<Option<Encoded>>> {
    let subjects: Vec<Subject<'_>> = jobs
        .iter()
        .enumerate()
        .filter_map(|(i, (job, hint))| {
            let lengths = [job.base, job.grandparent].map(|r| r.map(|r| r.len()));
            let n = elements(hint, job.dtype, job.raw.len(), lengths).ok()?;
            Some(Subject { job: i, hint, n, raw: job.raw, bases: [job.base, job.base.and(job.grandparent)] })
        })
        .collect();
    let with = look(session, &subjects)?;
    let poor: Vec<Subject<'_>> = subjects
        .iter()
        .zip(&with)
        .filter(|(s, c)| s.bases[0].is_some() && c.as_ref().is_some_and(|c| c.plan.is_poor(s.n)))
        .map(|(s, _)| Subject { bases: [None; 2], ..*s })
        .collect();
    let alone = look(session, &poor)?;
    let mut alone_of: Vec<Option<Coded<'_>>> = jobs.iter().map(|_| None).collect();
    for (s, c) in poor.iter().zip(alone) {
        alone_of[s.job] = c;
    }
    let mut chosen = Vec::with_capacity(subjects.len());
    for (s, coded) in subjects.iter().zip(with) {
        let Some(coded) = coded else { continue };
        let scheme = match s.bases {
            [_, Some(_)] => Scheme::LatticeDelta2,
            [Some(_), _] => Scheme::LatticeDelta,
            _ => Scheme::Lattice,
        };
        chosen.push(match alone_of[s.job].take() {
            Some(alone) if coded.plan.is_beaten_by(&alone.plan) => (s, Scheme::Lattice, alone),
            _ => (s, scheme, coded),
        });
    }
    let plans: Vec<_> = chosen.iter().map(|(s, scheme, coded)| (&coded.plan, *scheme, s.hint, s.n)).collect();
    let heads = plans
        .into_par_iter()
        .map(|(plan, scheme, hint, n)| {
            let head = plan.head(scheme, hint, n)?;
            let table = head.table.words();
            Ok((head, table))
        })
        .collect::<Result<Vec<_>>>()?;
    let mut chosen: Vec<Chosen<'_>> = chosen
        .into_iter()
        .zip(heads)
        .map(|((s, scheme, coded), (head, table))| Chosen { job: s.job, scheme, coded, head, table })
        .collect();
    let mut blocks = write(session, &mut chosen)?.into_iter();
    let parts: Vec<_> = chosen
        .into_iter()
        .map(|c| {
            let blocks: Vec<[Vec<u8>; 2]> = blocks.by_ref().take(c.coded.blocks()).collect();
            (c.job, c.scheme, c.head, blocks)
        })
        .collect();
    let done: Vec<_> = parts
        .into_par_iter()
        .map(|(job, scheme, head, blocks)| (job, Encoded { bytes: head.finish(&blocks), scheme }))
        .collect();
    let mut out: Vec<Option<Encoded>> = jobs.iter().map(|_| None).collect();
    for (job, segment) in done {
        out[job] = Some(segment);
    }
    Ok(out)
}

/// The stream and the raw bits of each block of each segment.
fn write(session: &Session, chosen: &mut [Chosen<'_>]) -> Result<Vec<[Vec<u8>; 2]>> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let (mut load, mut low) = (Load::default(), Lines::default());
    let places: Vec<[u64; 4]> = chosen
        .iter()
        .map(|c| {
            // Words of raw bits before each block.
            let mut words = 0u32;
            let mut before = Vec::with_capacity(c.coded.bits.len());
            for bits in &c.coded.bits {
                before.push(words);
                words += bits.div_ceil(32);
            }
            [
                load.put(c.head.map.iter().copied()),
                load.put(before.iter().flat_map(|w| w.to_le_bytes())),
                load.put_words(&c.table),
                low.take(4 * words as usize) as u64,
            ]
        })
        .collect();
    let load = load.send(session)?;
    let low = session.zeroed(low.len().max(16))?;
    let (mut list, mut longest, mut wide) = (Vec::new(), 0, false);
    for (c, [map, before, _, at]) in chosen.iter_mut().zip(&places) {
        c.coded.place(load.address() + map, load.address() + before, low.address() + at);
        list.extend(c.coded.words());
        longest = longest.max(c.coded.n);
        wide |= c.coded.bits.iter().any(|&b| b > 0);
    }
    let list = session.upload_u64(&list)?;
    let rows = chosen.len() as u32;
    let contexts = (columns(longest, THREADS as usize * 16, rows), rows);
    session.launch(CONTEXTS, contexts, THREADS, &[list.arg()])?;
    if wide {
        let warps = THREADS as usize / 32;
        session.launch(LOW, (columns(longest, warps * 32 * GROUP, rows), rows), THREADS, &[list.arg()])?;
    }
    let mut streams = Vec::new();
    for (c, [_, _, table, _]) in chosen.iter().zip(&places) {
        let table = load.view().part(*table as usize..*table as usize + 8 * c.table.len());
        streams.extend(c.coded.parts().map(|part| rans::Encode { parts: vec![part], table, lanes: 1 << c.head.lanes }));
    }
    let made = rans::encode(session, &streams)?;
    let mut pieces: Vec<View<'_>> = Vec::with_capacity(2 * streams.len());
    let mut i = 0;
    for (c, [.., at]) in chosen.iter().zip(&places) {
        let mut words = *at as usize;
        for &bits in &c.coded.bits {
            pieces.push(made.get(i));
            pieces.push(low.view().part(words..words + bits.div_ceil(8) as usize));
            words += 4 * bits.div_ceil(32) as usize;
            i += 1;
        }
    }
    let mut all = copy::gather(session, &pieces)?.into_iter();
    let mut out = Vec::with_capacity(i);
    while let (Some(stream), Some(low)) = (all.next(), all.next()) {
        out.push([stream, low]);
    }
    Ok(out)
}
