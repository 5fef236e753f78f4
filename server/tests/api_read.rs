//! Reading over HTTP: every route, what it answers and what it refuses, against what the repository itself says. Neighbours: the server
//! from outside. It must not know how anything is decoded.

mod support;

#[path = "../../crates/files/tests/support/npy.rs"]
#[allow(dead_code, reason = "shared with another crate's tests")]
mod npy;
#[path = "../../crates/files/tests/support/pickle.rs"]
#[allow(dead_code, reason = "shared with another crate's tests")]
mod pickle;
#[path = "../../crates/files/tests/support/zip.rs"]
#[allow(dead_code, reason = "shared with another crate's tests")]
mod zip;

use axum::{Router, body::Body};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use mdl_objects::{Id, Kind, Signature};
use mdl_repo::{
    CommitRequest, Content, NewFile, Repo, Report, Silent, TensorReport,
    pack::{NewObject, PackWriter},
};
use mdl_server::{
    Options, Rates,
    app::App,
    auth::{NewToken, Scope},
    router,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, io::Read, sync::Arc};
use support::{Root, safetensors, weights};
use tower::ServiceExt;

const BASE: &str = "/api/v1/repos/ada/gpt";
const FILE: &str = "model.safetensors";
/// `big` takes two segments.
const SHAPES: [(&str, usize, usize); 3] = [("w", 40, 30), ("big", 2100, 1024), ("b", 1, 7)];

type Files = BTreeMap<String, (Vec<u8>, bool)>;

fn files(version: u64) -> Files {
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
    let file = |(rel, (bytes, executable)): (String, (Vec<u8>, bool))| NewFile {
        rel,
        executable,
        content: Content::Memory(Arc::new(bytes)),
    };
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
    repo.commit(&request, &Silent).expect("a commit").id
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
        }],
        total: 1,
    };
    let mut pack = PackWriter::new(repo.storage()).expect("a pack");
    let mut add = |kind: Kind, bytes: Vec<u8>| {
        let id = Id::of(kind, &bytes);
        let object = NewObject {
            id,
            kind,
            depth: 0,
            base: None,
            grand: None,
            logical: bytes.len() as u64,
        };
        pack.add(object, &[&[0], bytes.as_slice()].concat()).expect("added");
        id
    };
    let mut commit = repo.odb().commit(like).expect("the commit");
    commit.report = Some(add(Kind::Blob, serde_json::to_vec(&report).expect("JSON")));
    commit.quality = Some(r#"{"policy":"lossy","family":"lattice","state":{"secret":1}}"#.to_owned());
    commit.parents = vec![*like];
    let id = add(Kind::Commit, commit.encode());
    repo.odb().note_pack(pack.finish().expect("a pack")).expect("noted");
    id
}

struct Site {
    root: Root,
    app: App,
    router: Router,
    commits: Vec<Id>,
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    /// None: the body broke off.
    body: Option<Vec<u8>>,
}

impl Reply {
    fn bytes(&self) -> &[u8] {
        self.body.as_deref().expect("a whole body")
    }

    fn json(&self) -> Value {
        serde_json::from_slice(self.bytes()).expect("JSON")
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).expect("the header").to_str().expect("text")
    }

    #[track_caller]
    fn refused(&self, status: u16, kind: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{:?}", self.body.as_deref().map(String::from_utf8_lossy));
        assert_eq!(self.header("content-type"), "application/problem+json");
        let document = self.json();
        assert_eq!((&document["kind"], &document["status"]), (&json!(kind), &json!(status)));
        document
    }
}

fn site() -> Site {
    site_with(|_| ())
}

/// Three versions on `main`; `feature/x` at the second, `v1` and the annotated `v2`, and `lossy` beside them.
fn site_with(change: impl FnOnce(&mut Options)) -> Site {
    let root = Root::new();
    let repo = root.repo("ada/gpt");
    let commits: Vec<Id> = [(0, 0.5), (1, f64::NAN), (2, f64::INFINITY)].map(|(v, loss)| commit(&repo, v, loss)).into();
    repo.create_branch("feature/x", &commits[1], false).expect("a branch");
    repo.create_tag("v1", &commits[0], None, false).expect("a tag");
    repo.create_tag("v2", &commits[1], Some("the second"), false).expect("a tag");
    let id = lossy(&repo, &commits[2]);
    repo.create_branch("lossy", &id, false).expect("a branch");
    drop(repo);
    let mut options = root.options();
    change(&mut options);
    let app = root.app(options);
    let router = router(&app, &Rates::new(None));
    Site {
        root,
        app,
        router,
        commits,
    }
}

