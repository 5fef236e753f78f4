//! Pickles, opcode by opcode, and hostile ones. Each is judged by what it makes of a tensor's name.

#![allow(clippy::unwrap_used, reason = "this is all test code, outside of any #[test] too")]

use crate::support::{
    extents,
    pickle::{Pickle, pt},
    scanned,
};
use proptest::prelude::*;
use std::time::{Duration, Instant};

/// What the storage is called by this pickle: the tensor's name, or its entry.
fn name(pickle: &[u8]) -> String {
    let layout = scanned(&pt(pickle, &[("0", 8)]), "a.pt").unwrap();
    let all = extents(&layout);
    assert_eq!(all.len(), 1);
    all[0].split(' ').next().unwrap_or_default().to_owned()
}

/// A pickle that can be followed to its end through `noise`, which must leave the stack as it was.
fn followed(noise: &[u8]) -> bool {
    let p = Pickle::new().raw(b"}").text("w").raw(noise).whole("0", &[2]).raw(b"s");
    name(&p.stop()) == "w"
}

#[test]
fn values_without_parts() {
    let balanced: [&[u8]; 28] = [
        b"N0",
        b"\x880",
        b"\x890",
        b"K\x010",
        b"M\x01\x020",
        b"J\x01\x02\x03\x040",
        b"I12\n0",
        b"I01\n0",
        b"L12L\n0",
        b"\x8a\x000",
        b"\x8a\x02\xff\xff0",
        b"\x8a\x090123456780",
        b"\x8b\x01\0\0\0\x070",
        b"F1.5\n0",
        b"G\0\0\0\0\0\0\0\x000",
        b"S'a'\n0",
        b"Vab\n0",
        b"U\x01a0",
        b"\x8c\x01a0",
        b"T\x01\0\0\0a0",
        b"X\x01\0\0\0a0",
        b"\x8d\x01\0\0\0\0\0\0\0a0",
        b"C\x01a0",
        b"B\x01\0\0\0a0",
        b"\x8e\x01\0\0\0\0\0\0\0a0",
        b"\x96\x01\0\0\0\0\0\0\0a0",
        b"\x80\x04",
        b"\x95\0\0\0\0\0\0\0\0",
    ];
    for noise in balanced {
        assert!(followed(noise), "{noise:?}");
        // One byte short is never the same.
        assert!(!followed(&noise[..noise.len() - 1]) || noise.len() < 3, "{noise:?}");
    }
}

#[test]
fn stack_memo_containers_and_objects() {
    let balanced: [&[u8]; 25] = [
        b"(1",
        b"(0",
        b"(NN1",
        b"N200",
        b")0",
        b"]0",
        b"}0",
        b"\x8f0",
        b"(NNt0",
        b"(NNl0",
        b"(NNd0",
        b"(NN\x910",
        b"N\x850",
        b"NN\x860",
        b"NNN\x870",
        b"]Na0",
        b"](NNe0",
        b"\x8f(NN\x900",
        b"}NNs0",
        b"}(NNu0",
        b"N\x940",
        b"ca\nb\n0",
        b"ca\nb\n)R}b0",
        b"ca\nb\n)}\x920",
        b"(ia\nb\n0",
    ];
    for noise in balanced {
        assert!(followed(noise), "{noise:?}");
    }
    assert!(followed(b"(ca\nb\nNo0"));
    assert!(followed(b"U\x01aU\x01b\x930"));
    assert!(followed(b"Nq\x05h\x0500"));
    assert!(followed(b"Np7\ng7\n00"));
    assert!(followed(b"Nr\0\0\x01\0j\0\0\x01\x0000"));
    assert!(followed(b"Pabc\n0"));
    assert!(followed(b"NQ0"));
    // Filling an object outside the pickle is nothing to us; filling a tuple is nonsense.
    assert!(followed(b"NQ}b0"));
    for nonsense in
        [b")Na0".as_slice(), b"K\x01Na0", b"(", b"t", b"}(Nu0", b"NN\x930", b"(o0", b"g-1\n0", b"gx\n0", b"\x820"]
    {
        assert!(!followed(nonsense), "{nonsense:?}");
    }
    // What lies below a mark is out of reach until the mark is gone.
    assert!(!followed(b"(\x850"));
}

#[test]
fn protocol_four() {
    let p = Pickle(b"\x80\x04\x95\0\0\0\0\0\0\0\0}\x94\x8c\x01w\x94".to_vec());
    let p = p.raw(b"\x8c\x0ctorch._utils\x94\x8c\x12_rebuild_tensor_v2\x94\x93\x94(");
    let p = p.raw(
        b"(\x8c\x07storage\x94\x8c\x05torch\x94\x8c\x0cFloatStorage\x94\x93\x94\x8c\x010\x94\x8c\x03cpu\x94K\x02t\x94Q",
    );
    let p = p.raw(b"K\x00K\x02\x85\x94K\x01\x85\x94\x89}\x94t\x94R\x94s");
    assert_eq!(name(&p.stop()), "w");
}

