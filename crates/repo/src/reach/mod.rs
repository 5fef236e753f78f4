//! Reachability: the catalog of objects in packs, the roots, and the marking from one to the other.

mod catalog;
mod copy;
mod mark;
mod roots;

pub(crate) use catalog::{Catalog, PACK_FIXED, Slot, is_worth, record_bytes};
pub(crate) use copy::{CHUNK, copy};
pub(crate) use mark::{Gone, Marks, OnDamage, kind_of, references};
pub(crate) use roots::Root;