impl Site {
    async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.expect("a response");
        let (parts, body) = response.into_parts();
        Reply {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.ok().map(|b| b.to_bytes().to_vec()),
        }
    }

    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Reply {
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

    async fn get(&self, path: &str) -> Reply {
        self.ask(Method::GET, path, &[], None).await
    }

    async fn json(&self, path: &str) -> Value {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {:?}", reply.body.as_deref().map(String::from_utf8_lossy));
        reply.json()
    }

    async fn put(&self, path: &str, body: Value) -> Reply {
        self.ask(Method::PUT, path, &[], Some(body)).await
    }

    fn hex(&self, n: usize) -> String {
        self.commits[n].to_hex()
    }
}

#[tokio::test]
async fn refs_are_listed_page_by_page() {
    let site = site();
    let all = site.json("/refs").await;
    assert_eq!(all["head"], json!({"branch": "main", "commit": site.hex(2)}));
    let names: Vec<&str> = all["refs"].as_array().expect("refs").iter().filter_map(|r| r["name"].as_str()).collect();
    let expected = ["heads/feature/x", "heads/lossy", "heads/main", "tags/v1", "tags/v2"].map(|n| format!("refs/{n}"));
    assert_eq!(names, expected);
    let v2 = &all["refs"][4];
    assert_eq!((&v2["commit"], &v2["kind"], &v2["short"]), (&json!(site.hex(1)), &json!("tags"), &json!("v2")));
    assert_ne!(v2["target"], v2["commit"], "an annotated tag is an object");
    assert_eq!(v2["tag"]["message"], "the second");
    assert_eq!(all["refs"][3]["tag"], Value::Null);
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = site.json(&format!("/refs?limit=2&after={after}")).await;
        seen.extend(page["refs"].as_array().expect("refs").iter().map(|r| r["name"].as_str().expect("text").to_owned()));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn refs_move_by_compare_and_swap_and_are_told() {
    let site = site();
    let mut heard = site.app.events().subscribe();
    let at = |n: usize| json!(site.hex(n));
    let made = site.put("/refs/heads/a%2Fb", json!({"target": "main~1", "expected": null})).await;
    assert_eq!(made.json(), json!({"name": "refs/heads/a/b", "old": null, "new": at(1), "commit": at(1)}));
    let event = heard.try_recv().expect("an event");
    assert_eq!((event.name.as_str(), event.old, event.new), ("refs/heads/a/b", None, Some(site.commits[1])));
    let late = site.put("/refs/heads/a%2Fb", json!({"target": "main", "expected": null})).await.refused(409, "conflict");
    assert_eq!(late["moved"], json!({"name": "refs/heads/a/b", "expected": null, "found": at(1)}));
    let late = site.put("/refs/heads/a%2Fb", json!({"target": "main", "expected": at(2)})).await.refused(409, "conflict");
    assert_eq!(late["moved"]["found"], at(1));
    assert!(heard.try_recv().is_err(), "nothing moved");
    let moved = site.put("/refs/heads/a%2Fb", json!({"target": "main", "expected": at(1)})).await;
    assert_eq!((moved.status, &moved.json()["old"]), (StatusCode::OK, &at(1)));
    let moved = site.put("/refs/heads/a%2Fb", json!({"target": "v1", "message": "back\nagain"})).await;
    assert_eq!(moved.json()["new"], at(0), "whatever it held");
    assert_eq!(site.json("/commits/a%2Fb").await["commit"], at(0));
    let delete = async |query: &str| site.ask(Method::DELETE, &format!("/refs/heads/a%2Fb{query}"), &[], None).await;
    delete(&format!("?expected={}", site.hex(1))).await.refused(409, "conflict");
    let gone = delete(&format!("?expected={}", site.hex(0))).await;
    assert_eq!((gone.status, &gone.json()["new"]), (StatusCode::OK, &Value::Null));
    delete("").await.refused(404, "not_found");
    let last = std::iter::from_fn(|| heard.try_recv().ok()).last().expect("an event");
    assert_eq!((last.old, last.new), (Some(site.commits[0]), None));
}

#[tokio::test]
async fn tags_may_be_annotated() {
    let site = site();
    let made = site.put("/refs/tags/v3", json!({"target": "main", "message": "the third", "annotate": true})).await;
    assert_eq!(made.json()["commit"], json!(site.hex(2)));
    let refs = site.json("/refs?after=refs/tags/v2").await;
    let v3 = &refs["refs"][0];
    assert_eq!((&v3["tag"]["message"], &v3["commit"]), (&json!("the third"), &json!(site.hex(2))));
    assert_eq!(v3["target"], made.json()["new"]);
    let again = json!({"target": "main", "message": "m", "annotate": true, "expected": null});
    site.put("/refs/tags/v3", again).await.refused(409, "conflict");
    let only = json!({"target": "main", "message": "m", "annotate": true});
    site.put("/refs/heads/x", only).await.refused(400, "usage");
    site.put("/refs/tags/x", json!({"target": "main", "annotate": true})).await.refused(400, "usage");
}

#[tokio::test]
async fn what_no_ref_can_be_is_refused() {
    let site = site();
    let body = || json!({"target": "main"});
    site.put("/refs/heads/..%2F..%2Fconfig", body()).await.refused(422, "user");
    site.put("/refs/heads/HEAD", body()).await.refused(422, "user");
    site.put("/refs/policies/lossy", body()).await.refused(400, "usage");
    site.put("/refs/heads/x", json!({"target": "nowhere"})).await.refused(404, "not_found");
    site.put("/refs/heads/x", json!({"target": "main", "expected": "zz"})).await.refused(400, "usage");
    site.put("/refs/heads/x", json!({"goal": "main"})).await.refused(400, "usage");
    // `main` is a branch: nothing can lie below it.
    assert!(site.put("/refs/heads/main%2Fx", body()).await.status.is_client_error());
    let head = site.ask(Method::DELETE, "/refs/heads/main", &[], None).await;
    head.refused(422, "user");
}

#[tokio::test]
async fn history_comes_in_pages() {
    let site = site();
    let all = site.json("/log").await;
    let ids = |v: &Value| -> Vec<Value> { v["commits"].as_array().expect("commits").iter().map(|c| c["commit"].clone()).collect() };
    assert_eq!(ids(&all), [2, 1, 0].map(|n| json!(site.hex(n))));
    let first = site.json("/log?limit=2&rev=main").await;
    let next = first["next"].as_str().expect("more").to_owned();
    let second = site.json(&format!("/log?limit=2&rev=main&after={next}")).await;
    assert_eq!([ids(&first), ids(&second)].concat(), ids(&all));
    assert_eq!(second["next"], Value::Null);
    assert_eq!(ids(&site.json("/log?all=true").await).len(), 4);
    site.get("/log?rev=nowhere").await.refused(404, "not_found");
    site.get("/log?after=12").await.refused(400, "usage");
    site.get(&format!("/log?after={}", "0".repeat(64))).await.refused(404, "not_found");
    site.get("/log?limit=x").await.refused(400, "usage");
    site.get("/log?all=true&rev=main").await.refused(400, "usage");
    drop(site.root.repo("ada/empty"));
    let path = "/api/v1/repos/ada/empty/log";
    let empty = site.send(Request::get(path).body(Body::empty()).expect("a request")).await;
    assert_eq!(empty.json(), json!({"commits": [], "next": null}));
}

#[tokio::test]
async fn a_version_says_what_the_command_line_says() {
    let site = site();
    let one = site.json("/commits/feature%2Fx").await;
    assert_eq!(one["commit"], json!(site.hex(1)));
    assert_eq!(one["parents"], json!([site.hex(0)]));
    assert_eq!(one["refs"], json!(["feature/x", "tag: v2"]));
    assert_eq!(one["author"], json!({"name": "Ada", "email": "ada@example.org"}));
    assert_eq!(one["date"], "2023-11-14T23:13:21.250+01:00");
    assert_eq!((&one["step"], &one["epoch"], &one["metrics"]), (&json!(100), &json!(0.5), &json!({"loss": "NaN"})));
    assert_eq!((&one["files"], &one["quality"], &one["pruned"]), (&json!(8), &Value::Null, &Value::Null));
    let head = site.json("/commits/HEAD").await;
    assert_eq!((&head["refs"], &head["metrics"]["loss"]), (&json!(["HEAD -> main"]), &json!("Infinity")));
    let fields: Vec<&String> = head.as_object().expect("fields").keys().collect();
    assert_eq!(fields.len(), 20, "{fields:?}");
    assert_eq!(site.json("/commits/lossy").await["quality"], json!({"policy": "lossy", "family": "lattice"}));
    for rev in ["step-100", "main@step=100", "v2", "refs%2Ftags%2Fv2", &site.hex(1)[..12]] {
        assert_eq!(site.json(&format!("/commits/{rev}")).await["commit"], json!(site.hex(1)), "{rev}");
    }
    let missing = site.get("/commits/nowhere").await;
    missing.refused(404, "not_found");
    assert_eq!(missing.header("x-error-code"), "RevisionNotFound");
    site.get("/commits/main..v1").await.refused(400, "usage");
}

#[tokio::test]
async fn files_and_tensors_are_listed() {
    let site = site();
    let all = site.json("/tree/main").await;
    let paths: Vec<String> = files(2).into_keys().collect();
    let listed: Vec<&str> = all["files"].as_array().expect("files").iter().filter_map(|f| f["path"].as_str()).collect();
    assert_eq!((listed, &all["commit"]), (paths.iter().map(String::as_str).collect(), &json!(site.hex(2))));
    assert_eq!(all["files"][0]["tensors"], Value::Null, "nobody asked");
    let below = site.json("/tree/main?path=extra/&tensors=true").await;
    assert_eq!(below["files"].as_array().map(Vec::len), Some(1));
    let tensors = below["files"][0]["tensors"].as_array().expect("tensors");
    assert_eq!((&tensors[0]["name"], &tensors[0]["shape"], &tensors[0]["error"]), (&json!("b"), &json!([2, 2]), &Value::Null));
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = site.json(&format!("/tree/main?tensors=true&limit=4&after={after}")).await;
        for f in page["files"].as_array().expect("files") {
            assert!(f["tensors"].is_array(), "every file's tensors fit on some page: {f}");
            seen.push(f["path"].as_str().expect("a path").to_owned());
        }
        match page["next"].as_str() {
            Some(next) => after = next.replace('é', "%C3%A9"),
            None => break,
        }
    }
    assert_eq!(seen, paths);
    let torch = site.json("/tensors/main/ckpt.pt").await;
    assert_eq!((&torch["format"], &torch["views"][0]["name"]), (&json!("torch"), &json!("model.head.weight")));
    assert_eq!(torch["views"][0]["tensor"], "model.embed.weight");
    let (mut names, mut after) = (Vec::new(), "0".to_owned());
    loop {
        let page = site.json(&format!("/tensors/main/ckpt.pt?limit=3&after={after}")).await;
        for t in [&page["tensors"], &page["views"]].into_iter().flat_map(|v| v.as_array().expect("a list")) {
            names.push(t["name"].as_str().expect("a name").to_owned());
        }
        match page["next"].as_u64() {
            Some(next) => after = next.to_string(),
            None => break,
        }
    }
    assert_eq!(names, ["model.embed.weight", "model.bias", "optimizer.state.0.exp_avg", "model.head.weight"]);
    let lossy = site.json(&format!("/tensors/lossy/{FILE}")).await;
    let w = lossy["tensors"].as_array().and_then(|t| t.iter().find(|t| t["name"] == "w")).expect("w");
    assert_eq!(w["error"], json!({"max_abs": 0.25, "rel_l2": f64::MIN_POSITIVE}));
    assert_eq!((&w["logical_bytes"], &w["dtype"]), (&json!(4800), &json!("f32")));
    assert_eq!(site.json("/tensors/main/README.md").await["tensors"], json!([]));
    site.get("/tree/main?path=nowhere").await.refused(404, "not_found");
    site.get("/tree/nowhere").await.refused(404, "not_found");
    site.get("/tensors/main/nowhere").await.refused(404, "not_found");
    site.get("/tree/main?limit=-1").await.refused(400, "usage");
}

