//! Hub and git-lfs routes: JSON shapes, headers, errors; uploads with wrong hashes.

use crate::support::{
    Root, commit,
    http::{kept, spooled},
    safetensors,
};
use axum::{
    Router,
    body::{Body, to_bytes},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, Method, Request, StatusCode};
use mdl_objects::Id;
use mdl_server::{
    Rates,
    app::App,
    auth::{NewToken, Scope},
    router,
};
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};
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
        let app = root.app(root.options());
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
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

#[tokio::test]
async fn models_are_described_at_every_revision() {
    let site = Site::new();
    let latest = site.get(MODEL).await.ended(200).json();
    assert_eq!(latest["id"], "ada/gpt");
    assert_eq!(latest["sha"], site.short(2).as_str());
    assert_eq!(
        siblings(&latest),
        ["README.md", "config.json", "model.safetensors", "sub/deep/a b.txt", "sub/note.txt"]
    );
    for rev in ["main", "step-100", "HEAD~1", "refs%2Fheads%2Fmain", &site.short(1), &site.ids[1].to_hex()] {
        site.get(&format!("{MODEL}/revision/{rev}")).await.ended(200);
    }
    let old = site.get(&format!("{MODEL}/revision/step-100?blobs=True")).await.ended(200).json();
    assert_eq!(old["sha"], site.short(1).as_str());
    assert_eq!(old["siblings"][2]["lfs"]["sha256"], sha256(&model(1)).as_str());
    let missing = site.get(&format!("{MODEL}/revision/nope")).await.ended(404);
    assert_eq!(missing.header("x-error-code"), "RevisionNotFound");
    for path in ["/api/models/ada/other", "/api/models/gpt2"] {
        let missing = site.get(path).await.ended(404);
        assert_eq!(missing.header("x-error-code"), "RepoNotFound", "{path}");
    }
    let list = site.get("/api/models?search=GP&author=ada&limit=5").await.ended(200).json();
    assert_eq!(list[0]["id"], "ada/gpt");
    assert_eq!(site.get("/api/models?author=bob").await.json(), json!([]));
}

#[tokio::test]
async fn trees_come_in_pages_and_name_files_as_git_does() {
    let site = Site::new();
    let root = site.get(&format!("{MODEL}/tree/main")).await.ended(200).json();
    let kinds: Vec<(&str, &str)> = root
        .as_array()
        .expect("a list")
        .iter()
        .map(|i| (i["path"].as_str().expect("a path"), i["type"].as_str().expect("a type")))
        .collect();
    let want = [("README.md", "file"), ("config.json", "file"), ("model.safetensors", "file"), ("sub", "directory")];
    assert_eq!(kinds, want);
    assert_eq!(root[0]["oid"], git(b"# hello\n").as_str());
    let bytes = model(2);
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n", sha256(&bytes), bytes.len());
    assert_eq!(root[2]["oid"], git(pointer.as_bytes()).as_str());
    assert_eq!(root[2]["lfs"]["oid"], sha256(&bytes).as_str());
    assert_eq!(root[2]["lfs"]["pointerSize"], pointer.len());
    assert_eq!(root[3]["oid"].as_str().map(str::len), Some(40));

    let (mut paths, mut page) = (Vec::new(), Some(format!("{MODEL}/tree/main?recursive=True&limit=2")));
    while let Some(path) = page {
        let answer = site.get(&path).await.ended(200);
        let items = answer.json();
        let items = items.as_array().expect("a list");
        assert!(items.len() <= 2);
        paths.extend(items.iter().map(|i| i["path"].as_str().expect("a path").to_owned()));
        page = next_page(&answer);
    }
    let want = "README.md config.json model.safetensors sub sub/deep sub/deep/a_b.txt sub/note.txt";
    assert_eq!(paths.iter().map(|p| p.replace(' ', "_")).collect::<Vec<_>>().join(" "), want);

    for path in ["sub", "sub%2F", "sub/"] {
        let below = site.get(&format!("{MODEL}/tree/main/{path}?recursive=1")).await.ended(200).json();
        assert_eq!(below[1]["path"], "sub/deep/a b.txt", "{path}");
    }
    for path in ["nope", "README.md", "sub/nope"] {
        let missing = site.get(&format!("{MODEL}/tree/main/{path}")).await.ended(404);
        assert_eq!(missing.header("x-error-code"), "EntryNotFound", "{path}");
    }
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let body = "paths=sub%2Fdeep%2Fa+b.txt&paths=nope&paths=sub&expand=true";
    let info = site.ask(Method::POST, &format!("{MODEL}/paths-info/main"), &form, body).await.ended(200).json();
    assert_eq!(info.as_array().map(Vec::len), Some(2));
    assert_eq!(info[0]["oid"], git(b"x").as_str());
    assert_eq!(info[0]["lastCommit"]["id"], site.short(0).as_str());
}

