//! Prometheus metrics. Labels are few and fixed: no names of repositories or people.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};

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

/// The counters; [`Metrics::default`] says what each counts.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub requests: Family<RequestLabels, Counter>,
    pub seconds: Histogram,
    pub active: Gauge,
    pub connections: Gauge,
    pub sent: Counter,
    pub received: Counter,
    pub commits: Counter,
    pub cache_hits: Counter,
    pub cache_misses: Counter,
    pub cache_bytes: Gauge,
    pub jobs: Gauge,
}

fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut all = Registry::with_prefix("mdl");
        let r = &mut all;
        let seconds = Histogram::new([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]);
        Metrics {
            requests: registered(r, "requests", "Requests answered", Family::default()),
            seconds: registered(r, "request_seconds", "Seconds until a response began", seconds),
            active: registered(r, "requests_active", "Requests that are being answered", Gauge::default()),
            connections: registered(r, "connections", "Open connections", Gauge::default()),
            sent: registered(r, "sent_bytes", "Bytes of bodies sent", Counter::default()),
            received: registered(r, "received_bytes", "Bytes of bodies received", Counter::default()),
            commits: registered(r, "commits", "Commits made", Counter::default()),
            cache_hits: registered(r, "cache_hits", "Files that were found decoded", Counter::default()),
            cache_misses: registered(r, "cache_misses", "Files that had to be decoded", Counter::default()),
            cache_bytes: registered(r, "cache_bytes", "Bytes of decoded files on disk", Gauge::default()),
            jobs: registered(r, "jobs", "Jobs that run or wait", Gauge::default()),
            registry: all,
        }
    }
}

impl Metrics {
    /// In the text format of OpenMetrics 1.0.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut out, &self.registry);
        out
    }
}