#[tokio::test]
async fn files_come_whole_and_in_part() {
    let site = site();
    for (n, id) in site.commits.iter().enumerate() {
        for (path, (bytes, _)) in files(n as u64) {
            let path = format!("/files/{}/{}", id.to_hex(), path.replace('é', "%C3%A9"));
            let reply = site.get(&path).await;
            assert_eq!((reply.status, reply.bytes() == bytes), (StatusCode::OK, true), "{path}");
        }
    }
    let whole = files(2).remove(FILE).expect("the file").0;
    let path = format!("/files/main/{FILE}");
    let head = site.ask(Method::HEAD, &path, &[], None).await;
    assert_eq!((head.header("content-length"), head.bytes().len()), (whole.len().to_string().as_str(), 0));
    let part = site.ask(Method::GET, &path, &[("range", "bytes=1000-1999")], None).await;
    assert_eq!((part.status.as_u16(), part.bytes()), (206, &whole[1000..2000]));
    let same = site.ask(Method::GET, &path, &[("if-none-match", head.header("etag"))], None).await;
    assert_eq!(same.status, 304);
    let outside = site.ask(Method::GET, &path, &[("range", "bytes=999999999-")], None).await;
    outside.refused(416, "range");
    let missing = site.get("/files/main/nowhere").await;
    missing.refused(404, "not_found");
    assert_eq!(missing.header("x-error-code"), "EntryNotFound");
    site.get("/files/nowhere/README.md").await.refused(404, "not_found");
    site.get("/files/main/..%2F..%2Fconfig").await.refused(404, "not_found");
}

