//! Layout checks: broken layouts are noticed. Also the file source.

use mdl_codec::Dtype;
use mdl_files::{Extent, FileSource, Format, Layout, ReadAt, View, scan};
use std::path::Path;

fn extent(name: &str, offset: u64, shape: &[u64]) -> Extent {
    Extent { offset, dtype: Dtype::F32, shape: shape.into(), name: name.into() }
}

fn view(extent: u32, offset: u64, shape: &[u64], strides: &[u64]) -> View {
    View { name: "v".into(), extent, offset, dtype: Dtype::F16, shape: shape.into(), strides: strides.into() }
}

fn verdict(extents: Vec<Extent>, views: Vec<View>) -> String {
    let layout = Layout { format: Format::Safetensors, extents, views };
    layout.check(100).err().unwrap_or_default()
}

#[test]
fn extents_keep_order_and_bounds() {
    let good = vec![extent("a", 0, &[5, 5]), extent("e", 100, &[0]), extent("f", 100, &[3, 0])];
    assert_eq!(verdict(good, vec![]), "");
    assert!(verdict(vec![extent("a", 0, &[26])], vec![]).contains("end of the file"));
    assert!(verdict(vec![extent("a", 101, &[0])], vec![]).contains("end of the file"));
    assert!(verdict(vec![extent("a", 4, &[2]), extent("b", 8, &[2])], vec![]).contains("overlaps"));
    assert!(verdict(vec![extent("a", 4, &[1]), extent("b", 0, &[1])], vec![]).contains("overlaps"));
    assert!(verdict(vec![extent("a", 0, &[1]), extent("a", 8, &[1])], vec![]).contains("named"));
    assert!(verdict(vec![extent("a", 0, &[u64::MAX, 9])], vec![]).contains("overflows"));
    assert!(verdict(vec![extent("a", u64::MAX, &[1])], vec![]).contains("overflows"));
}

#[test]
fn views_stay_inside_their_extent() {
    let of = |v| verdict(vec![extent("a", 0, &[4])], vec![v]);
    for good in [
        view(0, 0, &[8], &[1]),
        view(0, 14, &[], &[]),
        view(0, 16, &[9, 0], &[u64::MAX, 1]),
        view(0, 0, &[99, 2], &[0, 7]),
        view(0, 2, &[2, 2], &[4, 2]),
    ] {
        assert_eq!(of(good), "");
    }
    assert!(of(view(1, 0, &[], &[])).contains("no extent"));
    for bad in [
        view(0, 0, &[9], &[1]),
        view(0, 15, &[], &[]),
        view(0, 17, &[0], &[1]),
        view(0, 0, &[2], &[]),
        view(0, u64::MAX, &[], &[]),
        view(0, 0, &[3, 2], &[u64::MAX, 1]),
        view(0, 0, &[2], &[u64::MAX / 2]),
    ] {
        assert!(of(bad).contains("leaves"));
    }
}

#[test]
fn a_file_is_a_source() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let source = FileSource::open(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(source.size(), bytes.len() as u64);
    let mut piece = [0; 7];
    source.read_at(3, &mut piece).unwrap();
    assert_eq!(piece, bytes[3..10]);
    assert!(source.read_at(source.size() - 1, &mut piece).is_err());
    assert_eq!(scan(&source, &path).unwrap(), Layout::plain());
}
