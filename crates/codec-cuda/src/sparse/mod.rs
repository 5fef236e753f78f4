//! Scheme "sparse" on the device: the changes are found and listed there, and made there. `kernels/sparse.cu` does the
//! passes.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use decode::decode;
pub(crate) use encode::encode;
