//! Reconstructions on the shim against the processor's, byte for byte.

use crate::{
    quantiser::{
        restore::*,
        sketch::tests::{DTYPES, finite, tensor},
    },
    testing::{SIZES, session},
};
use mdl_codec::quant::{Values, restore};

fn codebook(bins: usize, spread: f64) -> Codebook {
    let centres: Vec<f64> = (0..bins).map(|i| ((i * 7 % bins) as f64 / bins as f64 - 0.45) * spread).collect();
    Codebook::new(&centres).unwrap()
}

fn cuts(prune: f32, protect: f32) -> Cuts {
    Cuts {
        prune_magnitude: prune,
        prune_sensitivity: prune * 0.01,
        protect_magnitude: protect,
        protect_sensitivity: protect * 0.02,
    }
}

type Owned = (Dtype, Vec<u8>);

/// What both make of it.
fn check(session: &Session, weights: &Owned, gradient: Option<&Owned>, cuts: &Cuts, book: &Codebook, skew: usize) {
    let size = weights.0.size();
    let place = |(dtype, bytes): &Owned| {
        let memory = session.upload(&[vec![0; skew * dtype.size()], bytes.clone()].concat()).unwrap();
        (*dtype, memory, skew * dtype.size()..skew * dtype.size() + bytes.len())
    };
    let (w, g) = (place(weights), gradient.map(place));
    let out = session.upload(&vec![0xEE; weights.1.len() + 2 * size]).unwrap();
    let to = out.view().part(size * skew..size * skew + weights.1.len());
    let view = |(dtype, memory, range): &(Dtype, crate::Buffer<'_>, std::ops::Range<usize>)| {
        (*dtype, View::at(memory.address() + range.start as u64, range.len()))
    };
    let found = run(session, view(&w), g.as_ref().map(view), cuts, book, to);
    let mut wanted = vec![0; weights.1.len()];
    let values = |(dtype, bytes): &'_ Owned| Values::new(*dtype, bytes).map(|v| v.len());
    let said = format!(
        "{:?} of {:?} with {:?}, {cuts:?}, {} bins",
        values(weights),
        weights.0,
        gradient.map(|g| g.0),
        book.len()
    );
    let expected = restore(
        Values::new(weights.0, &weights.1).unwrap(),
        gradient.map(|(dtype, bytes)| Values::new(*dtype, bytes).unwrap()),
        cuts,
        book,
        &mut wanted,
    );
    match (found, expected) {
        (Ok(found), Ok(expected)) => {
            assert_eq!(found, expected, "{said}");
            if expected {
                assert!(session.download(to).unwrap() == wanted, "{said}");
            }
        }
        (Err(_), Err(_)) => {}
        other => panic!("{other:?}: {said}"),
    }
    let all = session.download(out.view()).unwrap();
    let end = size * skew + weights.1.len();
    assert!(all[..size * skew].iter().chain(&all[end..]).all(|b| *b == 0xEE), "{said}");
}

#[test]
fn bytes_of_the_processor_for_every_dtype_and_size() {
    let session = session();
    for n in SIZES {
        for dtype in DTYPES {
            let weights = (dtype, finite(dtype, n, n as u64 + 1));
            let gradient = (Dtype::F32, finite(Dtype::F32, n, 2));
            let (cuts, book) = (cuts(0.002, 0.15), codebook(32, 0.3));
            check(&session, &weights, None, &cuts, &book, n % 2);
            check(&session, &weights, Some(&gradient), &cuts, &book, 0);
        }
    }
}

