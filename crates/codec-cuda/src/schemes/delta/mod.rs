//! Scheme "delta" on the device.
//!
//! Encoding passes over the data twice: the first pass counts symbols by exponent, and how many raw bits every tile
//! would have with each number of bits in the class; what the plan then picks, the second pass makes, every tile at its
//! place.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use decode::decode;
pub(crate) use encode::encode;
