//! `POST .../commits`: every encoding, idempotency keys, expected parents, hostile archives and forms, rights.

use crate::support::{
    Root, commit,
    http::{Answer, ask, form, form_request, send, spooled, tar, tar_request, with_key},
    name, safetensors,
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use mdl_objects::Id;
use mdl_repo::Repo;
use mdl_server::{Options, app::App};
use serde_json::{Value, json};

const TENSORS: [(&str, usize, usize); 2] = [("a", 64, 32), ("b", 16, 16)];

struct Fixture {
    root: Root,
    app: App,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut Options)) -> Fixture {
        let root = Root::new();
        drop(root.repo("ada/gpt"));
        let mut options = root.options();
        change(&mut options);
        let app = root.app(options);
        Fixture { root, app }
    }

    fn repo(&self) -> std::sync::Arc<Repo> {
        self.app.registry().open(&name("ada/gpt")).expect("the repository")
    }

    fn first(&self) -> String {
        let files = [("model.safetensors", safetensors(&TENSORS, 0)), ("notes/a.txt", b"a".to_vec())];
        commit(&self.repo(), &files, "first", 1).to_hex()
    }

    fn tip(&self) -> Id {
        self.repo().refs().head_commit().expect("refs").expect("a commit")
    }

    /// The files of the branch's tip, with their bytes.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let repo = self.repo();
        let files = mdl_repo::files(&repo, &self.tip()).expect("files");
        let read = |(path, entry): (&String, &mdl_objects::Entry)| {
            let mut bytes = Vec::new();
            let mut take = |part: &[u8]| {
                bytes.extend_from_slice(part);
                Ok(())
            };
            repo.odb().stream_files(entry, &mdl_repo::Silent, &mut take).expect("bytes");
            (path.clone(), bytes)
        };
        files.iter().map(read).collect()
    }

    fn commits(&self) -> usize {
        let repo = self.repo();
        let tip = repo.refs().head_commit().expect("refs");
        mdl_repo::history(&repo, &tip.into_iter().collect::<Vec<_>>()).expect("history").count()
    }

    fn clean(&self) {
        assert_eq!(spooled(self.app.state()), 0);
    }
}

fn said(step: u64) -> Value {
    json!({"message": format!("step {step}"), "step": step, "metrics": {"loss": 0.5}})
}

/// As [`said`], with one field more.
fn said_with(step: u64, field: &str, value: Value) -> Value {
    let mut meta = said(step);
    meta[field] = value;
    meta
}

fn form_of(meta: &Value, files: &[(&str, &[u8])]) -> http::Request<Body> {
    let meta = meta.to_string();
    let mut parts = vec![("meta", None, meta.as_bytes())];
    parts.extend(files.iter().map(|(path, bytes)| ("file", Some(*path), *bytes)));
    form_request(form(&parts))
}

fn form_with_tar(meta: &Value, archive: &[u8]) -> Vec<u8> {
    form(&[("meta", None, meta.to_string().as_bytes()), ("tar", None, archive)])
}

fn made(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{}", answer.text);
    let id = answer.json["commit"].as_str().expect("an id").to_owned();
    assert_eq!(answer.headers["location"], format!("/api/v1/repos/ada/gpt/commits/{id}"));
    id
}

#[track_caller]
fn is_one_of(answer: &Answer, statuses: &[u16], what: &str) {
    let status = answer.status.as_u16();
    assert!(statuses.contains(&status), "{what}: {status} {}", answer.text);
}

