//! Numbers to levels and levels to numbers, and rivals to measure against. Neighbours: the store sees only reconstructed
//! bytes (docs/design/0005-quantised-engine.md). It must not know files, objects or packs.

pub mod lattice;
pub mod paper;