#[tokio::test]
async fn files_come_with_what_the_clients_need() {
    let site = Site::new();
    for (n, rev) in ["step-0", "step-100", "main"].into_iter().enumerate() {
        let path = format!("/ada/gpt/resolve/{rev}/model.safetensors");
        let head = site.ask(Method::HEAD, &path, &[], Body::empty()).await.ended(200);
        let bytes = model(n as u64);
        assert!(head.body.is_empty());
        assert_eq!(head.header("x-repo-commit"), site.short(n));
        assert_eq!(head.header("etag"), format!("\"{}\"", sha256(&bytes)));
        assert_eq!(head.header("content-length"), bytes.len().to_string());
        assert_eq!(site.get(&path).await.ended(200).body, bytes);
        let part = site.ask(Method::GET, &path, &[("range", "bytes=5-1004")], Body::empty()).await.ended(206);
        assert_eq!(part.body, &bytes[5..1005]);
        assert_eq!(part.header("content-range"), format!("bytes 5-1004/{}", bytes.len()));
    }
    let spaced = site.get("/ada/gpt/resolve/main/sub/deep/a%20b.txt").await.ended(200);
    assert_eq!(spaced.body, b"x");
    for path in ["nope.json", "sub", "../x", "sub/deep/a b.txt/x"] {
        let path = format!("/ada/gpt/resolve/main/{}", path.replace(' ', "%20"));
        let missing = site.get(&path).await.ended(404);
        assert_eq!(missing.header("x-error-code"), "EntryNotFound", "{path}");
        assert_eq!(missing.header("x-repo-commit"), site.short(2), "{path}");
        assert!(!missing.header("x-error-message").is_empty());
    }
}

#[tokio::test]
async fn branches_tags_and_commits_are_listed_made_and_deleted() {
    let site = Site::new();
    let branch = format!("{MODEL}/branch/wild%2Fone");
    site.post(&branch, json!({"startingPoint": site.short(0)})).await.ended(200);
    site.post(&branch, json!({})).await.ended(409);
    site.post(&format!("{MODEL}/branch/main"), json!({})).await.ended(409);
    site.post(&format!("{MODEL}/branch/b"), json!({"startingPoint": "nope"})).await.ended(404);
    site.post(&format!("{MODEL}/tag/step-100"), json!({"tag": "v1"})).await.ended(200);
    site.post(&format!("{MODEL}/tag/main"), json!({"tag": "v2", "message": "said"})).await.ended(200);
    site.post(&format!("{MODEL}/tag/main"), json!({"tag": "v1"})).await.ended(409);
    let refs = site.get(&format!("{MODEL}/refs")).await.ended(200).json();
    assert_eq!(refs["branches"][1]["name"], "wild/one");
    assert_eq!(refs["branches"][1]["targetCommit"], site.short(0).as_str());
    assert_eq!(refs["tags"][0]["ref"], "refs/tags/v1");
    assert_eq!(refs["tags"][1]["targetCommit"], site.short(2).as_str());

    let first = site.get(&format!("{MODEL}/commits/main?limit=2&expand[]=formatted")).await.ended(200);
    let commits = first.json();
    assert_eq!(commits[0]["id"], site.short(2).as_str());
    assert_eq!(commits[0]["title"], "version 2");
    assert_eq!(commits[0]["formatted"]["message"], "more &lt;b&gt;");
    let rest = site.get(&next_page(&first).expect("a second page")).await.ended(200);
    assert_eq!(rest.json()[0]["id"], site.short(0).as_str());
    assert!(next_page(&rest).is_none());

    site.ask(Method::DELETE, &branch, &[], Body::empty()).await.ended(200);
    site.ask(Method::DELETE, &branch, &[], Body::empty()).await.ended(404);
    site.ask(Method::DELETE, &format!("{MODEL}/tag/v1"), &[], Body::empty()).await.ended(200);
}

