//! Planes on the device against the CPU, byte by byte, both ways.

use crate::{
    Buffer, Decode, Encode, Session, View,
    schemes::planes::{decode, encode},
    testing::{Noise, SIZES, session},
};
use mdl_codec::{
    Bases, CpuEngine, Dtype, Engine, Scheme,
    engine_internals::{Cut, PlaneDecoder, PlanesPlan, Reader, Shape, number_size, plan, reference},
};

/// Most bytes of a test's segment.
const MOST: usize = 1 << 20;

fn narrow(dtype: Dtype, v: f32) -> Vec<u8> {
    let bits = v.to_bits();
    match dtype {
        Dtype::F64 => f64::from(v).to_le_bytes().to_vec(),
        Dtype::F32 => bits.to_le_bytes().to_vec(),
        Dtype::BF16 => ((bits >> 16) as u16).to_le_bytes().to_vec(),
        Dtype::F16 => ((((bits >> 13) & 0x7fff).wrapping_sub(112 << 10) & 0x7fff | (bits >> 16 & 0x8000)) as u16)
            .to_le_bytes()
            .to_vec(),
        Dtype::F8E4M3 => vec![(bits >> 24 & 0x80 | (bits >> 20 & 0x7ff).wrapping_sub(120 << 3) & 0x7f) as u8],
        Dtype::F8E5M2 => vec![(bits >> 24 & 0x80 | (bits >> 21 & 0x3ff).wrapping_sub(112 << 2) & 0x7f) as u8],
        _ => Vec::new(),
    }
}

/// Segments of `n` elements that look like what there is: weights, with odd numbers between them, clean stretches,
/// noise, constants.
pub(crate) fn segments(dtype: Dtype, n: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut noise = Noise(seed | 1);
    let size = dtype.size();
    let mut all = vec![(0..n * size).map(|_| noise.next() as u8).collect(), vec![0; n * size]];
    all.push(
        (0..n)
            .flat_map(|_| (0..size).map(|b| if b == 0 { noise.next() as u8 & 3 } else { 0 }).collect::<Vec<_>>())
            .collect(),
    );
    if dtype.is_float() {
        let weights: Vec<u8> = (0..n).flat_map(|_| narrow(dtype, noise.weight(0.04))).collect();
        let mut odd = weights.clone();
        for i in (0..n).step_by(97) {
            let top = [0x7f, 0xff, 0x80, 0x00, 0x01][(noise.next() % 5) as usize];
            odd[i * size..(i + 1) * size].fill(noise.next() as u8 & 1);
            odd[(i + 1) * size - 1] = top;
            odd[(i * size + size / 2)..(i + 1) * size - 1].fill(0xc0);
        }
        let mut clean = weights.clone();
        for (g, group) in clean.chunks_mut(size * 100).enumerate().filter(|(g, _)| g % 3 > 0) {
            group
                .chunks_mut(size)
                .for_each(|e| e[..size / 2 - usize::from(g % 3 == 1 && size > 2).min(size / 2)].fill(0));
        }
        all.extend([weights, odd, clean]);
    }
    all
}

/// Plans that estimates seldom choose.
pub(crate) fn plans(dtype: Dtype, raw: &[u8]) -> Vec<PlanesPlan> {
    let mut all = vec![plan(dtype, raw), PlanesPlan::BYTES];
    if let Some(shape) = Shape::from_dtype(dtype) {
        for (k, lo) in [(0, 1), (1, 1), (2, 100), (3, 800), (4, 1), (5, 1)] {
            let cut = Cut { shape, k, lo };
            let lows = if shape.low_bytes() > 0 { [false, true].as_slice() } else { &[false] };
            all.extend(
                lows.iter().filter(|_| cut.valid()).map(|&low_planes| PlanesPlan { cut: Some(cut), low_planes }),
            );
        }
    }
    all
}

/// Bytes on the device, so far from an aligned address.
fn put<'s>(session: &'s Session, raw: &[u8], off: usize) -> Buffer<'s> {
    session.upload(&[&vec![0; off], raw].concat()).unwrap()
}

