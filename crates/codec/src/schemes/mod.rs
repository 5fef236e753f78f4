//! Schemes: how a segment is cut into planes, differences, changes, indices or runs before it is coded.

pub(crate) mod bitplane;
pub(crate) mod delta;
pub(crate) mod diff;
pub(crate) mod float;
pub(crate) mod low;
pub(crate) mod overlay;
pub(crate) mod palette;
pub(crate) mod planes;
pub(crate) mod sparse;

pub(crate) use diff::{Numbers, class_base, class_of, signed, symbol_bases, symbol_of};
pub(crate) use float::{Cut, EXCEPTION, Shape, head_at};
pub(crate) use planes::PlanesPlan;
