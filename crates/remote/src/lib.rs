//! Remote repositories, over HTTP and in object stores, and transfers between them.

mod attach;
mod clients;
pub mod credentials;
pub mod fetch;
mod http;
mod lazy;
mod near;
pub mod object;
mod open;
mod partial_pack;
mod peer;
pub mod place;
pub mod push;
mod runtime;
mod split;
mod streams;

pub use attach::{attach, discover, open_at};
pub use http::HttpPeer;
#[doc(hidden)]
pub use http::read_refs;
pub use lazy::completed;
pub use near::{Near, lacking_here, read_stored};
pub use open::{open, open_repo};
pub use partial_pack::{Gap, PART, PartialPack, parts, range, sweep};
pub use peer::{Advertised, Peer, ReadPart, Take};
