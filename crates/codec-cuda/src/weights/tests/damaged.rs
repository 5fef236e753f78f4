//! Damaged parts: refused where the processor refuses them, else decoded to its bytes.

use super::{decoded, lossy, numbers, one};
use crate::{
    CudaEngine,
    schemes::planes::tests::{plans, segments},
    testing::Noise,
    weights::{Part, lossy::PART},
};
use mdl_codec::{
    Bases, CodecError, CpuEngine, Dtype, Engine, Scheme,
    engine_internals::reference,
    quant::neuzip::{BLOCKS, Code, Coded, KEPT, reconstruct},
};

/// Compares what both make of bytes that may be no encoding; says whether they decode.
fn compare(engine: &CudaEngine, dtype: Dtype, bytes: &[u8], n: usize) -> bool {
    let mut want = vec![0; n * dtype.size()];
    let cpu = CpuEngine::new().decode(dtype, bytes, Bases::NONE, &mut want);
    let there = one(engine, dtype, n, bytes);
    assert_eq!(cpu.is_ok(), there.is_ok(), "{dtype}: {cpu:?} {there:?}");
    if let Ok(weights) = &there {
        assert!(decoded(engine, weights, 0) == want, "{dtype}");
    }
    there.is_ok()
}

#[test]
fn broken_segments_are_refused_as_the_processor_refuses_them() {
    let engine = crate::shim(1 << 28);
    let mut noise = Noise(4711);
    let mut verdicts = [0; 2];
    for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::F64, Dtype::U8] {
        for raw in segments(dtype, 300, 5) {
            for plan in plans(dtype, &raw) {
                let bytes = reference(plan, dtype, &raw).unwrap();
                for end in (0..bytes.len()).step_by(1 + bytes.len() / 25) {
                    verdicts[usize::from(compare(&engine, dtype, &bytes[..end], 300))] += 1;
                }
                for _ in 0..50 {
                    let mut broken = bytes.clone();
                    let most = if noise.next().is_multiple_of(2) { bytes.len().min(60) } else { bytes.len() };
                    broken[noise.next() as usize % most] ^= 1 << (noise.next() % 8);
                    verdicts[usize::from(compare(&engine, dtype, &broken, 300))] += 1;
                }
                compare(&engine, dtype, &bytes, 299);
                compare(&engine, dtype, &[bytes.as_slice(), &[0]].concat(), 300);
            }
        }
    }
    assert!(verdicts.iter().all(|&v| v > 100), "{verdicts:?}");
}

#[test]
fn a_stream_that_is_damaged_late_is_refused_when_it_is_put_there() {
    let engine = crate::shim(1 << 28);
    let n = 30_000;
    let raw = &segments(Dtype::BF16, n, 6)[3];
    let bytes = engine.cpu.encode(Dtype::BF16, raw, Bases::NONE, None).unwrap();
    assert_eq!(bytes.scheme, Scheme::Planes);
    let (mut refused, mut noise) = (0, Noise(9));
    for _ in 0..60 {
        let mut broken = bytes.bytes.clone();
        let at = 100 + noise.next() as usize % (broken.len() - 100);
        broken[at] ^= 1 << (noise.next() % 8);
        refused += usize::from(!compare(&engine, Dtype::BF16, &broken, n));
    }
    assert!(refused > 5, "{refused}");
}

/// What the layout says of a part, number by number; none where it is none.
fn read_lossy(dtype: Dtype, bytes: &[u8], n: usize) -> Option<Vec<u8>> {
    let (&[keep, log, a, b, c, d], rest) = bytes.split_first_chunk::<6>()?;
    let (keep, block) = (u32::from(keep), 1usize.checked_shl(log.into())?);
    if !KEPT.contains(&keep) || !BLOCKS.contains(&block) {
        return None;
    }
    let (exponents, rest) = rest.split_at_checked(u32::from_le_bytes([a, b, c, d]) as usize)?;
    let (mantissas, rests) = rest.split_at_checked(n.div_ceil(block))?;
    let mut plain = vec![0; n];
    CpuEngine::new().decode(Dtype::U8, exponents, Bases::NONE, &mut plain).ok()?;
    let bits = 1 + keep as usize;
    let code = |(i, e): (usize, &u8)| {
        let at = i * bits;
        let rest = rests.get(at / 8)? >> (at % 8) & ((1u16 << bits) - 1) as u8;
        Some(Code { exponent: (*e).min(254), rest })
    };
    let codes = plain.iter().enumerate().map(code).collect::<Option<Vec<_>>>()?;
    let coded = Coded { codes, mantissas: mantissas.to_vec() };
    reconstruct(dtype, &coded, keep, block).ok().filter(|_| rests.len() == (n * bits).div_ceil(8))
}

#[test]
fn broken_parts_of_few_mantissa_bits_are_refused_or_read_as_the_layout_says() {
    let engine = crate::shim(1 << 28);
    let (n, mut noise, mut verdicts) = (700, Noise(12), [0; 2]);
    for (dtype, keep, block) in [(Dtype::BF16, 3, 64), (Dtype::F32, 0, 32), (Dtype::F16, 1, 512)] {
        let (bytes, _) = lossy(dtype, &numbers(dtype, n, 0.05, &mut noise), keep, block);
        let mut compare = |bytes: &[u8]| {
            let there = engine.weights(dtype, n, PART, &[Part::Lossy(bytes)]);
            let want = read_lossy(dtype, bytes, n);
            assert_eq!(there.is_ok(), want.is_some(), "{there:?}");
            assert!(!matches!(there, Err(CodecError::BadInput(_))));
            if let Ok(weights) = &there {
                assert!(Some(decoded(&engine, weights, 0)) == want);
            }
            verdicts[usize::from(there.is_ok())] += 1;
        };
        (0..bytes.len()).step_by(7).for_each(|end| compare(&bytes[..end]));
        for _ in 0..200 {
            let mut broken = bytes.clone();
            let most = if noise.next().is_multiple_of(2) { 60 } else { bytes.len() };
            broken[noise.next() as usize % most] ^= 1 << (noise.next() % 8);
            compare(&broken);
        }
        compare(&[bytes.as_slice(), &[0]].concat());
    }
    assert!(verdicts.iter().all(|&v| v > 100), "{verdicts:?}");
}
