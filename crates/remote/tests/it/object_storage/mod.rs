//! Storage in buckets: one file per subject.

mod buckets;
mod flaky;
mod reads;
mod rounds;
mod swaps;
