//! Properties of canonical bytes: what is written is read back, and nothing else is accepted.

use mdl_codec::Dtype;
use mdl_objects::*;
use proptest::prelude::*;

fn id() -> impl Strategy<Value = Id> {
    any::<[u8; 32]>().prop_map(Id::from_bytes)
}

prop_compose! {
    fn signature()(name in ".{0,8}", email in "[a-z@.]{0,8}", time_ms: i64, off in -1000i32..1000) -> Signature {
        Signature { name, email, time_ms, utc_offset_min: off }
    }
}

prop_compose! {
    fn commit()(
        tree in id(), parents in prop::collection::vec(id(), 0..3), author in signature(), message in ".{0,20}",
        step: Option<u64>, epoch in prop::option::of(0.0f64..100.0),
        metrics in prop::collection::btree_map("[a-z/]{1,6}", -1e9f64..1e9, 0..4),
        meta in prop::collection::btree_map("[a-z]{1,6}", ".{0,6}", 0..4), n: u32,
        (report, resumed_from) in (prop::option::of(id()), prop::option::of(id())),
        (quality, side) in (prop::option::of(".{0,9}"), prop::collection::vec(id(), 0..3)),
        (resume, approximation, provenance, signature) in (
            prop::option::of(prop::sample::select(Resume::ALL.to_vec())),
            prop::option::of(id()),
            prop::option::of(".{0,9}"),
            prop::option::of(".{0,9}"),
        ),
        // Between fields that are known, and above them.
        unknown in prop::collection::btree_map(
            prop::sample::select(vec![16u64, 19, 40, 63, 65, 77]),
            prop::collection::vec(any::<u8>(), 0..5),
            0..3,
        ),
    ) -> Commit {
        let (files, logical_bytes) = (u64::from(n), u64::MAX);
        let summary = Summary { files, tensors: 3, new_tensors: 1, logical_bytes, stored_bytes: 9 };
        let unknown = unknown.into_iter().collect();
        Commit {
            tree, parents, author, message, step, epoch, metrics, meta, summary, report, resumed_from, quality, side,
            resume, approximation, provenance, signature, unknown,
        }
    }
}

prop_compose! {
    fn tree()(names in prop::collection::btree_map("[a-z0-9._-]{1,9}", (id(), 0u8..3, any::<bool>(), any::<u64>()), 0..6)) -> Tree {
        let modes = [Mode::Blob, Mode::Manifest, Mode::Tree];
        let entries = names.into_iter().filter(|(n, _)| check_name(n).is_ok()).map(|(name, (id, m, x, size))| {
            let mode = modes[usize::from(m)];
            Entry { name, mode, executable: x && mode != Mode::Tree, size, id }
        }).collect();
        Tree { entries }
    }
}

fn manifest() -> impl Strategy<Value = Manifest> {
    let tensor = (0u64..9, 0usize..Dtype::ALL.len(), prop::collection::vec(0u64..5, 0..3), id());
    (prop::collection::vec(tensor, 0..5), 0u64..9, id()).prop_map(|(list, tail, chunk)| {
        let (mut at, mut gaps, mut tensors) = (0, tail, Vec::new());
        for (i, (gap, d, shape, id)) in list.into_iter().enumerate() {
            let t = TensorRef { name: format!("t{i}"), offset: at + gap, dtype: Dtype::ALL[d], shape, id };
            at += gap + t.byte_len().expect("small");
            gaps += gap;
            tensors.push(t);
        }
        let skeleton = if gaps > 0 { vec![Chunk { id: chunk, len: gaps }] } else { vec![] };
        let views = tensors
            .iter()
            .enumerate()
            .map(|(i, t)| ViewRef {
                name: format!("v{i}"),
                tensor: i as u32,
                offset: 0,
                dtype: t.dtype,
                shape: t.shape.clone(),
                strides: vec![1; t.shape.len()],
            })
            .collect();
        Manifest { format: 1, size: at + tail, skeleton, tensors, views }
    })
}

