//! Zip archives: the directory, and the NumPy archives in them.

use crate::support::{
    extents,
    npy::array,
    refusal, scanned, survives_damage, views,
    zip::{Entry, Style, archive, entry, simple},
};
use mdl_files::Format;
use proptest::prelude::*;

const NAME: &str = "arrays.npz";

fn arrays() -> Vec<Entry> {
    vec![entry("w.npy", &array("<f4", &[2, 3], 24)), entry("b.npy", &array("<i8", &[], 8))]
}

#[test]
fn stored_arrays_are_extents_and_deflated_ones_are_not() {
    let mut entries = arrays();
    entries.push(entry("empty.npy", &array("<f2", &[4, 0], 0)));
    entries.push(Entry { method: 8, ..entry("packed.npy", b"whatever deflate made") });
    entries.push(entry("readme.txt", b"hello"));
    entries.push(entry(
        "objects.npy",
        &crate::support::npy::file(1, &crate::support::npy::header("|O", false, &[1]), b"pickle"),
    ));
    let bytes = simple(&entries);
    let layout = scanned(&bytes, NAME).unwrap();
    assert_eq!(layout.format, Format::Npz);
    assert_eq!(extents(&layout), ["w f32 [2, 3]", "b i64 []", "empty f16 [4, 0]"]);
    for e in &layout.extents {
        let (from, len) = (e.offset as usize, e.byte_len().unwrap() as usize);
        assert!(bytes[from..from + len].iter().all(|&b| b == 7));
        assert!(len == 0 || bytes[from - 1] == b'\n');
    }
    assert_eq!(scanned(&bytes, "x.zip").unwrap().format, Format::Plain);
    assert_eq!(scanned(&simple(&arrays()), "x.zip").unwrap().format, Format::Npz);
    assert_eq!(scanned(&simple(&[]), NAME).unwrap().format, Format::Plain);
}

#[test]
fn fortran_order_is_the_transpose() {
    let data = crate::support::npy::file(2, &crate::support::npy::header("<f4", true, &[2, 3]), &[0; 24]);
    let layout = scanned(&data, "a.npy").unwrap();
    assert_eq!(layout.format, Format::Npy);
    assert_eq!(extents(&layout), ["array f32 [3, 2]"]);
    assert_eq!(views(&layout), ["array 0+0 [2, 3] [1, 2]"]);
}

#[test]
fn array_types() {
    let file = |descr: &str, bytes| array(descr, &[2], bytes);
    let seen = |descr: &str, bytes| extents(&scanned(&file(descr, bytes), "a.npy").unwrap());
    let known = "<f8 f64 <f4 f32 <f2 f16 |i1 i8 <i2 i16 <i4 i32 <i8 i64 |u1 u8 <u2 u16 <u4 u32 <u8 u64 |b1 bool";
    let known: Vec<_> = known.split(' ').collect();
    for pair in known.chunks(2) {
        assert_eq!(seen(pair[0], 16), [format!("array {} [2]", pair[1])]);
    }
    assert_eq!(seen("<c8", 16), ["array c64 [2]"]);
    assert_eq!(seen("<c16", 32), ["array c128 [2]"]);
    for (foreign, bytes) in [(">f4", 8), ("<V2", 4), ("<U3", 24), ("|S5", 10), ("<M8[ns]", 16), ("<f16", 32), ("?", 40)]
    {
        assert_eq!(seen(foreign, 40), [format!("array opaque [{bytes}]")], "{foreign}");
    }
    let record = "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}";
    let record = crate::support::npy::file(3, record, &[0; 9]);
    assert_eq!(extents(&scanned(&record, "a.npy").unwrap()), ["array opaque [9]"]);
    assert!(scanned(&file("|O", 9), "a.npy").unwrap().extents.is_empty());
}

