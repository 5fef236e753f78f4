//! Routes of branches and tags: list, move, refuse.

use crate::api_read::site::site;
use http::{Method, StatusCode};
use serde_json::{Value, json};

#[tokio::test]
async fn refs_are_listed_page_by_page() {
    let site = site();
    let all = site.json("/refs").await;
    assert_eq!(all["head"], json!({"branch": "main", "commit": site.hex(2)}));
    let names: Vec<&str> = all["refs"].as_array().expect("refs").iter().filter_map(|r| r["name"].as_str()).collect();
    let expected = ["heads/feature/x", "heads/lossy", "heads/main", "tags/v1", "tags/v2"].map(|n| format!("refs/{n}"));
    assert_eq!(names, expected);
    let v2 = &all["refs"][4];
    assert_eq!((&v2["commit"], &v2["kind"], &v2["short"]), (&json!(site.hex(1)), &json!("tags"), &json!("v2")));
    assert_ne!(v2["target"], v2["commit"], "an annotated tag is an object");
    assert_eq!(v2["tag"]["message"], "the second");
    assert_eq!(all["refs"][3]["tag"], Value::Null);
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = site.json(&format!("/refs?limit=2&after={after}")).await;
        seen.extend(
            page["refs"].as_array().expect("refs").iter().map(|r| r["name"].as_str().expect("text").to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn refs_move_by_compare_and_swap_and_are_told() {
    let site = site();
    let mut heard = site.app.events().subscribe();
    let at = |n: usize| json!(site.hex(n));
    let made = site.put("/refs/heads/a%2Fb", json!({"target": "main~1", "expected": null})).await;
    assert_eq!(made.json(), json!({"name": "refs/heads/a/b", "old": null, "new": at(1), "commit": at(1)}));
    let event = heard.try_recv().expect("an event");
    assert_eq!((event.name.as_str(), event.old, event.new), ("refs/heads/a/b", None, Some(site.commits[1])));
    let late =
        site.put("/refs/heads/a%2Fb", json!({"target": "main", "expected": null})).await.refused(409, "conflict");
    assert_eq!(late["moved"], json!({"name": "refs/heads/a/b", "expected": null, "found": at(1)}));
    let late =
        site.put("/refs/heads/a%2Fb", json!({"target": "main", "expected": at(2)})).await.refused(409, "conflict");
    assert_eq!(late["moved"]["found"], at(1));
    assert!(heard.try_recv().is_none(), "nothing moved");
    let moved = site.put("/refs/heads/a%2Fb", json!({"target": "main", "expected": at(1)})).await;
    assert_eq!((moved.status, &moved.json()["old"]), (StatusCode::OK, &at(1)));
    let moved = site.put("/refs/heads/a%2Fb", json!({"target": "v1", "message": "back\nagain"})).await;
    assert_eq!(moved.json()["new"], at(0), "whatever it held");
    assert_eq!(site.json("/commits/a%2Fb").await["commit"], at(0));
    let delete = async |query: &str| site.ask(Method::DELETE, &format!("/refs/heads/a%2Fb{query}"), &[], None).await;
    delete(&format!("?expected={}", site.hex(1))).await.refused(409, "conflict");
    let gone = delete(&format!("?expected={}", site.hex(0))).await;
    assert_eq!((gone.status, &gone.json()["new"]), (StatusCode::OK, &Value::Null));
    delete("").await.refused(404, "not_found");
    let last = std::iter::from_fn(|| heard.try_recv()).last().expect("an event");
    assert_eq!((last.old, last.new), (Some(site.commits[0]), None));
}

#[tokio::test]
async fn tags_may_be_annotated() {
    let site = site();
    let made = site.put("/refs/tags/v3", json!({"target": "main", "message": "the third", "annotate": true})).await;
    assert_eq!(made.json()["commit"], json!(site.hex(2)));
    let refs = site.json("/refs?after=refs/tags/v2").await;
    let v3 = &refs["refs"][0];
    assert_eq!((&v3["tag"]["message"], &v3["commit"]), (&json!("the third"), &json!(site.hex(2))));
    assert_eq!(v3["target"], made.json()["new"]);
    let again = json!({"target": "main", "message": "m", "annotate": true, "expected": null});
    site.put("/refs/tags/v3", again).await.refused(409, "conflict");
    let only = json!({"target": "main", "message": "m", "annotate": true});
    site.put("/refs/heads/x", only).await.refused(400, "usage");
    site.put("/refs/tags/x", json!({"target": "main", "annotate": true})).await.refused(400, "usage");
}

#[tokio::test]
async fn what_no_ref_can_be_is_refused() {
    let site = site();
    let body = || json!({"target": "main"});
    site.put("/refs/heads/..%2F..%2Fconfig", body()).await.refused(422, "user");
    site.put("/refs/heads/HEAD", body()).await.refused(422, "user");
    site.put("/refs/policies/lossy", body()).await.refused(400, "usage");
    site.put("/refs/heads/x", json!({"target": "nowhere"})).await.refused(404, "not_found");
    site.put("/refs/heads/x", json!({"target": "main", "expected": "zz"})).await.refused(400, "usage");
    site.put("/refs/heads/x", json!({"goal": "main"})).await.refused(400, "usage");
    // `main` is a branch: nothing can lie below it.
    assert!(site.put("/refs/heads/main%2Fx", body()).await.status.is_client_error());
    let head = site.ask(Method::DELETE, "/refs/heads/main", &[], None).await;
    head.refused(422, "user");
}
