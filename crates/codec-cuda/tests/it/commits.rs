//! Commits of tensors that lie in a device's memory: the same version as from the host, with only encodings on the bus.
//! The device is the shim, whose memory this code cannot tell from a GPU's.

use crate::{
    support::{engine, place},
    xorshift::Xorshift,
};
use mdl_codec::{Device, Dtype, EncodedTensor, Engine, Held, SEGMENT_BYTES, Span};
use mdl_codec_cuda::{CudaEngine, shim};
use mdl_files::ReadAt;
use mdl_repo::{CommitRequest, Committed, Content, NewFile, Repo, Silent, Source};
use std::{io, sync::Arc};
use tempfile::TempDir;

/// A file whose header is here and whose tensors are there.
struct There {
    engine: Arc<CudaEngine>,
    header: Vec<u8>,
    /// Offset and memory of each tensor.
    tensors: Vec<(u64, Box<dyn Held>)>,
    size: u64,
}

impl ReadAt for There {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if let Some(head) = self.header.get(offset as usize..offset as usize + buf.len()) {
            buf.copy_from_slice(head);
            return Ok(());
        }
        let span = self.on_device(offset, buf.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.engine.read(span, buf).map_err(io::Error::other)
    }
}

impl Source for There {
    fn on_device(&self, offset: u64, len: u64) -> Option<Span> {
        let (start, held) = self.tensors.iter().rfind(|(start, _)| *start <= offset)?;
        held.span().part((offset - start) as usize, len as usize)
    }
}

