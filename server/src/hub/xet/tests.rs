//! Shards and xorbs: what is read of generated ones, cut off ones and changed ones.

use super::{internals::chunks as read, shard};
use lz4_flex::frame::FrameEncoder;
use proptest::{collection::vec, prelude::*};
use std::io::Write;

/// The bytes in four groups, one after the other.
fn grouped(bytes: &[u8]) -> Vec<u8> {
    (0..4).flat_map(|group| bytes.iter().skip(group).step_by(4).copied()).collect()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// A xorb of these chunks, each stored in another way than the one before.
fn xorb(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, chunk) in chunks.iter().enumerate() {
        let scheme = (i % 3) as u8;
        let stored = [chunk.clone(), lz4(chunk), lz4(&grouped(chunk))][i % 3].clone();
        out.push(0);
        out.extend_from_slice(&(stored.len() as u32).to_le_bytes()[..3]);
        out.push(scheme);
        out.extend_from_slice(&(chunk.len() as u32).to_le_bytes()[..3]);
        out.extend_from_slice(&stored);
    }
    out
}

/// A shard that was sent by hf_xet 1.8.0, up to the end of its files: one of no bytes, one of 2, "hi".
const SHARD: &str = include_str!("shard.hex");

fn recorded() -> Vec<u8> {
    hex::decode(SHARD.split_whitespace().collect::<String>()).expect("hex digits")
}

#[test]
fn a_shard_of_the_client_says_what_its_files_are_made_of() {
    let files: Vec<_> = shard::files(recorded().as_slice()).expect("a shard").map(|f| f.expect("a file")).collect();
    let sha = |bytes: &[u8]| <[u8; 32]>::from(<sha2::Sha256 as sha2::Digest>::digest(bytes));
    assert_eq!(files.iter().map(|f| (f.sha256, f.size())).collect::<Vec<_>>(), [(sha(b""), 0), (sha(b"hi"), 2)]);
    assert_eq!(files[1].segments.len(), 1);
    assert_eq!(files[1].segments[0].chunks, 0..1);
}

#[test]
fn a_shard_that_is_cut_off_is_refused() {
    let whole = recorded();
    for len in 0..whole.len() {
        let outcome: crate::problem::Result<Vec<_>> = shard::files(&whole[..len]).and_then(Iterator::collect);
        assert!(outcome.is_err(), "{len} bytes");
    }
}

proptest! {
    #[test]
    fn chunks_come_back_however_they_are_stored(
        chunks in vec(vec(any::<u8>(), 1..200), 1..12), start in 0usize..12, len in 0usize..12,
    ) {
        let bytes = xorb(&chunks);
        let start = start.min(chunks.len());
        let end = (start + len).min(chunks.len());
        let wanted = chunks[start..end].concat();
        let range = start as u32..end as u32;
        prop_assert_eq!(&read(&bytes, range.clone(), wanted.len() as u64).expect("chunks"), &wanted);
        prop_assert!(read(&bytes, range.clone(), wanted.len() as u64 + 1).is_err());
        prop_assert!(read(&bytes, range.start..chunks.len() as u32 + 1, wanted.len() as u64).is_err());
    }

    #[test]
    fn damage_gives_errors_or_other_bytes_and_never_more(
        chunks in vec(vec(any::<u8>(), 1..60), 1..5), at in any::<prop::sample::Index>(), flip in 1u8..,
    ) {
        let mut bytes = xorb(&chunks);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let len = chunks.concat().len() as u64;
        if let Ok(read) = read(&bytes, 0..chunks.len() as u32, len) {
            prop_assert_eq!(read.len() as u64, len);
        }
        prop_assert!(read(&bytes[..at], 0..chunks.len() as u32, len).is_err());
    }
}
