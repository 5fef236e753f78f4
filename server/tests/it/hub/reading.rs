//! What the Hub's reading routes tell: models, trees, files, refs and logs.

use super::{MODEL, Site, git, model, next_page, siblings};
use crate::support::sha256;
use axum::body::Body;
use http::Method;
use serde_json::json;

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
