//! File downloads: whole, ranges, cached, too large for the cache, damaged.

use crate::support::{Root, commit, entry, live::Live, name, noise, safetensors};
use axum::body::to_bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use mdl_objects::Entry;
use mdl_server::{
    Options,
    app::App,
    content::{Asked, Reader, Validator, digests, respond},
    problem::Problem,
    tasks::fair::Party,
};
use sha2::{Digest, Sha256};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

const FILE: &str = "model.safetensors";
const SHAPES: [(&str, usize, usize); 4] = [("a", 300, 70), ("b", 1, 9), ("big", 2100, 1024), ("c", 64, 64)];

async fn reader(app: &App) -> Reader {
    let repo = app.repo(&name("ada/gpt")).await.expect("the repository");
    Reader { app: app.clone(), repo, party: Party::new("ada", "ada/gpt") }
}

struct Fixture {
    _root: Root,
    app: App,
    repo: Reader,
    /// Three versions of a file, with the bytes.
    versions: Vec<(Entry, Vec<u8>)>,
    card: (Entry, Vec<u8>),
}

async fn fixture(change: impl FnOnce(&mut Options)) -> Fixture {
    let root = Root::new();
    let repo = root.repo("ada/gpt");
    let mut versions = Vec::new();
    let card = b"# A model\n".to_vec();
    let mut last = None;
    for version in 0..3 {
        let bytes = safetensors(&SHAPES, version);
        let id = commit(&repo, &[(FILE, bytes.clone()), ("README.md", card.clone())], "a version", version);
        versions.push((entry(&repo, &id, FILE), bytes));
        last = Some(id);
    }
    let card = (entry(&repo, &last.expect("a commit"), "README.md"), card);
    drop(repo);
    let mut options = root.options();
    change(&mut options);
    let app = root.app(options);
    let repo = reader(&app).await;
    Fixture { _root: root, app, repo, versions, card }
}

fn asked(method: Method, headers: &[(HeaderName, &str)]) -> Asked {
    let pairs = headers.iter().map(|(k, v)| (k.clone(), HeaderValue::from_str(v).expect("a header")));
    Asked { method, headers: HeaderMap::from_iter(pairs) }
}

