//! PyTorch archives: what their pickles name, and what happens when they cannot be followed.

#![allow(clippy::unwrap_used, reason = "this is all test code, outside of any #[test] too")]

use crate::support::{
    extents,
    pickle::{Pickle, checkpoint, pt, pt_entries},
    refusal, scanned, survives_damage, views,
    zip::{Entry, Style, archive, entry, simple},
};
use mdl_files::Format;

const NAME: &str = "ckpt.pt";

fn of(pickle: Pickle, storages: &[(&str, usize)]) -> (Vec<String>, Vec<String>) {
    let layout = scanned(&pt(&pickle.stop(), storages), NAME).unwrap();
    assert_eq!(layout.format, Format::TorchZip);
    (extents(&layout), views(&layout))
}

#[test]
fn a_training_checkpoint() {
    let bytes = checkpoint();
    let layout = scanned(&bytes, NAME).unwrap();
    let expected = ["model.embed.weight f32 [3, 4]", "model.bias f32 [2]", "optimizer.state.0.exp_avg f32 [3, 4]"];
    assert_eq!(extents(&layout), expected);
    assert_eq!(views(&layout), ["model.head.weight 0+0 [3, 4] [4, 1]"]);
    for e in &layout.extents {
        let from = e.offset as usize;
        assert!(bytes[from..from + e.byte_len().unwrap() as usize].iter().all(|&b| b == 5));
    }
    // Neither the extension nor the directory's name matter.
    assert_eq!(scanned(&bytes, "blob").unwrap(), layout);
}

#[test]
fn names_do_not_depend_on_storage_keys() {
    let with = |a: &str, b: &str| {
        let p = Pickle::new().raw(b"}(").text("a").whole(a, &[2]).text("b").whole(b, &[3]).raw(b"u");
        let mut names = of(p, &[(a, 4 * 2), (b, 4 * 3)]).0;
        names.sort();
        names
    };
    assert_eq!(with("0", "1"), ["a f32 [2]", "b f32 [3]"]);
    assert_eq!(with("0", "1"), with("17", "4"));
}

#[test]
fn views_strides_and_partial_coverage() {
    let window = |p: Pickle, name: &str, w: (i32, &[i32], &[i32])| p.text(name).tensor("FloatStorage", "0", 6, w);
    let p = window(Pickle::new().raw(b"}("), "z.row", (3, &[3], &[1]));
    let p = window(p, "col", (1, &[2], &[3]));
    let p = window(p, "t", (0, &[3, 2], &[1, 3]));
    let p = window(p, "outside", (4, &[3], &[1])).raw(b"u");
    let (e, v) = of(p, &[("0", 24)]);
    // No tensor is the storage as it lies there; the one that would leave it lends its name to nothing but the extent.
    assert_eq!(e, ["col f32 [6]"]);
    assert_eq!(v, ["col 0+4 [2] [3]", "t 0+0 [3, 2] [1, 3]", "z.row 0+12 [3] [1]"]);
}

#[test]
fn odd_dimensions_and_empty_storages() {
    let p = Pickle::new().raw(b"](").whole("0", &[]).whole("1", &[0]);
    let p = p.tensor("HalfStorage", "2", 3, (0, &[1, 3], &[77, 1])).raw(b"e");
    let (e, v) = of(p, &[("0", 4), ("1", 0), ("2", 6)]);
    assert_eq!(e, ["0 f32 []", "1 f32 [0]", "2 f16 [1, 3]"]);
    assert!(v.is_empty());
}

