//! The codec: what it encodes comes back, at any length, from any damage without harm.

mod compressed;
mod golden;
mod hostile;
mod lattice;
mod overlay;
mod palette;
mod paper;
mod quant_levels;
mod quant_sketch;
mod round_trip;
mod unsafe_paths;
mod xorshift;