#[test]
fn codebooks_cuts_and_gradients_of_all_kinds() {
    let session = session();
    let numbers = [f32::NAN, f32::INFINITY, -1.0, 0.0, 1e-40, 0.01, 3.0];
    for dtype in DTYPES {
        let weights = (dtype, finite(dtype, 3001, 5));
        for (i, kind) in DTYPES.into_iter().enumerate() {
            let gradient = (kind, tensor(kind, 3001, 6, i % 2 == 0));
            for (j, (bins, spread)) in [(0, 1.0), (1, 1.0), (16, 1e-3), (256, 0.5), (256, 1e38)].into_iter().enumerate()
            {
                let some = Cuts {
                    prune_magnitude: numbers[(i + 3 * j) % 7],
                    prune_sensitivity: numbers[(i + 5 * j + 2) % 7],
                    protect_magnitude: numbers[(i * 2 + j) % 7],
                    protect_sensitivity: numbers[(i * 3 + j + 1) % 7],
                };
                let book = codebook(bins, spread);
                for cuts in [some, cuts(0.01, 0.1), Cuts::NONE] {
                    check(&session, &weights, Some(&gradient), &cuts, &book, 1);
                    if i == 0 {
                        check(&session, &weights, None, &cuts, &book, 1);
                    }
                }
            }
        }
    }
}

#[test]
fn every_key_and_every_f16() {
    let session = session();
    let all: Vec<u8> = (0..=u16::MAX).flat_map(|key| key.to_le_bytes()).collect();
    let wide: Vec<u8> =
        (0..=u16::MAX).flat_map(|key| (u32::from(key) << 16 | 0x8000 | u32::from(key)).to_le_bytes()).collect();
    let drop = |bytes: &[u8], size: usize, infinity: u16| -> Vec<u8> {
        let key = |e: &[u8]| u16::from_le_bytes([e[size - 2], e[size - 1]]);
        bytes.chunks_exact(size).filter(|e| key(e) & infinity != infinity).flatten().copied().collect()
    };
    let inputs = [
        (Dtype::BF16, drop(&all, 2, 0x7F80)),
        (Dtype::F16, drop(&all, 2, 0x7C00)),
        (Dtype::F32, drop(&wide, 4, 0x7F80)),
    ];
    for weights in inputs.iter().chain([&(Dtype::F16, all.clone()), &(Dtype::F32, wide.clone())]) {
        let (books, protect) = ([codebook(256, 10.0), codebook(200, 1e38), codebook(7, 1e-5)], cuts(1e-6, 1e-3));
        for book in &books {
            check(&session, weights, None, &protect, book, 0);
            check(&session, weights, None, &Cuts::NONE, book, 0);
        }
    }
}

#[test]
fn many_at_once_some_of_them_lossless() {
    let session = session();
    let (cuts, book) = ([cuts(0.01, 0.2), Cuts::NONE], [codebook(8, 0.2), codebook(255, 0.4)]);
    let inputs: Vec<Owned> = DTYPES
        .into_iter()
        .flat_map(|d| [(d, finite(d, 9000, 1)), (d, tensor(d, 50, 2, true)), (d, finite(d, 123, 3))])
        .collect();
    let gradient = finite(Dtype::BF16, 9000, 4);
    let gradient = session.upload(&gradient).unwrap();
    let memory: Vec<_> = inputs.iter().map(|(_, bytes)| session.upload(bytes).unwrap()).collect();
    // In place.
    let jobs: Vec<Job<'_>> = inputs
        .iter()
        .zip(&memory)
        .enumerate()
        .map(|(i, ((dtype, bytes), m))| Job {
            weights: (*dtype, m.view()),
            gradient: (i % 4 == 0).then(|| (Dtype::BF16, gradient.view().part(0..bytes.len() / dtype.size() * 2))),
            cuts: &cuts[i % 2],
            codebook: &book[i / 2 % 2],
            out: m.view(),
        })
        .collect();
    let before = session.download(gradient.view()).unwrap();
    let found = run_all(&session, &jobs).unwrap();
    assert!(found.contains(&false) && found.contains(&true));
    for ((job, (dtype, bytes)), found) in jobs.iter().zip(&inputs).zip(found) {
        let mut wanted = vec![0; bytes.len()];
        let gradient = job.gradient.map(|(_, g)| Values::new(Dtype::BF16, &before[..g.len()]).unwrap());
        let held = restore(Values::new(*dtype, bytes).unwrap(), gradient, job.cuts, job.codebook, &mut wanted).unwrap();
        assert_eq!(found, held);
        assert!(!held || session.download(job.out).unwrap() == wanted);
    }
    let short = Job { out: jobs[0].out.part(0..8), ..jobs[0] };
    assert!(run_all(&session, &[short]).is_err() && run_all(&session, &[]).unwrap().is_empty());
}
