//! Commits of tensors that are in encoded form: what is there is stored as it is, what is known is not read.

use crate::support::place;
use mdl_codec::{Encoded, SEGMENT_BYTES, Scheme};
use mdl_files::{Extent, ReadAt};
use mdl_objects::{Id, Kind};
use mdl_repo::{CommitRequest, Committed, Content, NewFile, Repo, Silent, Source};
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// A file of one tensor, in an encoding that no engine would choose: it shows what was stored.
#[derive(Default)]
struct OneTensor {
    file: Vec<u8>,
    known: Mutex<Option<Id>>,
    read: AtomicU64,
}

impl OneTensor {
    fn new(elements: usize, value: u8) -> Arc<OneTensor> {
        let n = elements * 4;
        let header = format!("{{\"w\":{{\"dtype\":\"F32\",\"shape\":[{elements}],\"data_offsets\":[0,{n}]}}}}");
        let head = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        Arc::new(OneTensor { file: [head, vec![value; n]].concat(), ..OneTensor::default() })
    }

    fn bytes(&self, e: &Extent) -> &[u8] {
        &self.file[e.offset as usize..]
    }
}

impl ReadAt for OneTensor {
    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.file.read_at(offset, buf)
    }
}

impl Source for OneTensor {
    fn known_id(&self, _: &Extent) -> Option<Id> {
        *self.known.lock().expect("known")
    }

    fn hashed(&self, _: &Extent, id: Id) {
        *self.known.lock().expect("known") = Some(id);
    }

    fn encoded(&self, e: &Extent) -> Option<Vec<Encoded>> {
        let stored = |raw: &[u8]| Encoded { bytes: [&[0], raw].concat(), scheme: Scheme::Stored };
        Some(self.bytes(e).chunks(SEGMENT_BYTES).map(stored).collect())
    }
}

fn commit(repo: &Repo, source: &Arc<OneTensor>) -> Committed {
    let file = NewFile { rel: "m.safetensors".to_owned(), executable: false, content: Content::Memory(source.clone()) };
    let request = CommitRequest { files: Some(vec![file]), allow_empty: true, ..CommitRequest::default() };
    mdl_repo::commit(repo, &request, &Silent).expect("commit")
}

#[test]
fn an_encoding_that_is_there_is_stored_as_it_is() {
    // The larger one is read a few segments at a time.
    for elements in [3 << 20, 17 << 20] {
        let place = place();
        let source = OneTensor::new(elements, 7);
        let stored = commit(&place.repo, &source).summary.stored_bytes;
        assert!(stored > elements as u64 * 4, "{stored}: it was encoded");
        assert_eq!(mdl_repo::fsck(&place.repo, true, &Silent).expect("fsck").problems, []);
        // Against an earlier version the engine has more to choose from.
        let next = OneTensor::new(elements, 8);
        assert!(commit(&place.repo, &next).summary.stored_bytes < 100_000);
    }
}

#[test]
fn a_tensor_that_is_known_and_stored_is_not_read() {
    for elements in [1 << 16, 17 << 20] {
        let place = place();
        let source = OneTensor::new(elements, 7);
        let first = commit(&place.repo, &source);
        assert!(source.known.lock().expect("known").is_some(), "it was not told");
        source.read.store(0, Ordering::Relaxed);
        let again = commit(&place.repo, &source);
        let tree = |made: &Committed| place.repo.odb().commit(&made.id).expect("commit").tree;
        assert_eq!(tree(&first), tree(&again));
        assert!(source.read.load(Ordering::Relaxed) < 4096, "it was read");
        // What the repository lacks is read, whatever its id is said to be.
        let other = OneTensor::new(elements, 9);
        *other.known.lock().expect("known") = Some(Id::from_content(Kind::Tensor, b"another"));
        assert_ne!(tree(&first), tree(&commit(&place.repo, &other)));
        assert!(other.read.load(Ordering::Relaxed) > elements as u64 * 4);
        assert_eq!(mdl_repo::fsck(&place.repo, true, &Silent).expect("fsck").problems, []);
    }
}
