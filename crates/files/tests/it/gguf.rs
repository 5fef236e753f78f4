//! GGUF: types, alignment, false headers.

use crate::support::{
    extents,
    gguf::{file, tensor},
    refusal, scanned, survives_damage,
};
use mdl_files::Format;

const NAME: &str = "model.gguf";

#[test]
fn plain_types_are_typed_and_blocks_are_opaque() {
    let tensors = [
        tensor("f32", &[2, 3], 0, 24),
        tensor("f16", &[2], 1, 4),
        tensor("q4_0", &[2, 64], 2, 72),
        tensor("q6_k", &[256], 14, 210),
        tensor("bf16", &[3], 30, 6),
        tensor("scalar", &[], 28, 8),
        tensor("empty", &[0], 24, 0),
        tensor("unknown", &[5], 999, 40),
        tensor("i64", &[1], 27, 8),
        tensor("unknown too", &[5], 998, 30),
    ];
    for alignment in [1, 32, 64] {
        let bytes = file(&tensors, alignment);
        let layout = scanned(&bytes, NAME).unwrap();
        assert_eq!(layout.format, Format::Gguf);
        let unknown = 40u64.next_multiple_of(alignment.into());
        let expected = format!(
            "f32 f32 [2, 3]|f16 f16 [2]|q4_0 opaque [72]|q6_k opaque [210]|bf16 bf16 [3]|scalar f64 []|empty i8 [0]|\
             unknown opaque [{unknown}]|i64 i64 [1]|unknown too opaque [30]"
        );
        assert_eq!(extents(&layout), expected.split('|').collect::<Vec<_>>());
        for e in layout.extents.iter().filter(|e| e.byte_len() > Some(0)) {
            assert_eq!(bytes[e.offset as usize], 3, "{}", e.name);
        }
    }
}

#[test]
fn lies_are_refused() {
    assert!(refusal(&file(&[tensor("a", &[2], 0, 7)], 32), NAME).contains("incompletely written"));
    assert!(refusal(&file(&[tensor("a", &[33], 2, 70)], 32), NAME).contains("blocks"));
    assert!(refusal(&file(&[tensor("a", &[u64::MAX, 4], 0, 8)], 32), NAME).contains("blocks"));
    let twice = [tensor("a", &[1], 24, 1), tensor("a", &[1], 24, 1)];
    assert!(refusal(&file(&twice, 32), NAME).contains("two tensors"));
    let good = file(&[tensor("a", &[1], 24, 1)], 32);
    let mut counts = good.clone();
    counts[8..24].fill(0xff);
    assert!(!refusal(&counts, NAME).is_empty());
    let at = good.windows(17).position(|w| w == b"general.alignment").unwrap() + 21;
    let mut zero = good.clone();
    zero[at..at + 4].fill(0);
    assert!(refusal(&zero, NAME).contains("zero"));
}

#[test]
fn other_versions_are_plain() {
    let mut old = file(&[tensor("a", &[1], 24, 1)], 32);
    old[4] = 1;
    assert_eq!(scanned(&old, NAME).unwrap().format, Format::Plain);
    old[4..8].copy_from_slice(&3u32.to_be_bytes());
    assert_eq!(scanned(&old, NAME).unwrap().format, Format::Plain);
}

#[test]
fn damage_is_survived() {
    survives_damage(&file(&[tensor("a", &[2], 0, 8), tensor("b", &[32], 2, 18)], 8), NAME);
}
