//! Scheme "sparse" on the device: changes to the base are found and listed there, and applied there.
//! `kernels/sparse.cu` does the passes.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use decode::decode;
pub(crate) use encode::encode;