#[tokio::test]
async fn every_form_gives_the_bytes_back() {
    let f = Fixture::new();
    let (one, two) = (safetensors(&TENSORS, 1), safetensors(&TENSORS, 2));
    let long = format!("{}/ü.bin", "d".repeat(150));
    let sent: Vec<(&str, &[u8])> = vec![("model.safetensors", &one), ("sub/näme.txt", b"text"), ("empty", b"")];
    let first = made(&send(&f.app, form_of(&said(1), &sent)).await);
    let expected: Vec<(String, Vec<u8>)> = vec![
        ("empty".into(), vec![]),
        ("model.safetensors".into(), one.clone()),
        ("sub/näme.txt".into(), b"text".to_vec()),
    ];
    assert_eq!(f.files(), expected);

    let archive = tar(&[("./model.safetensors", &two), (&long, b"x")]);
    let answer = send(&f.app, tar_request(&said(2), archive)).await;
    assert_eq!((&answer.json["parent"], &answer.json["files_deleted"]), (&json!(first), &json!(2)));
    made(&answer);
    assert_eq!(f.files(), vec![(long.clone(), b"x".to_vec()), ("model.safetensors".into(), two.clone())]);

    // The archive as a part of a form, in small pieces, onto the parent's files.
    let meta = json!({"message": "third", "base": "parent", "remove": [long], "executable": []});
    let body = form_with_tar(&meta, &tar(&[("run.sh", b"#!")]));
    let pieces: Vec<Result<Bytes, std::io::Error>> = body.chunks(7).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
    made(&send(&f.app, form_request(Body::from_stream(stream::iter(pieces)))).await);
    assert_eq!(f.files(), vec![("model.safetensors".into(), two), ("run.sh".into(), b"#!".to_vec())]);
    let tip = f.tip();
    assert!(mdl_repo::files(&f.repo(), &tip).expect("files")["run.sh"].executable);

    let answer =
        ask(&f.app, "POST", "/commits", Some(json!({"message": "4", "base": "parent", "remove": ["run.sh"]}))).await;
    made(&answer);
    assert_eq!(f.files().len(), 1);
    f.clean();
}

#[tokio::test]
async fn an_answer_that_was_lost_is_given_again() {
    let f = Fixture::new();
    f.first();
    let one = safetensors(&TENSORS, 1);
    let order = || with_key(form_of(&said(2), &[("model.safetensors", &one)]), "k-1");
    let first = send(&f.app, order()).await;
    let id = made(&first);
    // The same server, and another one on the same files: as after a kill.
    let other = f.root.app(f.root.options());
    for app in [&f.app, &other] {
        let again = send(app, order()).await;
        assert_eq!(
            (again.status.as_u16(), &again.headers["idempotency-replayed"]),
            (200, &"true".parse().expect("text"))
        );
        assert_eq!(again.json, first.json);
        assert!(again.headers["location"].to_str().expect("text").ends_with(&id));
    }
    assert_eq!(f.commits(), 2);
    // Other files or other words under the key; an other branch or key is another commit.
    let changed = safetensors(&TENSORS, 3);
    let post = |meta: Value, bytes: &[u8], key: &str| {
        send(&f.app, with_key(form_of(&meta, &[("model.safetensors", bytes)]), key))
    };
    for (meta, bytes) in [(said(2), &changed), (said(3), &one)] {
        let answer = post(meta, bytes, "k-1").await;
        assert_eq!(answer.status, 422, "{}", answer.text);
    }
    assert_eq!(f.commits(), 2);
    made(&post(said(3), &one, "k-2").await);
    made(&post(said_with(2, "branch", json!("side")), &one, "k-1").await);
    // The key alone is no change.
    let answer = post(json!({"message": "same"}), &one, "k-3").await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    f.clean();
}

#[tokio::test]
async fn one_key_at_the_same_time_makes_one_commit() {
    let f = Fixture::new();
    f.first();
    let one = safetensors(&TENSORS, 1);
    let order = || send(&f.app, with_key(form_of(&said(2), &[("model.safetensors", &one)]), "k"));
    let answers = futures_util::future::join_all((0..6).map(|_| order())).await;
    let statuses: Vec<u16> = answers.iter().map(|a| a.status.as_u16()).collect();
    assert_eq!(statuses.iter().filter(|s| **s == 201).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|s| [200, 201, 409].contains(s)), "{statuses:?}");
    assert_eq!(f.commits(), 2);
    f.clean();
}