impl Fixture {
    async fn get(
        &self,
        entry: &Entry,
        headers: &[(HeaderName, &str)],
        by: Validator,
    ) -> (StatusCode, HeaderMap, Vec<u8>) {
        let response = respond(&self.repo, FILE, entry, &asked(Method::GET, headers), by).await;
        let (parts, body) = response.expect("a response").into_parts();
        let bytes = to_bytes(body, usize::MAX).await.expect("a body").to_vec();
        (parts.status, parts.headers, bytes)
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).expect("the header").to_str().expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_files_come_as_they_were_committed_cold_and_cached() {
    for cache in [16 << 30, 0] {
        let f = fixture(|o| o.cache = cache).await;
        for (entry, bytes) in &f.versions {
            for _ in 0..2 {
                let (status, headers, got) = f.get(entry, &[], Validator::Id).await;
                assert_eq!(status, StatusCode::OK);
                assert!(got == *bytes, "with a cache of {cache}");
                assert_eq!(text(&headers, header::CONTENT_LENGTH), bytes.len().to_string());
                assert_eq!(text(&headers, header::ACCEPT_RANGES), "bytes");
            }
        }
        let (_, _, got) = f.get(&f.card.0, &[], Validator::Id).await;
        assert_eq!(got, f.card.1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_come_from_whatever_is_there() {
    let f = fixture(|_| ()).await;
    let (entry, bytes) = &f.versions[2];
    let n = bytes.len();
    for warm in [false, true] {
        for (start, end) in [(0, 1), (0, 8), (n - 1, n), (1000, 90_000), (70_000, n - 3), (0, n)] {
            let range = format!("bytes={start}-{}", end - 1);
            let (status, headers, got) = f.get(entry, &[(header::RANGE, &range)], Validator::Id).await;
            assert_eq!(status, StatusCode::PARTIAL_CONTENT);
            assert!(got == bytes[start..end], "{range}, warm: {warm}");
            assert_eq!(text(&headers, header::CONTENT_RANGE), format!("bytes {start}-{}/{n}", end - 1));
        }
        f.get(entry, &[], Validator::Id).await;
    }
    let beyond = format!("bytes={n}-");
    let beyond = asked(Method::GET, &[(header::RANGE, &beyond)]);
    let problem: Problem = respond(&f.repo, FILE, entry, &beyond, Validator::Id).await.expect_err("416");
    assert_eq!(problem.status, StatusCode::RANGE_NOT_SATISFIABLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn etags_are_of_the_bytes_and_spare_transfers() {
    let f = fixture(|_| ()).await;
    let (entry, bytes) = &f.versions[1];
    let head = respond(&f.repo, FILE, entry, &asked(Method::HEAD, &[]), Validator::Sha256).await.expect("a response");
    let etag = format!("\"{}\"", hex::encode(Sha256::digest(bytes)));
    assert_eq!(text(head.headers(), header::ETAG), etag);
    assert_eq!(text(head.headers(), header::CONTENT_LENGTH), bytes.len().to_string());
    assert!(to_bytes(head.into_body(), 10).await.expect("no body").is_empty());
    let (status, _, got) = f.get(entry, &[(header::IF_NONE_MATCH, &etag)], Validator::Sha256).await;
    assert_eq!((status, got.len()), (StatusCode::NOT_MODIFIED, 0));
    // A part of another version is of no use to one who has this one.
    let conditions = |tag: &'static str| [(header::RANGE, "bytes=0-9"), (header::IF_RANGE, tag)];
    let (status, _, _) = f.get(entry, &conditions("\"other\""), Validator::Sha256).await;
    assert_eq!(status, StatusCode::OK);
    let same: &'static str = etag.leak();
    let (status, _, _) = f.get(entry, &conditions(same), Validator::Sha256).await;
    assert_eq!(status, StatusCode::PARTIAL_CONTENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn digests_are_computed_once_with_and_without_a_cache() {
    for cache in [16 << 30, 0] {
        let f = fixture(|o| o.cache = cache).await;
        let (entry, bytes) = &f.versions[0];
        assert!(digests(&f.repo, entry, Duration::ZERO).await.expect("looked").is_none());
        let wait = Duration::from_secs(60);
        let all = futures_util::future::join_all((0..8).map(|_| digests(&f.repo, entry, wait))).await;
        let want: [u8; 32] = Sha256::digest(bytes).into();
        for found in all {
            assert_eq!(found.expect("computed").expect("in time").sha256, want);
        }
        let known = digests(&f.repo, entry, Duration::ZERO).await.expect("looked").expect("known");
        assert_eq!(known.len, bytes.len() as u64);
        let git = digests(&f.repo, &f.card.0, wait).await.expect("computed").expect("in time").git;
        // As `git hash-object` says.
        assert_eq!(hex::encode(git), "c06b64da4b222b355e7a83daac91e2572f67e525");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_share_one_decoding() {
    let f = fixture(|_| ()).await;
    let (entry, bytes) = &f.versions[2];
    let all = futures_util::future::join_all((0..32).map(|_| f.get(entry, &[], Validator::Id))).await;
    assert!(all.iter().all(|(_, _, got)| got == bytes));
    assert_eq!(f.app.metrics().cache_misses.get(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_keeps_to_its_limit_and_outlives_the_server() {
    let size = safetensors(&SHAPES, 0).len() as u64;
    let f = fixture(|o| o.cache = size * 2 + 100).await;
    for (entry, bytes) in &f.versions {
        assert!(f.get(entry, &[], Validator::Id).await.2 == *bytes);
    }
    let dir = f.app.state().join("decoded");
    let names = || std::fs::read_dir(&dir).expect("listed").flatten().map(|e| e.file_name()).collect::<Vec<_>>();
    for _ in 0..200 {
        if names().len() == 2 && names().iter().all(|n| !n.to_string_lossy().ends_with(".part")) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(names().len(), 2, "{:?}", names());
    std::fs::write(dir.join("x.part"), b"left by a kill").expect("written");
    let again = App::new(f.app.options().clone(), f.app.registry().engine().clone()).expect("an app");
    assert_eq!(names().len(), 2);
    let repo = reader(&again).await;
    let (entry, bytes) = &f.versions[2];
    let response = respond(&repo, FILE, entry, &asked(Method::GET, &[]), Validator::Id).await.expect("a response");
    assert!(to_bytes(response.into_body(), usize::MAX).await.expect("a body") == *bytes);
    assert_eq!((again.metrics().cache_hits.get(), again.metrics().cache_misses.get()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_cuts_the_body_off_or_is_an_error_but_never_wrong_bytes() {
    for cache in [16 << 30, 0] {
        let root = Root::new();
        let repo = root.repo("ada/gpt");
        let bytes = [safetensors(&SHAPES, 0), noise(3, 100)].concat();
        let id = commit(&repo, &[(FILE, safetensors(&SHAPES, 0))], "whole", 0);
        let entry = entry(&repo, &id, FILE);
        drop(repo);
        for pack in std::fs::read_dir(root.path().join("ada/gpt/packs")).expect("packs").flatten() {
            let mut stored = std::fs::read(pack.path()).expect("read");
            let middle = stored.len() / 2;
            stored[middle] ^= 0x55;
            std::fs::write(pack.path(), stored).expect("written");
        }
        let mut options = root.options();
        options.cache = cache;
        let app = root.app(options);
        let repo = reader(&app).await;
        let response = respond(&repo, FILE, &entry, &asked(Method::GET, &[]), Validator::Id).await;
        let got = match response {
            Ok(response) => to_bytes(response.into_body(), usize::MAX).await.ok(),
            Err(_) => None,
        };
        assert!(got.is_none(), "{} bytes came without an error, of {}", got.map_or(0, |g| g.len()), bytes.len());
        let wait = Duration::from_secs(60);
        assert!(!matches!(digests(&repo, &entry, wait).await, Ok(Some(_))));
    }
}

/// Asks for a version as a tar; the answer is for the caller to take.
fn ask_for_tar(url: &str) -> TcpStream {
    let address = url.strip_prefix("http://").expect("http");
    let mut line = TcpStream::connect(address).expect("connected");
    let head =
        format!("GET /api/v1/repos/ada/gpt/checkout/main HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    line.write_all(head.as_bytes()).expect("asked");
    line
}

/// The body of an answer, to its end.
fn body(line: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    line.read_to_end(&mut all).expect("an answer");
    assert!(all.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&all[..200.min(all.len())]));
    let end = all.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
    all.split_off(end)
}

#[test]
fn a_client_that_takes_nothing_keeps_nobody_from_the_memory_that_its_bytes_are_made_in() {
    let root = Root::new();
    let bytes = safetensors(&[("w", 4096, 2560)], 0);
    commit(&root.repo("ada/gpt"), &[(FILE, bytes.clone())], "one", 1);
    let mut options = root.options();
    // One file at a time; and no client is dropped for being slow.
    options.memory = 1;
    options.stall_timeout = Duration::from_secs(600);
    let live = Live::new(&root, options);
    let mut slow = [ask_for_tar(&live.url), ask_for_tar(&live.url)];
    for line in &mut slow {
        // A request that waits for memory has had no answer yet.
        line.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        assert_eq!(line.peek(&mut [0]).expect("an answer begins"), 1);
    }
    let mut quick = ask_for_tar(&live.url);
    quick.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let tar = body(&mut quick);
    assert!(tar.windows(bytes.len()).any(|w| w == bytes));
    for mut line in slow {
        assert!(body(&mut line) == tar, "the slow one gets other bytes");
    }
}
