//! Middleware around every page: security headers, and errors as HTML where a browser asks.

use crate::{auth::Caller, pages::prelude::*, problem::PROBLEM_JSON};
use axum::{extract::Request, middleware::Next};

/// Content security policy: nothing but what this server sends, nothing inline, no framing by other sites.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";
/// Bytes of a problem document.
const MAX_DOCUMENT: usize = 64 << 10;

#[derive(Deserialize)]
struct Document {
    title: String,
    detail: String,
    hint: Option<String>,
}

pub async fn dress(request: Request, next: Next) -> Response {
    let html_wanted = wants_html(request.headers());
    let caller = request.extensions().get::<Caller>().cloned();
    let target: String = request.uri().path_and_query().map_or("/", |p| p.as_str()).to_owned();
    let mut response = next.run(request).await;
    if html_wanted && is_problem(&response) {
        response = shown(response, caller.as_ref(), &target).await;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Authorization, Cookie"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-cache"));
    response
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    accept.is_some_and(|a| a.contains("text/html"))
}

fn is_problem(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|k| k.as_bytes() == PROBLEM_JSON.as_bytes())
}

/// The problem as a page, with its status and headers.
async fn shown(response: Response, caller: Option<&Caller>, target: &str) -> Response {
    let (mut parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, MAX_DOCUMENT).await.unwrap_or_default();
    let document = serde_json::from_slice::<Document>(&bytes).unwrap_or(Document {
        title: "Error".to_owned(),
        detail: String::new(),
        hint: None,
    });
    // A browser would ask for a name and password in a window of its own.
    parts.headers.remove(header::WWW_AUTHENTICATE);
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH] {
        parts.headers.remove(name);
    }
    let unknown = parts.status == StatusCode::UNAUTHORIZED;
    let content = html! {
        h1 { span.muted { (parts.status.as_u16()) } " " (document.title) }
        p { (text::clipped(&document.detail, 1000)) }
        @if unknown {
            p { a.button href={ "/login?next=" (text::segment(target)) } { "Sign in" } }
        } @else if let Some(hint) = &document.hint {
            p.muted { (text::clipped(hint, 1000)) }
        }
        p { a href="/" { "All repositories" } }
    };
    let mut answer = page(&Frame::plain(document.title, caller), &content).into_response();
    *answer.status_mut() = parts.status;
    for (name, value) in &parts.headers {
        answer.headers_mut().append(name, value.clone());
    }
    answer
}
