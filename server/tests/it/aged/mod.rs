//! Versions whose exact contents went: under which hash, ETag and label the approximation is given.

mod hub;
mod told;

use crate::support::{
    Root,
    http::{self, Answer, REPO, router},
    safetensors,
};
use ::http::{HeaderMap, Request};
use axum::body::{Body, to_bytes};
use mdl_objects::Id;
use mdl_repo::{CommitRequest, Content, Direction, LossyRequest, NewFile, Repo, Silent};
use mdl_server::app::App;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};
use tower::ServiceExt;

const MODEL: &str = "/api/models/ada/gpt";
const FILE: &str = "model.safetensors";
const POLICY: &str = "try = [\"lattice\"]\n[fixed]\nfamily = \"lattice\"\n";

/// Four versions: the first is tagged at once, the second and the third aged, the fourth is the newest. The third was
/// tagged after it aged, which takes it off the record.
struct Site {
    root: Root,
    app: App,
    ids: Vec<Id>,
}

struct Got {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> String {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

fn model(version: u64) -> Vec<u8> {
    safetensors(&[("a", 64, 64), ("b", 128, 96)], version + 1)
}

fn commit(repo: &Repo, dir: &Path, version: u64) -> Id {
    let files = [
        (FILE, model(version)),
        ("frozen.safetensors", safetensors(&[("c", 64, 64)], 1)),
        ("config.json", b"{}\n".to_vec()),
        ("README.md", format!("# version {version}\n").into_bytes()),
    ];
    let file = |(rel, bytes): (&str, Vec<u8>)| {
        let path = dir.join(format!("{version}-{rel}"));
        fs::write(&path, bytes).expect("a file");
        NewFile { rel: rel.to_owned(), executable: false, content: Content::Disk(path) }
    };
    let request = CommitRequest {
        files: Some(files.into_iter().map(file).collect()),
        message: format!("version {version}"),
        step: Some(version * 100),
        metrics: BTreeMap::from([("loss".to_owned(), 1.0 / (version as f64 + 1.0))]),
        ..CommitRequest::default()
    };
    let policy = mdl_repo::policy(repo, "ages").expect("a policy");
    let mut lossy =
        LossyRequest { policy, evaluator: None, direction: Direction::LowerIsBetter, grads: None, since: None };
    mdl_repo::commit_lossy(repo, &request, &mut lossy, &Silent).expect("a commit").id
}

impl Site {
    fn new() -> Site {
        let root = Root::new();
        let files = tempfile::tempdir().expect("a directory");
        let repo = root.repo("ada/gpt");
        mdl_repo::set_policy(&repo, "ages", POLICY).expect("a policy");
        let mut ids = Vec::new();
        for version in 0..4 {
            ids.push(commit(&repo, files.path(), version));
            if version == 0 {
                mdl_repo::create_tag(&repo, "first", &ids[0], None, false).expect("a tag");
            }
        }
        mdl_repo::create_tag(&repo, "third", &ids[2], None, false).expect("a tag");
        let record = mdl_repo::pruned(&repo).expect("the record");
        let aged: Vec<_> = record.iter_stand_ins().map(|(id, _)| *id).collect();
        assert_eq!(aged, ids[1..2], "the tagged ones stay, the newest is in the window");
        drop(repo);
        let app = root.app(root.options());
        Site { root, app, ids }
    }

    fn hash(&self, n: usize) -> String {
        self.ids[n].to_hex()[..40].to_owned()
    }

    /// Copies the repository as it is on disk.
    fn copy(&self, name: &str) {
        let (from, to) = (self.root.path().join("ada/gpt"), self.root.path().join(name));
        let done = Command::new("cp").arg("-a").args([from, to]).status().expect("cp");
        assert!(done.success());
    }

    async fn send(&self, request: Request<Body>) -> Got {
        let response = router(&self.app).oneshot(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 1 << 26).await.expect("a body").to_vec();
        Got { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Got {
        let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:7878");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::empty()).expect("a request")).await
    }

    async fn post(&self, path: &str, document: Value) -> Got {
        self.body(path, "application/json", document.to_string()).await
    }

    /// Sends a commit of the Hub's clients.
    async fn lines(&self, path: &str, lines: &[Value]) -> Got {
        let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
        self.body(path, "application/x-ndjson", text).await
    }

    async fn body(&self, path: &str, kind: &str, text: String) -> Got {
        let request = Request::post(path).header("host", "127.0.0.1:7878").header("content-type", kind);
        self.send(request.body(Body::from(text)).expect("a request")).await
    }

    async fn get(&self, path: &str) -> Got {
        let got = self.ask("GET", path, &[]).await;
        assert_eq!(got.status, 200, "{path}: {}", String::from_utf8_lossy(&got.body));
        got
    }

    async fn api(&self, path: &str) -> Value {
        self.get(&format!("{REPO}{path}")).await.json()
    }

    /// What the listing of a version's tensors says of the error of one.
    async fn tensor_error(&self, rev: &str) -> Value {
        let listed = self.api(&format!("/tensors/{rev}/{FILE}")).await;
        let all = listed["tensors"].as_array().expect("tensors");
        all.iter().find(|t| t["name"] == "b").expect("the tensor")["error"].clone()
    }

    async fn page(&self, path: &str) -> String {
        let got = self.ask("GET", &format!("/ada/gpt{path}"), &[("accept", "text/html")]).await;
        assert_eq!(got.status, 200, "{path}");
        String::from_utf8(got.body).expect("UTF-8")
    }

    /// The file of a version, as the Hub's clients get it.
    async fn resolve(&self, rev: &str) -> Got {
        self.get(&format!("/ada/gpt/resolve/{rev}/{FILE}")).await
    }

    async fn etag(&self, rev: &str) -> String {
        self.ask("HEAD", &format!("/ada/gpt/resolve/{rev}/{FILE}"), &[]).await.header("etag")
    }

    /// Collects garbage; what the job says.
    async fn collect(&self) -> Value {
        let job = Some(json!({"kind": "gc", "prune_now": true}));
        let started: Answer = http::ask(&self.app, "POST", "/jobs", job).await;
        assert_eq!(started.status, 202, "{}", started.text);
        let id = started.json["id"].as_str().expect("an id");
        for _ in 0..500 {
            let job = http::ask(&self.app, "GET", &format!("/jobs/{id}"), None).await.json;
            if job["state"] == "done" {
                return job["result"].clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        unreachable!("the job does not end");
    }
}
