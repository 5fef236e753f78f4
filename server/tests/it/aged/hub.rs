//! What the Hub's clients keep by hash and ETag.

use super::{FILE, MODEL, Site, model};
use crate::support::sha256;
use serde_json::{Value, json};

#[tokio::test]
async fn a_version_has_another_hash_once_its_exact_contents_are_gone() {
    let site = Site::new();
    let (exact, etag) = (site.resolve("main~2").await, site.etag("main~2").await);
    assert_eq!(exact.header("x-repo-commit"), site.hash(1), "aged, but still there");
    assert_eq!((&exact.body, &etag), (&model(1), &format!("\"{}\"", sha256(&model(1)))));
    let before = site.get(&format!("{MODEL}/revision/main~2")).await.json();
    assert_eq!(before["sha"], site.hash(1).as_str());
    assert_eq!(site.collect().await["aged_versions"], 1);

    let near = site.resolve("main~2").await;
    let hash = near.header("x-repo-commit");
    assert!(hash.len() == 40 && hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{hash}");
    assert_ne!(hash, site.hash(1));
    assert!(near.body.len() == exact.body.len() && near.body != exact.body);
    assert_eq!(site.etag("main~2").await, format!("\"{}\"", sha256(&near.body)));
    // Whatever it is asked by, its own former hash too.
    for rev in [&hash, &hash.to_uppercase(), &site.hash(1), &site.ids[1].to_hex(), "step-100", "main@step=100"] {
        let again = site.resolve(rev).await;
        assert_eq!((&again.header("x-repo-commit"), &again.body), (&hash, &near.body), "{rev}");
        let info = site.get(&format!("{MODEL}/revision/{rev}?blobs=true")).await.json();
        assert_eq!(info["sha"], hash.as_str(), "{rev}");
        let file = info["siblings"].as_array().and_then(|all| all.iter().find(|f| f["rfilename"] == FILE));
        assert_eq!(file.expect("the file")["lfs"]["sha256"], sha256(&near.body).as_str(), "{rev}");
    }
    let missing = site.ask("GET", &format!("/ada/gpt/resolve/{hash}/nope"), &[]).await;
    assert_eq!((missing.status, missing.header("x-repo-commit")), (404, hash.clone()));
    let unknown = site.ask("GET", &format!("/ada/gpt/resolve/{}/{FILE}", "0".repeat(40)), &[]).await;
    assert_eq!((unknown.status, unknown.header("x-error-code").as_str()), (404, "RevisionNotFound"));
    // A client that has the exact bytes is not told that they are still right.
    let path = format!("/ada/gpt/resolve/main~2/{FILE}");
    assert_eq!(site.ask("GET", &path, &[("if-none-match", &etag)]).await.status, 200);
    let again = site.ask("GET", &path, &[("if-none-match", &site.etag("main~2").await)]).await;
    assert_eq!((again.status, again.header("x-repo-commit")), (304, hash.clone()));
    // The others are as they were, the one that was tagged after it aged too.
    for (rev, n) in [("first", 0), ("third", 2), ("main", 3)] {
        let kept = site.resolve(rev).await;
        assert_eq!((kept.header("x-repo-commit"), kept.body), (site.hash(n), model(n as u64)), "{rev}");
    }
}

#[tokio::test]
async fn the_hash_of_an_approximation_is_no_name_for_exact_contents() {
    let site = Site::new();
    site.copy("ada/copy");
    site.collect().await;
    let hash = site.resolve("main~2").await.header("x-repo-commit");
    // Where the same version is still exact.
    let exact = site.get(&format!("/ada/copy/resolve/{hash}/{FILE}")).await;
    assert_eq!((exact.header("x-repo-commit"), &exact.body), (site.hash(1), &model(1)));
    let tree = |hash: &str| format!("/api/models/ada/copy/tree/{hash}");
    site.get(&tree(&site.hash(1))).await;
    let other = site.ask("GET", &tree(&hash), &[]).await;
    assert_eq!((other.status, other.header("x-error-code").as_str()), (404, "RevisionNotFound"));
}

#[tokio::test]
async fn lists_have_the_hash_of_today() {
    let site = Site::new();
    let ids = |v: Value| -> Vec<String> {
        v.as_array().expect("a list").iter().map(|c| c["id"].as_str().expect("an id").to_owned()).collect()
    };
    let commits = format!("{MODEL}/commits/main");
    assert_eq!(ids(site.get(&commits).await.json()), [3, 2, 1, 0].map(|n| site.hash(n)));
    let hash_in_tree = |v: &Value, path: &str| {
        let item = v.as_array().and_then(|all| all.iter().find(|i| i["path"] == path)).expect("the file").clone();
        (item["lastCommit"]["id"].as_str().unwrap_or_default().to_owned(), item["lfs"]["oid"].clone())
    };
    let tree = format!("{MODEL}/tree/main~2?expand=true");
    let exact = site.get(&tree).await.json();
    assert_eq!(hash_in_tree(&exact, FILE), (site.hash(1), json!(sha256(&model(1)))));
    site.get(&format!("{MODEL}/tree/{}", site.hash(1))).await;
    site.collect().await;

    let near = site.resolve("main~2").await;
    let hash = near.header("x-repo-commit");
    let listed = ids(site.get(&commits).await.json());
    assert_eq!(listed, [site.hash(3), site.hash(2), hash.clone(), site.hash(0)]);
    assert_eq!(hash_in_tree(&site.get(&tree).await.json(), FILE), (hash.clone(), json!(sha256(&near.body))));
    // A file that training left alone was last changed by the first version, approximate in between or not.
    for rev in ["main", "main~2"] {
        let tree = site.get(&format!("{MODEL}/tree/{rev}?expand=true")).await.json();
        for path in ["config.json", "frozen.safetensors"] {
            assert_eq!(hash_in_tree(&tree, path).0, site.hash(0), "{rev} {path}");
        }
    }
    // Clients would keep this list, and an empty directory, under the hash that they asked for.
    let stale = site.ask("GET", &format!("{MODEL}/tree/{}?recursive=true", site.hash(1)), &[]).await;
    assert_eq!((stale.status, stale.header("x-error-code").as_str()), (404, "RevisionNotFound"));
    assert!(String::from_utf8_lossy(&stale.body).contains(&hash), "the message names the other");
    let first = site.get(&format!("{MODEL}/tree/{hash}?limit=1")).await;
    assert!(first.header("link").contains(&format!("/tree/{hash}?")), "{}", first.header("link"));

    // A branch there, and commits to it by the hash that clients know.
    let made = site.post(&format!("{MODEL}/branch/again"), json!({"startingPoint": hash})).await;
    assert_eq!(made.status, 200, "{}", String::from_utf8_lossy(&made.body));
    let refs = site.get(&format!("{MODEL}/refs")).await.json();
    assert_eq!((&refs["branches"][0]["name"], &refs["branches"][0]["targetCommit"]), (&json!("again"), &json!(hash)));
    for (parent, status) in [(hash.as_str(), 200), (&site.hash(2), 412)] {
        let header = json!({"key": "header", "value": {"summary": "x", "parentCommit": parent}});
        let file = json!({"key": "file", "value": {"path": "new.txt", "content": "new"}});
        let done = site.lines(&format!("{MODEL}/commit/again"), &[header, file]).await;
        assert_eq!(done.status, status, "{}", String::from_utf8_lossy(&done.body));
    }
    let kept = site.get(&format!("/ada/gpt/resolve/again/{FILE}")).await;
    assert_eq!(kept.body, near.body, "what the version gave goes on");
    assert_eq!(site.api("/commits/again").await["parents"], json!([site.ids[1].to_hex()]));
}

#[tokio::test]
async fn lfs_objects_of_exact_contents_go_with_them() {
    let site = Site::new();
    let ask = async |bytes: &[u8]| {
        let objects = json!([{"oid": sha256(bytes), "size": bytes.len()}]);
        let document = json!({"operation": "download", "objects": objects});
        let got = site.post("/ada/gpt.git/info/lfs/objects/batch", document).await.json();
        got["objects"][0]["error"]["code"].clone()
    };
    for rev in ["main~2", "main"] {
        site.etag(rev).await;
    }
    assert_eq!(ask(&model(1)).await, Value::Null);
    site.collect().await;
    let near = site.resolve("main~2").await.body;
    site.etag("main~2").await;
    assert_eq!((ask(&model(1)).await, ask(&near).await, ask(&model(3)).await), (json!(404), Value::Null, Value::Null));
}