#[tokio::test]
async fn the_branch_must_stand_where_it_is_expected() {
    let f = Fixture::new();
    let order =
        |expected: Value, n: u64| send(&f.app, form_of(&said_with(n, "expected", expected), &[("x.bin", &[n as u8])]));
    let first = made(&order(Value::Null, 1).await);
    assert_eq!(order(Value::Null, 2).await.status, 409);
    let second = made(&order(json!(first), 2).await);
    assert_eq!(order(json!(first), 3).await.status, 409);
    assert_eq!(order(json!("nonsense"), 3).await.status, 400);
    made(&order(json!(second), 3).await);
    // Without expectations several may commit at once: each one's file stays.
    let order = |n: u64| {
        let meta = json!({"message": "side by side", "base": "parent"});
        let path = format!("f{n}");
        send(&f.app, form_of(&meta, &[(path.as_str(), b"x")]))
    };
    let answers = futures_util::future::join_all((0..4).map(order)).await;
    answers.iter().for_each(|a| drop(made(a)));
    assert_eq!((f.commits(), f.files().len()), (7, 5));
    f.clean();
}

fn raw_tar(path: &[u8], kind: u8, size: &str) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..path.len()].copy_from_slice(path);
    header.set_mode(0o644);
    let field = format!("{size:0>11}\0");
    header.as_mut_bytes()[124..136].copy_from_slice(field.as_bytes());
    header.as_mut_bytes()[156] = kind;
    header.set_cksum();
    header.as_bytes().to_vec()
}

#[tokio::test]
async fn hostile_archives_change_nothing() {
    let f = Fixture::new();
    let before = f.first();
    let end = vec![0; 1024];
    let file = |path: &[u8], kind: u8| [raw_tar(path, kind, "0"), end.clone()].concat();
    let good = tar(&[("a.bin", &[7; 3000])]);
    let mut wrong = good.clone();
    wrong[0] = b'z';
    let mut more = good.clone();
    more.extend_from_slice(&good);
    let pax = |text: &[u8]| {
        let mut body = text.to_vec();
        body.resize(text.len().next_multiple_of(512), 0);
        [raw_tar(b"pax", b'x', &format!("{:o}", text.len())), body, raw_tar(b"f", b'0', "0"), end.clone()].concat()
    };
    let cases: Vec<(&str, Vec<u8>, &[u16])> = vec![
        ("absolute", file(b"/etc/passwd", b'0'), &[422]),
        ("above", file(b"../../x", b'0'), &[422]),
        ("inner above", file(b"a/../../x", b'0'), &[422]),
        ("repository", file(b".mdl/HEAD", b'0'), &[422]),
        ("no UTF-8", file(b"a\xff", b'0'), &[422]),
        ("control", file(b"a\nb", b'0'), &[422]),
        ("hard link", file(b"a", b'1'), &[422]),
        ("symbolic link", file(b"a", b'2'), &[422]),
        ("device", file(b"a", b'3'), &[422]),
        ("pipe", file(b"a", b'6'), &[422]),
        ("sparse", file(b"a", b'S'), &[422]),
        ("huge", [raw_tar(b"a", b'0', "77777777777777"[..11].as_ref()), end.clone()].concat(), &[400, 413]),
        ("huge name", [raw_tar(b"a", b'L', "77777777777"), end.clone()].concat(), &[422]),
        ("huge pax", [raw_tar(b"a", b'x', "77777777777"), end.clone()].concat(), &[422]),
        ("pax size", pax(b"29 size=18446744073709551615\n"), &[413]),
        ("pax nonsense", pax(b"9999999999999999999999 a=b\n"), &[400]),
        ("pax empty", pax(b"0 a=b\n"), &[400]),
        ("pax above", pax(b"13 path=../x\n"), &[422]),
        ("cut in a file", good[..1500].to_vec(), &[400]),
        ("cut in a header", good[..300].to_vec(), &[400]),
        ("no end", good[..good.len() - 1024].to_vec(), &[400]),
        ("nothing", Vec::new(), &[400]),
        ("wrong checksum", wrong, &[400]),
        ("something behind the end", more, &[400]),
        ("twice", [&good[..good.len() - 1024], &good].concat(), &[422]),
        ("no tar", b"hello".repeat(1000), &[400]),
    ];
    for (what, archive, statuses) in cases {
        let answer = send(&f.app, tar_request(&said(9), archive.clone())).await;
        is_one_of(&answer, statuses, what);
        let answer = send(&f.app, form_request(form_with_tar(&said(9), &archive))).await;
        is_one_of(&answer, statuses, &format!("{what} in a form"));
        f.clean();
    }
    assert_eq!(f.tip().to_hex(), before);
}

