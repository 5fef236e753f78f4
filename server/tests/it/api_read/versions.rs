//! Routes of history, versions, listings, diffs and stats.

use crate::api_read::site::{FILE, files, site};
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

#[tokio::test]
async fn history_comes_in_pages() {
    let site = site();
    let all = site.json("/log").await;
    let ids = |v: &Value| -> Vec<Value> {
        v["commits"].as_array().expect("commits").iter().map(|c| c["commit"].clone()).collect()
    };
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
    assert_eq!(empty.json(), json!({"commits": [], "untold": 0, "next": null}));
}

#[tokio::test]
async fn history_is_filtered() {
    let site = site();
    let found = async |query: &str| -> Vec<String> {
        let page = site.json(&format!("/log?{query}")).await;
        let text = |c: &Value| c["commit"].as_str().expect("an id").to_owned();
        page["commits"].as_array().expect("commits").iter().map(text).collect()
    };
    let hex = |ns: &[usize]| -> Vec<String> { ns.iter().map(|n| site.hex(*n)).collect() };
    assert_eq!(found("author=ADA").await, hex(&[2, 1, 0]));
    assert_eq!(found("author=bob").await, hex(&[]));
    assert_eq!(found("metric=step%3D%3D100").await, hex(&[1]));
    assert_eq!(found("metric=step%3E%3D100%20and%20has(loss)").await, hex(&[2, 1]));
    assert_eq!(found("until=2023-11-14T22:13:21.250Z&since=2023-11-14").await, hex(&[1, 0]));
    assert_eq!(found("since=2023-11-14T22:13:21.250Z&limit=1").await.len(), 1);
    assert_eq!(found("glob=nothing-is-named-so").await, hex(&[]));
    assert!(found("glob=*").await.contains(&site.hex(0)));
    for bad in ["since=soon", "metric=loss%3C", "metric=", "glob=%5B", "until=2023-13-01"] {
        site.get(&format!("/log?{bad}")).await.refused(400, "usage");
    }
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
    assert_eq!(fields.len(), 27, "{fields:?}");
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
    assert_eq!(
        (&tensors[0]["name"], &tensors[0]["shape"], &tensors[0]["error"]),
        (&json!("b"), &json!([2, 2]), &Value::Null)
    );
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
    assert_eq!(
        w["error"],
        json!({
            "max_abs": 0.25, "rel_l2": f64::MIN_POSITIVE,
            "worst_row": 0.5, "update_error": null, "worst_row_update": null,
        })
    );
    assert_eq!((&w["logical_bytes"], &w["dtype"]), (&json!(4800), &json!("f32")));
    assert_eq!(site.json("/tensors/main/README.md").await["tensors"], json!([]));
    site.get("/tree/main?path=nowhere").await.refused(404, "not_found");
    site.get("/tree/nowhere").await.refused(404, "not_found");
    site.get("/tensors/main/nowhere").await.refused(404, "not_found");
    site.get("/tree/main?limit=-1").await.refused(400, "usage");
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
