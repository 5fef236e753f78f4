//! A repository with ten thousand versions, branches and tags: every list is complete, in pages of a bounded size.

use crate::support::{Root, commit, http::router, safetensors};
use axum::body::Body;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use mdl_objects::{Id, Kind};
use mdl_repo::{Progress, Repo, RepoError, WriteTransaction, pack::NewObject};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
};
use tower::ServiceExt;

/// Work that is not wanted any more once it was asked a few times.
#[derive(Default)]
struct Impatient(AtomicUsize);

impl Progress for Impatient {
    fn begin(&self, _what: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn end(&self) {}

    fn stopped(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) > 2
    }
}

const VERSIONS: usize = 10_000;
/// Bytes of an answer.
const LARGEST: usize = 4 << 20;

/// Versions in a line, all with the files of the first.
fn many(repo: &Repo) -> Vec<Id> {
    let first = commit(repo, &[("model.safetensors", safetensors(&[("w", 4, 4)], 0))], "first", 0);
    let (mut ids, mut next) = (vec![first], repo.odb().commit(&first).expect("the commit"));
    let transaction = WriteTransaction::begin(repo).expect("a lock");
    let mut pack = transaction.pack([]).expect("a pack");
    for n in 1..VERSIONS {
        next.parents = vec![ids[n - 1]];
        next.message = format!("version {n}\n\n{}", "words ".repeat(n % 50));
        next.step = Some(n as u64);
        let bytes = next.encode();
        let id = Id::from_content(Kind::Commit, &bytes);
        let object =
            NewObject { id, kind: Kind::Commit, depth: 0, base: None, grandparent: None, logical: bytes.len() as u64 };
        pack.add(object, &[&[0], bytes.as_slice()].concat()).expect("added");
        ids.push(id);
    }
    transaction.publish(pack).expect("published");
    ids
}

async fn get(app: &mdl_server::app::App, path: &str) -> (StatusCode, String, Value) {
    let request = Request::get(path).header(header::HOST, "localhost").body(Body::empty());
    let answer = router(app).oneshot(request.expect("a request")).await.expect("an answer");
    let status = answer.status();
    let body = answer.into_body().collect().await.expect("a whole body").to_bytes();
    assert!(body.len() < LARGEST, "{path}: {} bytes", body.len());
    let text = String::from_utf8_lossy(&body).into_owned();
    let json = serde_json::from_str(&text).unwrap_or(Value::Null);
    (status, text, json)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_versions_are_listed_in_bounded_pages_by_every_face() {
    let root = Root::new();
    let repo = root.repo("ada/gpt");
    let ids = many(&repo);
    let dir = root.path().join("ada/gpt/refs");
    std::fs::write(dir.join("heads/main"), format!("{}\n", ids[VERSIONS - 1].to_hex())).expect("a ref");
    for (n, id) in ids.iter().enumerate().step_by(4) {
        // Totals walk the history of each branch.
        let kind = if n % 400 == 0 { "heads" } else { "tags" };
        std::fs::create_dir_all(dir.join(kind)).expect("a directory");
        std::fs::write(dir.join(kind).join(format!("x{n:05}")), format!("{}\n", id.to_hex())).expect("a ref");
    }
    let stopped = mdl_repo::stats(&repo, &Impatient::default());
    assert!(matches!(stopped, Err(RepoError::Stopped { .. })), "totals go on though nobody waits");
    drop(repo);
    let app = root.app(root.options());

    let (mut seen, mut after) = (BTreeSet::new(), None::<String>);
    loop {
        let from = after.map_or_else(String::new, |after| format!("&after={after}"));
        let (status, text, page) = get(&app, &format!("/api/v1/repos/ada/gpt/log?limit=1000{from}")).await;
        assert_eq!(status, 200, "{text}");
        let commits = page["commits"].as_array().expect("commits");
        assert!(!commits.is_empty(), "a page that goes on is not empty");
        seen.extend(commits.iter().map(|c| c["commit"].as_str().expect("an id").to_owned()));
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids.iter().map(Id::to_hex).collect::<BTreeSet<_>>());

    let (mut names, mut after) = (BTreeSet::new(), None::<String>);
    loop {
        let from = after.map_or_else(String::new, |after| format!("&after={after}"));
        let (status, text, page) = get(&app, &format!("/api/v1/repos/ada/gpt/refs?limit=1000{from}")).await;
        assert_eq!(status, 200, "{text}");
        names.extend(page["refs"].as_array().expect("refs").iter().map(|r| r["name"].to_string()));
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(names.len(), VERSIONS / 4 + 1);

    for path in [
        "/api/v1/repos/ada/gpt/log?all=true&limit=1000",
        "/api/v1/repos/ada/gpt/log?rev=main~9999",
        "/api/v1/repos/ada/gpt/commits/main~9999",
        "/api/v1/repos/ada/gpt/commits/main@step=1",
        "/api/v1/repos/ada/gpt/commits/step-5",
        "/api/v1/repos/ada/gpt/commits/main@best(loss)",
        "/api/v1/repos/ada/gpt/diff?a=main~9999&b=main",
        "/api/v1/repos/ada/gpt/stats",
        "/api/v1/repos/ada/gpt/sync/refs",
        "/api/models/ada/gpt",
        "/api/models/ada/gpt/refs",
        "/api/models/ada/gpt/commits/main?p=99&limit=100",
        "/api/models/ada/gpt/commits/main?p=18446744073709551615&limit=1000",
        "/ada/gpt",
        "/ada/gpt/commits/main",
        "/ada/gpt/commits/main?all=1",
        "/ada/gpt/commit/main~5000",
        "/ada/gpt/compare",
        "/ada/gpt/compare/main~9999/main",
        "/ada/gpt/tree/main~9999",
    ] {
        let (status, text, _) = get(&app, path).await;
        let expected = if path.contains("best(loss)") || path.contains("18446744073709551615") { 500 } else { 400 };
        assert!(status.as_u16() < expected, "{path}: {status} {}", text.chars().take(300).collect::<String>());
    }
}
