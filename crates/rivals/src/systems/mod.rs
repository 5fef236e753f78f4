//! Compression baselines behind one interface, so that a comparison counts real bytes: rivals as their papers describe
//! them, and mdl's own. Nothing stores anything with it: formats here may change with every version, and it must not
//! know files or evaluators.
//!
//! | system | what | parameters |
//! |---|---|---|
//! | `lossless`, `zstd` | the engine; zstd -3 | `level` |
//! | `adaptive` | Check-N-Run's quantiser: range of each row by greedy search; packed | `bits`, `steps`, `range` |
//! | `uniform` | QD-compressor: bins by a layer's entropy; cyclic delta and Huffman | `bits` or `min`, `max`; `coder=packed` |
//! | `kmeans` | GOBO: outliers kept, L1 clustering of the rest; packed | `bins`, `embedding`, `outlier`, `rounds` |
//! | `lc` | LC-Checkpoint: sign and exponent of the delta, the largest few, Huffman | `bits` |
//! | `delta-dnn` | Delta-DNN: error-bounded uniform delta, zstd -19 | `bound` |
//! | `int8`, `nf4`, `fp4` | block-wise absmax types, NeuZip's baselines; packed | `block`, `double` |
//! | `neuzip-lossy` | NeuZip, section 2.3 | `keep`, `block` |
//! | `paper` | Inshrinkerator: partition, k-means++ bins, `pe` | `bins`, `embedding`, `prune`, `protect`, `coder` |
//! | `bins` | the same with exact clustering and mdl's coder | `bins`, `embedding`, `prune`, `protect`, `weight` |
//! | `lattice` | an absolute lattice and its coder | `step`, `scale`, `sensitivity` |
//!
//! All of them leave the same tensors lossless (vectors, small ones, integers, NaNs:
//! [`mdl_codec::quant::stays_lossless`]), coded by the engine, and pay for the same table of names and shapes. So a
//! ratio differs by what a system does to matrices.

mod adaptive;
mod bins;
mod blockwise;
mod delta_dnn;
mod frame;
mod kmeans;
mod lattice;
mod lc;
mod neuzip;
mod packed;
mod parameters;
mod plain;
mod table;
mod uniform;

use frame::{Coder, SystemPlan, from_segments, segments};
pub use frame::{Kept, State, System, Tensor};
use packed::{count, get_f32, kept, numbers, row};
pub use parameters::{NAMES, ladder, system};

#[cfg(test)]
mod tests;
