//! Route `GET .../checkout/{rev}`: a version as a tar and as a safetensors file.

use crate::{
    api_read::{
        bytes::read_safetensors,
        site::{FILE, files, site},
    },
    support::weights,
};
use http::Method;
use serde_json::json;
use std::io::Read;

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
        "big",
        "extra/model.safetensors:b",
        "model.bias",
        "model.embed.weight",
        "model.head.weight",
        "model.safetensors:b",
        "only",
        "optimizer.state.0.exp_avg",
        "w",
        "x",
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
