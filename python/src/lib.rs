//! Native extension module of the Python package `mdl`: repositories, files in memory, snapshots.

mod buffer;
mod engine;
mod errors;
mod evaluate;
mod files;
mod maintenance;
mod merge;
mod nn;
mod notes;
mod pools;
mod progress;
mod read;
mod remote;
mod replay;
mod repo;
mod shards;
mod show;
mod weights;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{
        engine::{engine_facts, reaches, set_device},
        evaluate::Replaced,
        files::{Arena, File},
        nn::{CompressedWeight, use_openmp},
        remote::clone_url,
        repo::{Repo, capture_provenance},
        weights::DeviceWeights,
    };

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
