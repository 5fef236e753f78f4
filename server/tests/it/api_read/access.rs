//! Rights of tokens on the API; and the OpenAPI document lists exactly the registered routes.

use crate::api_read::site::{FILE, site};
use axum::body::Body;
use http::{Method, Request, header};
use mdl_server::auth::{NewToken, Scope};
use serde_json::json;

#[tokio::test]
async fn tokens_bound_what_may_be_done() {
    let site = site();
    let token = |repo: &str, scope| {
        let new = NewToken { name: "eve".to_owned(), repo: repo.to_owned(), scope, expires_ms: None };
        format!("Bearer {}", site.app.tokens().create(new).expect("a token").1)
    };
    let (read, write, other) =
        (token("ada/*", Scope::Read), token("ada/*", Scope::Write), token("bob/*", Scope::Admin));
    let reading = [
        "/refs",
        "/log",
        "/commits/main",
        "/tree/main",
        "/tensors/main/ckpt.pt",
        "/files/main/README.md",
        "/tensor/main/model.safetensors?name=w",
        "/diff?a=main",
        "/checkout/main?only=run.sh",
        "/stats",
        "/policies",
        "/blame?by=last",
        "/notes/main",
    ];
    for path in reading {
        site.get(path).await.refused(401, "unauthorized");
        let with = async |token: &str| site.ask(Method::GET, path, &[("authorization", token)], None).await;
        with("Bearer mdl_wrong_1").await.refused(401, "unauthorized");
        with(&other).await.refused(403, "forbidden");
        assert_eq!(with(&read).await.status, 200, "{path}");
    }
    let body = || Some(json!({"target": "main"}));
    let put = async |headers: &[(&str, &str)]| site.ask(Method::PUT, "/refs/heads/new", headers, body()).await;
    put(&[]).await.refused(401, "unauthorized");
    put(&[("authorization", &read)]).await.refused(403, "forbidden");
    put(&[("authorization", &write), ("origin", "https://evil.example")]).await.refused(403, "forbidden");
    let mut heard = site.app.events().subscribe();
    assert_eq!(put(&[("authorization", &write)]).await.status, 200);
    assert_eq!(heard.try_recv().expect("an event").by, "eve");
    let delete =
        async |token: &str| site.ask(Method::DELETE, "/refs/heads/new", &[("authorization", token)], None).await;
    delete(&read).await.refused(403, "forbidden");
    assert_eq!(delete(&write).await.status, 200);
}

#[tokio::test]
async fn the_document_lists_the_routes_that_there_are() {
    let site = site();
    let document = serde_json::to_value(mdl_server::api::document()).expect("JSON");
    let served = site.send(Request::get("/api/v1/openapi.json").body(Body::empty()).expect("a request")).await;
    assert_eq!(served.json(), document);
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() >= 13, "{:?}", paths.keys());
    let values =
        [("owner", "ada"), ("name", "gpt"), ("rev", "v1"), ("path", FILE), ("kind", "heads"), ("ref", "nobody")];
    for (path, item) in paths {
        let mut url = path.clone();
        for (name, value) in values {
            url = url.replace(&format!("{{{name}}}"), value);
        }
        // What other rooms call theirs.
        while let (Some(a), Some(b)) = (url.find('{'), url.find('}')) {
            url.replace_range(a..=b, "1");
        }
        assert!(!url.contains('*'), "{path} is a template of OpenAPI");
        for method in ["get", "head", "post", "put", "patch", "delete"] {
            let documented = item.get(method).is_some() || (method == "head" && item.get("get").is_some());
            let verb = Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method");
            let request = Request::builder().method(verb).uri(&url).header(header::CONTENT_TYPE, "application/json");
            let reply = site.send(request.body(Body::from("{}")).expect("a request")).await;
            let text = String::from_utf8_lossy(reply.body.as_deref().unwrap_or_default()).into_owned();
            assert_eq!(reply.status == 405, !documented, "{method} {url}: {} {text}", reply.status);
            assert!(!text.contains("there is nothing at"), "{method} {url} falls through");
            assert!(!reply.status.is_server_error(), "{method} {url}: {} {text}", reply.status);
            let described = &item[method]["responses"];
            let known = described.get(reply.status.as_str()).or(described.get("default"));
            assert!(!documented || method == "head" || known.is_some(), "{method} {url}: {}", reply.status);
        }
    }
}