/// Every truncation and every flipped bit is an error or an object that encodes to exactly those bytes.
fn strict<T>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<T, ObjectError>, encode: impl Fn(&T) -> Vec<u8>) {
    for n in 0..bytes.len() {
        if let Ok(v) = decode(&bytes[..n]) {
            assert_eq!(encode(&v), &bytes[..n]);
        }
    }
    for bit in 0..bytes.len() * 8 {
        let mut b = bytes.to_vec();
        b[bit / 8] ^= 1 << (bit % 8);
        if let Ok(v) = decode(&b) {
            assert_eq!(encode(&v), b);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn commits(c in commit()) {
        let b = c.encode();
        let bare = Commit { signature: None, ..c.clone() };
        prop_assert_eq!(c.signed_bytes(), bare.encode());
        prop_assert_eq!(Commit::decode(&b).expect("own bytes"), c);
        strict(&b, Commit::decode, Commit::encode);
    }

    #[test]
    fn trees(t in tree()) {
        let b = t.encode();
        prop_assert_eq!(Tree::decode(&b).expect("own bytes"), t);
        strict(&b, Tree::decode, Tree::encode);
    }

    #[test]
    fn manifests(m in manifest()) {
        let b = m.encode();
        prop_assert_eq!(Manifest::decode(&b).expect("own bytes"), m);
        strict(&b, Manifest::decode, Manifest::encode);
    }

    #[test]
    fn tags(
        (target, name, tagger, message) in (id(), "[a-z]{1,5}", signature(), ".{0,9}"),
        signature in prop::option::of(".{0,9}"),
    ) {
        let t = Tag { target, name, tagger, message, signature };
        let b = t.encode();
        prop_assert_eq!(t.signed_bytes(), Tag { signature: None, ..t.clone() }.encode());
        prop_assert_eq!(Tag::decode(&b).expect("own bytes"), t);
        strict(&b, Tag::decode, Tag::encode);
    }

    #[test]
    fn ids_round_trip_as_hex(i in id()) {
        prop_assert_eq!(i.to_hex().parse::<Id>(), Ok(i));
        prop_assert!(i.to_hex().to_uppercase().parse::<Id>().is_err() || i.to_hex() == i.to_hex().to_uppercase());
    }
}

#[test]
fn kinds_have_separate_hash_domains() {
    let ids: std::collections::BTreeSet<Id> = Kind::ALL.into_iter().map(|k| Id::from_content(k, b"same")).collect();
    assert_eq!(ids.len(), Kind::ALL.len());
}

#[test]
fn a_tensors_id_covers_dtype_and_shape() {
    let bytes = [0u8; 8];
    let a = tensor_id(Dtype::F32, &[2], &bytes);
    assert_ne!(a, tensor_id(Dtype::I32, &[2], &bytes));
    assert_ne!(a, tensor_id(Dtype::F32, &[2, 1], &bytes));
    assert_ne!(a, tensor_id(Dtype::F32, &[1, 2], &bytes));
    // Frozen: a change here is a change of every id in every repository.
    assert_eq!(a.to_hex(), GOLDEN_TENSOR_ID);
}

const GOLDEN_TENSOR_ID: &str = "ecb3406251291b8167a878e5f2207fe20268716054a8c002e3831b4e33dd0f47";

#[test]
fn unsafe_names_are_refused() {
    for bad in ["", ".", "..", ".mdl", ".MDL", "a/b", "a\\b", "nul\0", "new\nline", &"x".repeat(256)] {
        assert!(check_name(bad).is_err(), "{bad:?}");
    }
    for good in ["a", "...", ".mdlignore", "model.safetensors", "größe", &"x".repeat(255)] {
        assert!(check_name(good).is_ok(), "{good:?}");
    }
}

#[test]
fn unsafe_names_are_refused_inside_trees_too() {
    let id = Id::from_content(Kind::Blob, b"x");
    let e = Entry { name: "../../etc/passwd".into(), mode: Mode::Blob, executable: false, size: 1, id };
    assert!(matches!(Tree::decode(&Tree { entries: vec![e] }.encode()), Err(ObjectError::Name { .. })));
}

/// What a program before signatures wrote, and still reads: a change here is a change of every id.
#[test]
fn a_version_without_a_signature_has_the_bytes_that_it_always_had() {
    let author = b"\x03\x07\x03Ada\x00\x00\x00";
    let bytes =
        [b"\x01\x01\x20", &[1u8; 32][..], author, b"\x04\x01\x00", b"\x09\x05\0\0\0\0\0", b"\x0e\x01\x03"].concat();
    let commit = Commit::decode(&bytes).expect("an earlier version");
    assert_eq!((commit.encode(), commit.signed_bytes()), (bytes.clone(), bytes));
    let tag = [&[1u8][..], &[7; 32], b"\x01v\x03Ada\x00\x00\x00\x01m"].concat();
    assert_eq!(Tag::decode(&tag).expect("an earlier tag").encode(), tag);
    let signed = Tag { signature: Some("s".to_owned()), ..Tag::decode(&tag).expect("tag") };
    assert_eq!(signed.encode(), [&[2u8][..], &tag[1..], b"\x01s"].concat());
}

#[test]
fn a_resume_label_of_a_newer_version_is_carried_along() {
    let author = Signature { name: "Ada".to_owned(), email: String::new(), time_ms: 0, utc_offset_min: 0 };
    let commit = Commit {
        tree: Id::from_bytes([1; 32]),
        parents: Vec::new(),
        author,
        message: String::new(),
        step: None,
        epoch: None,
        metrics: Default::default(),
        meta: Default::default(),
        summary: Summary::default(),
        report: None,
        resumed_from: None,
        quality: None,
        side: Vec::new(),
        resume: Some(Resume::Exact),
        approximation: None,
        provenance: None,
        signature: None,
        unknown: Vec::new(),
    };
    let mut bytes = commit.encode();
    assert_eq!(bytes[bytes.len() - 3..], [14, 1, 3]);
    *bytes.last_mut().expect("bytes") = 9;
    let newer = Commit::decode(&bytes).expect("decode");
    assert_eq!((newer.resume, newer.unknown.as_slice()), (None, &[(14, vec![9])][..]));
    assert_eq!(newer.encode(), bytes);
}
