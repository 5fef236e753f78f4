//! Resumable uploads: broken off anywhere, resumed, across restarts; wrong hashes are refused; commits use them.

use crate::support::{
    Root,
    http::{Answer, REPO, ask, kept, request, send, spooled},
    name, noise, sha256,
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use mdl_server::app::App;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn fixture() -> (Root, App) {
    let root = Root::new();
    drop(root.repo("ada/gpt"));
    let app = root.app(root.options());
    (root, app)
}

async fn begin(app: &App, size: usize, sha256: Option<&str>) -> String {
    let answer = ask(app, "POST", "/uploads", Some(json!({"size": size, "sha256": sha256}))).await;
    assert_eq!((answer.status.as_u16(), &answer.json["offset"]), (201, &json!(0)), "{}", answer.text);
    let id = answer.json["id"].as_str().expect("an id").to_owned();
    assert_eq!(answer.headers["location"], format!("{REPO}/uploads/{id}"));
    id
}

async fn patch(app: &App, id: &str, offset: u64, body: impl Into<Body>) -> Answer {
    let mut request = request("PATCH", &format!("/uploads/{id}"), "application/octet-stream", body);
    request.headers_mut().insert("upload-offset", offset.into());
    send(app, request).await
}

async fn offset(app: &App, id: &str) -> u64 {
    let answer = ask(app, "HEAD", &format!("/uploads/{id}"), None).await;
    assert_eq!(answer.status, 200);
    answer.headers["upload-offset"].to_str().expect("text").parse().expect("a number")
}

/// Sends `bytes` and breaks off.
fn broken(bytes: &[u8]) -> Body {
    let part = Ok(Bytes::copy_from_slice(bytes));
    Body::from_stream(stream::iter([part, Err(std::io::Error::other("the line is cut"))]))
}

fn left(root: &Root) -> usize {
    let dir = kept(root.path(), "ada/gpt").join("uploads");
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

async fn commit(app: &App, uploads: Value) -> Answer {
    ask(app, "POST", "/commits", Some(json!({"message": "from uploads", "uploads": uploads}))).await
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn whatever_arrived_before_a_break_counts(
        size in 0_usize..200_000, cuts in prop::collection::vec(0_usize..70_000, 0..6),
    ) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let (root, mut app) = fixture();
            let bytes = noise(size as u64 + 1, size);
            let id = begin(&app, size, Some(&sha256(&bytes))).await;
            let mut at = 0;
            for cut in cuts {
                let end = (at + cut).min(size);
                let answer = patch(&app, &id, at as u64, broken(&bytes[at..end])).await;
                assert_eq!(answer.status, 400, "{}", answer.text);
                // Another server on the same files: as after a kill.
                app = root.app(root.options());
                assert_eq!(offset(&app, &id).await, end as u64);
                at = end;
            }
            let answer = patch(&app, &id, at as u64, bytes[at..].to_vec()).await;
            assert_eq!((answer.status.as_u16(), &answer.json["complete"]), (200, &json!(true)), "{}", answer.text);
            let answer = commit(&app, json!([{"path": "dir/big.bin", "upload": id, "executable": true}])).await;
            assert_eq!(answer.status, 201, "{}", answer.text);
            assert_eq!(left(&root), 0);
            let repo = app.registry().open(&name("ada/gpt")).expect("the repository");
            let tip = repo.refs().head_commit().expect("refs").expect("a commit");
            let files = mdl_repo::files(&repo, &tip).expect("files");
            let mut stored = Vec::new();
            let mut take = |part: &[u8]| {
                stored.extend_from_slice(part);
                Ok(())
            };
            repo.odb().stream_files(&files["dir/big.bin"], &mdl_repo::Silent, &mut take).expect("bytes");
            assert!(files["dir/big.bin"].executable && stored == bytes);
        });
    }
}

#[tokio::test]
async fn offsets_lengths_and_hashes_must_be_true() {
    let (root, app) = fixture();
    let bytes = noise(1, 1000);
    let id = begin(&app, 1000, Some(&sha256(b"something else"))).await;
    let answer = patch(&app, &id, 5, bytes.clone()).await;
    assert_eq!((answer.status.as_u16(), &answer.headers["upload-offset"]), (409, &"0".parse().expect("text")));
    assert_eq!(patch(&app, &id, 0, vec![0; 1001]).await.status, 413);
    assert_eq!(offset(&app, &id).await, 0);
    assert_eq!(patch(&app, &id, 0, bytes[..400].to_vec()).await.status, 200);
    let answer = commit(&app, json!([{"path": "a", "upload": id}])).await;
    assert_eq!(answer.status, 409, "{}", answer.text);
    let answer = patch(&app, &id, 400, bytes[400..].to_vec()).await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    assert_eq!(ask(&app, "GET", &format!("/uploads/{id}"), None).await.status, 404);
    assert_eq!(left(&root), 0);

    let id = begin(&app, 10, None).await;
    let without = request("PATCH", &format!("/uploads/{id}"), "application/octet-stream", vec![0; 10]);
    assert_eq!(send(&app, without).await.status, 400);
    assert_eq!(ask(&app, "DELETE", &format!("/uploads/{id}"), None).await.status, 204);
    assert_eq!(ask(&app, "DELETE", &format!("/uploads/{id}"), None).await.status, 404);
    for id in ["..", "..%2f..%2ftokens", "x", &"0".repeat(32), "%00"] {
        assert_eq!(ask(&app, "GET", &format!("/uploads/{id}"), None).await.status, 404, "{id}");
    }
    for bad in [json!({}), json!({"size": -1}), json!({"size": 1, "sha256": "xyz"}), json!({"size": 1, "x": 1})] {
        assert_eq!(ask(&app, "POST", "/uploads", Some(bad.clone())).await.status, 400, "{bad}");
    }
    assert_eq!(ask(&app, "POST", "/uploads", Some(json!({"size": u64::MAX}))).await.status, 413);
    assert_eq!((left(&root), spooled(app.state())), (0, 0));
}