#[test]
fn keys_of_every_kind() {
    let under = |key: &[u8]| name(&Pickle::new().raw(b"}").raw(key).whole("0", &[2]).raw(b"s").stop());
    assert_eq!(under(b"K\x07"), "7");
    assert_eq!(under(b"\x8a\x01\xff"), "-1");
    assert_eq!(under(b"K\x01K\x02\x86"), "0");
    assert_eq!(under(b"N"), "0");
    // An address, and the largest number that is taken for none.
    assert_eq!(under(b"\x8a\x06\0\0\0\0\x55\x55"), "0");
    assert_eq!(under(b"\x8a\x05\xff\xff\xff\xff\0"), "4294967295");
    assert_eq!(under(b"U\x02\xff\xfe"), "\u{fffd}\u{fffd}");
    // A root that is the tensor has no name of its own.
    assert_eq!(name(&Pickle::new().whole("0", &[2]).stop()), "data/0");
}

fn quick(pickle: &[u8]) -> String {
    let start = Instant::now();
    let found = name(pickle);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?} for {} bytes", start.elapsed(), pickle.len());
    found
}

#[test]
fn hostile_sharing_ends_quickly() {
    // A billion laughs: each tuple holds the one before it many times.
    let mut p = Pickle::new().whole("0", &[2]).raw(b"q\x000");
    for i in 0..60u8 {
        p = p.raw(b"(").raw(&[b'h', i].repeat(40)).raw(b"t").raw(&[b'q', i + 1]).raw(b"0");
    }
    let laughs = p.raw(&[b'h', 60]).stop();
    assert!(quick(&laughs).starts_with("0.0.0."));
    // A list in itself, and two that hold each other.
    let p = Pickle::new().raw(b"]q\x01h\x01a]q\x02h\x01ah\x02h\x01\x86a").whole("0", &[2]).raw(b"a");
    assert!(!quick(&p.stop()).is_empty());
}

#[test]
fn hostile_depth_and_length_end_quickly() {
    let deep = |n: usize| {
        let p = Pickle::new().raw(&b"]".repeat(n)).whole("0", &[2]);
        quick(&p.raw(&b"a".repeat(n)).stop())
    };
    assert_eq!(deep(3), "0.0.0");
    assert_eq!(deep(99), vec!["0"; 99].join("."));
    // Deeper than names go, and deeper than the machine follows.
    assert_eq!(deep(101), "data/0");
    assert_eq!(deep(200_000), "data/0");
    assert_eq!(deep(2_000_000), "data/0");
    assert_eq!(quick(&Pickle::new().raw(&b"(".repeat(3 << 20)).stop()), "data/0");
    assert_eq!(quick(&Pickle::new().raw(b"N").raw(&b"2".repeat(3 << 20)).stop()), "data/0");
    assert_eq!(quick(&Pickle::new().raw(&b"]".repeat(3 << 20)).stop()), "data/0");
    let memo: Vec<u8> = (0..1u32 << 20).flat_map(|i| [b"r".as_slice(), &i.to_le_bytes()].concat()).collect();
    assert_eq!(quick(&Pickle::new().raw(b"N").raw(&memo).raw(&b"2".repeat(5 << 20)).stop()), "data/0");
    // A long list of numbers is no reason to give up, however long.
    let numbers = b"(".iter().chain(b"K\x01".repeat(1000).iter()).chain(b"e").copied().collect::<Vec<_>>();
    let p = Pickle::new().raw(b"}").text("n").raw(b"]").raw(&numbers.repeat(2000)).raw(b"s");
    assert_eq!(quick(&p.text("w").whole("0", &[2]).raw(b"s").stop()), "w");
}

#[test]
fn hostile_names_do_not_multiply() {
    // One long key, one tensor, a great many pairs of them.
    let p = Pickle::new().text(&"k".repeat(1000)).raw(b"q\x000").whole("0", &[2]).raw(b"q\x010}(");
    let pickle = p.raw(&b"h\0h\x01".repeat(200_000)).raw(b"u").stop();
    let layout = scanned(&pt(&pickle, &[("0", 8)]), "a.pt").unwrap();
    let names: usize = layout.views.iter().map(|v| v.name.len()).sum();
    assert!(names <= 17 * pickle.len());
    let p = Pickle::new().raw(b"}").text(&"k".repeat(1025)).whole("0", &[2]).raw(b"s");
    assert_eq!(quick(&p.stop()), "data/0");
    // A shape of many dimensions is no tensor.
    let p = Pickle::new().raw(b"}").text("w").tensor("FloatStorage", "0", 2, (0, &[1; 65], &[1; 65]));
    assert_eq!(quick(&p.raw(b"s").stop()), "data/0");
    // Wrappers around wrappers.
    let mut p = Pickle::new().raw(b"}").text("w");
    for _ in 0..1000 {
        p = p.global("torch._utils", "_rebuild_parameter").raw(b"(");
    }
    assert!(!quick(&p.whole("0", &[2]).raw(&b"\x88NtR".repeat(1000)).raw(b"s").stop()).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn any_opcodes_are_survived(ops in prop::collection::vec(prop::sample::select(
        b"(012aesubghqcRQ)tld]}\x81\x85\x86\x87\x8f\x90\x91\x92\x93\x94NKM\x88X\n\x00\x01\x02\x03t.".to_vec()), 0..120)) {
        let p = Pickle::new().whole("0", &[2]).raw(b"q\0").raw(&ops);
        let layout = scanned(&pt(&p.stop(), &[("0", 8)]), "a.pt").unwrap();
        prop_assert_eq!(layout.extents.len(), 1);
    }
}
