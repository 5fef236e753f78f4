//! What the JSON API and the pages tell of versions that aged.

use super::{FILE, Site, model};
use crate::support::http::REPO;
use serde_json::{Value, json};

#[tokio::test]
async fn versions_tell_how_close_they_are_and_whether_they_aged() {
    let site = Site::new();
    for rev in ["main", "main~1", "main~2", "first"] {
        let one = site.api(&format!("/commits/{rev}")).await;
        assert_eq!((&one["fidelity"], &one["pruned"]), (&json!("exact"), &Value::Null), "{rev}");
        assert!(one["quality"]["exact_bytes"].as_u64() > Some(0), "{one}");
        let aged = rev == "main~2";
        assert_eq!(one["aged"].is_object(), aged, "{rev}");
        if aged {
            assert_eq!(one["aged"]["exact_contents"], true);
            assert_eq!(one["aged"]["rules"], "exact: latest 1");
            assert!(one["aged"]["date"].as_str().is_some_and(|d| d.starts_with("20")), "{one}");
        }
    }
    let before = site.api("/commits/main~2").await;
    assert_eq!(site.tensor_error("main~2").await, Value::Null, "an exact tensor has no error");
    site.collect().await;

    let told = |v: &Value| (v["fidelity"].clone(), v["aged"]["exact_contents"].clone());
    let after = site.api("/commits/main~2").await;
    assert_eq!(told(&after), (json!("approximate"), json!(false)));
    assert_ne!(after["tree"], before["tree"], "that of the approximation");
    for same in ["commit", "message", "quality", "files", "logical_bytes"] {
        assert_eq!(after[same], before[same], "{same}");
    }
    assert!(site.tensor_error("main~2").await["rel_l2"].as_f64() > Some(0.0));
    assert_eq!(site.tensor_error("main").await, Value::Null);
    let log = site.api("/log").await;
    let all: Vec<_> = log["commits"].as_array().expect("commits").iter().map(told).collect();
    let (exact, near, no) = (json!("exact"), json!("approximate"), Value::Null);
    assert_eq!(all, [(&exact, &no), (&exact, &no), (&near, &json!(false)), (&exact, &no)].map(owned));
    let rank = |v: &Value| ["weights-only", "approximate", "exact-resume"].iter().position(|label| v == label);
    assert!(rank(&after["resume"]) <= Some(1) && rank(&after["resume"]) <= rank(&before["resume"]));
}

fn owned((a, b): (&Value, &Value)) -> (Value, Value) {
    (a.clone(), b.clone())
}

#[tokio::test]
async fn bytes_have_other_etags() {
    let site = Site::new();
    let paths = [
        format!("{REPO}/files/main~2/{FILE}"),
        format!("{REPO}/tensor/main~2/{FILE}?name=a"),
        format!("{REPO}/checkout/main~2"),
        format!("{REPO}/checkout/main~2?format=safetensors"),
        format!("{REPO}/checkout/first"),
    ];
    let mut tags = Vec::new();
    for path in &paths {
        tags.push(site.get(path).await.header("etag"));
    }
    assert_eq!(site.get(&paths[0]).await.body, model(1));
    site.collect().await;
    for (n, (path, tag)) in paths.iter().zip(&tags).enumerate() {
        let again = site.ask("GET", path, &[("if-none-match", tag)]).await;
        let want = if n == 4 { 304 } else { 200 };
        assert_eq!((again.status, again.header("etag") == *tag), (want, n == 4), "{path}");
    }
    let diff = site.api("/diff?a=main~2&b=main~2").await;
    assert_eq!(diff["files"], json!([]));
}

#[tokio::test]
async fn pages_have_labels_and_a_sentence() {
    let site = Site::new();
    let (label, gone) = ("<span class=\"label approximate\">approximate</span>", "Its exact contents were let go on");
    let exact = "<span class=\"label exact\">exact</span>";
    let pages = ["/commit/main~2", "/tree/main~2", &format!("/blob/main~2/{FILE}")];
    for path in pages {
        let text = site.page(path).await;
        assert!(text.contains(exact) && !text.contains(label), "{path}");
        assert!(text.contains("its exact contents will go with a coming collection"), "{path}");
    }
    let compared = site.page("/compare/main~2/main~3").await;
    assert_eq!(site.page("/commits/main").await.matches(exact).count(), 4);
    assert!(site.page("/commit/main~2").await.contains("unless a branch or tag is on it"));
    site.collect().await;
    for path in pages {
        let text = site.page(path).await;
        assert!(text.contains(label) && !text.contains(exact), "{path}");
        assert!(text.contains(gone) && text.contains("(exact: latest 1): an approximation stands for them."), "{path}");
    }
    let log = site.page("/commits/main").await;
    assert_eq!((log.matches(exact).count(), log.matches(label).count()), (3, 1));
    assert!(!site.page("/commit/main").await.contains("exact contents w"));
    assert_ne!(site.page("/compare/main~2/main~3").await, compared, "no comparison of what is gone");
    // What training left alone did not change, approximate or not.
    for rev in ["main~1", "main~2"] {
        let text = site.page(&format!("/commit/{rev}")).await;
        let row = text.split("<tr>").find(|row| row.contains("frozen.safetensors</a>")).expect("a row");
        assert!(!row.contains("modified"), "{rev}: {row}");
    }
}
