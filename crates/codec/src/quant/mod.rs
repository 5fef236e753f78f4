//! The quantiser: numbers in, levels and a reconstruction out.
//!
//! Follows Inshrinkerator (SoCC '24, sections 4.1 to 4.4, appendix A.3) in the order of work below. Statistics run over
//! keys (the upper 16 bits of a number) and everything that decides a level is exact or done in a stated order of IEEE
//! operations, so that every machine and any number of threads gives the same bits.
//!
//! ```
//! use mdl_codec::Dtype;
//! use mdl_codec::quant::{Codebook, Config, Role, Survey, Values, quantise, reconstruct, rest};
//! # fn main() -> Result<(), mdl_codec::CodecError> {
//! let bytes: Vec<u8> = (0..8192).flat_map(|i| (i as f32).sin().to_le_bytes()).collect();
//! let weights = Values::new(Dtype::F32, &bytes)?;
//! let config = Config::default();
//! let role = Role::infer("layers.0.mlp.fc1.weight", &[64, 128]);
//! // First pass over every tensor: what is large, small, sensitive. Second pass: what is left for the bins.
//! let mut survey = Survey::default();
//! survey.add(role, weights, None)?;
//! let cuts = survey.thresholds(&config)?.cuts(role);
//! let codebook = Codebook::exact(&rest(weights, None, &cuts)?, config.bins_of(role))?;
//! // `None` would say that the tensor has to stay lossless.
//! if let Some(levels) = quantise(weights, None, &cuts, &codebook)? {
//!     assert_eq!(reconstruct(Dtype::F32, &levels, &codebook)?.len(), bytes.len());
//! }
//! # Ok(())
//! # }
//! ```

mod bins;
pub(crate) mod cluster;
mod config;
pub(crate) mod deviation;
pub(crate) mod kmeans;
pub mod lattice;
pub mod moments;
pub mod neuzip;
pub mod numbers;
pub mod paper;
pub(crate) mod partition;
mod points;
mod priced;
pub(crate) mod restore;
mod roles;
pub mod search;
pub(crate) mod sketch;

pub use bins::{Codebook, MAX_BINS, Quantised, quantise, reconstruct};
pub use cluster::cluster;
pub use config::{Config, Metric};
pub use deviation::Deviation;
pub use kmeans::{kmeans, lloyd, plus_plus, uniform};
pub use numbers::{Grid, Values};
use numbers::{KEYS, MAGNITUDES, from_bf16, from_f16, put_all, to_bf16, to_f16};
pub use partition::{Cuts, Survey, Thresholds, Verdict, rest, rest_of, sensitivities};
pub use points::{Points, SIGMA};
pub use restore::restore;
pub use roles::{Role, stays_lossless};
pub use sketch::Sketch;

pub use crate::schemes::overlay::times;