#[tokio::test]
async fn bombs_and_broken_forms_change_nothing() {
    let f = Fixture::with(|options| options.max_upload = 1 << 20);
    let before = f.first();
    let meta = said(9).to_string();
    let meta = meta.as_bytes();
    let long = "n".repeat(1 << 20);
    let big = vec![1; 600 << 10];
    let many: Vec<(String, Vec<u8>)> = (0..21_000).map(|n| (format!("f{n}"), Vec::new())).collect();
    let mut parts: Vec<(&str, Option<&str>, &[u8])> = vec![("meta", None, meta)];
    parts.extend(many.iter().map(|(path, bytes)| ("file", Some(path.as_str()), bytes.as_slice())));
    let whole = form(&[("meta", None, meta), ("file", Some("a"), b"abc")]);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let cases: Vec<(&str, Vec<u8>, &[u16])> = vec![
        ("thousands of parts", form(&parts), &[413]),
        ("a giant header", form(&[("meta", None, meta), ("file", Some(&long), b"x")]), &[413]),
        ("a giant first header", form(&[(&long, None, meta)]), &[413]),
        ("no meta", form(&[("file", Some("a"), b"x")]), &[400]),
        ("meta twice", form(&[("meta", None, meta), ("meta", None, meta)]), &[400]),
        ("meta too long", form(&[("meta", None, format!("{{\"message\":\"{long}\"}}").as_bytes())]), &[413]),
        ("deep meta", form(&[("meta", None, deep.as_bytes())]), &[400]),
        ("no name", form(&[("meta", None, meta), ("file", None, b"x")]), &[400]),
        ("a name above", form(&[("meta", None, meta), ("file", Some("../x"), b"x")]), &[422]),
        ("an absolute name", form(&[("meta", None, meta), ("file", Some("/x"), b"x")]), &[422]),
        ("a name twice", form(&[("meta", None, meta), ("file", Some("x"), b"x"), ("file", Some("x"), b"x")]), &[422]),
        (
            "a file and a directory",
            form(&[("meta", None, meta), ("file", Some("x"), b"x"), ("file", Some("x/y"), b"x")]),
            &[422],
        ),
        (
            "too much in all",
            form(&[("meta", None, meta), ("file", Some("x"), &big), ("file", Some("y"), &big)]),
            &[413],
        ),
        ("both", form(&[("meta", None, meta), ("file", Some("x"), b"x"), ("tar", None, b"x")]), &[400]),
        ("something else", form(&[("meta", None, meta), ("other", None, b"x")]), &[400]),
        ("cut off", whole[..whole.len() - 30].to_vec(), &[400]),
        ("cut off in meta", whole[..90].to_vec(), &[400]),
        ("nothing", Vec::new(), &[400]),
    ];
    for (what, body, statuses) in cases {
        let answer = send(&f.app, form_request(body)).await;
        is_one_of(&answer, statuses, what);
        f.clean();
    }
    assert_eq!(f.tip().to_hex(), before);
}

