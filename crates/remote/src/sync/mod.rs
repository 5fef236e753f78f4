//! Transfers between repositories: which objects one is missing that another has, how their encoded bytes are put
//! together, and how what arrived is checked before it counts. Specified in docs/protocol.md.

mod bundle;
mod filter;
mod marks;
mod missing;
mod negotiate;
mod plan;
mod quarantine;
mod receive_pack;
mod standalone;
mod update_refs;

pub(crate) use bundle::groups;
pub use marks::receive_pruned;
pub(crate) use negotiate::merge;
pub use negotiate::{Want, haves, plan_transfer};
pub use receive_pack::{Arrived, TakenIn, receive_pack};
pub use standalone::plan_standalone;
pub(crate) use update_refs::loss;
pub use update_refs::{RefMove, check_connected, held_of, receive_refs};

pub use bundle::{Bundle, Piece};
pub use filter::Filter;
pub use missing::Needed;
pub use plan::{PlannedPack, TransferPlan};

/// Names the operation in `Stopped` errors.
pub(crate) const WHAT: &str = "the transfer";
