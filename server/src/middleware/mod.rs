//! Middleware around every request: log line, metrics, rate limits, security headers.

pub(crate) mod body_limit;
pub mod proxies;

use crate::{
    app::App,
    auth::{Caller, client},
    listener::Peer,
    metrics::RequestLabels,
    problem::{Problem, Result},
    process::state::random_hex,
};
use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use std::{
    num::NonZeroU32,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// Content security policy by default: a browser may not show, frame or run the answer.
const STRICT: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Burst that an idle client may send at once, in seconds of its rate.
const BURST: u32 = 4;

/// Request id, in the logs and in the answer's `X-Request-Id`. Clients cannot choose it.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(Arc<str>);

/// Random prefix of this process's request ids.
static PROCESS: LazyLock<String> = LazyLock::new(|| random_hex(4).unwrap_or_default());
static REQUESTS: AtomicU64 = AtomicU64::new(0);

impl RequestId {
    fn new() -> RequestId {
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed);
        RequestId(format!("{}{number:08x}", *PROCESS).into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Middleware: metrics, log line, request id.
pub async fn observe(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let id = RequestId::new();
    request.extensions_mut().insert(id.clone());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let peer = request.extensions().get::<Peer>().map(|p| p.0);
    let metrics = app.metrics();
    metrics.active.inc();
    let mut response = next.run(request).await;
    metrics.active.dec();
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let (status, seconds) = (response.status(), start.elapsed().as_secs_f64());
    let labels = RequestLabels { method: method_name(&method), face: face(&path), status: status.as_u16() };
    metrics.requests.get_or_create(&labels).inc();
    metrics.seconds.observe(seconds);
    let ms = (seconds * 1e6).round() / 1e3;
    // `Debug` of the path keeps a crafted one on its line.
    match status.is_server_error() {
        true => tracing::error!(%method, ?path, status = status.as_u16(), ms, ?peer, id = id.as_str(), "request"),
        false => tracing::info!(%method, ?path, status = status.as_u16(), ms, ?peer, id = id.as_str(), "request"),
    }
    response
}

/// Returns one of few names: a client must not be able to choose labels of metrics.
fn method_name(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.iter().copied().find(|k| *k == method.as_str()).unwrap_or("other")
}

fn face(path: &str) -> &'static str {
    match path {
        p if p.starts_with("/api/v1/") => "api",
        p if p.starts_with("/api/") || p.contains("/resolve/") || p.contains("/info/lfs/") => "hub",
        "/healthz" | "/readyz" | "/metrics" => "other",
        _ => "pages",
    }
}

/// Middleware: security headers for browsers, unless the route set its own.
pub async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let mut default = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    default(header::CONTENT_SECURITY_POLICY, STRICT);
    default(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    default(header::REFERRER_POLICY, "same-origin");
    default(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    default(header::SERVER, concat!("mdl/", env!("CARGO_PKG_VERSION")));
    response
}

/// Rate limit per client: by token, else by address.
#[derive(Clone, Debug)]
pub struct Rates(Option<Arc<DefaultKeyedRateLimiter<String>>>);

impl Rates {
    /// `rate` requests a second on average; none: any number.
    pub fn new(rate: Option<u32>) -> Rates {
        let quota = rate.and_then(NonZeroU32::new).map(|rate| {
            let burst = rate.saturating_mul(NonZeroU32::MIN.saturating_add(BURST - 1));
            Quota::per_second(rate).allow_burst(burst)
        });
        Rates(quota.map(|q| Arc::new(RateLimiter::keyed(q))))
    }

    /// Forgets clients that were quiet for long.
    pub fn release(&self) {
        if let Some(limiter) = &self.0 {
            limiter.retain_recent();
        }
    }
}

/// Middleware: refuses clients above the rate limit.
pub async fn limit(State(rates): State<Rates>, request: Request, next: Next) -> Result<Response> {
    if let Some(limiter) = &rates.0 {
        let caller = request.extensions().get::<Caller>().cloned();
        let caller = caller.unwrap_or(Caller::Anonymous(None));
        let key = client(&caller, request.extensions().get::<Peer>()).to_string();
        if limiter.check_key(&key).is_err() {
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate", "too many requests: slow down");
            return Err(problem.header(header::RETRY_AFTER, HeaderValue::from_static("1")));
        }
    }
    Ok(next.run(request).await)
}

/// A handler that panicked answers 500, and the others go on.
pub fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    Problem::internal("a handler panicked").into_response()
}
