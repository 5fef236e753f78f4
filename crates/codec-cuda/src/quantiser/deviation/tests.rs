//! Deviations on the shim against the processor's.

use crate::{
    quantiser::deviation::*,
    testing::{Noise, SIZES, session},
};
use mdl_codec::{Dtype, engine_internals::deviation_of_parts};

fn between(session: &Session, dtype: Dtype, raw: View<'_>, rec: View<'_>) -> Result<Deviation> {
    parts(session, (dtype, raw), rec).map(deviation_of_parts)
}

fn close(a: Deviation, b: Deviation) -> bool {
    [(a.max_abs, b.max_abs), (a.deviation, b.deviation), (a.weight, b.weight)]
        .iter()
        .all(|(a, b)| a.to_bits() == b.to_bits())
}

fn element(dtype: Dtype, x: f32) -> Vec<u8> {
    let bits = x.to_bits();
    match dtype {
        Dtype::F64 => (f64::from(x) * 1.000_000_001).to_le_bytes().to_vec(),
        Dtype::F32 => x.to_le_bytes().to_vec(),
        // Any pattern will do.
        Dtype::F16 => ((bits >> 16 & 0x8000 | bits >> 13 & 0x3FFF) as u16).to_le_bytes().to_vec(),
        _ => ((bits >> 16) as u16).to_le_bytes().to_vec(),
    }
}

fn tensor(dtype: Dtype, n: usize, seed: u64) -> Vec<u8> {
    let mut noise = Noise(seed);
    (0..n).flat_map(|_| element(dtype, noise.weight(0.1))).collect()
}

const DTYPES: [Dtype; 4] = [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16];

#[test]
fn bits_of_the_processor() {
    let session = session();
    let sizes =
        SIZES.iter().copied().filter(|n| *n < 200_000).chain([4095, 4096, 65_535, 65_536, 65_537, 131_072, 190_000]);
    for n in sizes {
        for dtype in DTYPES {
            let (raw, rec) = (tensor(dtype, n, 3), tensor(dtype, n, 4));
            let (a, b) = (session.upload(&raw).unwrap(), session.upload(&rec).unwrap());
            let found = between(&session, dtype, a.view(), b.view()).unwrap();
            let wanted = Deviation::between(dtype, &raw, &rec).unwrap();
            assert!(close(found, wanted), "{n} of {dtype:?}: {found:?} and not {wanted:?}");
        }
    }
}

#[test]
fn any_bits_and_many_at_once() {
    let session = session();
    let mut noise = Noise(1);
    let all: Vec<u8> = (0..90_000).flat_map(|_| noise.next().to_le_bytes()).collect();
    let memory = session.upload(&all).unwrap();
    let mut places = vec![(Dtype::BF16, 6, 6, 0)];
    for dtype in DTYPES {
        let size = dtype.size();
        places.extend([1, 100, 5000, 70_000].map(|n| (dtype, size, 5 * size, n * size)));
        // Infinite, and far from it.
        places.push((dtype, size * 1001, size, size * 3));
    }
    let jobs: Vec<_> = places
        .iter()
        .map(|&(dtype, a, b, len)| ((dtype, memory.view().part(a..a + len)), memory.view().part(b..b + len)))
        .collect();
    let found = parts_of_all(&session, &jobs).unwrap();
    for (&(dtype, a, b, len), found) in places.iter().zip(found) {
        let found = deviation_of_parts(found);
        let wanted = Deviation::between(dtype, &all[a..a + len], &all[b..b + len]).unwrap();
        assert!(close(found, wanted), "{len} of {dtype:?}: {found:?} and not {wanted:?}");
    }
    assert!(between(&session, Dtype::F32, memory.view().part(0..8), memory.view().part(0..4)).is_err());
    assert!(between(&session, Dtype::I32, memory.view(), memory.view()).is_err());
}