#[tokio::test]
async fn commits_change_what_they_name_and_nothing_else() {
    let site = Site::new();
    let weights = model(7);
    let put = site.link("upload", &weights).await;
    site.ask(Method::PUT, &put, &[], weights.clone()).await.ended(200);
    site.post("/ada/gpt.git/info/lfs/verify", json!({"oid": sha256(&weights), "size": weights.len()})).await.ended(200);
    let lfs = json!({"key": "lfsFile", "value": {
        "path": "model.safetensors", "algo": "sha256", "oid": sha256(&weights), "size": weights.len(),
    }});
    let lines = [
        header("new weights"),
        file("new/dir/x.json", b"{}"),
        lfs,
        json!({"key": "deletedFile", "value": {"path": "README.md"}}),
        json!({"key": "deletedFolder", "value": {"path": "sub/deep/"}}),
    ];
    let done = site.commit("main", &lines).await.ended(200).json();
    let oid = done["commitOid"].as_str().expect("an id").to_owned();
    assert_eq!(done["commitUrl"], format!("http://127.0.0.1:7878/ada/gpt/commit/{oid}"));
    let info = site.get(MODEL).await.json();
    assert_eq!(info["sha"], oid.as_str());
    assert_eq!(siblings(&info), ["config.json", "model.safetensors", "new/dir/x.json", "sub/note.txt"]);
    assert_eq!(site.get("/ada/gpt/resolve/main/model.safetensors").await.body, weights);
    assert_eq!(site.get(&format!("{MODEL}/commits/main?limit=1")).await.json()[0]["message"], "why");

    // The same again changes nothing; what was built on another version is refused.
    let again = site.commit("main", &[header("again"), file("new/dir/x.json", b"{}")]).await.ended(200);
    assert_eq!(again.json()["commitOid"], oid.as_str());
    let stale = |parent: &str| json!({"key": "header", "value": {"summary": "s", "parentCommit": parent}});
    site.commit("main", &[stale(&site.short(2)), file("y", b"y")]).await.ended(412);
    site.commit("main", &[stale(&oid), file("y", b"y")]).await.ended(200);
}

#[tokio::test]
async fn commits_that_make_no_sense_leave_everything_as_it_was() {
    let site = Site::new();
    let unknown = json!({"key": "lfsFile", "value": {"path": "w", "algo": "sha256", "oid": sha256(b"w"), "size": 1}});
    let gone = json!({"key": "deletedFile", "value": {"path": "nope"}});
    let bad64 = json!({"key": "file", "value": {"path": "x", "content": "%%", "encoding": "base64"}});
    for (status, lines) in [
        (400, vec![file("x", b"x")]),
        (400, vec![header("s"), unknown]),
        (404, vec![header("s"), gone]),
        (400, vec![header("s"), bad64]),
        (400, vec![header("s"), json!({"key": "what", "value": {}})]),
        (422, vec![header("s"), file("../x", b"x")]),
        (422, vec![header("s"), file("a/.mdl/x", b"x")]),
        (422, vec![header("s"), file("config.json/x", b"x")]),
    ] {
        site.commit("main", &lines).await.ended(status);
    }
    site.commit("main?create_pr=1", &[header("s"), file("x", b"x")]).await.ended(400);
    site.commit("nope", &[header("s"), file("x", b"x")]).await.ended(404);
    site.commit(&site.short(1), &[header("s"), file("x", b"x")]).await.ended(400);
    assert_eq!(site.get(MODEL).await.json()["sha"], site.short(2).as_str());
    let left = spooled(&site.root.path().join(".mdl-serve"));
    assert_eq!(left, 0, "nothing stays in the spool");
}