#[tokio::test]
async fn slices_mean_what_numpy_means() {
    let site = site();
    let w = weights(1, 40 * 30, 2);
    let at = |row: usize, column: usize| &w[(row * 30 + column) * 4..][..4];
    let all = |n: usize| (0..n).collect::<Vec<_>>();
    let cases: [(&str, Vec<usize>, Vec<usize>, &str); 9] = [
        ("0:10,:", all(10), all(30), "10,30"),
        ("-1", vec![39], all(30), "30"),
        ("::7,3", vec![0, 7, 14, 21, 28, 35], vec![3], "6"),
        ("...,-2:", all(40), vec![28, 29], "40,2"),
        ("5:2", Vec::new(), all(30), "0,30"),
        ("38:100,1:-26:2", vec![38, 39], vec![1, 3], "2,2"),
        ("3,4", vec![3], vec![4], ""),
        ("-3:-1", vec![37, 38], all(30), "2,30"),
        (":", all(40), all(30), "40,30"),
    ];
    for (slice, rows, columns, shape) in cases {
        let expected: Vec<u8> = rows.iter().flat_map(|&r| columns.iter().flat_map(move |&c| at(r, c).to_vec())).collect();
        let reply = site.get(&format!("/tensor/main/{FILE}?name=w&slice={slice}")).await;
        assert_eq!((reply.status, reply.bytes() == expected), (StatusCode::OK, true), "{slice}");
        assert_eq!((reply.header("x-mdl-shape"), reply.header("x-mdl-dtype")), (shape, "f32"), "{slice}");
        assert_eq!(reply.header("content-length"), expected.len().to_string(), "{slice}");
        let npy = site.get(&format!("/tensor/main/{FILE}?name=w&format=npy&slice={slice}")).await;
        let (shape, data) = read_npy(npy.bytes());
        let dims: Vec<&str> = shape.split(',').map(str::trim).filter(|d| !d.is_empty()).collect();
        assert_eq!((dims.join(","), data == expected), (reply.header("x-mdl-shape").to_owned(), true), "{slice}");
    }
    for bad in ["40,0", "0,0,0", "::-1", "a", "::0", "...,..."] {
        site.get(&format!("/tensor/main/{FILE}?name=w&slice={bad}")).await.refused(400, "usage");
    }
}

