//! PyTorch files from before the zip: which tensors are found in them, under which names.

#![allow(clippy::unwrap_used, reason = "this is all test code, outside of any #[test] too")]

use crate::support::{
    extents,
    legacy::{Legacy, MAGIC, checkpoint, is_plain, keys, layout, on, system},
    pickle::Pickle,
    scanned, views,
};
use mdl_files::Format;

#[test]
fn a_training_checkpoint() {
    let file = checkpoint();
    let found = layout(&file);
    let expected = ["model.bias f32 [2]", "state.0.exp_avg f32 [3, 4]", "model.embed.weight f32 [3, 4]"];
    assert_eq!(extents(&found), expected);
    assert_eq!(views(&found), ["model.head.weight 2+0 [3, 4] [4, 1]"]);
    let bytes = file.bytes();
    for e in &found.extents {
        let (from, len) = (e.offset as usize, e.byte_len().unwrap() as usize);
        assert!(bytes[from..from + len].iter().all(|&b| b == 5));
        assert_eq!(bytes[from - 8..from], (len as u64 / 4).to_le_bytes());
    }
    assert_eq!(scanned(&bytes, "blob").unwrap(), found);
    assert_eq!(Format::TorchLegacy as u8, 6);
}

#[test]
fn the_magic_in_every_protocol() {
    let number = &MAGIC[2..];
    let mut file = checkpoint();
    let expected = layout(&file).extents.len();
    let framed = [b"\x80\x04\x95\x0d\0\0\0\0\0\0\0", number].concat();
    let text = b"L119547037146038801333356L\n.".to_vec();
    for magic in [framed, text, [b"\x80\x05", number].concat()] {
        file.magic = magic;
        assert_eq!(layout(&file).extents.len(), expected);
    }
    // Protocol 1 has its booleans as numbers on a line.
    file.system = [b"}X\x0d\0\0\0little_endianI00\ns.".as_slice()].concat();
    assert_eq!(extents(&layout(&file))[0], "model.bias opaque [8]");
    file.system = [b"}X\x0d\0\0\0little_endianI01\ns.".as_slice()].concat();
    assert_eq!(extents(&layout(&file))[0], "model.bias f32 [2]");
    for other in [number, b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x18.", b"\x80\x01", b""] {
        file.magic = other.to_vec();
        if other != number {
            assert!(is_plain(&file));
        }
    }
}

#[test]
fn windows_on_a_longer_storage() {
    let p = on(Pickle::new().raw(b"}(").text("w"), "1", 6, None, (0, &[2, 3]));
    let p = on(p.text("tail"), "1", 6, Some(("2", 2, 4)), (1, &[3]));
    let p = on(p.text("outside"), "1", 6, Some(("3", 5, 1)), (0, &[3]));
    let p = p.text("odd").global("torch._utils", "_rebuild_tensor").raw(b"((").text("storage");
    let p = p.global("torch", "FloatStorage").text("1").text("cpu").int(6).raw(b"]tQ");
    let p = p.int(0).ints(&[1]).ints(&[1]).raw(b"tRu");
    let found = layout(&Legacy::new(p, &[("1", 6, 4)]));
    assert_eq!(extents(&found), ["w f32 [2, 3]"]);
    assert_eq!(views(&found), ["tail 0+12 [3] [1]"]);
    // Where only a window is named, the whole storage is still the extent.
    let p = on(Pickle::new().raw(b"}").text("half"), "1", 6, Some(("2", 3, 3)), (0, &[3])).raw(b"s");
    let found = layout(&Legacy::new(p, &[("1", 6, 4)]));
    assert_eq!(extents(&found), ["half f32 [6]"]);
    assert_eq!(views(&found), ["half 0+12 [3] [1]"]);
}

#[test]
fn names_do_not_depend_on_addresses() {
    // Two storages without a name and two of one name, at addresses in either order.
    let with = |k: [&str; 4]| {
        let p = Pickle::new().raw(b"](");
        let p = p.storage("FloatStorage", k[0], 1).storage("HalfStorage", k[1], 1).raw(b"}(");
        let p = on(p.text("a.b"), k[2], 3, None, (0, &[3])).text("a").raw(b"}").text("b");
        let p = on(p, k[3], 4, None, (0, &[4])).raw(b"sue");
        let mut storages = [(k[0], 1, 4), (k[1], 1, 2), (k[2], 3, 4), (k[3], 4, 4)];
        storages.sort_unstable();
        let mut found = extents(&layout(&Legacy::new(p, &storages)));
        found.sort();
        found
    };
    let expected = ["2.a.b f32 [3]", "2.a.b#2 f32 [4]", "data/0 f32 [1]", "data/1 f16 [1]"];
    assert_eq!(with(["10", "11", "12", "13"]), expected);
    assert_eq!(with(["53", "52", "51", "50"]), expected);
}

#[test]
fn types_and_element_sizes() {
    let p = Pickle::new().raw(b"(");
    let p = p.storage("UntypedStorage", "0", 5).storage("QUInt4x2Storage", "1", 3);
    let p = p.storage("ComplexDoubleStorage", "2", 2).storage("BoolStorage", "3", 7);
    let p = p.storage("StrangeStorage", "4", 1).storage("FloatStorage", "5", 1).raw(b"t");
    let storages = [("0", 5, 1), ("1", 3, 1), ("2", 2, 16), ("3", 7, 1), ("4", 1, 3), ("5", 1, 4)];
    // What follows an element of unknown size cannot be found.
    let expected = ["data/0 opaque [5]", "data/1 opaque [3]", "data/2 c128 [2]", "data/3 bool [7]"];
    let file = Legacy::new(p, &storages);
    assert_eq!(extents(&layout(&file)), expected);
    // Nor what follows a key that the object does not mention.
    let mut unknown = file.clone();
    unknown.keys = keys(&["0", "1", "never", "2"]);
    assert_eq!(extents(&layout(&unknown)), expected[..2]);
    // The type and length that count are those of the first mention.
    let p = Pickle::new().raw(b"(").storage("HalfStorage", "0", 2).storage("FloatStorage", "0", 1);
    assert_eq!(extents(&layout(&Legacy::new(p.raw(b"t"), &[("0", 2, 2)]))), ["data/0 f16 [2]"]);
    // A payload of another length than the object says is opaque.
    let p = Pickle::new().storage("HalfStorage", "0", 9);
    assert_eq!(extents(&layout(&Legacy::new(p, &[("0", 2, 2)]))), ["data/0 opaque [4]"]);
}

#[test]
fn big_endian_files_are_opaque_but_named() {
    let mut file = checkpoint();
    file.system = system(false);
    let found = layout(&file);
    assert_eq!(extents(&found)[2], "model.embed.weight opaque [48]");
    assert!(views(&found).is_empty());
}
