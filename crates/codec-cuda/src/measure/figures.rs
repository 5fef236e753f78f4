//! Benchmarks of the passes that produce no segment: counting, quantising, comparing, hashing.

use crate::{
    DeviceError, Result, blake3,
    measure::{Bench, News, data},
    quantiser::{deviation, restore, sketch},
    schemes::lattice,
};
use mdl_codec::{
    Dtype,
    quant::{
        Codebook, Config, Cuts, Sketch, Survey,
        lattice::{Lattice, Outcome, Params},
        rest_of,
    },
};

/// Numbers of a row of the tensors that are matrices.
const ROW: usize = 4096;
/// The role that everything here has.
const ROLE: mdl_codec::quant::Role = mdl_codec::quant::Role::Linear;

/// What the default configuration makes of a tensor: thresholds and codebook, from its sketch.
pub(super) fn bins_of(sketch: &Sketch) -> Result<(Cuts, Codebook)> {
    let config = Config::default();
    let mut survey = Survey::default();
    survey.add_sketch(ROLE, sketch);
    let cuts = survey.thresholds(&config)?.cuts(ROLE);
    let book = Codebook::exact(&rest_of(sketch, &cuts), config.bins)?;
    Ok((cuts, book))
}

/// A lattice for an f32 tensor made with this seed: steps of about an eighth of its spread, rows and columns of unlike
/// weight.
pub(super) fn lattice_of(bytes: usize, seed: u64) -> Result<Lattice> {
    let rows = bytes / 4 / ROW;
    let factor = |i: usize| [0x3F80u16, 0x4000, 0x3F00, 0x3F80][i % 4];
    let params = Params {
        step: (16.0 * (data::scale(seed) / 8.0).log2()).round() as i16,
        rows: (0..rows).map(factor).collect(),
        cols: (0..ROW).map(factor).collect(),
        seed: Some(7),
    };
    Ok(Lattice::new(&params, Dtype::F32, &[rows, ROW])?)
}

pub(super) fn all(bench: &mut Bench<'_>) -> Result<()> {
    let bytes = bench.options.bytes;
    copies(bench, bytes)?;
    let session = bench.session()?;
    let f32s = data::there(&session, Dtype::F32, bytes, 1, 0, 0.0)?;
    let half = data::there(&session, Dtype::BF16, bytes, 1, 0, 0.0)?;
    for (name, dtype, view) in
        [("histogram of f32", Dtype::F32, f32s.view()), ("histogram of bf16", Dtype::BF16, half.view())]
    {
        bench.tell(name, [bytes, bytes], None, || sketch::from_values(&session, &[(dtype, view)]).map(drop))?;
    }
    drop(half);

    let weights = (Dtype::F32, f32s.view());
    let out = session.buffer(bytes)?;
    let sketches = sketch::from_values(&session, &[weights])?;
    let (cuts, book) = bins_of(sketches.first().unwrap_or(&Sketch::default()))?;
    bench.tell("quantise pass over f32", [bytes, 2 * bytes], None, || {
        finite(restore::run(&session, weights, None, &cuts, &book, out.view())?)
    })?;
    bench.tell("deviation of f32", [bytes, 2 * bytes], None, || {
        deviation::parts(&session, (Dtype::F32, f32s.view()), out.view()).map(drop)
    })?;
    let on = lattice_of(bytes, 1)?;
    bench.tell("lattice quantise of f32", [bytes, 2 * bytes], None, || {
        finite(lattice::quantise(&session, &on, 0, f32s.view(), out.view())? == Outcome::Quantised)
    })?;
    let content = [(Vec::new(), f32s.view())];
    bench.tell("blake3", [bytes, bytes], None, || blake3::hash_all(&session, "measure", &content).map(drop))
}

/// A tensor that cannot be quantised would be quick to do.
fn finite(quantised: bool) -> Result<()> {
    match quantised {
        true => Ok(()),
        false => Err(DeviceError::Failed("the tensor was not quantised".to_owned())),
    }
}

/// The yardstick as a figure of its own.
fn copies(bench: &mut Bench<'_>, bytes: usize) -> Result<()> {
    let session = bench.session()?;
    let (from, to) = (session.zeroed(bytes)?, session.buffer(bytes)?);
    let copy = || {
        session.copy(from.view(), to.view())?;
        session.wait()
    };
    // Whatever else was asked for: it tells how fast the device is.
    let figure = bench.figure("copy inside the device", bytes, 2 * bytes, copy)?;
    (bench.tell)(News::Figure(figure));
    Ok(())
}
