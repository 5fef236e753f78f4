//! Transfers between repositories: which objects one is missing that another has, how their encoded bytes are put
//! together, and how what arrived is checked before it counts. Specified in docs/protocol.md.

mod bundle;
mod filter;
mod marks;
mod missing;
mod plan;
mod quarantine;
mod receive_pack;
mod select;
mod standalone;
mod update_refs;

pub(crate) use bundle::groups;
pub use marks::receive_pruned;
pub use receive_pack::{Arrived, TakenIn, receive_pack, take_in_pushed};
pub(crate) use select::merge;
pub use select::{Want, haves, offer};
pub use standalone::offer_whole;
pub use update_refs::{RefMove, connected, held_of, receive_refs};

pub use bundle::{Bundle, Piece};
pub use filter::Only;
pub use missing::Needed;
pub use plan::{Offer, Plan};

/// Names the operation in `Stopped` errors.
pub(crate) const WHAT: &str = "the transfer";
