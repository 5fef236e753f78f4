//! Remote repositories, over HTTP and in object stores, and transfers between them.

mod attach;
mod clients;
pub mod credentials;
mod direct;
pub mod fetch;
mod http;
pub mod object;
mod open;
mod partial_pack;
mod peer;
pub mod place;
mod promisor;
pub mod push;
mod runtime;
mod split;
mod streams;
pub mod sync;

pub use attach::{attach, discover, open_at};
pub use direct::{DirectPeer, lacking_here, read_stored};
pub use http::HttpPeer;
#[doc(hidden)]
pub use http::read_refs;
pub use open::{open, open_repo};
pub use partial_pack::{Gap, PART, PartialPack, parts, range, sweep};
pub use peer::{Advertised, Peer, ReadPart, Take};
pub use promisor::completed;