/// Both ways; says which plane coders were met: raw, constant, rANS, Huffman.
fn check(cases: &[(Dtype, Vec<u8>, PlanesPlan)], off: usize) -> [bool; 4] {
    let session = session();
    let shift = |d: Dtype| off * d.size().min(8);
    let buffers: Vec<_> = cases.iter().map(|(d, raw, _)| put(&session, raw, shift(*d))).collect();
    let view = |b: &Buffer<'_>, d: Dtype| View::at(b.address() + shift(d) as u64, b.view().len() - shift(d));
    let jobs: Vec<_> = cases
        .iter()
        .zip(&buffers)
        .map(|((dtype, _, plan), b)| {
            let raw = view(b, *dtype);
            (Encode { dtype: *dtype, raw, base: None, grandparent: None }, *plan)
        })
        .collect();
    let encoded = encode(&session, &jobs).unwrap();
    for ((dtype, raw, plan), bytes) in cases.iter().zip(&encoded) {
        let want = reference(*plan, *dtype, raw).unwrap();
        assert!(bytes.as_deref() == Some(&want), "{dtype} {} {plan:?}", raw.len());
    }
    let outs: Vec<_> = cases.iter().map(|(d, raw, _)| put(&session, &vec![0xee; raw.len()], shift(*d))).collect();
    let jobs: Vec<_> = cases
        .iter()
        .zip(&outs)
        .zip(&encoded)
        .map(|(((dtype, _, _), out), bytes)| job(*dtype, bytes.as_deref().unwrap(), view(out, *dtype)))
        .collect();
    decode(&session, &jobs).unwrap();
    let mut met = [false; 4];
    for ((dtype, raw, plan), job) in cases.iter().zip(&jobs) {
        assert!(session.download(job.out).unwrap() == *raw, "{dtype} {} {plan:?}", raw.len());
        let size = number_size(*dtype);
        for coder in Reader::new(*dtype, size, job.body, raw.len() / size).unwrap().coders {
            met[match coder {
                PlaneDecoder::Raw => 0,
                PlaneDecoder::Const(_) => 1,
                PlaneDecoder::Rans(_) => 2,
                PlaneDecoder::Huffman(_) => 3,
            }] = true;
        }
    }
    met
}

fn job<'a>(dtype: Dtype, bytes: &'a [u8], out: View<'a>) -> Decode<'a> {
    Decode { dtype, scheme: Scheme::Planes, body: &bytes[1..], base: None, grandparent: None, out }
}

#[test]
fn every_type_and_length_gives_the_processors_bytes_and_comes_back() {
    for (s, n) in SIZES.into_iter().enumerate() {
        let mut cases = Vec::new();
        for dtype in Dtype::ALL.into_iter().filter(|d| n * d.size() <= MOST) {
            let all = segments(dtype, n, (n * 31) as u64 + u64::from(dtype.code()));
            // Of long segments one kind for each type, all kinds between them.
            let kinds = all.len();
            let keep = |i: usize| n < 5000 || i == (s + usize::from(dtype.code())) % kinds;
            for (_, raw) in all.into_iter().enumerate().filter(|(i, _)| keep(*i)) {
                cases.push((dtype, raw.clone(), plan(dtype, &raw)));
            }
        }
        check(&cases, s % 2);
    }
}

#[test]
fn every_plan_gives_the_processors_bytes() {
    let mut met = [false; 4];
    for n in [33, 1000, 4099] {
        for off in [0, 1] {
            let mut cases = Vec::new();
            for dtype in
                [Dtype::F64, Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::F8E4M3, Dtype::F8E5M2, Dtype::I16, Dtype::C128]
            {
                for raw in segments(dtype, n, 77 + n as u64) {
                    cases.extend(plans(dtype, &raw).into_iter().map(|p| (dtype, raw.clone(), p)));
                }
            }
            met.iter_mut().zip(check(&cases, off)).for_each(|(m, now)| *m |= now);
        }
    }
    assert_eq!(met, [true; 4]);
}

#[test]
fn several_blocks_of_which_some_chunks_are_counted() {
    let n = 3 * (1 << 18) + 4321;
    let mut noise = Noise(99);
    let raw: Vec<u8> =
        (0..n).flat_map(|i| narrow(Dtype::BF16, noise.weight(if i % 5000 == 0 { 1e30 } else { 0.02 }))).collect();
    let p = plan(Dtype::BF16, &raw);
    check(&[(Dtype::BF16, raw.clone(), p), (Dtype::F16, raw.clone(), PlanesPlan::BYTES)], 0);
    let bytes = CpuEngine::new().encode_as(Scheme::Planes, Dtype::BF16, &raw, Bases::NONE, None).unwrap();
    assert_eq!(bytes.bytes, reference(p, Dtype::BF16, &raw).unwrap());
}

/// The device on what may be no encoding: as the processor, or an error where that has one.
fn compare(session: &Session, dtype: Dtype, bytes: &[u8], len: usize) {
    let mut want = vec![0; len];
    let cpu = CpuEngine::new().decode(dtype, bytes, Bases::NONE, &mut want);
    let out = session.buffer(len).unwrap();
    let device = decode(session, &[job(dtype, bytes, out.view())]);
    assert_eq!(cpu.is_ok(), device.is_ok(), "{dtype}: {cpu:?} {device:?}");
    if cpu.is_ok() {
        assert!(session.download(out.view()).unwrap() == want, "{dtype}");
    }
}

