//! Reading over HTTP: every route, what it answers and what it refuses, against what the repository itself says. Neighbours: the server
//! from outside. It must not know how anything is decoded.

#[path = "../../../crates/files/tests/support/npy.rs"]
#[allow(dead_code, reason = "shared with another crate's tests")]
mod npy;
#[path = "../../../crates/files/tests/support/pickle.rs"]
#[allow(dead_code, reason = "shared with another crate's tests")]
mod pickle;
#[path = "../support/mod.rs"]
mod support;
#[path = "../../../crates/files/tests/support/zip.rs"]
#[allow(dead_code, reason = "shared with another crate's tests")]
mod zip;

mod access;
mod bytes;
mod checkout;
mod damage;
mod refs;
mod site;
mod versions;
