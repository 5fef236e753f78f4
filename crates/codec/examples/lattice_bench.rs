//! Measures the lattice coder on a trajectory of safetensors files of one layout, all f32.
//!
//! `lattice_bench CHILD PARENT [GRAND] --sens A B [--steps J,J,..] [--repeat N] [--tile N]` takes the squared
//! difference of files A and B as sensitivity. For every step (sixteenths of an octave, relative to the tensor's root
//! mean squared difference of A and B) and every way the parents were made (alone; same offsets; other offsets;
//! lossless parents) it prints one JSON line: bits a parameter as written, as the conditional entropy of the same
//! symbols under the unmerged contexts (and their raw bits), share of levels that differ, the part of it that is
//! factors before they are coded, MB/s of f32 (best of N, one thread) for quantise, encode and decode. `--tile` repeats
//! every tensor's rows that often, so that sizes look like those of larger models.

use mdl_codec::{
    Bases, CpuEngine, Dtype, Engine, Scheme,
    quant::lattice::{Hint, Lattice, Outcome, Params},
};
use std::sync::Arc;

mod tensors;
use tensors::{Tensors, best, entropy, load};

fn bytes(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn quantised(l: &Lattice, w: &[u8]) -> Vec<u8> {
    let mut rec = vec![0; w.len()];
    assert_eq!(l.quantise(0, w, &mut rec), Ok(Outcome::Quantised));
    rec
}

/// How the parents were made.
#[derive(Clone, Copy, Debug)]
enum Past {
    Alone,
    SameOffsets,
    OtherOffsets,
    Lossless,
}

fn main() {
    let (mut files, mut sens, mut steps, mut repeat, mut tile) = (vec![], vec![], vec![0i16], 3, 1usize);
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--sens" => sens = args.by_ref().take(2).map(|f| load(&f)).collect(),
            "--steps" => {
                let list = args.next().expect("steps");
                steps = list.split(',').map(|s| s.parse().expect("a step")).collect();
            }
            "--repeat" => repeat = args.next().and_then(|v| v.parse().ok()).expect("a number"),
            "--tile" => tile = args.next().and_then(|v| v.parse().ok()).expect("a number"),
            _ => files.push(load(&a)),
        }
    }
    if files.len() < 2 || sens.len() != 2 {
        return eprintln!(
            "usage: lattice_bench CHILD PARENT [GRAND] --sens A B [--steps J,..] [--repeat N] [--tile N]"
        );
    }
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("a fresh pool");
    for &j in &steps {
        for past in [Past::Alone, Past::SameOffsets, Past::OtherOffsets, Past::Lossless] {
            measure(&files, &sens, j, past, repeat, tile);
        }
    }
}

fn measure(files: &[Tensors], sens: &[Tensors], j: i16, past: Past, repeat: usize, tile: usize) {
    let (mut n, mut moved, mut side, mut coded_bytes, mut ideal) = (0usize, 0usize, 0usize, 0usize, 0f64);
    let mut time = [0f64; 3];
    for (name, (shape, _)) in files[0].iter().filter(|t| t.1.0.len() > 1) {
        let mut shape = shape.clone();
        shape[0] *= tile;
        let of = |t: &Tensors| t.get(name).expect("the same layout").1.repeat(tile);
        let s: Vec<f32> = of(&sens[0]).iter().zip(of(&sens[1])).map(|(a, b)| (a - b) * (a - b)).collect();
        let rms = (s.iter().map(|&v| f64::from(v)).sum::<f64>() / s.len() as f64).sqrt();
        let step = j + (16.0 * rms.max(1e-12).log2()).round() as i16;
        let params = Params::from_sensitivity(step, Some(1), &shape, &s);
        side += 2 * (params.rows.len() + params.cols.len());
        let l = Arc::new(Lattice::new(&params, Dtype::F32, &shape).expect("a lattice"));
        let other = Params { seed: Some(2), ..params };
        let before = Lattice::new(&other, Dtype::F32, &shape).expect("a lattice");
        let make = |t: &Tensors| match past {
            Past::Alone => None,
            Past::SameOffsets => Some(quantised(&l, &bytes(&of(t)))),
            Past::OtherOffsets => Some(quantised(&before, &bytes(&of(t)))),
            Past::Lossless => Some(bytes(&of(t))),
        };
        let (w, parent, grandparent) = (bytes(&of(&files[0])), make(&files[1]), files.get(2).and_then(make));
        let (parent, grandparent) = (parent.as_deref(), grandparent.as_deref());
        let mut rec = vec![0; w.len()];
        time[0] += best(repeat, || assert_eq!(l.quantise(0, &w, &mut rec), Ok(Outcome::Quantised)));
        let mut out = vec![0; w.len()];
        // Segments of 8 MiB, as the store cuts them.
        for at in (0..rec.len()).step_by(8 << 20) {
            let range = at..rec.len().min(at + (8 << 20));
            let cut = |r: Option<&'_ [u8]>| r.map(|r| r[range.clone()].to_vec());
            let (p, g) = (cut(parent), cut(grandparent));
            let (p, g, rec) = (p.as_deref(), g.as_deref(), &rec[range.clone()]);
            let (engine, hint) = (CpuEngine::new(), Hint::new(l.clone(), at / 4));
            let bases = Bases { base: p, grandparent: g };
            let scheme = match (p, g) {
                (Some(_), Some(_)) => Scheme::LatticeDelta2,
                (Some(_), None) => Scheme::LatticeDelta,
                _ => Scheme::Lattice,
            };
            let mut coded = vec![];
            time[1] += best(repeat, || {
                let e = engine.encode_as(scheme, Dtype::F32, rec, bases, Some(&hint));
                coded = e.expect("encodes").bytes;
            });
            let out = &mut out[range.clone()];
            time[2] += best(repeat, || engine.decode(Dtype::F32, &coded, bases, out).expect("decodes"));
            assert!(out == rec, "decoded bytes differ");
            coded_bytes += coded.len();
            let (pairs, low) = l.symbols(at / 4, rec, [p, g]).expect("encodes");
            ideal += entropy(pairs.iter().copied()) + 8.0 * low as f64;
            moved += pairs.iter().filter(|p| p.1 != 0).count();
            n += pairs.len();
        }
    }
    let speed = time.map(|t| 4.0 * n as f64 / 1e6 / t);
    println!(
        "{{\"past\":\"{past:?}\",\"step\":{j},\"parameters\":{n},\"bits\":{:.4},\"entropy\":{:.4},\"moved\":{:.4},\
         \"params_bits\":{:.4},\"quantise_mb_s\":{:.0},\"encode_mb_s\":{:.0},\"decode_mb_s\":{:.0}}}",
        8.0 * coded_bytes as f64 / n as f64,
        ideal / n as f64,
        moved as f64 / n as f64,
        8.0 * side as f64 / n as f64,
        speed[0],
        speed[1],
        speed[2],
    );
}
