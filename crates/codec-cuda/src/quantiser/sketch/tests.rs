//! Counts on the shim against the processor's sketches.

use crate::{
    quantiser::sketch::*,
    testing::{Noise, SIZES, session},
};
use mdl_codec::quant::{Config, Role, Survey, Values, rest as rest_on_host};

pub(crate) const DTYPES: [Dtype; 4] = [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16];

/// Weights, or with `any` whatever the bits are.
pub(crate) fn tensor(dtype: Dtype, n: usize, seed: u64, any: bool) -> Vec<u8> {
    let mut noise = Noise(seed);
    let mut out = Vec::with_capacity(n * dtype.size());
    for i in 0..n {
        let (x, wild) = (noise.weight(0.1), any || i % 1000 == 7);
        let x = if i % 50 == 3 { 0.0 } else { x };
        let element = match dtype {
            _ if wild => noise.next(),
            Dtype::F64 => (f64::from(x) * 1.000_000_01).to_bits(),
            Dtype::F32 => x.to_bits().into(),
            // Not the nearest f16, but one.
            Dtype::F16 => (((x * 2f32.powi(-112)).to_bits() >> 13 & 0x7FFF) | x.to_bits() >> 16 & 0x8000).into(),
            _ => (x.to_bits() >> 16).into(),
        };
        out.extend(&element.to_le_bytes()[..dtype.size()]);
    }
    out
}

/// As [`tensor`], without NaNs, infinities and what an f32 cannot hold.
pub(crate) fn finite(dtype: Dtype, n: usize, seed: u64) -> Vec<u8> {
    let mut bytes = tensor(dtype, n, seed, false);
    bytes.chunks_exact_mut(dtype.size()).for_each(|e| {
        let top = dtype.size() - 1;
        // Below 2: whatever the exponent was.
        e[top] &= 0xBF;
    });
    bytes
}

#[test]
fn keys_of_every_dtype_and_size() {
    let session = session();
    for n in SIZES {
        for dtype in DTYPES {
            let bytes = tensor(dtype, n, n as u64, false);
            let memory = session.upload(&bytes).unwrap();
            let found = from_values(&session, &[(dtype, memory.view())]).unwrap();
            let wanted = Sketch::from_values(Values::new(dtype, &bytes).unwrap());
            assert_eq!(found, [wanted], "{n} of {dtype:?}");
        }
    }
}

#[test]
fn any_bits_any_alignment_and_many_at_once() {
    let session = session();
    let mut inputs: Vec<(Dtype, Vec<u8>)> = Vec::new();
    for dtype in DTYPES {
        for (n, any) in [(0, false), (1, true), (777, true), (20_001, true), (9000, false)] {
            inputs.push((dtype, tensor(dtype, n, 5, any)));
        }
        // One value, inside and outside of any window; and two far apart.
        for value in [[0x3F, 0x12], [0x7F, 0xFF], [0, 0], [0x80, 0]] {
            let element: Vec<u8> = [vec![0; dtype.size() - 2], vec![value[1], value[0]]].concat();
            inputs.push((dtype, element.repeat(5000)));
        }
        inputs.push((dtype, [tensor(dtype, 9000, 5, false), vec![0x01; 9000 * dtype.size()]].concat()));
    }
    let memory: Vec<_> = inputs
        .iter()
        .map(|(dtype, bytes)| session.upload(&[vec![0; dtype.size()], bytes.clone()].concat()).unwrap())
        .collect();
    let jobs: Vec<Numbers<'_>> = inputs
        .iter()
        .zip(&memory)
        .map(|((dtype, bytes), m)| (*dtype, m.view().part(dtype.size()..dtype.size() + bytes.len())))
        .collect();
    let wanted: Vec<Sketch> =
        inputs.iter().map(|(d, bytes)| Sketch::from_values(Values::new(*d, bytes).unwrap())).collect();
    assert_eq!(from_values(&session, &jobs).unwrap(), wanted);
    assert!(from_values(&session, &[(Dtype::I32, memory[0].view())]).is_err());
    assert!(from_values(&session, &[(Dtype::F32, memory[0].view().part(0..3))]).is_err());
}

