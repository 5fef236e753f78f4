//! The device engine: the same bytes as the CPU engine's, alone and below a repository.

#[path = "../../../repo/tests/it/support/mod.rs"]
mod support;

mod commits;
mod conformance;
mod lossy;