#[tokio::test]
async fn commits_at_the_same_time_all_arrive() {
    let site = Site::new();
    let one = |n: usize| {
        let name = format!("f{n}.txt");
        let lines = [header("s"), file(&name, name.as_bytes())];
        let site = &site;
        async move { site.commit("main", &lines).await.ended(200).status }
    };
    futures_util::future::join_all((0..8).map(one)).await;
    let siblings = site.get(MODEL).await.json()["siblings"].as_array().map(Vec::len);
    assert_eq!(siblings, Some(5 + 8));
}

#[tokio::test]
async fn uploads_that_lie_leave_nothing() {
    let site = Site::new();
    let (truth, lies) = (vec![7u8; 1000], vec![8u8; 1000]);
    let put = site.link("upload", &truth).await;
    for bytes in [&lies[..], &truth[..999], &[&truth[..], b"x"].concat(), b""] {
        site.ask(Method::PUT, &put, &[], bytes.to_vec()).await.ended(422);
    }
    let other = put.replace(&sha256(&truth), "XYZ");
    site.ask(Method::PUT, &other, &[], truth.clone()).await.ended(422);
    let verify = json!({"oid": sha256(&truth), "size": truth.len()});
    site.post("/ada/gpt.git/info/lfs/verify", verify.clone()).await.ended(404);
    assert!(site.batch("download", &truth, &[]).await["error"]["code"] == 404);
    let state = site.root.path().join(".mdl-serve");
    assert_eq!(spooled(&state), 0);
    assert!(!kept(site.root.path(), "ada/gpt").join("lfs").exists());

    site.ask(Method::PUT, &put, &[], truth.clone()).await.ended(200);
    site.post("/ada/gpt.git/info/lfs/verify", verify).await.ended(200);
    assert!(site.batch("upload", &truth, &[]).await["actions"].is_null(), "nothing to send");
    let get = site.link("download", &truth).await;
    assert_eq!(site.get(&get).await.ended(200).body, truth);
    let part = site.ask(Method::GET, &get, &[("range", "bytes=990-")], Body::empty()).await.ended(206);
    assert_eq!((part.body.len(), part.header("content-range")), (10, "bytes 990-999/1000"));
    // What one repository has, another has not.
    site.root.repo("ada/other");
    site.get(&get.replace("ada/gpt", "ada/other")).await.ended(404);
}

#[tokio::test]
async fn versions_serve_as_objects() {
    let site = Site::new();
    let bytes = model(1);
    let path = "/ada/gpt/resolve/step-100/model.safetensors";
    site.ask(Method::HEAD, path, &[], Body::empty()).await.ended(200);
    let get = site.link("download", &bytes).await;
    assert_eq!(site.get(&get).await.ended(200).body, bytes);
    // A copy is made without sending it.
    assert!(site.batch("upload", &bytes, &[]).await["actions"].is_null());
    let lfs = json!({"key": "lfsFile", "value": {"path": "copy.safetensors", "algo": "sha256", "oid": sha256(&bytes)}});
    site.commit("main", &[header("copy"), lfs]).await.ended(200);
    assert_eq!(site.get("/ada/gpt/resolve/main/copy.safetensors").await.body, bytes);
}

