//! The device engine: the same bytes as the CPU engine's, alone and below a repository.

#[path = "../../../repo/tests/it/support/mod.rs"]
mod support;

#[path = "../../../codec/tests/it/xorshift.rs"]
mod xorshift;

mod commits;
mod conformance;
mod lossy;
