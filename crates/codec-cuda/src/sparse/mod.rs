//! Scheme "sparse" on the device: the changes are found and listed there, and made there. Neighbours: `mdl_codec::seams::sparse` codes
//! the lists, on the host: the scheme is for segments of which less than a 32nd has changed. `kernels/sparse.cu` does the passes. It
//! must not know when this is worth it.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use decode::decode;
pub(crate) use encode::encode;