type Tensors = Vec<(&'static str, Dtype, Vec<u8>)>;

/// A safetensors file's header, and where its tensors begin.
fn header(tensors: &Tensors) -> (Vec<u8>, Vec<u64>) {
    let (mut at, mut starts, mut parts) = (0, Vec::new(), Vec::new());
    for (name, dtype, bytes) in tensors {
        let end = at + bytes.len();
        let (kind, n) = (dtype.name().to_uppercase(), bytes.len() / dtype.size());
        parts.push(format!("\"{name}\":{{\"dtype\":\"{kind}\",\"shape\":[{n}],\"data_offsets\":[{at},{end}]}}"));
        starts.push(at as u64);
        at = end;
    }
    let text = format!("{{{}}}", parts.join(","));
    let head = [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let base = head.len() as u64;
    (head, starts.into_iter().map(|s| s + base).collect())
}

fn here(tensors: &Tensors) -> NewFile {
    let (mut bytes, _) = header(tensors);
    tensors.iter().for_each(|t| bytes.extend_from_slice(&t.2));
    file(Arc::new(bytes))
}

fn there(engine: &Arc<CudaEngine>, tensors: &Tensors) -> NewFile {
    let (header, starts) = header(tensors);
    let put = |bytes: &[u8]| {
        let segments: Vec<Vec<u8>> = bytes.chunks(SEGMENT_BYTES).map(|s| [&[0], s].concat()).collect();
        let stored =
            EncodedTensor { dtype: Dtype::U8, len: bytes.len(), segments: &segments, base: None, grandparent: None };
        Device::decode(&**engine, stored).expect("room")
    };
    let size = header.len() as u64 + tensors.iter().map(|t| t.2.len() as u64).sum::<u64>();
    file(Arc::new(There {
        engine: engine.clone(),
        header,
        tensors: starts.into_iter().zip(tensors.iter().map(|t| put(&t.2))).collect(),
        size,
    }))
}

fn file(source: Arc<dyn Source>) -> NewFile {
    NewFile { rel: "model.safetensors".to_owned(), executable: false, content: Content::Memory(source) }
}

fn commit(repo: &Repo, file: NewFile) -> Committed {
    let request = CommitRequest { files: Some(vec![file]), message: "a step".to_owned(), ..CommitRequest::default() };
    mdl_repo::commit(repo, &request, &Silent).expect("commit")
}

/// A model at a step: weights of which some move, levels of a quantiser, something constant, a tensor that never
/// changes.
fn model(step: u64, n: usize) -> Tensors {
    let mut first = Xorshift(7);
    let mut weights: Vec<f32> = (0..n).map(|_| (first.next() >> 40) as f32 / (1 << 24) as f32 - 0.5).collect();
    let mut levels: Vec<f32> = weights.iter().map(|w| (w * 8.0).round() / 8.0).collect();
    let mut noise = Xorshift(step + 1);
    for _ in 0..step {
        for (w, l) in weights.iter_mut().zip(&mut levels) {
            if noise.next().is_multiple_of(100) {
                *w += 1e-4;
                *l += 0.125;
            }
        }
    }
    let bytes = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let half: Vec<u8> = weights.iter().flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect();
    vec![
        ("bias", Dtype::F32, bytes(&weights[..33])),
        ("constant", Dtype::F32, bytes(&vec![step as f32; 5000])),
        ("frozen", Dtype::BF16, vec![0x3f; 4096]),
        ("half", Dtype::BF16, half),
        ("levels", Dtype::F32, bytes(&levels)),
        ("weights", Dtype::F32, bytes(&weights)),
    ]
}

#[test]
fn versions_from_a_device_are_those_from_the_host() {
    let device = Arc::new(shim(1 << 30));
    let dir = TempDir::new().expect("temp dir");
    let (over_there, _) = Repo::init(dir.path(), false, "main", device.clone()).expect("init");
    let host = place();
    for step in 0..4 {
        let tensors = model(step, 60_000);
        let (a, b) = (commit(&host.repo, here(&tensors)), commit(&over_there, there(&device, &tensors)));
        let tree = |repo: &Repo, c: &Committed| repo.odb().commit(&c.id).expect("commit").tree;
        assert_eq!(tree(&host.repo, &a), tree(&over_there, &b), "step {step}");
        // Not only the same tensors: stored in the same way, in as many bytes.
        assert_eq!(a.summary.stored_bytes, b.summary.stored_bytes, "step {step}");
    }
    let report = mdl_repo::fsck(&over_there, false, &Silent).expect("fsck");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    // What a device wrote, the host reads.
    let again = Repo::open(dir.path(), engine()).expect("open");
    let all = mdl_repo::resolve(&again, "main").expect("revision");
    let out = TempDir::new().expect("temp dir");
    mdl_repo::checkout_to(&again, &all, out.path(), &Default::default(), &Silent).expect("checkout");
    let read = std::fs::read(out.path().join("model.safetensors")).expect("file");
    let Content::Memory(right) = here(&model(3, 60_000)).content else { panic!("in memory") };
    let mut bytes = vec![0; right.size() as usize];
    right.read_at(0, &mut bytes).expect("bytes");
    assert!(read == bytes);
}

#[test]
fn only_encodings_and_samples_cross_the_bus() {
    let device = Arc::new(shim(1 << 30));
    let dir = TempDir::new().expect("temp dir");
    let (repo, _) = Repo::init(dir.path(), false, "main", device.clone()).expect("init");
    let n = 2 << 20;
    let mut traffic = Vec::new();
    let mut stored = Vec::new();
    for step in 0..2 {
        let mut tensors = model(step, n);
        tensors.retain(|(name, ..)| *name == "levels" || *name == "weights");
        let file = there(&device, &tensors);
        let before = device.traffic();
        stored.push(commit(&repo, file).summary.stored_bytes);
        let after = device.traffic();
        traffic.push((after.0 - before.0, after.1 - before.1));
    }
    let raw = 2 * 4 * n as u64;
    eprintln!("{raw} bytes of tensors; stored {stored:?}; (up, down) {traffic:?}");
    // Down: what is stored, samples (of each segment 32Ki elements, and of its base) and counts.
    let samples = 2 * raw.div_ceil(SEGMENT_BYTES as u64) * 4 * (32 << 10);
    for (stored, (_, down)) in stored.iter().zip(&traffic) {
        assert!(*down <= stored + samples + (1 << 20), "{down} bytes came for {stored} stored");
    }
    // Up: what the parent is stored in, and tables.
    assert!(traffic[1].0 <= stored[0] + (1 << 20), "{} bytes went up for a parent of {}", traffic[1].0, stored[0]);
}

#[test]
fn a_device_without_room_is_done_without() {
    for memory in [1_500_000, 4_000_000] {
        let device = Arc::new(shim(memory));
        let dir = TempDir::new().expect("temp dir");
        let (repo, _) = Repo::init(dir.path(), false, "main", device.clone()).expect("init");
        let host = place();
        for step in 0..3 {
            let mut tensors = model(step, 40_000);
            tensors.retain(|(name, ..)| *name != "levels");
            let (a, b) = (commit(&host.repo, here(&tensors)), commit(&repo, there(&device, &tensors)));
            assert_eq!(a.summary.stored_bytes, b.summary.stored_bytes, "step {step}, {memory} bytes");
        }
        assert!(mdl_repo::fsck(&repo, false, &Silent).expect("fsck").problems.is_empty());
    }
}

#[test]
fn the_engine_is_asked_for_a_device_only_by_tensors_on_one() {
    assert!(engine().device(0).is_none());
    let device = shim(1 << 20);
    assert!(device.device(1).is_none());
    assert_eq!(device.device(0).map(Device::ordinal), Some(0));
}
