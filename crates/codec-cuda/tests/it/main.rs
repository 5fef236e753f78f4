//! The engine on a device: the same bytes as the processor's, alone and below a repository.

#[path = "../../../repo/tests/it/support/mod.rs"]
mod support;

mod commits;
mod conformance;
mod lossy;