/// Shape as it is written, and data, of an array of 32-bit floats.
fn read_npy(bytes: &[u8]) -> (String, &[u8]) {
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\0");
    let len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let text = std::str::from_utf8(&bytes[10..10 + len]).expect("text");
    assert!(text.contains("'descr': '<f4'") && text.contains("'fortran_order': False") && text.ends_with('\n'));
    let shape = text.split("'shape': (").nth(1).and_then(|t| t.split(')').next()).expect("a shape");
    (shape.to_owned(), &bytes[10 + len..])
}

/// Tensors of a safetensors file by name.
fn read_safetensors(bytes: &[u8]) -> BTreeMap<String, (Value, Vec<u8>)> {
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize;
    let header: BTreeMap<String, Value> = serde_json::from_slice(&bytes[8..8 + len]).expect("a header");
    let (data, mut end) = (&bytes[8 + len..], 0);
    let tensors = header.into_iter().map(|(name, about)| {
        let offsets = [0, 1].map(|i| about["data_offsets"][i].as_u64().expect("an offset") as usize);
        end = end.max(offsets[1]);
        (name, (about["shape"].clone(), data[offsets[0]..offsets[1]].to_vec()))
    });
    let out = tensors.collect();
    assert_eq!(end, data.len(), "no byte is left over");
    out
}