#[tokio::test]
async fn uploads_are_bounded_and_grow_old() {
    let root = Root::new();
    drop(root.repo("ada/gpt"));
    let mut options = root.options();
    (options.max_upload, options.quota_repo) = (1000, Some(1000));
    let app = root.app(options);
    let first = begin(&app, 600, None).await;
    assert_eq!(ask(&app, "POST", "/uploads", Some(json!({"size": 600}))).await.status, 507);
    let second = begin(&app, 400, None).await;
    patch(&app, &first, 0, vec![1; 100]).await;
    app.incoming().uploads.sweep(mdl_server::incoming::IDLE);
    assert_eq!(offset(&app, &first).await, 100);
    tokio::time::sleep(Duration::from_millis(30)).await;
    app.incoming().uploads.sweep(Duration::from_millis(20));
    assert_eq!((left(&root), ask(&app, "GET", &format!("/uploads/{second}"), None).await.status.as_u16()), (0, 404));
}

#[tokio::test]
async fn a_retry_with_a_key_needs_no_uploads() {
    let (_root, app) = fixture();
    let id = begin(&app, 3, None).await;
    patch(&app, &id, 0, "abc").await;
    let body = json!({"message": "m", "uploads": [{"path": "a", "upload": id}]}).to_string();
    let order = || crate::support::http::with_key(request("POST", "/commits", "application/json", body.clone()), "k");
    let first = send(&app, order()).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let again = send(&app, order()).await;
    assert_eq!((again.status.as_u16(), again.json), (200, first.json));
}

/// Over a socket: a client that vanishes in the middle, and one that is back before the server noticed.
#[tokio::test]
async fn a_client_that_vanished_goes_on_where_it_was() {
    let (root, _) = fixture();
    let mut options = root.options();
    options.listen = "127.0.0.1:0".parse().expect("an address");
    let app = root.app(options);
    let (tell, told) = tokio::sync::oneshot::channel();
    let serving = tokio::spawn(mdl_server::serve(app.clone(), {
        let mut tell = Some(tell);
        move |url: &str| drop(tell.take().map(|t| t.send(url.trim_start_matches("http://").to_owned())))
    }));
    let address = told.await.expect("an address");
    let bytes = noise(5, 3_000_000);
    let id = begin(&app, bytes.len(), Some(&sha256(&bytes))).await;
    let head = |at: usize| {
        format!(
            "PATCH {REPO}/uploads/{id} HTTP/1.1\r\nHost: {address}\r\nUpload-Offset: {at}\r\nContent-Length: {}\r\n\r\n",
            bytes.len() - at
        )
    };
    let mut one = TcpStream::connect(&address).await.expect("a connection");
    one.write_all(head(0).as_bytes()).await.expect("sent");
    one.write_all(&bytes[..1_234_567]).await.expect("sent");
    one.shutdown().await.expect("cut");
    drop(one);
    let mut at = 0;
    for _ in 0..100 {
        at = offset(&app, &id).await as usize;
        if at == 1_234_567 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(at, 1_234_567);
    // This one stays connected and says nothing more; the next takes over.
    let mut silent = TcpStream::connect(&address).await.expect("a connection");
    silent.write_all(head(at).as_bytes()).await.expect("sent");
    silent.write_all(&bytes[at..at + 5000]).await.expect("sent");
    tokio::time::sleep(Duration::from_millis(100)).await;
    let answer = patch(&app, &id, at as u64, Vec::new()).await;
    let at = match answer.status.as_u16() {
        409 => answer.headers["upload-offset"].to_str().expect("text").parse().expect("a number"),
        status => unreachable!("{status} {}", answer.text),
    };
    assert_eq!(at, 1_239_567);
    let mut last = TcpStream::connect(&address).await.expect("a connection");
    last.write_all(head(at).as_bytes()).await.expect("sent");
    last.write_all(&bytes[at..]).await.expect("sent");
    let mut reply = [0; 12];
    last.read_exact(&mut reply).await.expect("an answer");
    assert_eq!(&reply, b"HTTP/1.1 200");
    let answer = commit(&app, json!([{"path": "a", "upload": id}])).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    app.stop();
    drop((silent, last));
    serving.await.expect("served").expect("no problem");
}
