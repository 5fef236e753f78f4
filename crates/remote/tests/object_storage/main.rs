//! Storage in buckets, from outside: one file per promise.

mod buckets;
mod flaky;
mod reads;
mod rounds;
mod swaps;
