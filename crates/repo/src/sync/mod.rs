//! Transfers between repositories: which objects one is missing that another has, how their encoded bytes are put
//! together, and how what arrived is checked before it counts. Specified in docs/protocol.md.

mod arrive;
mod bundle;
mod connect;
mod lacking;
mod marks;
mod only;
mod overlay;
mod plan;
mod select;
mod whole;

pub use arrive::{Arrived, TakenIn};
pub use bundle::{Bundle, Piece};
pub use connect::RefMove;
pub use lacking::Needed;
pub use only::Only;
pub use plan::{Offer, Plan};
pub use select::Want;
