//! Uploads by the Xet protocol: what a shard says is not believed, and nothing is kept of what is wrong.

use super::{Answer, Site, local, sha256};
use crate::support::http::kept;
use http::Method;
use serde_json::json;
use std::{
    fs,
    path::PathBuf,
    time::{Duration, SystemTime},
};

const MAGIC: &[u8; 32] = b"HFRepoMetaData\0UigEj{\x81W\x83\xa5\xbd\xd9\\\xcd\xd1J\xa9";
const HAS_SHA256: u32 = 1 << 30;

/// Chunks as they are.
fn xorb(chunks: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in chunks {
        let len = (chunk.len() as u32).to_le_bytes();
        out.extend([&[0], &len[..3], &[0], &len[..3], chunk].concat());
    }
    out
}

fn record(hash: &[u8; 32], words: [u32; 4]) -> Vec<u8> {
    [&hash[..], &words.map(u32::to_le_bytes).concat()].concat()
}

/// Of hex digits, as a shard has it.
fn hash(digits: &str) -> [u8; 32] {
    let byte = |i: usize| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("hex digits");
    let mut out: [u8; 32] = std::array::from_fn(byte);
    out.chunks_exact_mut(8).for_each(<[u8]>::reverse);
    out
}

/// Xorb, bytes, first chunk, chunk after the last.
type Segment<'a> = (&'a str, u32, u32, u32);