#[tokio::test]
async fn conditions_are_heeded_for_uploaded_objects_as_for_those_of_versions() {
    let site = Site::new();
    let (uploaded, committed) = (vec![7u8; 1000], model(1));
    let put = site.link("upload", &uploaded).await;
    site.ask(Method::PUT, &put, &[], uploaded.clone()).await.ended(200);
    let hashed = "/ada/gpt/resolve/step-100/model.safetensors";
    site.ask(Method::HEAD, hashed, &[], Body::empty()).await.ended(200);
    for bytes in [uploaded, committed] {
        let (get, len) = (site.link("download", &bytes).await, bytes.len());
        let tag = format!("\"{}\"", sha256(&bytes));
        let (weak, list) = (format!("W/{tag}"), format!("\"other\", W/{tag}"));
        let part = ("range", "bytes=10-19");
        /// Headers, and the status and body that answer them.
        type Case<'a> = (&'a [(&'a str, &'a str)], u16, &'a [u8]);
        let cases: [Case<'_>; 15] = [
            (&[("if-none-match", &tag)], 304, b""),
            (&[("if-none-match", &list)], 304, b""),
            (&[("if-none-match", "*")], 304, b""),
            (&[("if-none-match", "\"other\"")], 200, &bytes),
            (&[part, ("if-none-match", &tag)], 304, b""),
            (&[part, ("if-none-match", "\"other\"")], 206, &bytes[10..20]),
            (&[part, ("if-range", &tag)], 206, &bytes[10..20]),
            (&[part, ("if-range", "\"other\"")], 200, &bytes),
            // A part needs a strong match.
            (&[part, ("if-range", &weak)], 200, &bytes),
            (&[part, ("if-range", "Tue, 01 Jul 2025 00:00:00 GMT")], 200, &bytes),
            (&[("range", "bytes=9999999-"), ("if-range", "\"other\"")], 200, &bytes),
            (&[("range", "bytes=0-1,3-4")], 200, &bytes),
            (&[("if-match", "*")], 200, &bytes),
            (&[part, ("if-match", "\"other\""), ("if-match", &tag)], 206, &bytes[10..20]),
            (&[("if-match", &tag), ("if-none-match", "\"other\""), ("if-none-match", &tag)], 304, b""),
        ];
        for (headers, status, sent) in cases {
            let answer = site.ask(Method::GET, &get, headers, Body::empty()).await.ended(status);
            assert!(answer.body == sent, "{headers:?}: {} bytes", answer.body.len());
            assert_eq!((answer.header("etag"), answer.header("accept-ranges")), (tag.as_str(), "bytes"), "{headers:?}");
            let head = site.ask(Method::HEAD, &get, headers, Body::empty()).await;
            // HEAD has no range (RFC 9110, 14.2).
            head.ended(if status == 206 { 200 } else { status });
        }
        for wanted in ["\"other\"", &list] {
            let headers = [("if-match", wanted), ("if-none-match", &tag)];
            let refused = site.ask(Method::GET, &get, &headers, Body::empty()).await.ended(412);
            assert_eq!(refused.json()["kind"], "conflict");
        }
        let outside = site.ask(Method::GET, &get, &[("range", "bytes=9999999-")], Body::empty()).await.ended(416);
        assert_eq!(outside.header("content-range"), format!("bytes */{len}"));
        assert_eq!(outside.json()["detail"], "the range leaves the file");
    }
}