#[tokio::test]
async fn one_tensor_comes_whole_in_part_or_not_at_all() {
    let site = site();
    let path = format!("/tensor/main/{FILE}?name=big");
    let big = weights(2, 2100 * 1024, 2);
    let whole = site.get(&path).await;
    assert!(whole.bytes() == big);
    let head = site.ask(Method::HEAD, &path, &[], None).await;
    assert_eq!((head.status.as_u16(), head.header("content-length"), head.bytes().len()), (200, "8601600", 0));
    assert_eq!((head.header("etag"), head.header("accept-ranges")), (whole.header("etag"), "bytes"));
    for (range, part) in [
        ("bytes=0-0", 0..1),
        ("bytes=8388600-8388615", 8_388_600..8_388_616),
        ("bytes=8601590-", 8_601_590..8_601_600),
        ("bytes=-5", 8_601_595..8_601_600),
        ("bytes=1-8601598", 1..8_601_599),
    ] {
        let reply = site.ask(Method::GET, &path, &[("range", range)], None).await;
        assert_eq!((reply.status.as_u16(), reply.bytes() == &big[part.clone()]), (206, true), "{range}");
        assert_eq!(reply.header("content-range"), format!("bytes {}-{}/8601600", part.start, part.end - 1));
    }
    let all = site.ask(Method::GET, &path, &[("range", "bytes=0-")], None).await;
    assert_eq!((all.status.as_u16(), all.bytes() == big), (206, true));
    let outside = site.ask(Method::GET, &path, &[("range", "bytes=8601600-")], None).await;
    outside.refused(416, "range");
    assert_eq!(outside.header("content-range"), "bytes */8601600");
    let stale = site.ask(Method::GET, &path, &[("range", "bytes=0-1"), ("if-range", "\"x\"")], None).await;
    assert_eq!((stale.status.as_u16(), stale.bytes().len()), (200, big.len()));
    let seen = site.ask(Method::GET, &path, &[("if-none-match", whole.header("etag"))], None).await;
    assert_eq!((seen.status.as_u16(), seen.bytes().len()), (304, 0));
    let mut etags = vec![whole.header("etag").to_owned()];
    for other in ["&format=npy", "&format=safetensors", "&slice=0:1", "&slice=0:2"] {
        let reply = site.ask(Method::HEAD, &format!("{path}{other}"), &[("range", "bytes=0-1")], None).await;
        assert_eq!((reply.status.as_u16(), reply.header("accept-ranges")), (200, "none"));
        etags.push(reply.header("etag").to_owned());
    }
    etags.sort();
    etags.dedup();
    assert_eq!(etags.len(), 5, "each has its own");
    let part = site.ask(Method::GET, &format!("{path}&slice=0:1"), &[("range", "bytes=0-1")], None).await;
    assert_eq!((part.status.as_u16(), part.bytes()), (200, &big[..4096]));
    let one = site.get(&format!("/tensor/main/{FILE}?name=w&format=safetensors&slice=:2")).await;
    let tensors = read_safetensors(one.bytes());
    assert_eq!(tensors["w"], (json!([2, 30]), weights(1, 1200, 2)[..240].to_vec()));
    let view = site.get("/tensor/main/ckpt.pt?name=model.head.weight&slice=1").await;
    assert_eq!((view.bytes(), view.header("x-mdl-shape")), (&[5u8; 16][..], "4"));
    let array = site.get("/tensor/main/arrays.npz?name=x&slice=:,0").await;
    assert_eq!((array.bytes(), array.header("x-mdl-shape")), (&[7u8; 8][..], "2"));
    for (path, status, kind) in [
        (format!("/tensor/main/{FILE}"), 400, "usage"),
        (format!("/tensor/main/{FILE}?name=x"), 404, "not_found"),
        ("/tensor/main/README.md?name=x".to_owned(), 404, "not_found"),
        ("/tensor/main/nowhere?name=x".to_owned(), 404, "not_found"),
        (format!("/tensor/nowhere/{FILE}?name=w"), 404, "not_found"),
        (format!("/tensor/main/{FILE}?name=w&format=gif"), 400, "usage"),
    ] {
        site.get(&path).await.refused(status, kind);
    }
}

