//! Scheme "lattice moves": which levels differ from the base's, as masks of four numbers, and by how much, listed.
//!
//! The format is docs/format-lattice.md. A base on the same lattice says all that it has to say by its level: contexts
//! of place and last move then save 1 to 3 % and cost a symbol for every number, moved or not. Here a symbol stands for
//! four numbers, and one for 128 where none of them moved. `classes` decides how groups share tables, `encode` and
//! `decode` do segments, `chain` several of them on top of each other, `expand` adds the listed differences to levels.

mod chain;
mod classes;
mod decode;
mod encode;
mod expand;

pub(crate) use chain::add_all;
pub(crate) use decode::Reader;
pub(crate) use encode::{encode, encode_where_base_is_on};
pub(crate) use expand::expand_plain;

/// Numbers of a group: those of class 0 have no masks.
pub(crate) const GROUP: usize = 128;
/// Numbers of a mask.
const QUAD: usize = 4;
/// Masks of a whole group.
pub(crate) const MASKS: usize = GROUP / QUAD;
/// Most classes beside class 0.
const CLASSES_MAX: usize = 15;
