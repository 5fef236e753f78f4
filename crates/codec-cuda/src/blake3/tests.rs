//! Hashes on the shim against the `blake3` crate.

use crate::{
    blake3::*,
    testing::{Noise, session},
};

fn expected(context: &str, head: &[u8], content: &[u8]) -> [u8; 32] {
    *Hasher::new_derive_key(context).update(head).update(content).finalize().as_bytes()
}

fn bytes(n: usize, seed: u64) -> Vec<u8> {
    let mut noise = Noise(seed);
    (0..n).map(|_| noise.next() as u8).collect()
}

fn hash(session: &Session, context: &str, head: &[u8], content: View<'_>) -> Result<[u8; 32]> {
    Ok(hash_all(session, context, &[(head.to_vec(), content)])?[0])
}

#[test]
fn contents_of_every_length_and_alignment() {
    let session = session();
    for n in [0, 1, 63, 64, 1023, 1024, 1025, 2047, 2048, 2049, 3000, 32 * 1024, 33 * 1024 + 5, 100_000] {
        for (head, skew) in [(0, 0), (1, 0), (6, 1), (18, 2), (31, 15), (1024, 4), (1500, 3)] {
            let (head, all) = (bytes(head, 3), bytes(n + skew, n as u64 + 1));
            let memory = session.upload(&all).unwrap();
            let found = hash(&session, "test", &head, memory.view().part(skew..skew + n)).unwrap();
            assert_eq!(found, expected("test", &head, &all[skew..]), "{n} after {} at {skew}", head.len());
        }
    }
}

#[test]
fn trees_of_every_shape() {
    let session = session();
    let all = bytes(600 << 10, 9);
    let memory = session.upload(&all).unwrap();
    let head = b"head".to_vec();
    for chunks in [2, 3, 4, 5, 7, 8, 255, 256, 257, 258, 511, 513, 600] {
        let n = chunks * 1024 - 4 - chunks % 3;
        let found = hash(&session, "a context", &head, memory.view().part(0..n)).unwrap();
        assert_eq!(found, expected("a context", &head, &all[..n]), "{chunks}");
    }
}

#[test]
fn three_levels_of_groups() {
    let session = session();
    // 66,000 chunks would be slow here: their nodes are enough.
    let count = 256 * 256 + 300;
    let nodes = bytes(32 * count, 4);
    let key = hash_derive_key_context("levels");
    let mut level: Vec<[u8; 32]> = nodes.as_chunks::<32>().0.to_vec();
    while level.len() > 2 {
        let merge = |pair: &[[u8; 32]]| match pair {
            [a, b] => ::blake3::hazmat::merge_subtrees_non_root(a, b, Mode::DeriveKeyMaterial(&key)),
            other => other[0],
        };
        level = level.chunks(2).map(merge).collect();
    }
    let words = session.upload(&key).unwrap();
    let found = tops(&session, session.upload(&nodes).unwrap(), vec![count], &words).unwrap();
    assert_eq!(found, level.as_flattened());
}

#[test]
fn many_at_once() {
    let session = session();
    let all = bytes(200_000, 2);
    let memory = session.upload(&all).unwrap();
    let mut noise = Noise(5);
    let mut places: Vec<(usize, usize)> = (0..60)
        .map(|i| {
            let start = noise.next() as usize % 100_000;
            (start, if i % 7 == 0 { noise.next() as usize % 90_000 } else { noise.next() as usize % 5000 })
        })
        .collect();
    places.push((0, 0));
    let jobs: Vec<(Vec<u8>, View<'_>)> =
        places.iter().enumerate().map(|(i, &(at, n))| (bytes(i % 20, 8), memory.view().part(at..at + n))).collect();
    let found = hash_all(&session, "batch", &jobs).unwrap();
    for ((head, _), (&(at, n), found)) in jobs.iter().zip(places.iter().zip(found)) {
        assert_eq!(found, expected("batch", head, &all[at..at + n]), "{n} at {at}");
    }
    assert!(hash_all(&session, "batch", &[]).unwrap().is_empty());
}
