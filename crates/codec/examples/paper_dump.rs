//! Shows the steps of the paper's delta encoder as JSON, for a reference to compare with.
//!
//! `paper_dump CHILD BINS [PARENT BINS]`: files of little-endian u16 levels. One object: `delta` (one per element),
//! `groups` (by the parent's place), `tokens` (runs of the whole delta), `group_tokens`, and `streams` (hexadecimal, by
//! variant). Without a parent only `streams`, which then are all the same.

use mdl_codec::quant::paper::{Levels, Ring, Variant, cyclic_delta, encode, rearrange, run_tokens};

fn read(path: &str) -> Vec<u16> {
    let bytes = std::fs::read(path).expect("a readable file");
    bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b)).collect()
}

fn bins(word: &str) -> u16 {
    word.parse().expect("a bin count")
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (child, parent) = match &args[..] {
        [child, b] => ((read(child), bins(b)), None),
        [child, b, parent, pb] => ((read(child), bins(b)), Some((read(parent), bins(pb)))),
        _ => return eprintln!("usage: paper_dump CHILD BINS [PARENT BINS]"),
    };
    let levels = Levels::new(&child.0, child.1).expect("levels of the child");
    let base = parent.as_ref().map(|(l, b)| Levels::new(l, *b).expect("levels of the parent"));
    if let Some(base) = base {
        let ring = Ring::from_bins(levels.bins(), base.bins());
        let delta = cyclic_delta(levels, base).expect("as many elements");
        let places: Vec<u16> = ring.places(base).collect();
        let groups = rearrange(&delta, &places, ring.size()).expect("places on the ring");
        let group_tokens: Vec<Vec<i32>> = groups.iter().map(|g| run_tokens(g)).collect();
        print!(
            "{{\"delta\":{delta:?},\"groups\":{groups:?},\"tokens\":{:?},\"group_tokens\":{group_tokens:?},",
            run_tokens(&delta)
        );
    } else {
        print!("{{");
    }
    let streams = Variant::ALL.map(|v| {
        let bytes = encode(v, levels, base).expect("encodes");
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        format!("\"{}\":\"{hex}\"", v.name())
    });
    println!("\"streams\":{{{}}}}}", streams.join(","));
}