#[test]
fn broken_arrays_are_refused() {
    assert!(refusal(&array("<f4", &[3], 11), "a.npy").contains("incompletely written"));
    assert!(refusal(&array("<f4", &[u64::MAX, 2], 11), "a").contains("incompletely written"));
    assert!(refusal(&array("<V9", &[u64::MAX, 2], 11), "a").contains("overflows"));
    assert!(refusal(&crate::support::npy::file(4, "", b""), "a").contains("version"));
    assert!(refusal(&crate::support::npy::file(1, "{'descr': '<f4'}", b""), "a").contains("cannot be read"));
    let twice = crate::support::npy::header("<f4", false, &[1]).replace("}", "'descr': '<f4', }");
    assert!(refusal(&crate::support::npy::file(1, &twice, &[0; 4]), "a").contains("cannot be read"));
    assert!(refusal(b"\x93NUMPY\x01", "a").contains("incompletely written"));
    assert!(refusal(b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a").contains("incompletely written"));
    survives_damage(&array("<f4", &[2], 8), "a.npy");
}

#[test]
fn duplicates_and_overlaps_are_refused() {
    let twice = [entry("a.npy", &array("<f4", &[1], 4)), entry("a.npy", &array("<f4", &[1], 4))];
    assert!(refusal(&simple(&twice), NAME).contains("two entries are named"));
    let good = simple(&[entry("a.npy", b"x"), entry("b.npy", b"y")]);
    // The second directory record is sent to the first one's local header.
    let records: Vec<_> = (0..good.len()).filter(|&i| good[i..].starts_with(b"PK\x01\x02")).collect();
    let mut crossed = good.clone();
    crossed[records[1] + 42..records[1] + 46].fill(0);
    assert!(refusal(&crossed, NAME).contains("local header"));
    // The first payload is said to reach over the second entry.
    let mut wide = good.clone();
    for at in [18, 22, records[0] + 20, records[0] + 24] {
        wide[at] = 20;
    }
    assert!(refusal(&wide, NAME).contains("overlaps"));
    let mut sizes = good.clone();
    for at in [22, records[0] + 24] {
        sizes[at] = 2;
    }
    assert!(refusal(&sizes, NAME).contains("two sizes"));
    sizes[records[0] + 24] = 1;
    assert!(refusal(&sizes, NAME).contains("contradicts"));
    sizes[22] = 1;
    let end = sizes.len() - 12;
    sizes[end] += 1;
    assert!(refusal(&sizes, NAME).contains("its end says"));
    wide[records[0] + 20] = 255;
    wide[18] = 255;
    assert!(refusal(&wide, NAME).contains("leaves the archive"));
}

#[test]
fn a_cut_archive_looks_incompletely_written() {
    let good = simple(&arrays());
    assert!(refusal(&good[..good.len() - 30], NAME).contains("incompletely written"));
    // Other people's broken archives are not refused.
    let other = simple(&[entry("word/document.xml", b"<w/>")]);
    assert_eq!(scanned(&other[..other.len() - 30], "a.docx").unwrap().format, Format::Plain);
    assert_eq!(scanned(&other, "a.docx").unwrap().format, Format::Plain);
}

#[test]
fn archives_that_begin_with_something_else_are_plain() {
    let style = Style { prefix: b"#!/bin/sh\n".to_vec(), ..Style::default() };
    assert_eq!(scanned(&archive(&arrays(), &style), NAME).unwrap().format, Format::Plain);
}

#[test]
fn a_comment_that_looks_like_an_end_record_is_a_comment() {
    let style = Style { comment: [b"PK\x05\x06".as_slice(), &[0; 30]].concat(), ..Style::default() };
    assert_eq!(scanned(&archive(&arrays(), &style), NAME).unwrap().extents.len(), 2);
}

#[test]
fn damage_is_survived() {
    survives_damage(&simple(&arrays()), NAME);
    let wide = Entry { wide: true, ..entry("w.npy", &array("<f4", &[1], 4)) };
    let style = Style { wide: true, ..Style::default() };
    survives_damage(&archive(&[wide], &style), NAME);
}

prop_compose! {
    fn any_entry()(len in 0u64..9, method in prop::sample::select(vec![0u16, 0, 0, 8]), padding in 0usize..70,
                   streamed: bool, wide: bool) -> (u64, Entry) {
        let data = array("<f4", &[len], 4 * len as usize);
        (len, Entry { data, method, padding, streamed, wide, ..Entry::default() })
    }
}

prop_compose! {
    fn any_style()(comment in prop::collection::vec(any::<u8>(), 0..40), wide: bool, reversed: bool,
                   before in 0usize..2, trailer in 0usize..30) -> Style {
        // What precedes an archive we recognise begins like an archive itself.
        let prefix = if before == 0 { Vec::new() } else { simple(&[entry("other", b"!")]) };
        Style { comment, prefix, trailer: vec![0; trailer], wide, reversed }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_archive_is_read(entries in prop::collection::vec(any_entry(), 1..8), style in any_style()) {
        let mut named = Vec::new();
        let mut expected = Vec::new();
        for (i, (len, e)) in entries.into_iter().enumerate() {
            if e.method == 0 {
                expected.push(format!("array{i} f32 [{len}]"));
            }
            named.push(Entry { name: format!("array{i}.npy"), ..e });
        }
        let layout = scanned(&archive(&named, &style), NAME).unwrap();
        prop_assert_eq!(extents(&layout), expected);
    }
}
