//! Test fixture: a server over one repository with three versions, and requests to it.

use crate::{
    api_read::{npy, pickle, zip},
    support::{Root, memory, safetensors},
};
use axum::{Router, body::Body};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use mdl_objects::{Id, Kind, Signature};
use mdl_repo::{CommitRequest, NewFile, Repo, Report, Silent, TensorReport, WriteTransaction, pack::NewObject};
use mdl_server::{Rates, app::App, router};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tower::ServiceExt;

pub const BASE: &str = "/api/v1/repos/ada/gpt";
pub const FILE: &str = "model.safetensors";
/// `big` takes two segments.
pub const SHAPES: [(&str, usize, usize); 3] = [("w", 40, 30), ("big", 2100, 1024), ("b", 1, 7)];

pub type Files = BTreeMap<String, (Vec<u8>, bool)>;

pub fn files(version: u64) -> Files {
    let long = format!("{}/{}.txt", "deep".repeat(30), "é".repeat(60));
    let array = npy::array("<f4", &[2, 3], 24);
    let mut all: Vec<(&str, Vec<u8>, bool)> = vec![
        (FILE, safetensors(&SHAPES, version), false),
        ("extra/model.safetensors", safetensors(&[("b", 2, 2), ("only", 3, 3)], version), false),
        ("ckpt.pt", pickle::checkpoint(), false),
        ("arrays.npz", zip::simple(&[zip::entry("x.npy", &array)]), false),
        ("README.md", format!("# Version {version}\n").into_bytes(), false),
        ("run.sh", b"#!/bin/sh\n".to_vec(), true),
        ("empty", Vec::new(), false),
    ];
    if version > 0 {
        all.push((&long, b"long".to_vec(), false));
    }
    all.into_iter().map(|(p, b, x)| (p.to_owned(), (b, x))).collect()
}

fn commit(repo: &Repo, version: u64, loss: f64) -> Id {
    let file = |(rel, (bytes, executable)): (String, (Vec<u8>, bool))| NewFile { executable, ..memory(&rel, bytes) };
    let request = CommitRequest {
        files: Some(files(version).into_iter().map(file).collect()),
        message: format!("version {version}\n\n<script>"),
        step: Some(version * 100),
        epoch: Some(0.5),
        metrics: BTreeMap::from([("loss".to_owned(), loss)]),
        author: Some(Signature {
            name: "Ada".to_owned(),
            email: "ada@example.org".to_owned(),
            time_ms: 1_700_000_000_250 + version as i64 * 1000,
            utc_offset_min: 60,
        }),
        ..CommitRequest::default()
    };
    mdl_repo::commit(repo, &request, &Silent).expect("a commit").id
}

/// A commit like another, with a report as a lossy one has it.
fn lossy(repo: &Repo, like: &Id) -> Id {
    let report = Report {
        tensors: vec![TensorReport {
            path: FILE.to_owned(),
            name: "w".to_owned(),
            dtype: "f32".to_owned(),
            scheme: "lattice".to_owned(),
            logical: 4800,
            stored: 100,
            depth: 0,
            max_abs: Some(0.25),
            rel_l2: Some(f64::MIN_POSITIVE),
            worst_row: Some(0.5),
            update_error: None,
            worst_row_update: None,
        }],
        total: 1,
    };
    let transaction = WriteTransaction::begin(repo).expect("a lock");
    let mut pack = transaction.pack([]).expect("a pack");
    let mut add = |kind: Kind, bytes: Vec<u8>| {
        let id = Id::from_content(kind, &bytes);
        let object = NewObject { id, kind, depth: 0, base: None, grandparent: None, logical: bytes.len() as u64 };
        pack.add(object, &[&[0], bytes.as_slice()].concat()).expect("added");
        id
    };
    let mut commit = repo.odb().commit(like).expect("the commit");
    commit.report = Some(add(Kind::Blob, serde_json::to_vec(&report).expect("JSON")));
    commit.quality = Some(r#"{"policy":"lossy","family":"lattice","state":{"secret":1}}"#.to_owned());
    commit.parents = vec![*like];
    let id = add(Kind::Commit, commit.encode());
    transaction.publish(pack).expect("published");
    id
}

pub struct Site {
    pub root: Root,
    pub app: App,
    pub router: Router,
    pub commits: Vec<Id>,
}

pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// None: the body broke off.
    pub body: Option<Vec<u8>>,
}

impl Reply {
    pub fn bytes(&self) -> &[u8] {
        self.body.as_deref().expect("a whole body")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(self.bytes()).expect("JSON")
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).expect("the header").to_str().expect("text")
    }

    #[track_caller]
    pub fn refused(&self, status: u16, kind: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{:?}", self.body.as_deref().map(String::from_utf8_lossy));
        assert_eq!(self.header("content-type"), "application/problem+json");
        let document = self.json();
        assert_eq!((&document["kind"], &document["status"]), (&json!(kind), &json!(status)));
        document
    }
}

/// Three versions on `main`; `feature/x` at the second, `v1` and the annotated `v2`, and `lossy` beside them.
pub fn site() -> Site {
    let root = Root::new();
    let repo = root.repo("ada/gpt");
    let commits: Vec<Id> = [(0, 0.5), (1, f64::NAN), (2, f64::INFINITY)].map(|(v, loss)| commit(&repo, v, loss)).into();
    mdl_repo::create_branch(&repo, "feature/x", &commits[1], false).expect("a branch");
    mdl_repo::create_tag(&repo, "v1", &commits[0], None, false).expect("a tag");
    mdl_repo::create_tag(&repo, "v2", &commits[1], Some("the second"), false).expect("a tag");
    let id = lossy(&repo, &commits[2]);
    mdl_repo::create_branch(&repo, "lossy", &id, false).expect("a branch");
    drop(repo);
    let app = root.app(root.options());
    let router = router(&app, &Rates::new(None));
    Site { root, app, router, commits }
}

impl Site {
    pub async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.expect("a response");
        let (parts, body) = response.into_parts();
        Reply {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.ok().map(|b| b.to_bytes().to_vec()),
        }
    }

    pub async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Reply {
        let mut request = Request::builder().method(method).uri(format!("{BASE}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            None => Body::empty(),
            Some(json) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(json.to_string())
            }
        };
        self.send(request.body(body).expect("a request")).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.ask(Method::GET, path, &[], None).await
    }

    pub async fn json(&self, path: &str) -> Value {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {:?}", reply.body.as_deref().map(String::from_utf8_lossy));
        reply.json()
    }

    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.ask(Method::PUT, path, &[], Some(body)).await
    }

    pub fn hex(&self, n: usize) -> String {
        self.commits[n].to_hex()
    }
}
