//! Sparse on the device against the CPU, byte by byte.

use crate::{
    schemes::sparse::{decode, encode},
    testing::{
        pairs::{Kind, Room, expected, pair},
        session,
    },
};
use mdl_codec::{Dtype, Scheme};

const ROOM: Room = Room {
    scheme: Scheme::Sparse,
    encode: |session, jobs| Ok(encode(session, jobs)?.into_iter().map(Option::unwrap).collect()),
    decode,
};

#[test]
fn every_dtype_and_kind_of_segment_as_on_the_processor() {
    ROOM.check_kinds();
}

#[test]
fn every_size_as_on_the_processor() {
    ROOM.check_sizes(Kind::Few, Kind::Step);
}

#[test]
fn damaged_bytes_are_refused_or_read_as_on_the_processor() {
    let session = session();
    for (dtype, n) in [(Dtype::BF16, 3000), (Dtype::F32, 9000), (Dtype::F64, 900), (Dtype::U8, 2000)] {
        let (raw, base) = pair(dtype, Kind::Few, n);
        let bytes = expected(Scheme::Sparse, dtype, &raw, &base).unwrap();
        ROOM.damage(&session, dtype, &bytes, &base);
    }
}

#[test]
fn lists_that_no_encoder_makes_are_read_as_on_the_processor() {
    let session = session();
    let mut read = 0;
    for dtype in [Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::F64] {
        let base = pair(dtype, Kind::Step, 300).1;
        for gap in [0u8, 1, 8, 30, 60, 130, 250, 255] {
            for symbol in [0u8, 1, 77, 254, 255] {
                for count in [1usize, 2, 255, 300] {
                    // One block of raw planes, with more raw bits than any of this needs or none.
                    for bits in [0, 1, count * 4, count * 12] {
                        let mut bytes = vec![4, 18, 1, gap, 1, symbol];
                        bytes.extend(if count < 128 {
                            vec![count as u8]
                        } else {
                            vec![count as u8 | 128, (count >> 7) as u8]
                        });
                        bytes.extend((0..bits).map(|i| if gap < 9 { 0 } else { (i * 37) as u8 }));
                        read += usize::from(ROOM.same_verdict(&session, dtype, &bytes, &base));
                    }
                }
            }
        }
    }
    assert!(read > 10, "{read}");
}
