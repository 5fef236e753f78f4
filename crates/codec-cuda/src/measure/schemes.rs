//! Benchmarks of the schemes: tensors to encodings and back.

use crate::{
    Decode, DeviceError, Encode, Job, Result, Session, View, batch,
    engine::CudaEngine,
    measure::{Bench, data, figures, same},
    quantiser::{restore, sketch},
    resident::segments,
    schemes,
    schemes::lattice,
};
use mdl_codec::{
    CpuEngine, Device, Dtype, Encoded, EncodedTensor, Held, Resident, Scheme,
    quant::lattice::{Hint, Lattice},
};
use std::{ops::Range, sync::Arc};

/// How far a step moves lossless weights, and quantised ones (which are committed less often), in parts of their
/// spread.
const STEP: f64 = 1e-3;
const MOVE: f64 = 0.02;
/// Tensors of an engine's call are so many times longer: it cuts them into pieces that it works on side by side.
const ENGINE: usize = 4;

/// A tensor and its bases.
#[derive(Clone, Copy)]
struct Subject<'a> {
    /// For people.
    name: &'a str,
    dtype: Dtype,
    scheme: Scheme,
    /// The tensor, its base, the base's base.
    views: [Option<View<'a>>; 3],
    lattice: Option<&'a Arc<Lattice>>,
}

pub(super) fn all(bench: &mut Bench<'_>) -> Result<()> {
    lossless(bench)?;
    bins(bench)?;
    lattices(bench)?;
    engine(bench)
}

fn lossless(bench: &mut Bench<'_>) -> Result<()> {
    let bytes = bench.options.bytes;
    for (name, delta, dtype) in [("bf16", "bf16, delta", Dtype::BF16), ("f32", "f32, delta", Dtype::F32)] {
        let session = bench.session()?;
        let raw = data::there(&session, dtype, bytes, 1, 1, STEP)?;
        let base = data::there(&session, dtype, bytes, 1, 0, STEP)?;
        let alone =
            Subject { name, dtype, scheme: Scheme::Planes, views: [Some(raw.view()), None, None], lattice: None };
        measure(bench, &session, alone)?;
        let against =
            Subject { name: delta, scheme: Scheme::Delta, views: [Some(raw.view()), Some(base.view()), None], ..alone };
        measure(bench, &session, against)?;
    }
    Ok(())
}

fn bins(bench: &mut Bench<'_>) -> Result<()> {
    let names = ["bins", "bins, delta", "bins, delta 2"];
    if !bench.wants(&names) {
        return Ok(());
    }
    let bytes = bench.options.bytes;
    let session = bench.session()?;
    let quantised = |steps| {
        let raw = data::there(&session, Dtype::F32, bytes, 1, steps, MOVE)?;
        let weights = (Dtype::F32, raw.view());
        let sketches = sketch::from_values(&session, &[weights])?;
        let [sketch] = sketches.as_slice() else {
            return Err(DeviceError::Failed("no sketch".to_owned()));
        };
        let (cuts, book) = figures::bins_of(sketch)?;
        restore::run(&session, weights, None, &cuts, &book, raw.view())?;
        Ok(raw)
    };
    let versions = [quantised(2)?, quantised(1)?, quantised(0)?];
    let schemes = [Scheme::Palette, Scheme::PaletteDelta, Scheme::PaletteDelta2];
    for (bases, (name, scheme)) in names.into_iter().zip(schemes).enumerate() {
        let subject = Subject {
            name,
            dtype: Dtype::F32,
            scheme,
            views: [0, 1, 2].map(|i| (i <= bases).then(|| versions[i].view())),
            lattice: None,
        };
        measure(bench, &session, subject)?;
    }
    Ok(())
}

fn lattices(bench: &mut Bench<'_>) -> Result<()> {
    let names = ["lattice", "lattice, delta"];
    if !bench.wants(&names) {
        return Ok(());
    }
    let bytes = bench.options.bytes;
    let session = bench.session()?;
    // The base on another lattice: against one on the same the host writes moves.
    let [before, on] = [figures::lattice_of(bytes, 2)?, figures::lattice_of(bytes, 1)?].map(Arc::new);
    let quantised = |on: &Lattice, steps| {
        let raw = data::there(&session, Dtype::F32, bytes, 1, steps, MOVE)?;
        lattice::quantise(&session, on, 0, raw.view(), raw.view())?;
        Ok::<_, DeviceError>(raw)
    };
    let versions = [quantised(&on, 1)?, quantised(&before, 0)?];
    for (bases, (name, scheme)) in names.into_iter().zip([Scheme::Lattice, Scheme::LatticeDelta]).enumerate() {
        let subject = Subject {
            name,
            dtype: Dtype::F32,
            scheme,
            views: [Some(versions[0].view()), (bases > 0).then(|| versions[1].view()), None],
            lattice: Some(&on),
        };
        measure(bench, &session, subject)?;
    }
    Ok(())
}

