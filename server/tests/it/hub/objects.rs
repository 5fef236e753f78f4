//! Objects of git-lfs: uploads with wrong hashes, downloads in parts, links that are good for one upload.

use super::{MODEL, Site, header, local, model};
use crate::support::{
    http::{kept, spooled},
    sha256,
};
use axum::body::Body;
use http::Method;
use mdl_server::auth::Scope;
use serde_json::json;

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
