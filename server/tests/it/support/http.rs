//! Requests to the app without a network, and bodies for them.

use axum::{Router, body::Body};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use mdl_server::{Rates, app::App};
use serde_json::Value;
use std::path::Path;
use tower::ServiceExt;

pub const REPO: &str = "/api/v1/repos/ada/gpt";
const BOUNDARY: &str = "x-boundary-x";

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub json: Value,
    pub text: String,
}

pub fn router(app: &App) -> Router {
    mdl_server::router(app, &Rates::new(None))
}

pub async fn send(app: &App, request: Request<Body>) -> Answer {
    let response = router(app).oneshot(request).await.expect("an answer");
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // Whatever is sent, nothing of it may make the server fail; a quota that is full is an answer.
    let failed = parts.status.is_server_error() && parts.status != StatusCode::INSUFFICIENT_STORAGE;
    assert!(!failed, "{} {text}", parts.status);
    Answer {
        status: parts.status,
        headers: parts.headers,
        json: serde_json::from_str(&text).unwrap_or(Value::Null),
        text,
    }
}

pub fn request(method: &str, path: &str, kind: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(format!("{REPO}{path}"))
        .header(header::CONTENT_TYPE, kind)
        .body(body.into())
        .expect("a request")
}

pub async fn ask(app: &App, method: &str, path: &str, json: Option<Value>) -> Answer {
    let body = json.map_or_else(Body::empty, |json| Body::from(json.to_string()));
    send(app, request(method, path, "application/json", body)).await
}

/// Parts of a form: name, filename, content.
pub fn form(parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, file, content) in parts {
        let file = file.map_or_else(String::new, |f| format!("; filename=\"{f}\""));
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(content);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    out
}

pub fn form_request(body: impl Into<Body>) -> Request<Body> {
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    request("POST", "/commits", &kind, body)
}

pub fn with_key(mut request: Request<Body>, key: &str) -> Request<Body> {
    let key = key.parse().expect("a header");
    request.headers_mut().insert("idempotency-key", key);
    request
}

pub fn tar_request(meta: &Value, body: impl Into<Body>) -> Request<Body> {
    let meta = percent_encoding::utf8_percent_encode(&meta.to_string(), percent_encoding::NON_ALPHANUMERIC).to_string();
    request("POST", &format!("/commits?meta={meta}"), "application/x-tar", body)
}

/// A tar as other programs write it.
pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        builder.append_data(&mut header, path, *content).expect("a file");
    }
    builder.into_inner().expect("a tar")
}

/// Files below the spool: there must be none once a request is answered.
pub fn spooled(state: &Path) -> usize {
    let spools = std::fs::read_dir(state.join("spool")).expect("the spool").flatten();
    spools.map(|dir| std::fs::read_dir(dir.path()).map_or(0, Iterator::count)).sum()
}

/// Directories of a server's incoming bytes.
pub fn kept(root: &Path, name: &str) -> std::path::PathBuf {
    let identity = std::fs::read_to_string(root.join(name).join("identity")).expect("an identity");
    let state = root.join(".mdl-serve/repos");
    state.join(name).join(identity.trim())
}