#[tokio::test]
async fn a_link_uploads_what_it_was_made_for_as_long_as_its_token_is_good() {
    let site = Site::new();
    let write = site.token(Scope::Write, "ada/*");
    let bearer = format!("Bearer {write}");
    let bytes = b"weights".to_vec();
    let object = site.batch("upload", &bytes, &[("authorization", &bearer)]).await;
    let upload = &object["actions"]["upload"];
    assert_eq!(upload["header"]["Authorization"], bearer.as_str());
    let put = local(upload["href"].as_str().expect("a link"));
    let plain = put.split('?').next().expect("a path").to_owned();
    site.ask(Method::PUT, &plain, &[], bytes.clone()).await.ended(401);
    for (from, to) in [("size=7", "size=8"), ("until=", "until=9"), ("sig=", "sig=0"), ("ada/gpt", "ada/gpu")] {
        site.ask(Method::PUT, &put.replace(from, to), &[], bytes.clone()).await.ended(401);
    }
    site.ask(Method::PUT, &put, &[], bytes.clone()).await.ended(200);
    let id = write.split('_').nth(1).expect("an id");
    site.app.tokens().revoke(id).expect("revoked");
    // Another token, so that the server does not fall back to trusting every caller.
    let read = site.token(Scope::Read, "ada/*");
    site.ask(Method::PUT, &put, &[], bytes.clone()).await.ended(401);

    let bearer = format!("Bearer {read}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let refused = [
        (Method::POST, format!("{MODEL}/commit/main")),
        (Method::POST, format!("{MODEL}/preupload/main")),
        (Method::POST, format!("{MODEL}/branch/x")),
        (Method::DELETE, format!("{MODEL}/branch/x")),
        (Method::POST, format!("{MODEL}/tag/main")),
        (Method::DELETE, format!("{MODEL}/tag/x")),
        (Method::PUT, plain),
        (Method::POST, "/ada/gpt.git/info/lfs/verify".to_owned()),
        (Method::GET, format!("{MODEL}/auth-check/write")),
    ];
    for (method, path) in refused {
        site.ask(method.clone(), &path, &headers, "{}").await.ended(403);
        site.ask(method, &path, &[], "{}").await.ended(401);
    }
    let new = json!({"name": "x", "organization": "ada"}).to_string();
    site.ask(Method::POST, "/api/repos/create", &headers, new).await.ended(403);
    for path in [MODEL, "/api/models/ada/gpt/refs", "/ada/gpt/resolve/main/README.md"] {
        site.ask(Method::GET, path, &headers, Body::empty()).await.ended(200);
        let refused = site.get(path).await.ended(401);
        assert_eq!(refused.header("x-error-code"), "RepoNotFound");
    }
    let who = site.ask(Method::GET, "/api/whoami-v2", &headers, Body::empty()).await.ended(200).json();
    assert_eq!(who["name"], "ada");
    site.get("/api/whoami-v2").await.ended(401);
}

#[tokio::test]
async fn repositories_are_made_once_and_filled() {
    let site = Site::new();
    let new = json!({"name": "new", "organization": "ada", "type": "model"});
    let made = site.post("/api/repos/create", new.clone()).await.ended(200).json();
    assert_eq!(made["url"], "http://127.0.0.1:7878/ada/new");
    let again = site.post("/api/repos/create", new).await.ended(409);
    assert_eq!(again.json()["url"], made["url"]);
    site.post("/api/repos/create", json!({"name": "new"})).await.ended(400);
    site.post("/api/repos/create", json!({"name": "d", "organization": "ada", "type": "dataset"})).await.ended(400);
    site.post("/api/validate-yaml", json!({"content": "---\na: b\n---\n", "repoType": "model"})).await.ended(200);
    let empty = site.get("/api/models/ada/new/revision/main").await.ended(200).json();
    assert!(empty["sha"].is_null());
    let lines = format!("{}\n{}\n", header("first"), file("a.json", b"{}"));
    site.ask(Method::POST, "/api/models/ada/new/commit/main", &[], lines).await.ended(200);
    assert_eq!(site.get("/ada/new/resolve/main/a.json").await.ended(200).body, b"{}");

    let sample = BASE64_STANDARD.encode(b"{\"version\": 2}\n");
    let asked = json!({"files": [
        {"path": "config.json", "sample": sample, "size": 15},
        {"path": "m.safetensors", "sample": "", "size": 9},
    ]});
    let modes = site.post(&format!("{MODEL}/preupload/main"), asked).await.ended(200).json();
    assert_eq!(modes["files"][0]["uploadMode"], "regular");
    assert_eq!(modes["files"][0]["oid"], git(b"{\"version\": 2}\n").as_str());
    assert_eq!(modes["files"][1], json!({"path": "m.safetensors", "uploadMode": "lfs", "shouldIgnore": false}));
}
