//! PyTorch files from before the zip that are cut short, broken or hostile.

#![allow(clippy::unwrap_used, reason = "this is all test code, outside of any #[test] too")]

use crate::support::{
    extents,
    legacy::{Legacy, MAGIC, NAME, checkpoint, is_plain, keys, layout, on},
    pickle::Pickle,
    refusal, scanned, survives, survives_damage,
};
use mdl_files::{Format, Layout, ScanError};

#[test]
fn every_truncation_is_incompletely_written() {
    let bytes = checkpoint().bytes();
    for len in MAGIC.len()..bytes.len() {
        let reason = refusal(&bytes[..len], NAME);
        assert!(reason.contains("incompletely written"), "{len}: {reason}");
    }
    for (text, reason) in [("", "empty"), ("hi", "first bytes")] {
        assert!(refusal(text.as_bytes(), NAME).contains(reason));
    }
    for len in 1..MAGIC.len() {
        assert_eq!(scanned(&bytes[..len], NAME).unwrap(), Layout::plain());
    }
    // What follows the last payload is the user's own.
    let longer = [bytes.clone(), b"more".to_vec()].concat();
    assert_eq!(scanned(&longer, NAME).unwrap(), scanned(&bytes, NAME).unwrap());
}

#[test]
fn damage_is_survived() {
    survives_damage(&checkpoint().bytes(), NAME);
    let p = on(Pickle::new().raw(b"}").text("w"), "1", 6, Some(("2", 2, 4)), (1, &[3]));
    survives_damage(&Legacy::new(p.raw(b"s"), &[("1", 6, 4)]).bytes(), NAME);
}

#[test]
fn pickles_that_cannot_be_followed_are_plain() {
    let good = checkpoint();
    let hopeless: [&[u8]; 4] = [b"\xff.", b"0.", b"h\x63.", b"."];
    for pickle in hopeless {
        let broken = |part: fn(&mut Legacy) -> &mut Vec<u8>| {
            let mut file = good.clone();
            *part(&mut file) = pickle.to_vec();
            is_plain(&file)
        };
        assert!(broken(|f| &mut f.version));
        assert!(broken(|f| &mut f.system));
        assert!(broken(|f| &mut f.object));
        assert!(broken(|f| &mut f.keys));
    }
    let mut other = good.clone();
    other.version = b"\x80\x02M\xea\x03.".to_vec();
    assert!(is_plain(&other));
    // Keys that are no list, or no text: nothing is known to follow.
    for pickle in [b"K\x01.".as_slice(), b"].", b"](K\x01K\x02e."] {
        let mut file = good.clone();
        file.keys = pickle.to_vec();
        assert!(layout(&file).extents.is_empty());
    }
}

#[test]
fn lengths_that_lie_and_keys_twice() {
    let file = checkpoint();
    for count in [i64::MIN, -1, i64::MAX, 1 << 62, 1 << 61, 1 << 40, 26] {
        let mut broken = file.clone();
        broken.payloads[..8].copy_from_slice(&count.to_le_bytes());
        assert!(matches!(scanned(&broken.bytes(), NAME), Err(ScanError::Damaged { format: Format::TorchLegacy, .. })));
    }
    let mut twice = file.clone();
    twice.keys = keys(&["700", "700", "820", "941"]);
    assert!(refusal(&twice.bytes(), NAME).contains("twice"));
}

#[test]
fn long_pickles_and_hostile_ones() {
    // Longer than the first windows, with everything that matters at the end.
    for size in [60_000, 65_400, 65_500, 65_536, 131_000, 1 << 20] {
        let p = Pickle::new().raw(b"}(").text("junk").text(&"x".repeat(size)).text("w");
        let p = on(p, "1", 2, None, (0, &[2])).raw(b"u");
        let file = Legacy::new(p, &[("1", 2, 4)]);
        assert_eq!(extents(&layout(&file)), ["w f32 [2]"]);
        let bytes = file.bytes();
        refusal(&bytes[..bytes.len() - 1], NAME);
    }
    // A value that claims to go on for longer than the file.
    let mut file = checkpoint();
    file.object = b"\x80\x02X\xff\xff\xff\xff".to_vec();
    file.payloads = vec![0; 1 << 20];
    assert!(refusal(&file.bytes(), NAME).contains("incompletely written"));
    // One long key, listed again and again.
    let long = "k".repeat(10_000);
    let p = Pickle::new().storage("FloatStorage", &long, 0);
    let mut file = Legacy::new(p, &[(&long, 0, 4)]);
    file.keys = Pickle::new().raw(b"](").text(&long).raw(b"q\0").raw(&b"h\0".repeat(1 << 20)).raw(b"e").stop();
    survives(&file.bytes(), NAME);
    assert!(refusal(&file.bytes(), NAME).contains("twice"));
}
