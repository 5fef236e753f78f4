//! Remote repositories, over HTTP and in object stores, and transfers between them.
//!
//! [`sync`](mod@sync) finds what one repository lacks that another has, and takes in what arrived. A [`Peer`] is the
//! other side: a repository at hand ([`DirectPeer`]) or one over a wire ([`HttpPeer`]). [`fetch`] and
//! [`push`](mod@push) are the two directions, [`tracking`] says what is wanted of a remote and notes it, [`mod@clone`]
//! begins with nothing. [`place`] reads addresses, [`credentials`] has the secrets that go with them.
//!
//! ```
//! use mdl_remote::place::Place;
//!
//! assert!(matches!(Place::parse("s3://bucket/models")?, Place::Bucket { .. }));
//! assert!(matches!(Place::parse("../models")?, Place::Local(_)));
//! # Ok::<(), mdl_repo::RepoError>(())
//! ```

mod attach;
mod clients;
pub mod clone;
pub mod credentials;
mod direct;
pub mod fetch;
pub mod foreign;
mod http;
pub mod object;
mod open;
mod partial_pack;
mod peer;
pub mod place;
mod promisor;
pub mod push;
mod runtime;
mod streams;
pub mod sync;
pub mod tracking;

pub use attach::{attach, discover, open_at};
pub use direct::{DirectPeer, missing_here, read_stored};
pub use http::HttpPeer;
#[doc(hidden)]
pub use http::read_refs;
pub use open::{open, open_repo};
pub use partial_pack::{Gap, PART, PartialPack, parts, range, sweep};
pub use peer::{Advertised, Peer, ReadPart, Take};
pub use promisor::completed;
pub use tracking::notes;