/// Encodes all segments of a tensor in one call, and decodes them in one.
fn measure(bench: &mut Bench<'_>, session: &Session, subject: Subject<'_>) -> Result<()> {
    let names = [format!("{}, encode", subject.name), format!("{}, decode", subject.name)];
    let [Some(raw), base, grandparent] = subject.views else {
        return Ok(());
    };
    if !bench.wants(&[&names[0], &names[1]]) {
        return Ok(());
    }
    let cpu = CpuEngine::new();
    let hint = |r: &Range<usize>| Some(Hint::new(subject.lattice?.clone(), r.start / subject.dtype.size()));
    let hints: Vec<Option<Hint>> = segments(raw.len()).map(|r| hint(&r)).collect();
    let parts = segments(raw.len()).map(|r| Encode {
        dtype: subject.dtype,
        raw: raw.part(r.clone()),
        base: base.map(|b| b.part(r.clone())),
        grandparent: grandparent.map(|g| g.part(r.clone())),
    });
    let parts: Vec<Encode<'_>> = parts.collect();
    let jobs: Vec<Job<'_>> =
        parts.iter().zip(&hints).map(|(&segment, hint)| Job { segment, hint: hint.as_ref() }).collect();
    let encode = || match subject.scheme {
        // A step away, the estimate may find that few numbers moved and take another scheme, which is not the one to
        // measure.
        Scheme::Delta => {
            let all = schemes::delta::encode(session, &parts)?.into_iter();
            Ok(all.map(|bytes| Encoded { bytes, scheme: Scheme::Delta }).collect())
        }
        _ => batch::encode(session, &cpu, &jobs),
    };
    let encoded = encode()?;
    if let Some(other) = encoded.iter().find(|e| e.scheme != subject.scheme) {
        let (name, found) = (subject.name, other.scheme.name());
        return Err(DeviceError::Failed(format!("{name}: the engine chose {found}")));
    }
    let total = encoded.iter().map(|e| e.bytes.len() as u64).sum();
    let one_way = [Some(raw), base, grandparent].iter().flatten().map(|v| v.len()).sum();
    let lengths = [raw.len(), one_way];
    bench.tell(&names[0], lengths, Some(total), || encode().map(drop))?;

    let out = session.zeroed(raw.len())?;
    let jobs: Vec<Decode<'_>> = encoded
        .iter()
        .zip(parts.iter().zip(segments(raw.len())))
        .map(|(encoded, (part, place))| Decode {
            dtype: part.dtype,
            scheme: encoded.scheme,
            body: &encoded.bytes[1..],
            base: part.base,
            grandparent: part.grandparent,
            out: out.view().part(place),
        })
        .collect();
    bench.tell(&names[1], lengths, Some(total), || {
        schemes::decode(session, subject.scheme, &jobs)?;
        session.wait()
    })?;
    schemes::decode(session, subject.scheme, &jobs)?;
    same(session, subject.name, raw, out.view())
}

/// A long tensor through the engine itself, which cuts it into pieces and works on them side by side.
fn engine(bench: &mut Bench<'_>) -> Result<()> {
    let names = ["bf16, engine, encode", "bf16, engine, decode"];
    if !bench.wants(&names) {
        return Ok(());
    }
    let bytes = ENGINE * bench.options.bytes;
    let session = bench.session()?;
    // Not the bench's own engine: that one is lent to the timing code.
    let engine = CudaEngine::new(bench.driver(), bench.engine.ordinal, 0, crate::open::PIECE);
    let room = engine.room(bytes)?;
    let span = room.span();
    data::fill(&session, crate::engine::view_of(span), &data::tensor(Dtype::BF16, bytes / 2, 1, 0, 0.0))?;
    let resident = [Resident { dtype: Dtype::BF16, content: span, base: None, grandparent: None, lattice: None }];
    let encode = || Device::encode(&engine, &resident);
    let segments: Vec<Vec<u8>> = encode()?.into_iter().flatten().map(|e| e.bytes).collect();
    let stored = EncodedTensor { dtype: Dtype::BF16, len: bytes, segments: &segments, base: None, grandparent: None };
    let decode = || Device::decode(&engine, stored);
    let encoded = Some(segments.iter().map(|s| s.len() as u64).sum());
    bench.tell(names[0], [bytes; 2], encoded, || Ok(encode().map(drop)?))?;
    bench.tell(names[1], [bytes; 2], encoded, || Ok(decode().map(drop)?))?;
    let there = decode()?;
    let [raw, out] = [span, there.span()].map(crate::engine::view_of);
    same(&session, names[1], raw, out)
}