#[test]
fn broken_segments_are_refused_or_decode_as_on_the_processor() {
    let session = session();
    let mut noise = Noise(4711);
    for dtype in [Dtype::BF16, Dtype::F32, Dtype::F64, Dtype::F8E4M3, Dtype::U8, Dtype::I32] {
        for raw in segments(dtype, 300, 5) {
            for p in plans(dtype, &raw) {
                let bytes = reference(p, dtype, &raw).unwrap();
                for end in (1..bytes.len()).step_by(1 + bytes.len() / 40) {
                    compare(&session, dtype, &bytes[..end], raw.len());
                }
                for _ in 0..60 {
                    let mut broken = bytes.clone();
                    // The header as often as all the rest.
                    let most = if noise.next().is_multiple_of(2) { bytes.len().min(60) } else { bytes.len() };
                    let at = 1 + noise.next() as usize % (most - 1);
                    broken[at] ^= 1 << (noise.next() % 8);
                    compare(&session, dtype, &broken, raw.len());
                }
                compare(&session, dtype, &bytes, raw.len().saturating_sub(dtype.size()));
                compare(&session, dtype, &[bytes.as_slice(), &[0]].concat(), raw.len());
            }
        }
    }
}

/// A segment in small blocks, as no encoder writes it: raw planes, exceptions, groups of every kind.
pub(crate) fn small_blocks(shape: Shape, k: u32, log: u32, n: usize, noise: &mut Noise) -> Vec<u8> {
    let cut = Cut { shape, k, lo: 1 };
    let low = shape.low_bytes();
    let mut out = vec![Scheme::Planes as u8, log as u8, k as u8, 0];
    if cut.windowed() {
        out.extend(cut.lo.to_le_bytes());
    }
    out.push(0);
    if low > 0 {
        out.push(0);
    }
    let blocks: Vec<Vec<u8>> = (0..n)
        .step_by(1 << log)
        .map(|start| {
            let m = (n - start).min(1 << log);
            let mut bytes = |n: usize| (0..n).map(|_| noise.next() as u8).collect::<Vec<_>>();
            let mut block = Vec::new();
            if cut.windowed() {
                // Two of them, the second as far as it goes: gaps 0 and m - 2.
                block.extend([2, 0, 5, 0]);
                block.push((m - 2) as u8 | if m > 129 { 0x80 } else { 0 });
                block.extend((m > 129).then_some(((m - 2) >> 7) as u8));
                block.extend([200, 0]);
            }
            block.extend(bytes(m));
            block.extend(bytes(m.div_ceil(32) * 4 * cut.field_bits() as usize));
            if low > 0 {
                let counts: Vec<u8> = bytes(m.div_ceil(128)).iter().map(|b| b % (8 * low as u8 + 1)).collect();
                let counts: Vec<u8> = counts.iter().map(|c| if c % 3 == 0 { 0 } else { *c }).collect();
                block.extend(&counts);
                for (g, &c) in counts.iter().enumerate() {
                    let n = (m - 128 * g).min(128);
                    block.extend(bytes(match c {
                        0 => n * low,
                        _ => n.div_ceil(32) * 4 * (8 * low - usize::from(c)),
                    }));
                }
            }
            block
        })
        .collect();
    for block in &blocks[..blocks.len() - 1] {
        out.extend((block.len() as u32).to_le_bytes());
    }
    out.extend(blocks.concat());
    out
}

#[test]
fn blocks_of_every_size_decode() {
    let session = session();
    let mut noise = Noise(31);
    for (dtype, k) in [
        (Dtype::F64, 0),
        (Dtype::F64, 3),
        (Dtype::F32, 0),
        (Dtype::F32, 3),
        (Dtype::BF16, 2),
        (Dtype::F16, 3),
        (Dtype::F8E5M2, 1),
    ] {
        let shape = Shape::from_dtype(dtype).unwrap();
        for (log, n) in [(7, 1000), (7, 1026), (8, 1000), (10, 3000), (7, 640), (23, 999)] {
            let bytes = small_blocks(shape, k, log, n, &mut noise);
            let mut out = vec![0; n * dtype.size()];
            let read = CpuEngine::new().decode(dtype, &bytes, Bases::NONE, &mut out);
            assert_eq!(read, Ok(()), "{dtype} {k} {log} {n}");
            compare(&session, dtype, &bytes, out.len());
            compare(&session, dtype, &bytes[..bytes.len() - 1], out.len());
        }
    }
}
