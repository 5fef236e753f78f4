//! Stylesheet and script, compiled in; their URLs hold a content hash, so that browsers may cache them for good.

use crate::request::routes::{Need, Routes};
use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use std::sync::LazyLock;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

static NAMES: LazyLock<Names> =
    LazyLock::new(|| Names { style: format!("{}.css", mark(STYLE)), script: format!("{}.js", mark(SCRIPT)) });

struct Names {
    style: String,
    script: String,
}

fn mark(text: &str) -> String {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    format!("mdl-{}", hash.get(..12).unwrap_or_default())
}

pub fn style_url() -> String {
    format!("/assets/{}", NAMES.style)
}

pub fn script_url() -> String {
    format!("/assets/{}", NAMES.script)
}

pub fn routes() -> Routes {
    Routes::new().get(Need::Anyone, "/assets/{asset}", asset)
}

async fn asset(Path(name): Path<String>) -> Response {
    let (kind, text) = match name {
        n if n == NAMES.style => ("text/css; charset=utf-8", STYLE),
        n if n == NAMES.script => ("text/javascript; charset=utf-8", SCRIPT),
        _ => return (StatusCode::NOT_FOUND, "no such asset\n").into_response(),
    };
    let kept = "public, max-age=31536000, immutable";
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, kept)], text).into_response()
}
