//! The default engine: a GPU where there is one and the work is worth the transfer, else the CPU.

use crate::{device::cuda, engine::CudaEngine, open::start};
use mdl_codec::{
    CodecError, CpuEngine, Device, Dtype, Encoded, Engine, Relatives,
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

    fn of(&self, bytes: usize) -> &dyn Engine {
        // One that runs already, whichever it is: a training process has its own.
        let running = self.gpus.iter().find_map(|g| g.get().and_then(Option::as_ref));
        let gpu = match running {
            None if bytes >= WORTH => self.started(0),
            other => other,
        };
        gpu.map_or(&self.cpu, |g| g as &dyn Engine)
    }
}

impl Engine for Auto {
    fn name(&self) -> &str {
        self.of(0).name()
    }

    fn encode(
        &self,
        dtype: Dtype,
        raw: &[u8],
        relatives: Relatives<'_>,
        hint: Option<&Hint>,
    ) -> std::result::Result<Encoded, CodecError> {
        self.of(raw.len()).encode(dtype, raw, relatives, hint)
    }

    fn decode(
        &self,
        dtype: Dtype,
        encoded: &[u8],
        relatives: Relatives<'_>,
        out: &mut [u8],
    ) -> std::result::Result<(), CodecError> {
        // Output that comes to the host anyway: the transfer takes longer than the work.
        self.cpu.decode(dtype, encoded, relatives, out)
    }

    fn decode_range(
        &self,
        dtype: Dtype,
        encoded: &[u8],
        len: usize,
        relatives: Relatives<'_>,
        range: Range<usize>,
        out: &mut [u8],
    ) -> std::result::Result<(), CodecError> {
        self.cpu.decode_range(dtype, encoded, len, relatives, range, out)
    }

    fn sketch(&self, values: Values<'_>) -> std::result::Result<Sketch, CodecError> {
        self.of(values.bytes().len()).sketch(values)
    }

    fn survey(&self, weights: Values<'_>, gradient: Values<'_>) -> std::result::Result<[Sketch; 2], CodecError> {
        self.of(weights.bytes().len()).survey(weights, gradient)
    }

    fn rest(
        &self,
        weights: Values<'_>,
        gradient: Option<Values<'_>>,
        cuts: &Cuts,
    ) -> std::result::Result<Sketch, CodecError> {
        self.of(weights.bytes().len()).rest(weights, gradient, cuts)
    }

    fn restore(
        &self,
        weights: Values<'_>,
        gradient: Option<Values<'_>>,
        cuts: &Cuts,
        codebook: &Codebook,
        out: &mut [u8],
    ) -> std::result::Result<bool, CodecError> {
        self.of(out.len()).restore(weights, gradient, cuts, codebook, out)
    }

    fn restore_measured(
        &self,
        weights: Values<'_>,
        gradient: Option<Values<'_>>,
        cuts: &Cuts,
        codebook: &Codebook,
        out: &mut [u8],
    ) -> std::result::Result<Option<Deviation>, CodecError> {
        self.of(out.len()).restore_measured(weights, gradient, cuts, codebook, out)
    }

    fn quantise(
        &self,
        lattice: &Lattice,
        start: usize,
        w: &[u8],
        rec: &mut [u8],
    ) -> std::result::Result<Outcome, CodecError> {
        self.of(w.len()).quantise(lattice, start, w, rec)
    }

    fn quantise_measured(
        &self,
        lattice: &Lattice,
        start: usize,
        w: &[u8],
        rec: &mut [u8],
    ) -> std::result::Result<Option<Deviation>, CodecError> {
        self.of(w.len()).quantise_measured(lattice, start, w, rec)
    }

    fn deviation(&self, dtype: Dtype, raw: &[u8], rec: &[u8]) -> std::result::Result<Deviation, CodecError> {
        self.of(raw.len()).deviation(dtype, raw, rec)
    }

    fn device(&self, ordinal: u32) -> Option<&dyn Device> {
        // The caller has tensors on that device: a driver is running in this process already.
        self.started(ordinal).map(|gpu| gpu as &dyn Device)
    }
}
