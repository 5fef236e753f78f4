//! Commits and repositories that the Hub's clients make.

use super::{MODEL, Site, file, git, header, model, siblings};
use crate::support::{http::spooled, sha256};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::json;

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