/// A shard of files: the SHA-256 that each is to have, and its segments.
fn shard(files: &[(String, Vec<Segment<'_>>)]) -> Vec<u8> {
    let mut out = record(MAGIC, [2, 0, 0, 0]);
    for (sha256, segments) in files {
        out.extend(record(&[0; 32], [HAS_SHA256, segments.len() as u32, 0, 0]));
        for (xorb, bytes, start, end) in segments {
            out.extend(record(&hash(xorb), [0, *bytes, *start, *end]));
        }
        out.extend(record(&hash(sha256), [0; 4]));
    }
    out.extend(record(&[0xff; 32], [0; 4]));
    out
}

impl Site {
    /// The address of a new upload.
    async fn xet(&self) -> String {
        let token = self.get("/api/models/ada/gpt/xet-write-token/main").await.ended(200);
        local(token.json()["casUrl"].as_str().expect("an address"))
    }

    async fn xorb(&self, at: &str, name: &str, bytes: Vec<u8>) -> Answer {
        self.ask(Method::POST, &format!("{at}/v1/xorbs/default/{name}"), &[], bytes).await
    }

    async fn shard(&self, at: &str, files: &[(String, Vec<Segment<'_>>)]) -> Answer {
        self.ask(Method::POST, &format!("{at}/v1/shards"), &[], shard(files)).await
    }

    async fn has(&self, bytes: &[u8]) -> bool {
        self.batch("download", bytes, &[]).await["error"].is_null()
    }

    /// Directories of uploads that are here.
    fn sessions(&self) -> Vec<PathBuf> {
        let dir = kept(self.root.path(), "ada/gpt").join("xet");
        fs::read_dir(dir).map_or(Vec::new(), |all| all.flatten().map(|e| e.path()).collect())
    }
}

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const NONE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

#[tokio::test]
async fn a_file_whose_chunks_make_another_sha256_is_refused() {
    let site = Site::new();
    let (at, truth) = (site.xet().await, b"a true model");
    let mut sent = xorb(&[b"a true ", b"model"]);
    let file = [(sha256(truth), vec![(A, 12, 0, 2)])];
    for place in [8, sent.len() - 1] {
        sent[place] ^= 1;
        site.xorb(&at, A, sent.clone()).await.ended(200);
        let refused = site.shard(&at, &file).await.ended(422);
        assert!(refused.json()["detail"].as_str().is_some_and(|d| d.contains("SHA-256")), "{:?}", refused.json());
        assert!(!site.has(truth).await);
        sent[place] ^= 1;
    }
    site.xorb(&at, A, sent).await.ended(200);
    site.shard(&at, &file).await.ended(200);
    assert!(site.has(truth).await);
    let lfs = json!({"key": "lfsFile", "value": {"path": "true.bin", "algo": "sha256", "oid": sha256(truth)}});
    site.commit("main", &[super::header("by Xet"), lfs]).await.ended(200);
    assert_eq!(site.get("/ada/gpt/resolve/main/true.bin").await.body, truth);
}

#[tokio::test]
async fn shards_that_lie_are_refused() {
    let site = Site::new();
    let at = site.xet().await;
    site.xorb(&at, A, xorb(&[b"one", b"two"])).await.ended(200);
    site.xorb(&at, B, xorb(&[b"one", b"", b"two"])).await.ended(200);
    let whole = || sha256(b"onetwo");
    for segments in [
        vec![(A, 7, 0, 2)],
        vec![(A, 5, 0, 2)],
        vec![(A, 6, 0, 3)],
        vec![(A, 6, 1, 2)],
        vec![(A, 6, 0, 2), (A, 0, 0, 0)],
        vec![(A, 6, 0, 2), (A, 0, 1, 1)],
        vec![(A, 6, 2, 0)],
        vec![(B, 6, 0, 3)],
        vec![(NONE, 6, 0, 2)],
    ] {
        site.shard(&at, &[(whole(), segments)]).await.ended(422);
        assert!(!site.has(b"onetwo").await);
    }
    // Work for no bytes: many small chunks of one file.
    let many: Vec<u8> = xorb(&[&b"x"[..]; 8192]);
    site.xorb(&at, B, many).await.ended(200);
    site.shard(&at, &[(sha256(&[b'x'; 8192]), vec![(B, 8192, 0, 8192)])]).await.ended(422);
    // As many files as records.
    site.shard(&at, &vec![(sha256(b""), vec![]); 16_385]).await.ended(422);
    // More bytes than an upload may have, at most 4 GiB a segment.
    let bomb = vec![(A, u32::MAX, 0, 2); 257];
    site.shard(&at, &[(whole(), bomb)]).await.ended(413);
}

#[tokio::test]
async fn what_the_disk_has_no_room_for_is_not_begun() {
    let site = Site::of(|options| options.max_upload = 1 << 60);
    let at = site.xet().await;
    site.xorb(&at, A, xorb(&[b"one", b"two"])).await.ended(200);
    // 4 PiB.
    let bomb = vec![(A, u32::MAX, 0, 2); 1 << 20];
    site.shard(&at, &[(sha256(b"onetwo"), bomb)]).await.ended(507);
}

#[tokio::test]
async fn another_upload_has_none_of_these_xorbs() {
    let site = Site::new();
    site.root.repo("ada/other");
    let at = site.xet().await;
    site.xorb(&at, A, xorb(&[b"one", b"two"])).await.ended(200);
    let file = [(sha256(b"onetwo"), vec![(A, 6, 0, 2)])];
    let other = site.xet().await;
    assert_ne!(at, other);
    for elsewhere in [other, at.replace("ada/gpt", "ada/other")] {
        site.shard(&elsewhere, &file).await.ended(422);
    }
    assert!(!site.has(b"onetwo").await);
}

#[tokio::test]
async fn senders_of_xorbs_that_were_not_kept_do_not_hold_a_session() {
    let site = Site::new();
    let at = site.xet().await;
    site.xorb(&at, A, xorb(&[b"one"])).await.ended(200);
    let session = site.sessions().remove(0);
    fs::remove_file(session.join(A)).expect("the xorb");
    let then = SystemTime::now() - Duration::from_secs(25 * 3600);
    fs::File::open(&session).and_then(|dir| dir.set_modified(then)).expect("a directory");
    site.app.incoming().sweep(&site.app);
    assert!(site.sessions().is_empty());
}
