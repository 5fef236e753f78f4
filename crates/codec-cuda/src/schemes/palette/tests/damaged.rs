//! Damaged palettes, and what goes over the bus: whatever the bytes say, the device does as the CPU does.

use crate::{
    Buffer, Decode, Encode, Session,
    device::{Driver, Lane, shim::Shim},
    schemes::palette::tests::{Case, decode, encode, family, put},
    testing::{Noise, session},
};
use mdl_codec::{CpuEngine, Dtype, Engine, Scheme, engine_internals};
use std::sync::Arc;

/// Decodes on both; the device must not succeed where the processor fails, nor the other way round, nor differ.
fn agree(
    session: &Session,
    c: &Case,
    scheme: Scheme,
    body: &[u8],
    buffers: &[Option<Buffer<'_>>; 2],
    out: &Buffer<'_>,
) {
    let mut want = vec![0; c.raw.len()];
    let bytes = [&[scheme as u8], body].concat();
    let here = CpuEngine::new().decode(c.dtype, &bytes, c.bases(), &mut want);
    let [base, grandparent] = buffers.each_ref().map(|b| b.as_ref().map(Buffer::view));
    let job = Decode { dtype: c.dtype, scheme, body, base, grandparent, out: out.view() };
    let there = decode(session, &[job]);
    assert_eq!(here.is_ok(), there.is_ok(), "{scheme:?} {here:?} {there:?}");
    assert!(here.is_err() || session.download(out.view()).unwrap() == want, "{scheme:?}");
}

#[test]
fn damaged_segments_are_refused_as_the_processor_refuses_them() {
    let session = session();
    for (dtype, bases, bins, protect) in [
        (Dtype::F32, 0, 8, 60),
        (Dtype::BF16, 1, 12, 70),
        (Dtype::F32, 2, 10, 60),
        (Dtype::F64, 2, 6, 50),
        (Dtype::I16, 2, 9, 0),
    ] {
        let c = family(dtype, 700, bins, protect, bases);
        let Some((scheme, bytes)) = c.expected() else { panic!("no palette") };
        assert_eq!(u64::from(scheme.bases()), bases);
        let buffers = [&c.base, &c.grandparent].map(|b| b.as_ref().map(|b| put(&session, b, 0)));
        let out = session.buffer(c.raw.len()).unwrap();
        let body = &bytes[1..];
        for len in 0..body.len() {
            agree(&session, &c, scheme, &body[..len], &buffers, &out);
        }
        agree(&session, &c, scheme, &[body, &[0]].concat(), &buffers, &out);
        let mut noise = Noise(9);
        for i in 0..body.len() + 200 {
            let mut bad = body.to_vec();
            let bit = if i < body.len() { 8 * i + i % 8 } else { noise.next() as usize % (8 * body.len()) };
            bad[bit / 8] ^= 1 << (bit % 8);
            agree(&session, &c, scheme, &bad, &buffers, &out);
        }
    }
}

#[test]
fn nothing_but_tables_counts_and_compressed_bytes_goes_over_the_bus() {
    let shim = Arc::new(Shim::new(1 << 30));
    let session = Session::new(Lane::new(shim.clone()).unwrap());
    let c = family(Dtype::F32, 200_000, 16, 0, 1);
    let [raw, base] = [Some(&c.raw), c.base.as_ref()].map(|b| put(&session, b.unwrap(), 0));
    let job = Encode { dtype: c.dtype, raw: raw.view(), base: Some(base.view()), grandparent: None };
    let sample = engine_internals::sampled(c.dtype, &c.raw);
    let traffic = shim.traffic();
    let (up, down) = (traffic.up(), traffic.down());
    let got = encode(&session, &[(job, sample)]).unwrap();
    let Some(Some(mdl_codec::Encoded { bytes, .. })) = got.first() else { panic!("no palette") };
    assert!(traffic.up() - up < 20_000, "{}", traffic.up() - up);
    assert!(traffic.down() - down < bytes.len() as u64 + 20_000, "{}", traffic.down() - down);
}