#[test]
fn objects_parameters_and_wrappers() {
    let p = Pickle::new().raw(b"}(").text("net").global("my.module", "Net").raw(b")\x81}(");
    let p = p.text("_modules").raw(b"}").text("conv").global("my.module", "Conv").raw(b")R}");
    let p = p.text("_parameters").raw(b"}").text("weight").global("torch._utils", "_rebuild_parameter").raw(b"(");
    let p = p.whole("0", &[2]).raw(b"\x88NtR").raw(b"ssbs");
    let p = p.text("extra").whole("1", &[1]).raw(b"ub");
    let p = p.text("sub").global("torch._tensor", "_rebuild_from_type_v2").raw(b"(");
    let p = p.global("torch._utils", "_rebuild_tensor_v2").global("my", "Sub").raw(b"(");
    let p = p.storage("LongStorage", "2", 1).int(0).ints(&[1]).ints(&[1]).raw(b"\x89Nt}tR");
    let p = p.text("slots").global("my", "S").raw(b")R}").text("d").whole("3", &[1]).raw(b"s}");
    let p = p.text("s").whole("4", &[1]).raw(b"s\x86bu");
    let (e, _) = of(p, &[("0", 8), ("1", 4), ("2", 8), ("3", 4), ("4", 4)]);
    let expected =
        ["net.conv.weight f32 [2]", "net.extra f32 [1]", "sub i64 [1]", "slots.d f32 [1]", "slots.s f32 [1]"];
    assert_eq!(e, expected);
}

#[test]
fn types_that_only_the_third_version_knows() {
    let p = Pickle::new().raw(b"}").text("w").global("torch._utils", "_rebuild_tensor_v3").raw(b"(");
    let p = p.storage("UntypedStorage", "0", 4).int(0).ints(&[4]).ints(&[1]).raw(b"\x89N");
    let (e, _) = of(p.global("torch", "float8_e4m3fn").raw(b"tRs"), &[("0", 4)]);
    assert_eq!(e, ["w f8e4m3 [4]"]);
}

#[test]
fn storages_nobody_names_go_by_their_entry() {
    let p = Pickle::new().raw(b"(").storage("FloatStorage", "0", 2).storage("StrangeStorage", "1", 2);
    let p = p.storage("FloatStorage", "2", 99).raw(b"t");
    let (e, _) = of(p, &[("0", 8), ("1", 8), ("2", 8), ("never mentioned", 3)]);
    let expected = ["data/0 f32 [2]", "data/1 opaque [8]", "data/2 opaque [8]", "data/never mentioned opaque [3]"];
    assert_eq!(e, expected);
}

#[test]
fn equal_names_are_told_apart() {
    let p = Pickle::new().raw(b"}(").text("a.b").whole("0", &[1]);
    let p = p.text("a").raw(b"}").text("b").whole("1", &[1]).raw(b"su");
    assert_eq!(of(p, &[("0", 4), ("1", 4)]).0, ["a.b f32 [1]", "a.b#2 f32 [1]"]);
}

#[test]
fn big_endian_archives_are_opaque_but_named() {
    let pickle = Pickle::new().raw(b"}").text("w").whole("0", &[2]).raw(b"s").stop();
    let mut entries = pt_entries(&pickle, &[("0", 8)]);
    entries[1].data = b"big".to_vec();
    assert_eq!(extents(&scanned(&simple(&entries), NAME).unwrap()), ["w opaque [8]"]);
}

#[test]
fn pickles_that_cannot_be_followed_leave_opaque_storages() {
    let good = Pickle::new().raw(b"}").text("w").whole("0", &[2]).raw(b"s");
    let hopeless: [Vec<u8>; 5] = [
        good.clone().0,                    // no STOP
        good.clone().raw(b"\xff").stop(),  // no such opcode
        good.clone().raw(b"00").stop(),    // empty stack
        good.clone().raw(b"h\x63").stop(), // never memorised
        Vec::new(),
    ];
    for pickle in hopeless {
        let layout = scanned(&pt(&pickle, &[("0", 8)]), NAME).unwrap();
        assert_eq!(extents(&layout), ["data/0 opaque [8]"]);
    }
    let mut packed = pt_entries(&good.stop(), &[("0", 8)]);
    packed[0].method = 8;
    assert_eq!(extents(&scanned(&simple(&packed), NAME).unwrap()), ["data/0 opaque [8]"]);
    let last = packed.len() - 2;
    packed[last].method = 8;
    assert!(scanned(&simple(&packed), NAME).unwrap().extents.is_empty());
}

