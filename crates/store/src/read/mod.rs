//! Reading: tensors through their delta chains, files whole, in parts and as streams, elements and slices.

mod elements;
mod parts;
mod range;
pub mod restore;
mod stream_files;
mod tensor;

pub use elements::{Axis, Elements, Slice, most_shown, npy_header, safetensors_header, shape_of};
pub use restore::WriteAt;
pub use tensor::TensorReader;
