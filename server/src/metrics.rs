//! Prometheus metrics. Labels are few and fixed: no names of repositories or people.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use std::sync::Arc;

/// Labels of a request: method, API, status.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RequestLabels {
    /// `GET` and so on.
    pub method: &'static str,
    /// `api`, `hub`, `pages` or `other`.
    pub face: &'static str,
    /// The response's status.
    pub status: u16,
}

/// The counters.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// Requests answered.
    pub requests: Family<RequestLabels, Counter>,
    /// Seconds until a response began.
    pub seconds: Histogram,
    /// Requests that are being answered.
    pub active: Gauge,
    /// Connections that are open.
    pub connections: Gauge,
    /// Bytes of bodies sent.
    pub sent: Counter,
    /// Bytes of bodies received.
    pub received: Counter,
    /// Commits made.
    pub commits: Counter,
    /// Files that were found decoded.
    pub cache_hits: Counter,
    /// Files that had to be decoded.
    pub cache_misses: Counter,
    /// Bytes of decoded files on disk.
    pub cache_bytes: Gauge,
    /// Jobs that run or wait.
    pub jobs: Gauge,
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("mdl");
        let bounds = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];
        let m = Metrics {
            registry: Arc::default(),
            requests: Family::default(),
            seconds: Histogram::new(bounds),
            active: Gauge::default(),
            connections: Gauge::default(),
            sent: Counter::default(),
            received: Counter::default(),
            commits: Counter::default(),
            cache_hits: Counter::default(),
            cache_misses: Counter::default(),
            cache_bytes: Gauge::default(),
            jobs: Gauge::default(),
        };
        registry.register("requests", "Requests answered", m.requests.clone());
        registry.register("request_seconds", "Seconds until a response began", m.seconds.clone());
        registry.register("requests_active", "Requests that are being answered", m.active.clone());
        registry.register("connections", "Open connections", m.connections.clone());
        registry.register("sent_bytes", "Bytes of bodies sent", m.sent.clone());
        registry.register("received_bytes", "Bytes of bodies received", m.received.clone());
        registry.register("commits", "Commits made", m.commits.clone());
        registry.register("cache_hits", "Files that were found decoded", m.cache_hits.clone());
        registry.register("cache_misses", "Files that had to be decoded", m.cache_misses.clone());
        registry.register("cache_bytes", "Bytes of decoded files on disk", m.cache_bytes.clone());
        registry.register("jobs", "Jobs that run or wait", m.jobs.clone());
        Metrics { registry: Arc::new(registry), ..m }
    }

    /// In the text format of OpenMetrics 1.0.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut out, &self.registry);
        out
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}