#[tokio::test]
async fn what_is_said_is_checked() {
    let f = Fixture::new();
    f.first();
    let cases = [
        (json!({}), 400),
        (json!({"message": "  "}), 400),
        (json!({"message": "x", "other": 1}), 400),
        (json!({"message": "x", "step": -1}), 400),
        (json!({"message": "x", "epoch": -0.5}), 400),
        (json!({"message": "x", "metrics": {"loss": "low"}}), 400),
        (json!({"message": "x", "remove": ["a"]}), 400),
        (json!({"message": "x", "base": "parent", "remove": ["absent"]}), 422),
        (json!({"message": "x", "base": "parent"}), 422),
        (json!({"message": "x"}), 422),
        (json!({"message": "x", "branch": "../x"}), 422),
        (json!({"message": "x", "meta": {"mdl.idempotency": "mine"}}), 422),
        (json!({"message": "x", "policy": "absent", "allow_empty": true}), 422),
        (json!({"message": "x", "policy": "/etc/passwd", "allow_empty": true}), 422),
        (json!({"message": "x", "policy": "secret.toml", "allow_empty": true}), 422),
        (json!({"message": "x", "resumed_from": "absent", "allow_empty": true}), 404),
        (json!({"message": "x", "executable": ["absent"], "allow_empty": true}), 422),
        (json!({"message": "x", "uploads": [{"path": "a", "upload": "absent"}]}), 422),
    ];
    for (meta, status) in cases {
        let answer = ask(&f.app, "POST", "/commits", Some(meta.clone())).await;
        let refused = answer.status.as_u16();
        assert!(refused == status || (status == 422 && refused == 400), "{meta}: {} {}", answer.status, answer.text);
        assert_eq!(answer.headers["content-type"], "application/problem+json", "{meta}");
    }
    assert_eq!(send(&f.app, crate::support::http::request("POST", "/commits", "text/plain", "x")).await.status, 415);
    assert_eq!(f.commits(), 1);
}

#[tokio::test]
async fn a_policy_is_kept_as_the_command_line_keeps_it() {
    let f = Fixture::new();
    let bytes = safetensors(&[("layers.0.weight", 256, 256)], 1);
    let answer = send(&f.app, form_of(&said_with(1, "policy", json!("lossy")), &[("model.safetensors", &bytes)])).await;
    made(&answer);
    assert_eq!(answer.json["policy"], "lossy");
    assert!(answer.json["quality"].is_object());
    f.clean();
}

#[tokio::test]
async fn damaged_checkpoints_are_refused_without_a_word_of_where_they_lie() {
    let f = Fixture::new();
    let bytes = safetensors(&[("layers.0.weight", 256, 256)], 1);
    for policy in [Value::Null, json!("lossy")] {
        let cut = &bytes[..bytes.len() - 100];
        let answer = send(&f.app, form_of(&said_with(1, "policy", policy), &[("model.safetensors", cut)])).await;
        assert_eq!(answer.status, 422, "{}", answer.text);
        let place = f.root.path().display().to_string();
        assert!(answer.text.contains("model.safetensors") && !answer.text.contains(&place), "{}", answer.text);
        f.clean();
    }
    made(
        &send(&f.app, form_of(&said_with(1, "allow_damaged", json!(true)), &[("model.safetensors", &bytes[..99])]))
            .await,
    );
    assert_eq!(f.files()[0].1, &bytes[..99]);
}

#[tokio::test]
async fn whoever_may_not_write_is_refused() {
    use mdl_server::auth::{NewToken, Scope};
    let f = Fixture::new();
    let token = |scope, repo: &str| {
        let new = NewToken { name: "t".to_owned(), repo: repo.to_owned(), scope, expires_ms: None };
        f.app.tokens().create(new).expect("a token").1
    };
    let tokens = [
        (None, [401, 401, 401]),
        (Some("mdl_wrong".to_owned()), [401, 401, 401]),
        (Some(token(Scope::Read, "ada/gpt")), [403, 403, 403]),
        (Some(token(Scope::Admin, "ada/other")), [403, 403, 403]),
        (Some(token(Scope::Write, "ada/gpt")), [400, 403, 403]),
        (Some(token(Scope::Admin, "ada/gpt")), [400, 202, 400]),
    ];
    for (token, expected) in tokens {
        let order = |path: &'static str, body: &'static str| {
            let mut request = crate::support::http::request("POST", path, "application/json", body);
            if let Some(token) = &token {
                let value = format!("Bearer {token}").parse().expect("a header");
                request.headers_mut().insert("authorization", value);
            }
            async { send(&f.app, request).await.status.as_u16() }
        };
        for path in ["/commits", "/uploads"] {
            assert_eq!(order(path, "{}").await, expected[0], "{path} {token:?}");
        }
        assert_eq!(order("/jobs", r#"{"kind":"gc","dry_run":true}"#).await, expected[1], "{token:?}");
        assert_eq!(order("/webhooks", "{}").await, expected[2], "{token:?}");
    }
}