#[tokio::test]
async fn versions_are_compared() {
    let site = site();
    let diff = site.json("/diff?a=main~1").await;
    assert_eq!((&diff["a"], &diff["b"], &diff["left_out"]), (&json!(site.hex(1)), &json!(site.hex(2)), &json!(0)));
    let files: Vec<&str> = diff["files"].as_array().expect("files").iter().filter_map(|f| f["path"].as_str()).collect();
    assert_eq!(files, ["README.md", "extra/model.safetensors", FILE]);
    let tensors = diff["files"][2]["tensors"].as_array().expect("tensors");
    let w = tensors.iter().find(|t| t["name"] == "w").expect("w");
    let changed = w["changed"].as_f64().expect("a share");
    assert!(changed > 0.0 && changed < 1.0 && w["cosine"].as_f64().is_some_and(|c| c > 0.9), "{w}");
    let files = site.json("/diff?a=v1&b=feature%2Fx&files=true").await;
    let long = files["files"].as_array().and_then(|f| f.iter().find(|f| f["change"] == "added")).expect("one is new");
    assert_eq!((&long["size_before"], &long["size_after"], &long["tensors"]), (&Value::Null, &json!(4), &Value::Null));
    assert_eq!(site.json("/diff?a=main&b=lossy").await["files"], json!([]));
    site.get("/diff").await.refused(400, "usage");
    site.get("/diff?a=nowhere").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_version_comes_as_a_tar() {
    let site = site();
    let reply = site.get("/checkout/feature%2Fx").await;
    assert_eq!((reply.status.as_u16(), reply.header("content-type")), (200, "application/x-tar"));
    assert_eq!(reply.header("content-length"), reply.bytes().len().to_string());
    let mut expected = files(1);
    let mut archive = tar::Archive::new(reply.bytes());
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        let path = String::from_utf8(entry.path_bytes().to_vec()).expect("text");
        let (bytes, executable) = expected.remove(&path).expect("a file of the version");
        let mut found = Vec::new();
        entry.read_to_end(&mut found).expect("read");
        assert!(found == bytes, "{path}");
        let header = entry.header();
        assert_eq!(header.mode().ok(), Some(if executable { 0o755 } else { 0o644 }), "{path}");
        assert_eq!(header.mtime().ok(), Some(1_700_000_001), "{path}");
    }
    assert!(expected.is_empty(), "{:?}", expected.keys());
    let again = site.get("/checkout/v2").await;
    assert!(again.bytes() == reply.bytes(), "the same version is the same archive");
    let seen = site.ask(Method::GET, "/checkout/v2", &[("if-none-match", reply.header("etag"))], None).await;
    assert_eq!(seen.status, 304);
    let head = site.ask(Method::HEAD, "/checkout/v2", &[], None).await;
    assert_eq!(head.header("content-length"), reply.header("content-length"));
    let some = site.get("/checkout/main?only=*.safetensors").await;
    let mut archive = tar::Archive::new(some.bytes());
    let paths = archive.entries().expect("entries").map(|e| e.expect("one").path_bytes().to_vec());
    assert_eq!(paths.collect::<Vec<_>>(), [b"extra/model.safetensors".to_vec(), FILE.into()]);
    site.get("/checkout/main?only=nothing").await.refused(404, "not_found");
    site.get("/checkout/main?only=a%5B").await.refused(422, "user");
    site.get("/checkout/main?format=zip").await.refused(400, "usage");
    site.get("/checkout/nowhere").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_version_comes_as_one_safetensors_file() {
    let site = site();
    let reply = site.get("/checkout/main?format=safetensors").await;
    assert_eq!(reply.header("content-length"), reply.bytes().len().to_string());
    let found = read_safetensors(reply.bytes());
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let expected = [
        "big", "extra/model.safetensors:b", "model.bias", "model.embed.weight", "model.head.weight",
        "model.safetensors:b", "only", "optimizer.state.0.exp_avg", "w", "x",
    ];
    assert_eq!(names, expected);
    assert_eq!(found["model.safetensors:b"], (json!([1, 7]), weights(3, 7, 2)));
    assert_eq!(found["extra/model.safetensors:b"], (json!([2, 2]), weights(1, 4, 2)));
    assert_eq!(found["model.head.weight"], found["model.embed.weight"]);
    assert!(found["big"] == (json!([2100, 1024]), weights(2, 2100 * 1024, 2)));
    let one = site.get(&format!("/checkout/main?format=safetensors&only={FILE}")).await;
    // `model.safetensors` means files of this name in any directory.
    assert_eq!(read_safetensors(one.bytes()).len(), 5);
    site.get("/checkout/main?format=safetensors&only=README.md").await.refused(404, "not_found");
}

#[tokio::test]
async fn totals_and_policies_are_told() {
    let site = site();
    let stats = site.json("/stats").await;
    assert_eq!((&stats["commits"], &stats["damaged_packs"]), (&json!(4), &json!(0)));
    assert_eq!(stats["branches"].as_array().map(Vec::len), Some(3));
    assert!(stats["stored_bytes"].as_u64() < stats["logical_bytes"].as_u64());
    let policies = site.json("/policies").await;
    let all = policies["policies"].as_array().expect("policies");
    assert!(all.iter().all(|p| p["usable"] == json!(true) && p["built_in"] == json!(true)) && !all.is_empty());
    let first = site.json("/policies?limit=1").await;
    let next = site.json(&format!("/policies?after={}", first["next"].as_str().expect("more"))).await;
    assert_eq!(next["policies"].as_array().map(Vec::len), Some(all.len() - 1));
}

/// Every way to ask for bytes, and what comes if all is well.
const BYTES: [&str; 6] = [
    "/files/main/model.safetensors",
    "/tensor/main/model.safetensors?name=big",
    "/tensor/main/model.safetensors?name=big&format=npy&slice=1:",
    "/tensor/main/model.safetensors?name=w&slice=::3",
    "/checkout/main",
    "/checkout/main?format=safetensors",
];

#[tokio::test]
async fn damage_breaks_a_body_off_and_never_shows() {
    let good = site();
    let mut right = Vec::new();
    for path in BYTES {
        right.push(good.get(path).await.body.expect("whole"));
    }
    let site = site_with(|o| o.cache = 0);
    let mut broken = 0;
    let mut packs: Vec<_> = walk(&site.root.path().join("ada/gpt")).into_iter().filter(|p| is_pack(p)).collect();
    packs.sort_by_key(|p| std::fs::metadata(p).map(|m| m.len()).unwrap_or(0));
    let largest = packs.last().expect("a pack");
    let bytes = std::fs::read(largest).expect("read");
    for place in 1..24 {
        let mut bad = bytes.clone();
        let at = bytes.len() * place / 24;
        bad[at] ^= 0x40;
        overwrite(largest, &bad);
        let fresh = site.root.app(site.root.options());
        let router = router(&fresh, &Rates::new(None));
        for (path, right) in BYTES.iter().zip(&right) {
            let request = Request::get(format!("{BASE}{path}")).body(Body::empty()).expect("a request");
            let response = router.clone().oneshot(request).await.expect("a response");
            let ok = response.status() == 200;
            match response.into_body().collect().await {
                Ok(body) if ok => assert!(body.to_bytes() == *right, "{path}, byte {at}"),
                _ => broken += 1,
            }
        }
        overwrite(largest, &bytes);
    }
    assert!(broken > 0, "nothing was hit");
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").path());
    entries.flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}

fn is_pack(path: &std::path::Path) -> bool {
    path.parent().is_some_and(|d| d.ends_with("packs"))
}

fn overwrite(path: &std::path::Path, bytes: &[u8]) {
    let part = path.with_extension("part");
    std::fs::write(&part, bytes).expect("written");
    std::fs::rename(part, path).expect("renamed");
}

#[tokio::test]
async fn tokens_bound_what_may_be_done() {
    let site = site();
    let token = |repo: &str, scope| {
        let new = NewToken {
            name: "eve".to_owned(),
            repo: repo.to_owned(),
            scope,
            expires_ms: None,
        };
        format!("Bearer {}", site.app.tokens().create(new).expect("a token").1)
    };
    let (read, write, other) = (token("ada/*", Scope::Read), token("ada/*", Scope::Write), token("bob/*", Scope::Admin));
    let reading = [
        "/refs", "/log", "/commits/main", "/tree/main", "/tensors/main/ckpt.pt", "/files/main/README.md",
        "/tensor/main/model.safetensors?name=w", "/diff?a=main", "/checkout/main?only=run.sh", "/stats", "/policies",
    ];
    for path in reading {
        site.get(path).await.refused(401, "unauthorized");
        let with = async |token: &str| site.ask(Method::GET, path, &[("authorization", token)], None).await;
        with("Bearer mdl_wrong_1").await.refused(401, "unauthorized");
        with(&other).await.refused(403, "forbidden");
        assert_eq!(with(&read).await.status, 200, "{path}");
    }
    let body = || Some(json!({"target": "main"}));
    let put = async |headers: &[(&str, &str)]| site.ask(Method::PUT, "/refs/heads/new", headers, body()).await;
    put(&[]).await.refused(401, "unauthorized");
    put(&[("authorization", &read)]).await.refused(403, "forbidden");
    put(&[("authorization", &write), ("origin", "https://evil.example")]).await.refused(403, "forbidden");
    let mut heard = site.app.events().subscribe();
    assert_eq!(put(&[("authorization", &write)]).await.status, 200);
    assert_eq!(heard.try_recv().expect("an event").by, "eve");
    let delete = async |token: &str| site.ask(Method::DELETE, "/refs/heads/new", &[("authorization", token)], None).await;
    delete(&read).await.refused(403, "forbidden");
    assert_eq!(delete(&write).await.status, 200);
}

#[tokio::test]
async fn the_document_lists_the_routes_that_there_are() {
    let site = site();
    let document = serde_json::to_value(mdl_server::api::document()).expect("JSON");
    let served = site.send(Request::get("/api/v1/openapi.json").body(Body::empty()).expect("a request")).await;
    assert_eq!(served.json(), document);
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() >= 13, "{:?}", paths.keys());
    let values = [
        ("owner", "ada"), ("name", "gpt"), ("rev", "v1"), ("path", FILE), ("kind", "heads"), ("ref", "nobody"),
    ];
    for (path, item) in paths {
        let mut url = path.clone();
        for (name, value) in values {
            url = url.replace(&format!("{{{name}}}"), value);
        }
        // What other rooms call theirs.
        while let (Some(a), Some(b)) = (url.find('{'), url.find('}')) {
            url.replace_range(a..=b, "1");
        }
        assert!(!url.contains('*'), "{path} is a template of OpenAPI");
        for method in ["get", "head", "post", "put", "patch", "delete"] {
            let documented = item.get(method).is_some() || (method == "head" && item.get("get").is_some());
            let verb = Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method");
            let request = Request::builder().method(verb).uri(&url).header(header::CONTENT_TYPE, "application/json");
            let reply = site.send(request.body(Body::from("{}")).expect("a request")).await;
            let text = String::from_utf8_lossy(reply.body.as_deref().unwrap_or_default()).into_owned();
            assert_eq!(reply.status == 405, !documented, "{method} {url}: {} {text}", reply.status);
            assert!(!text.contains("there is nothing at"), "{method} {url} falls through");
            assert!(!reply.status.is_server_error(), "{method} {url}: {} {text}", reply.status);
            let described = &item[method]["responses"];
            let known = described.get(reply.status.as_str()).or(described.get("default"));
            assert!(!documented || method == "head" || known.is_some(), "{method} {url}: {}", reply.status);
        }
    }
}
