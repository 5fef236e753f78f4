//! Read routes of the API: answers and refusals, compared with the repository itself.

#[path = "../../../../crates/files/tests/it/support/npy.rs"]
#[allow(dead_code, reason = "shared with another crate's tests")]
mod npy;
#[path = "../../../../crates/files/tests/it/support/pickle.rs"]
#[allow(dead_code, reason = "shared with another crate's tests")]
mod pickle;
#[path = "../../../../crates/files/tests/it/support/zip.rs"]
#[allow(dead_code, reason = "shared with another crate's tests")]
mod zip;

mod access;
mod bytes;
mod checkout;
mod damage;
mod refs;
mod site;
mod versions;
