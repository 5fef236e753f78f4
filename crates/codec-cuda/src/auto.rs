//! The default engine: a GPU where there is one and the work is worth the transfer, else the CPU.

use crate::{device::cuda, engine::CudaEngine, open::start};
use mdl_codec::{
    Bases, CpuEngine, Device, Dtype, Encoded, Engine, Result,
    quant::{
        Codebook, Cuts, Deviation, Sketch, Values,
        lattice::{Hint, Lattice, Outcome},
    },
};
use std::{ops::Range, sync::OnceLock};

/// With `auto`, a GPU is started for the first segment of so many bytes: starting it takes longer than all of a small
/// commit.
const WORTH: usize = 4 << 20;
/// GPUs of a host that tensors may lie on.
const MOST: usize = 64;

/// The CPU engine until a GPU is worth starting; then that GPU's, if there is one. Tensors on a GPU are worked on
/// there.
#[derive(Debug)]
pub(crate) struct Auto {
    cpu: CpuEngine,
    gpus: [OnceLock<Option<CudaEngine>>; MOST],
}

impl Default for Auto {
    fn default() -> Self {
        Auto { cpu: CpuEngine::new(), gpus: std::array::from_fn(|_| OnceLock::new()) }
    }
}

impl Auto {
    fn started(&self, ordinal: u32) -> Option<&CudaEngine> {
        let start = || match start(ordinal) {
            Ok(gpu) => Some(gpu),
            Err(why) => {
                // A machine without a GPU is no reason for a warning; one whose GPU cannot be used is.
                if cuda::count().is_ok_and(|n| n > 0) {
                    eprintln!("warning: the GPU is not used: {why}");
                }
                None
            }
        };
        self.gpus.get(ordinal as usize)?.get_or_init(start).as_ref()
    }

    fn engine_for(&self, bytes: usize) -> &dyn Engine {
        // One that runs already, whichever it is: a training process has its own.
        let running = self.gpus.iter().find_map(|g| g.get().and_then(Option::as_ref));
        let gpu = match running {
            None if bytes >= WORTH => self.started(0),
            other => other,
        };
        gpu.map_or(&self.cpu, |g| g as &dyn Engine)
    }
}

/// Methods that the engine for so many bytes answers.
macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty, by $bytes:expr;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> Result<$answer> {
            self.engine_for($bytes).$name($($arg),*)
        })*
    };
}

impl Engine for Auto {
    fn name(&self) -> &str {
        self.engine_for(0).name()
    }

    fn decode(&self, dtype: Dtype, encoded: &[u8], bases: Bases<'_>, out: &mut [u8]) -> Result<()> {
        // Output that comes to the host anyway: the transfer takes longer than the work.
        self.cpu.decode(dtype, encoded, bases, out)
    }

    fn decode_chain(&self, dtype: Dtype, chain: &[&[u8]], bases: Bases<'_>, out: &mut [u8]) -> Result<()> {
        self.cpu.decode_chain(dtype, chain, bases, out)
    }

    fn decode_range(
        &self,
        dtype: Dtype,
        encoded: &[u8],
        len: usize,
        bases: Bases<'_>,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<()> {
        self.cpu.decode_range(dtype, encoded, len, bases, range, out)
    }

    fn device(&self, ordinal: u32) -> Option<&dyn Device> {
        // The caller has tensors on that device: a driver is running in this process already.
        self.started(ordinal).map(|gpu| gpu as &dyn Device)
    }

    forward! {
        encode(dtype: Dtype, raw: &[u8], bases: Bases<'_>, hint: Option<&Hint>) -> Encoded, by raw.len();
        sketch(values: Values<'_>) -> Sketch, by values.bytes().len();
        survey(w: Values<'_>, gradient: Values<'_>) -> [Sketch; 2], by w.bytes().len();
        rest(w: Values<'_>, gradient: Option<Values<'_>>, cuts: &Cuts) -> Sketch, by w.bytes().len();
        restore(w: Values<'_>, gradient: Option<Values<'_>>, cuts: &Cuts, book: &Codebook, out: &mut [u8]) -> bool,
            by out.len();
        restore_measured(w: Values<'_>, gradient: Option<Values<'_>>, cuts: &Cuts, book: &Codebook, out: &mut [u8])
            -> Option<Deviation>, by out.len();
        quantise(lattice: &Lattice, start: usize, w: &[u8], rec: &mut [u8]) -> Outcome, by w.len();
        quantise_measured(lattice: &Lattice, start: usize, w: &[u8], rec: &mut [u8]) -> Option<Deviation>, by w.len();
        deviation(dtype: Dtype, raw: &[u8], rec: &[u8]) -> Deviation, by raw.len();
    }
}
