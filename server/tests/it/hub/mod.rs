//! Hub and git-lfs routes: JSON shapes, headers, errors; uploads with wrong hashes or by
//! hostile shards.

mod commits;
mod objects;
mod reading;
mod xet;

use crate::support::{Root, commit, hex, safetensors, sha256};
use axum::{
    Router,
    body::{Body, to_bytes},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, Method, Request, StatusCode};
use mdl_objects::Id;
use mdl_server::{
    Options, Rates,
    app::App,
    auth::{NewToken, Scope},
    router,
};
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use tower::ServiceExt;

const MODEL: &str = "/api/models/ada/gpt";

struct Site {
    root: Root,
    app: App,
    router: Router,
    /// Three versions, the oldest first.
    ids: Vec<Id>,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).map_err(|e| format!("{e}: {text}")).expect("JSON")
    }

    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |v| v.to_str().expect("ASCII"))
    }

    /// Fails unless it ended so.
    fn ended(self, status: u16) -> Answer {
        assert_eq!(self.status.as_u16(), status, "{}", String::from_utf8_lossy(&self.body));
        self
    }
}

fn model(version: u64) -> Vec<u8> {
    safetensors(&[("a", 64, 32), ("b", 300, 70)], version)
}

impl Site {
    fn new() -> Site {
        Site::of(|_| {})
    }

    fn of(change: impl FnOnce(&mut Options)) -> Site {
        let root = Root::new();
        let repo = root.repo("ada/gpt");
        let mut ids = Vec::new();
        for version in 0..3u64 {
            let files = [
                ("README.md", b"# hello\n".to_vec()),
                ("config.json", format!("{{\"version\": {version}}}\n").into_bytes()),
                ("model.safetensors", model(version)),
                ("sub/deep/a b.txt", b"x".to_vec()),
                ("sub/note.txt", b"y".to_vec()),
            ];
            ids.push(commit(&repo, &files, &format!("version {version}\n\nmore <b>"), version * 100));
        }
        drop(repo);
        let mut options = root.options();
        change(&mut options);
        let app = root.app(options);
        let router = router(&app, &Rates::new(None));
        Site { root, app, router, ids }
    }

    fn short(&self, n: usize) -> String {
        self.ids[n].to_hex()[..40].to_owned()
    }

    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:7878");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.into()).expect("a request");
        let response = self.router.clone().oneshot(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 1 << 26).await.expect("a body").to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[], Body::empty()).await
    }

    async fn post(&self, path: &str, document: Value) -> Answer {
        let headers = [("content-type", "application/json")];
        self.ask(Method::POST, path, &headers, document.to_string()).await
    }

    async fn commit(&self, branch: &str, lines: &[Value]) -> Answer {
        let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
        let headers = [("content-type", "application/x-ndjson")];
        self.ask(Method::POST, &format!("{MODEL}/commit/{branch}"), &headers, text).await
    }

    async fn batch(&self, operation: &str, bytes: &[u8], headers: &[(&str, &str)]) -> Value {
        let document = json!({
            "operation": operation,
            "transfers": ["basic", "multipart"],
            "objects": [{"oid": sha256(bytes), "size": bytes.len()}],
            "hash_algo": "sha256",
        });
        let mut all = vec![("content-type", "application/vnd.git-lfs+json")];
        all.extend(headers);
        let path = "/ada/gpt.git/info/lfs/objects/batch";
        let answer = self.ask(Method::POST, path, &all, document.to_string()).await.ended(200);
        answer.json()["objects"][0].clone()
    }

    /// The path, with parameters, that a batch answer gives for an upload or a download.
    async fn link(&self, operation: &str, bytes: &[u8]) -> String {
        let object = self.batch(operation, bytes, &[]).await;
        local(object["actions"][operation]["href"].as_str().expect("a link"))
    }

    fn token(&self, scope: Scope, repo: &str) -> String {
        let new = NewToken { name: "ada".to_owned(), repo: repo.to_owned(), scope, expires_ms: None };
        self.app.tokens().create(new).expect("a token").1
    }
}

fn git(bytes: &[u8]) -> String {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hex(&hasher.finalize())
}

fn header(summary: &str) -> Value {
    json!({"key": "header", "value": {"summary": summary, "description": "why"}})
}

fn file(path: &str, bytes: &[u8]) -> Value {
    let content = BASE64_STANDARD.encode(bytes);
    json!({"key": "file", "value": {"path": path, "content": content, "encoding": "base64"}})
}

/// The path and parameters of a link to this server.
fn local(link: &str) -> String {
    let rest = link.strip_prefix("http://127.0.0.1:7878");
    rest.ok_or_else(|| format!("{link:?} leads elsewhere")).expect("a link to here").to_owned()
}

fn next_page(answer: &Answer) -> Option<String> {
    let link = answer.header("link").strip_prefix('<')?.strip_suffix(">; rel=\"next\"")?;
    Some(local(link))
}

/// The files that a model's description lists.
fn siblings(info: &Value) -> Vec<&str> {
    let files = info["siblings"].as_array().expect("files");
    files.iter().filter_map(|s| s["rfilename"].as_str()).collect()
}
