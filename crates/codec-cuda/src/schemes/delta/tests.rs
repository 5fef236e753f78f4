//! Delta on the device against the CPU, byte by byte.

use crate::{
    schemes::delta::{decode, encode},
    testing::{
        pairs::{Kind, Room, expected, pair},
        session,
    },
};
use mdl_codec::{Dtype, Scheme};

const ROOM: Room = Room { scheme: Scheme::Delta, encode, decode };

#[test]
fn every_dtype_and_kind_of_segment_as_on_the_processor() {
    ROOM.check_kinds();
}

#[test]
fn every_size_as_on_the_processor() {
    ROOM.check_sizes(Kind::Step, Kind::Edges);
}

#[test]
fn damaged_bytes_are_refused_or_read_as_on_the_processor() {
    let session = session();
    for (dtype, n) in [(Dtype::BF16, 700), (Dtype::F32, 130), (Dtype::F64, 70), (Dtype::U8, 90)] {
        let (raw, base) = pair(dtype, Kind::Step, n);
        let bytes = expected(Scheme::Delta, dtype, &raw, &base).unwrap_or_else(|| {
            let (r, b) = (session.upload(&raw).unwrap(), session.upload(&base).unwrap());
            let job = crate::job::Encode { dtype, raw: r.view(), base: Some(b.view()), grandparent: None };
            encode(&session, &[job]).unwrap().remove(0)
        });
        ROOM.damage(&session, dtype, &bytes, &base);
    }
}

#[test]
fn symbols_that_no_encoder_makes_are_read_as_on_the_processor() {
    // A table of symbol 255 alone, which has the most raw bits there can be.
    for (dtype, t) in [(Dtype::U8, 3), (Dtype::BF16, 0), (Dtype::F32, 1), (Dtype::I64, 0), (Dtype::F64, 1)] {
        let session = session();
        let n = 130;
        let base = pair(dtype, Kind::Step, n).1;
        for symbol in [200u8, 254, 255] {
            // A block of 128 numbers and one of 2; one frequency of 4,096 takes a nibble of 13 and 12 bits of zeros.
            let mut bytes = vec![3, 7, t, 1, symbol, symbol, 13, 0];
            let width = raw_bits(symbol, t.into());
            let blocks = [128, 2usize].map(|n| {
                let states = (1u32 << 16).to_le_bytes().repeat(32);
                let bits: Vec<u8> = (0..(n * width).div_ceil(8)).map(|i| (i * 89 + 5) as u8).collect();
                [&128u32.to_le_bytes()[..], &states, &bits].concat()
            });
            bytes.extend_from_slice(&(blocks[0].len() as u32).to_le_bytes());
            bytes.extend(blocks.concat());
            assert!(ROOM.same_verdict(&session, dtype, &bytes, &base));
            bytes.pop();
            assert!(!ROOM.same_verdict(&session, dtype, &bytes, &base));
        }
    }
}

fn raw_bits(symbol: u8, t: u32) -> usize {
    let class = u32::from(symbol).div_ceil(2);
    ((class >> t).max(1) - 1).min(63) as usize
}
