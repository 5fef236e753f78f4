//! Quantisers: numbers in, a reconstruction out. Neighbours: each child is one quantiser; the lossless engine stores what they
//! give. It must not know of commits, parents' identities or quality gates.

pub mod lattice;