#[test]
fn script_archives_have_a_second_pickle() {
    let data = Pickle::new().global("__torch__", "M").raw(b")\x81}").text("w").whole("0", &[1]).raw(b"sb").stop();
    let constants = Pickle::new().whole("0", &[2]).raw(b"\x85").stop();
    let entries = [
        entry("m/constants.pkl", &constants),
        entry("m/data.pkl", &data),
        entry("m/code/__torch__.py", b"class M(Module):"),
        entry("m/constants/0", &[0; 8]),
        entry("m/data/0", &[0; 4]),
    ];
    let layout = scanned(&simple(&entries), "m.ptl").unwrap();
    assert_eq!(extents(&layout), ["constants.0 f32 [2]", "w f32 [1]"]);
    // Views follow their storage when the two directories lie in another order than the pickles.
    let data = Pickle::new().raw(b"}(").text("w").whole("0", &[1]).text("x").whole("0", &[1]).raw(b"u").stop();
    let entries = [
        entry("m/data.pkl", &data),
        entry("m/constants.pkl", &constants),
        entry("m/constants/0", &[0; 8]),
        entry("m/data/0", &[0; 4]),
    ];
    let layout = scanned(&simple(&entries), NAME).unwrap();
    assert_eq!(extents(&layout), ["constants.0 f32 [2]", "w f32 [1]"]);
    assert_eq!(views(&layout), ["x 1+0 [1] [1]"]);
    let tagged = Pickle::new().raw(b"}").text("d").global("torch.jit._pickle", "restore_type_tag").raw(b"}");
    let tagged = tagged.text("k").whole("0", &[1]).raw(b"s").text("Dict[str, Tensor]").raw(b"\x86Rs");
    assert_eq!(of(tagged, &[("0", 4)]).0, ["d.k f32 [1]"]);
}

#[test]
fn archives_in_every_style() {
    let pickle = Pickle::new().raw(b"}").text("w").whole("0", &[2]).raw(b"s").stop();
    for bits in 0..32u32 {
        let bit = |i: u32| bits >> i & 1 == 1;
        let style = Style {
            comment: vec![b'c'; if bit(0) { 7 } else { 0 }],
            wide: bit(1),
            reversed: bit(2),
            ..Style::default()
        };
        let entries: Vec<_> = pt_entries(&pickle, &[("0", 8)]);
        let entries = entries.into_iter().map(|e| Entry { wide: bit(3), streamed: bit(4), ..e });
        let layout = scanned(&archive(&entries.collect::<Vec<_>>(), &style), NAME).unwrap();
        assert_eq!(extents(&layout), ["w f32 [2]"], "{style:?}");
    }
}

#[test]
fn cut_files() {
    let good = checkpoint();
    assert!(refusal(&good[..good.len() - 100], NAME).contains("incompletely written"));
    assert!(refusal(&good[..good.len() - 100], "blob").contains("incompletely written"));
}

#[test]
fn damage_is_survived() {
    survives_damage(&checkpoint(), NAME);
}

#[test]
fn the_pickle_alone_is_damaged_in_every_bit() {
    // Flips in the pickle leave the zip whole, so they reach the machine.
    let p = Pickle::new().raw(b"}(").text("a").whole("0", &[2, 2]).text("b").raw(b"](q\x01K\x01h\x01eu");
    let pickle = p.stop();
    for bit in 0..8 * pickle.len() {
        let mut broken = pickle.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        let layout = scanned(&pt(&broken, &[("0", 16)]), NAME).unwrap();
        assert_eq!(layout.extents.len(), 1);
        let layout = scanned(&pt(&pickle[..bit / 8], &[("0", 16)]), NAME).unwrap();
        assert_eq!(extents(&layout), ["data/0 opaque [16]"]);
    }
}

#[test]
fn many_pickles_and_many_storages_do_not_multiply() {
    let pickle = Pickle::new().raw(b"}").stop();
    let mut entries = vec![entry("a/data.pkl", &pickle)];
    entries.extend((0..20_000).map(|i| entry(&format!("a/p{i}.pkl"), &pickle)));
    entries.extend((0..20_000).map(|i| entry(&format!("a/data/{i}"), b"12")));
    let start = std::time::Instant::now();
    assert_eq!(scanned(&archive(&entries, &Style::default()), NAME).unwrap().extents.len(), 20_000);
    assert!(start.elapsed() < std::time::Duration::from_secs(30));
}
