//! Reachability: the catalog of objects in packs, the roots, and the marking from one to the other.

mod catalog;
mod copy;
mod mark;
mod roots;

pub use catalog::{Catalog, PACK_FIXED, Slot, is_worth, record_bytes};
pub use copy::copy;
pub use mark::{Left, Marks, OnDamage, PrunedContents};
pub use roots::{Root, Roots, roots};
