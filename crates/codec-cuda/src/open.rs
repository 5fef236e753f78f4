//! Opens the engine of a process (CPU or GPU), and says why that one.

use crate::{
    DeviceError, Result, Session,
    auto::Auto,
    copy,
    device::{Driver, Lane, compile, cuda},
    engine::CudaEngine,
    kernels::files,
};
use mdl_codec::{CpuEngine, Engine};
use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

/// Shorter segments in host memory stay there: copying and a score of launches take longer than the work.
const LEAST: usize = 256 << 10;
/// Bytes of a tensor under quantisation that are on the device at a time: enough to make a piece's launches and answers
/// small beside its copies, few enough to leave a training process its memory.
pub(crate) const PIECE: usize = 128 << 20;

/// Where to compress: `--device`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// On a GPU where there is one and the work is worth it.
    #[default]
    Auto,
    /// On the processor.
    Cpu,
    /// On this GPU, or not at all.
    Cuda(u32),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(s: &str) -> std::result::Result<Choice, String> {
        match (s, s.strip_prefix("cuda:").map(str::parse)) {
            ("auto", _) => Ok(Choice::Auto),
            ("cpu", _) => Ok(Choice::Cpu),
            ("cuda", _) => Ok(Choice::Cuda(0)),
            (_, Some(Ok(n))) => Ok(Choice::Cuda(n)),
            _ => Err("a device is auto, cpu, cuda or cuda:N".to_owned()),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Auto => f.write_str("auto"),
            Choice::Cpu => f.write_str("cpu"),
            Choice::Cuda(n) => write!(f, "cuda:{n}"),
        }
    }
}

/// The engine of a choice. `Auto` never fails: without a GPU it is the processor's.
///
/// # Errors
/// The GPU that was asked for is not there, or its kernels cannot be compiled or loaded.
pub fn engine(choice: Choice) -> Result<Arc<dyn Engine>> {
    Ok(match choice {
        Choice::Auto => Arc::new(Auto::default()),
        Choice::Cpu => Arc::new(CpuEngine::new()),
        Choice::Cuda(n) => Arc::new(start(n)?),
    })
}

/// A GPU that can run kernels: driver, device and machine code are all tried.
pub(crate) fn start(ordinal: u32) -> Result<CudaEngine> {
    with_least(ordinal, LEAST)
}

/// Runs a kernel, and checks its output.
fn try_out(driver: Arc<dyn Driver>) -> Result<()> {
    let session = Session::new(Lane::new(driver)?);
    let there = session.upload(b"what was sent is what comes back")?;
    let back = copy::gather(&session, &[there.view()])?;
    if back.concat() == b"what was sent is what comes back" {
        Ok(())
    } else {
        Err(DeviceError::Failed("a copy kernel ran and copied nothing".to_owned()))
    }
}

/// Files that the driver opens when a GPU is first used, and the cache of machine code: for processes that may open
/// only files they named before (sandboxes).
pub fn paths() -> Vec<PathBuf> {
    let from_env = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let devices = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let devices = devices.filter(|e| e.file_name().to_string_lossy().starts_with("nvidia"));
    let mut out: Vec<PathBuf> = devices.map(|e| e.path()).collect();
    if out.is_empty() {
        return out;
    }
    out.extend(
        ["/proc/driver/nvidia", "/proc/devices", "/proc/modules", "/sys/bus/pci", "/sys/devices", "/sys/module"]
            .map(PathBuf::from),
    );
    out.extend(from_env("CUDA_CACHE_PATH").or_else(|| Some(from_env("HOME")?.join(".nv"))));
    out.extend(compile::libraries());
    out.extend(compile::cache_dir());
    out
}

/// The engine on the shim: a device of `memory` bytes whose kernels run on the processor, for every segment however
/// short, and for numbers to be quantised in short pieces.
#[cfg(feature = "shim")]
#[doc(hidden)]
pub fn shim(memory: usize) -> CudaEngine {
    CudaEngine::new(Arc::new(crate::device::shim::Shim::new(memory)), 0, 0, 1 << 20)
}

/// The engine on a GPU for every segment, however short: what tests and measurements are about.
#[doc(hidden)]
pub fn gpu(ordinal: u32) -> Result<CudaEngine> {
    with_least(ordinal, 0)
}

fn with_least(ordinal: u32, least: usize) -> Result<CudaEngine> {
    let driver = Arc::new(cuda::Cuda::new(ordinal)?);
    try_out(driver.clone())?;
    Ok(CudaEngine::new(driver, ordinal, least, PIECE))
}

/// One check of `mdl doctor`.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What: `driver`, `nvrtc`, `cuda:0`, ...
    pub what: String,
    /// Whether it is there and works.
    pub good: bool,
    /// What was found, or why not.
    pub text: String,
}

/// Checks everything that the GPU engine needs, in the order in which it needs it.
pub fn findings() -> Vec<Finding> {
    let of = |what: String, found: Result<String>| Finding {
        what,
        good: found.is_ok(),
        text: found.unwrap_or_else(|e| e.to_string()),
    };
    let count = cuda::count();
    let mut out = vec![of("driver".to_owned(), cuda::driver_version())];
    out.push(of("nvrtc".to_owned(), compile::version().map(|(a, b)| format!("NVRTC {a}.{b}"))));
    let cache = compile::cache_dir().ok_or_else(|| DeviceError::Absent("no home directory".to_owned()));
    out.push(of("kernels".to_owned(), cache.map(|d| format!("kept in {}", d.display()))));
    for n in 0..count.unwrap_or(0) {
        let tried = cuda::Cuda::new(n).and_then(|gpu| {
            let gpu = Arc::new(gpu);
            try_out(gpu.clone())?;
            let [(_, processors), _, (_, memory)] = gpu.facts()?;
            Ok(format!("{}: {processors} multiprocessors, {} GiB, kernels run", gpu.name(), memory >> 30))
        });
        out.push(of(format!("cuda:{n}"), tried));
    }
    out
}

/// Compiles all kernels for GPUs of compute capability `arch` / 10 and keeps them where GPUs find them. Gives the
/// files.
///
/// # Errors
/// No NVRTC, an architecture that it does not know, no place to keep anything.
pub fn prepare(arch: u32) -> Result<Vec<PathBuf>> {
    let none = || DeviceError::Absent("there is no directory to keep kernels in".to_owned());
    let one = |file: &'static str| {
        compile::cubin(file, arch)?;
        let path = compile::kept_at(file, arch)?.ok_or_else(none)?;
        if path.is_file() { Ok(path) } else { Err(none()) }
    };
    files().map(one).collect()
}
