//! Fuzz targets over every parser that bytes from outside reach, and mutations that get behind their checksums.
//! See docs/fuzzing.md.
//!
//! A target takes any bytes and fails by panicking: a parser panics, or an oracle does not hold. `mend` makes of
//! mutated bytes what gets past a checksum or a length. The stable test (`tests/replay.rs`) and the libFuzzer
//! binaries (`fuzz/targets`) share both.

mod codec;
mod files;
mod foreign;
mod http;
pub mod mend;
pub mod mutate;
mod objects;
mod packs;
mod receive;
mod records;
mod repo;
mod text;
mod xet;

pub use codec::{bases, segments};
pub use files::{gguf, ingest, npz, pickle, safetensors, torch};
pub use foreign::foreign;
pub use http::{BOUNDARY, http_commit, http_hub, http_sync};
pub use objects::{commit, manifest, tree};
pub use packs::{index, pack, tensor};
pub use receive::receive;
pub use records::{KEYS, records};
pub use repo::{small_packs, small_plan, small_tip};
pub use text::text;
pub use xet::{xet_shard, xet_xorb};

/// A target: what is run, and what its inputs are.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its directory in `fuzz/corpus`.
    pub name: &'static str,
    /// Takes any bytes; panics where an oracle does not hold.
    pub run: fn(&[u8]),
    /// Mends checksums and lengths of mutated bytes.
    pub mend: fn(&mut Vec<u8>),
    /// Mutated inputs of the stable test.
    pub iterations: u32,
}

macro_rules! targets {
    ($($name:ident $iterations:literal;)*) => {
        /// Every target.
        pub const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            run: $name,
            mend: mend::$name,
            iterations: $iterations,
        }),*];
    };
}

targets! {
    commit 8000;
    foreign 12000;
    gguf 4000;
    http_commit 80;
    http_hub 120;
    http_sync 120;
    index 4000;
    ingest 120;
    manifest 8000;
    npz 2000;
    pack 300;
    pickle 4000;
    receive 120;
    records 600;
    safetensors 6000;
    segments 3000;
    tensor 800;
    text 6000;
    torch 2000;
    tree 8000;
    xet_shard 8000;
    xet_xorb 3000;
}

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}
