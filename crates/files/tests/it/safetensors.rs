//! safetensors: which headers are read, refused, or taken for plain files.

use crate::support::{
    extents, refusal,
    safetensors::{file, header, item},
    scanned, survives_damage, views,
};
use mdl_codec::Dtype;
use mdl_files::Format;
use proptest::prelude::*;

const NAME: &str = "model.safetensors";

#[test]
fn every_dtype_is_known_or_opaque() {
    let types = "F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I8 I16 I32 I64 U8 U16 U32 U64 BOOL C64 F4 F8_E8M0";
    for name in types.split(' ') {
        let text = header(&[item("t", name, &[2, 1], 0, 16)]);
        let sized = [1, 2, 4, 8].map(|size| text.replace("16]", &format!("{}]", 2 * size)));
        let found: Vec<_> = sized.iter().filter_map(|h| scanned(&file(h, 16), NAME).ok()).collect();
        if name.starts_with("F4") || name.ends_with("E8M0") {
            assert!(found.len() == 4 && found.iter().all(|l| l.extents[0].dtype == Dtype::Opaque));
        } else {
            let [layout] = found.as_slice() else { panic!("{name}") };
            assert_eq!(layout.extents[0].dtype.name(), name.to_lowercase().replace('_', ""));
        }
    }
}

#[test]
fn scalars_empties_gaps_order_padding_and_metadata_are_legal() {
    let items = [
        "\"__metadata__\":{\"format\":\"pt\"}".into(),
        item("late", "F32", &[2], 20, 28),
        item("scalar", "F32", &[], 0, 4),
        item("empty", "F32", &[3, 0], 4, 4),
        item("also empty", "I64", &[0], 4, 4),
        item("after a gap", "U8", &[4], 10, 14),
    ];
    let text = header(&items) + "     ";
    let layout = scanned(&file(&text, 40), NAME).unwrap();
    assert_eq!(layout.format, Format::Safetensors);
    let names: Vec<_> = layout.extents.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["scalar", "also empty", "empty", "after a gap", "late"]);
    let first = 8 + text.len() as u64;
    let offsets: Vec<_> = layout.extents.iter().map(|e| e.offset - first).collect();
    assert_eq!(offsets, [0, 4, 4, 10, 20]);
    assert!(layout.views.is_empty());
}

#[test]
fn tied_and_overlapping_tensors_become_views() {
    let items = [
        item("tied", "F32", &[4], 0, 16),
        item("owner", "F32", &[2, 2], 0, 16),
        item("part", "F32", &[1], 4, 8),
        item("x", "U8", &[8], 20, 28),
        item("y", "F32", &[2], 24, 32),
    ];
    let layout = scanned(&file(&header(&items), 32), NAME).unwrap();
    assert_eq!(extents(&layout), ["owner f32 [2, 2]", "x opaque [12]"]);
    assert_eq!(views(&layout), ["tied 0+0 [4] [1]", "part 0+4 [1] [1]", "x 1+0 [8] [1]", "y 1+4 [2] [1]"]);
}

#[test]
fn lies_are_refused() {
    let refused = |items: &[String], data| refusal(&file(&header(items), data), NAME);
    let two = [item("a", "U8", &[1], 0, 1), item("a", "U8", &[1], 1, 2)];
    assert!(refused(&two, 2).contains("listed twice"));
    // A repeated name is no accident: it is refused under any name.
    assert!(refusal(&file(&header(&two), 2), "blob").contains("listed twice"));
    assert!(refused(&[item("a", "U8", &[4], 0, 4)], 3).contains("incompletely written"));
    assert!(refused(&[item("a", "F32", &[4], 0, 4)], 4).contains("does not fill"));
    assert!(refused(&[item("a", "U8", &[0], 4, 0)], 4).contains("leaves"));
    assert!(refused(&[item("a", "U8", &[u64::MAX, 2], 0, 4)], 4).contains("does not fill"));
    assert!(refused(&[item("a", "U8", &[1], u64::MAX - 1, u64::MAX)], 4).contains("leaves"));
    for text in
        ["{", "{]", "[]", "{\"a\":1}", "{\"a\":{}}", "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}"]
    {
        assert!(!refusal(&file(text, 4), NAME).is_empty(), "{text}");
    }
    assert!(refusal(&[], NAME).contains("incompletely written"));
    assert!(refusal(&u64::MAX.to_le_bytes(), NAME).contains("longer"));
    assert!(!refusal(&file(&"{\"a\":".repeat(100_000), 4), NAME).is_empty());
}

#[test]
fn what_does_not_parse_is_plain_without_the_extension() {
    for text in ["{", "{\"a\":1}", "not json", ""] {
        assert_eq!(scanned(&file(text, 4), "notes.txt").unwrap().format, Format::Plain);
    }
    let good = file(&header(&[item("a", "U8", &[1], 0, 1)]), 1);
    assert_eq!(scanned(&good, "0a1b2c").unwrap().format, Format::Safetensors);
    assert_eq!(scanned(&[], "empty").unwrap().format, Format::Plain);
}

#[test]
fn damage_is_survived() {
    let items = [item("a", "F32", &[2], 0, 8), item("b", "F16", &[], 4, 6), "\"__metadata__\":{\"k\":\"v\"}".into()];
    let good = file(&header(&items), 8);
    survives_damage(&good, NAME);
    survives_damage(&good, "blob");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_placement_keeps_the_promises(
        places in prop::collection::vec((0u64..64, 0u64..16), 0..20),
        shuffle in any::<prop::sample::Index>(),
        trailing in 0usize..9,
    ) {
        let named = places.iter().enumerate();
        let mut items: Vec<_> = named.map(|(i, &(at, len))| item(&format!("t{i}"), "U8", &[len], at, at + len)).collect();
        let layout = scanned(&file(&header(&items), 80 + trailing), NAME).unwrap();
        // Every tensor is found, and its bytes are inside what holds them.
        for (i, &(at, len)) in places.iter().enumerate() {
            let name = format!("t{i}");
            let base = layout.extents.iter().map(|e| e.offset).min().unwrap();
            let own = layout.extents.iter().find(|e| e.name == name && e.byte_len() == Some(len)).map(|e| e.offset);
            let view = layout.views.iter().find(|v| v.name == name);
            let seen = view.map(|v| layout.extents[v.extent as usize].offset + v.offset).or(own).unwrap();
            let first = places.iter().map(|p| p.0).min().unwrap();
            prop_assert_eq!(seen - base, at - first);
        }
        // The order in which the header lists them does not matter.
        if !items.is_empty() {
            let by = shuffle.index(items.len());
            items.rotate_left(by);
        }
        prop_assert_eq!(scanned(&file(&header(&items), 80 + trailing), NAME).unwrap(), layout);
    }

    #[test]
    fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for name in [NAME, "a.pt", "a.npz", "a.npy", "a.gguf", "a"] {
            crate::support::survives(&bytes, name);
        }
        let mut framed = ((bytes.len() as u64) + 1).to_le_bytes().to_vec();
        framed.push(b'{');
        framed.extend(&bytes);
        crate::support::survives(&framed, NAME);
    }
}
