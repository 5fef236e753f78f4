//! Storage in buckets, from outside: one file per promise. Neighbours: `mdl-remote`. It must not reach into the crate's rooms.

mod buckets;
mod flaky;
mod reads;
mod rounds;
mod swaps;