#[test]
fn surveys_and_rests_with_gradients() {
    let session = session();
    let mut kept = Vec::new();
    for (i, dtype) in DTYPES.into_iter().enumerate() {
        for (k, gradient) in DTYPES.into_iter().enumerate() {
            let n = [5000, 4099, 33, 70_000][(i + k) % 4];
            kept.push((dtype, finite(dtype, n, 3), gradient, tensor(gradient, n, 4, (i + k) % 3 == 2)));
        }
    }
    let memory: Vec<_> =
        kept.iter().map(|(_, w, _, g)| [session.upload(w).unwrap(), session.upload(g).unwrap()]).collect();
    let pairs: Vec<_> = kept
        .iter()
        .zip(&memory)
        .map(|((dtype, _, gradients, _), [w, g])| ((*dtype, w.view()), (*gradients, g.view())))
        .collect();
    let found = survey(&session, &pairs).unwrap();
    let (mut all, mut counted) = (Survey::default(), Survey::default());
    for ((dtype, w, gradients, g), [weights, sensitivities]) in kept.iter().zip(&found) {
        let (mut here, mut there) = (Survey::default(), Survey::default());
        let (w, g) = (Values::new(*dtype, w).unwrap(), Values::new(*gradients, g).unwrap());
        let verdict = here.add(Role::Linear, w, Some(g)).unwrap();
        assert_eq!(there.add_counted(Role::Linear, weights, sensitivities), verdict);
        assert_eq!(here, there, "{dtype:?} with {gradients:?}");
        all.merge(&here);
        counted.merge(&there);
    }
    let config = Config { prune: 0.3, protect: 0.01, ..Config::default() };
    let by_sensitivity = Config { metric: mdl_codec::quant::Metric::Sensitivity, ..config };
    for config in [config, by_sensitivity] {
        let cuts = all.thresholds(&config).unwrap().cuts(Role::Linear);
        assert_eq!(counted.thresholds(&config).unwrap().cuts(Role::Linear), cuts);
        let jobs: Vec<_> = pairs.iter().map(|&(w, g)| (w, g, cuts)).collect();
        for ((dtype, w, gradients, g), found) in kept.iter().zip(rest(&session, &jobs).unwrap()) {
            let (w, g) = (Values::new(*dtype, w).unwrap(), Values::new(*gradients, g).unwrap());
            assert_eq!(found, rest_on_host(w, Some(g), &cuts).unwrap(), "{dtype:?} with {gradients:?}");
        }
    }
}

#[test]
fn odd_cuts_and_weights_that_are_no_numbers() {
    let session = session();
    let numbers = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0, 1e-40, 0.01, 3.0];
    for dtype in DTYPES {
        let (w, g) = (tensor(dtype, 3000, 8, true), tensor(Dtype::BF16, 3000, 9, true));
        let (a, b) = (session.upload(&w).unwrap(), session.upload(&g).unwrap());
        let at = |i: usize| numbers[i % numbers.len()];
        for i in 0..16 {
            let cuts = Cuts {
                prune_magnitude: at(i),
                prune_sensitivity: at(i * 3 + 1),
                protect_magnitude: at(i * 5 + i / 8 + 2),
                protect_sensitivity: at(i * 7 + 3 * (i / 8)),
            };
            let found = rest(&session, &[((dtype, a.view()), (Dtype::BF16, b.view()), cuts)]).unwrap();
            let (w, g) = (Values::new(dtype, &w).unwrap(), Values::new(Dtype::BF16, &g).unwrap());
            assert_eq!(found, [rest_on_host(w, Some(g), &cuts).unwrap()], "{dtype:?} {cuts:?}");
        }
    }
    assert!(survey(&session, &[((Dtype::F32, View::at(256, 8)), (Dtype::F32, View::at(256, 4)))]).is_err());
}
