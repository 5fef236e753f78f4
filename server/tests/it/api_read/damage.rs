//! Corrupt storage: a response is cut short, never wrong.

use crate::api_read::site::{BASE, site};
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use mdl_server::{Options, Rates, router};
use std::path::{Path, PathBuf};
use tower::ServiceExt;

/// Ways to ask for whole files and tensors: what is complete was verified by its id. Slices and ranges are not among
/// them: of a tensor in several segments a part cannot be verified, and its encoding notices only some damage
/// (docs/http-api.md, "Bytes").
const BYTES: [&str; 6] = [
    "/files/main/model.safetensors",
    "/tensor/main/model.safetensors?name=big",
    "/tensor/main/model.safetensors?name=big&format=npy",
    "/tensor/main/model.safetensors?name=w&format=safetensors",
    "/checkout/main",
    "/checkout/main?format=safetensors",
];

#[tokio::test]
async fn damage_breaks_a_body_off_and_never_shows() {
    let site = site();
    let mut right = Vec::new();
    for path in BYTES {
        right.push(site.get(path).await.body.expect("whole"));
    }
    let mut broken = 0;
    let mut packs: Vec<_> = walk(&site.root.path().join("ada/gpt")).into_iter().filter(|p| is_pack(p)).collect();
    packs.sort_by_key(|p| std::fs::metadata(p).map(|m| m.len()).unwrap_or(0));
    let largest = packs.last().expect("a pack");
    let bytes = std::fs::read(largest).expect("read");
    for place in 1..9 {
        let mut bad = bytes.clone();
        let at = bytes.len() * place / 9;
        bad[at] ^= 0x40;
        overwrite(largest, &bad);
        let fresh = site.root.app(Options { cache: 0, ..site.root.options() });
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

fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").path());
    entries.flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}

fn is_pack(path: &Path) -> bool {
    path.parent().is_some_and(|d| d.ends_with("packs"))
}

fn overwrite(path: &Path, bytes: &[u8]) {
    let part = path.with_extension("part");
    std::fs::write(&part, bytes).expect("written");
    std::fs::rename(part, path).expect("renamed");
}
