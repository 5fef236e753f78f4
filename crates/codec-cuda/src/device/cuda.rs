//! The CUDA driver through cudarc: driver and compiler are found at run time, so that the same binary runs without
//! either. One of the modules with unsafe code.

use crate::{
    Arg, DeviceError, Kernel, Result,
    device::{COPY, Driver, Stream, Timed, Traffic, compile, profile::Profile},
};
use cudarc::{
    driver::{
        CudaContext, CudaEvent, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg, result,
        sys::{self, CUdevice_attribute_enum as Attribute, CUevent_flags_enum as Flags, cudaError_enum as Code},
    },
    nvrtc::Ptx,
};
use mdl_codec::locks::{Mutex, RwLock};
use std::{collections::HashMap, ffi::c_void, fmt, sync::Arc};

/// Bytes of one of a stream's two halves of pinned memory, through which downloads go.
const HALF: usize = 4 << 20;
/// One part in so many of the device's memory is left to other processes.
const SPARED: usize = 16;
/// Least compute capability: kernels use what Ampere brought.
const LEAST: (i32, i32) = (8, 0);

/// A GPU's primary context, which it shares with PyTorch.
pub(crate) struct Cuda {
    context: Arc<CudaContext>,
    name: String,
    arch: u32,
    /// The process that made the context: a forked child has none.
    process: u32,
    streams: RwLock<Vec<Lines>>,
    functions: RwLock<HashMap<Kernel, CudaFunction>>,
    /// Held while a file is compiled, so that no other thread compiles it too.
    compiling: Mutex<()>,
    traffic: Traffic,
    /// Before and after.
    profile: Profile<(CudaEvent, CudaEvent)>,
}

/// A stream and its way back to the host.
#[derive(Clone)]
struct Lines {
    stream: Arc<CudaStream>,
    bounce: Arc<Mutex<Bounce>>,
}

/// Two halves of pinned memory: one is filled by the device while the other is read.
struct Bounce(Option<*mut c_void>);

// SAFETY: pinned memory may be used from any thread; the mutex around it lets one in at a time.
unsafe impl Send for Bounce {}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cuda").field(&self.name).finish()
    }
}

/// The context that this thread had current, made current again when this is dropped: PyTorch takes it for the device
/// that its user chose.
struct Before(Option<sys::CUcontext>);

impl Before {
    fn now() -> Before {
        Before(result::ctx::get_current().ok().map(|c| c.unwrap_or(std::ptr::null_mut())))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        if let Some(context) = self.0 {
            // SAFETY: it was current; its maker keeps it alive. None is null.
            let _ = unsafe { result::ctx::set_current(context) };
        }
    }
}

fn failed(e: DriverError) -> DeviceError {
    DeviceError::Failed(format!("{:?}", e.0))
}

/// How many GPUs the driver shows.
///
/// # Errors
/// [`DeviceError::Absent`]: no driver, or one that does not start.
pub(crate) fn count() -> Result<u32> {
    // SAFETY: opens the driver's library by its usual names.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::Absent("no CUDA driver (libcuda) was found".to_owned()));
    }
    let shown = result::init().and_then(|()| CudaContext::device_count());
    shown
        .map(|n| n.max(0) as u32)
        .map_err(|e| DeviceError::Absent(format!("the CUDA driver does not start: {:?}", e.0)))
}

/// The driver's version, as the CUDA that it is for.
pub(crate) fn driver_version() -> Result<String> {
    count()?;
    let mut version = 0;
    // SAFETY: a place for a number.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(failed)?;
    Ok(format!("a driver for CUDA {}.{}", version / 1000, version % 1000 / 10))
}

impl Cuda {
    pub(crate) fn new(ordinal: u32) -> Result<Cuda> {
        let there = count()?;
        if ordinal >= there {
            return Err(DeviceError::Absent(match there {
                0 => "the CUDA driver shows no GPU".to_owned(),
                n => format!("there is no cuda:{ordinal}: the driver shows {n}"),
            }));
        }
        let _before = Before::now();
        let context = CudaContext::new(ordinal as usize).map_err(failed)?;
        let capability = context.compute_capability().map_err(failed)?;
        let name = context.name().map_err(failed)?;
        if capability < LEAST {
            return Err(DeviceError::Absent(format!(
                "cuda:{ordinal} ({name}) has compute capability {}.{}; kernels need {}.{}",
                capability.0, capability.1, LEAST.0, LEAST.1
            )));
        }
        let arch = (10 * capability.0 + capability.1) as u32;
        Ok(Cuda {
            name: format!("cuda:{ordinal} ({name}, sm_{arch})"),
            context,
            arch,
            process: std::process::id(),
            streams: RwLock::default(),
            functions: RwLock::default(),
            compiling: Mutex::default(),
            traffic: Traffic::default(),
            profile: Profile::default(),
        })
    }

    /// Makes this thread's calls go to the device until what is returned is dropped.
    fn enter(&self) -> Result<Before> {
        if std::process::id() != self.process {
            return Err(DeviceError::Absent("a forked process cannot use its parent's GPU".to_owned()));
        }
        let before = Before::now();
        self.context.bind_to_thread().map_err(failed)?;
        Ok(before)
    }

    fn lines(&self, on: Stream) -> Result<Lines> {
        let found = match on {
            Stream::Own(number) => self.streams.read().get(number).cloned(),
            Stream::Lent(_) => None,
        };
        found.ok_or_else(|| DeviceError::Failed("no such stream".to_owned()))
    }

    fn function(&self, kernel: Kernel) -> Result<CudaFunction> {
        let known = |k: &Kernel| self.functions.read().get(k).cloned();
        if let Some(f) = known(&kernel) {
            return Ok(f);
        }
        let _one = self.compiling.lock();
        if let Some(f) = known(&kernel) {
            return Ok(f);
        }
        let refused = |e: DriverError| DeviceError::Kernel { name: kernel.name.to_owned(), why: format!("{:?}", e.0) };
        let binary = compile::cubin(kernel.file, self.arch)?;
        let module = self.context.load_module(Ptx::from_binary(binary)).map_err(refused)?;
        let f = module.load_function(kernel.name).map_err(refused)?;
        self.functions.write().insert(kernel, f.clone());
        Ok(f)
    }

    /// Puts work on a stream, between two events while profiling is on.
    fn timed(
        &self,
        name: &'static str,
        stream: &Arc<CudaStream>,
        work: impl FnOnce() -> std::result::Result<(), DriverError>,
    ) -> std::result::Result<(), DriverError> {
        if !self.profile.is_on() {
            return work();
        }
        let event = || stream.record_event(Some(Flags::CU_EVENT_DEFAULT));
        let before = event()?;
        work()?;
        self.profile.add(name, (before, event()?));
        Ok(())
    }

    /// Counts and sizes of the device, for reports.
    pub(crate) fn facts(&self) -> Result<[(&'static str, u64); 3]> {
        let _before = self.enter()?;
        let one = |a| self.context.attribute(a).map(|v| v.max(0) as u64).map_err(failed);
        Ok([
            ("multiprocessors", one(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?),
            ("l2_bytes", one(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
            ("memory_bytes", self.context.total_mem().map_err(failed)? as u64),
        ])
    }
}

impl Driver for Cuda {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn alloc(&self, len: usize) -> Result<u64> {
        let _before = self.enter()?;
        let (free, total) = self.context.mem_get_info().map_err(failed)?;
        // Training that finds no memory dies; a commit can go on with the CPU.
        if free < len.saturating_add(total / SPARED) {
            return Err(DeviceError::OutOfMemory { wanted: len });
        }
        // SAFETY: the context is bound; the memory is freed by `free` alone.
        match unsafe { result::malloc_sync(len.max(1)) } {
            Err(DriverError(Code::CUDA_ERROR_OUT_OF_MEMORY)) => Err(DeviceError::OutOfMemory { wanted: len }),
            other => other.map_err(failed),
        }
    }

    fn free(&self, address: u64) {
        if let Ok(_before) = self.enter() {
            // SAFETY: `alloc` gave it; the caller has waited for whatever uses it.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    fn stream(&self) -> Result<Stream> {
        let _before = self.enter()?;
        // Training comes first: commits get the lowest priority there is.
        let lowest = result::stream::get_priority_range().map_or(0, |(least, _)| least);
        let stream = self.context.new_stream_with_priority(lowest).map_err(failed)?;
        let mut streams = self.streams.write();
        streams.push(Lines { stream, bounce: Arc::new(Mutex::new(Bounce(None))) });
        Ok(Stream::Own(streams.len() - 1))
    }

    fn upload(&self, on: Stream, to: u64, from: &[u8]) -> Result<()> {
        let _before = self.enter()?;
        let lines = self.lines(on)?;
        self.traffic.add_up(from.len());
        // SAFETY: the invariant of addresses. Pageable bytes are staged before this returns; pinned ones outlive the
        // stream's work.
        unsafe { result::memcpy_htod_async(to, from, lines.stream.cu_stream()) }.map_err(failed)
    }

    fn download(&self, on: Stream, from: u64, to: &mut [u8]) -> Result<()> {
        let _before = self.enter()?;
        let lines = self.lines(on)?;
        self.traffic.add_down(to.len());
        let mut bounce = lines.bounce.lock();
        bounce.download(&lines.stream, from, to).map_err(failed)
    }

    fn fill(&self, on: Stream, at: u64, len: usize, byte: u8) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let _before = self.enter()?;
        let lines = self.lines(on)?;
        // SAFETY: the invariant of addresses.
        unsafe { result::memset_d8_async(at, byte, len, lines.stream.cu_stream()) }.map_err(failed)
    }

    fn copy(&self, on: Stream, from: u64, to: u64, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let _before = self.enter()?;
        if let Stream::Lent(handle) = on {
            // SAFETY: the invariant of addresses; the stream is the caller's to vouch for.
            return unsafe { result::memcpy_dtod_async(to, from, len, handle as sys::CUstream) }.map_err(failed);
        }
        let lines = self.lines(on)?;
        // SAFETY: the invariant of addresses.
        let start = || unsafe { result::memcpy_dtod_async(to, from, len, lines.stream.cu_stream()) };
        self.timed(COPY, &lines.stream, start).map_err(failed)
    }

    fn launch(&self, on: Stream, kernel: Kernel, grid: (u32, u32), threads: u32, args: &[Arg]) -> Result<()> {
        let _before = self.enter()?;
        let function = self.function(kernel)?;
        if let Stream::Lent(handle) = on {
            return launch_on(handle, &function, grid, threads, args)
                .map_err(|e| DeviceError::Kernel { name: kernel.name.to_owned(), why: format!("{:?}", e.0) });
        }
        let lines = self.lines(on)?;
        let mut launch = lines.stream.launch_builder(&function);
        for arg in args {
            match arg {
                Arg::Ptr(v) => launch.arg(v),
                Arg::U32(v) => launch.arg(v),
            };
        }
        let config = LaunchConfig { grid_dim: (grid.0, grid.1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel's parameters are these, and touch what its module has checked (the invariant of
        // addresses).
        let start = || unsafe { launch.launch(config) }.map(|_| ());
        self.timed(kernel.name, &lines.stream, start)
            .map_err(|e| DeviceError::Kernel { name: kernel.name.to_owned(), why: format!("{:?}", e.0) })
    }

    fn wait(&self, on: Stream) -> Result<()> {
        let _before = self.enter()?;
        if let Stream::Lent(handle) = on {
            // SAFETY: the stream is the caller's to vouch for.
            return unsafe { result::stream::synchronize(handle as sys::CUstream) }.map_err(failed);
        }
        self.lines(on)?.stream.synchronize().map_err(failed)
    }

    fn profile(&self, on: bool) {
        self.profile.switch(on);
    }

    fn profiled(&self) -> Vec<Timed> {
        // A time that cannot be read is NaN.
        self.profile.take(|(before, after)| before.elapsed_ms(after).map_or(f64::NAN, f64::from))
    }

    fn traffic(&self) -> &Traffic {
        &self.traffic
    }
}

/// Starts a kernel on a stream of the caller's.
fn launch_on(
    handle: u64,
    function: &CudaFunction,
    grid: (u32, u32),
    threads: u32,
    args: &[Arg],
) -> std::result::Result<(), DriverError> {
    // 8 bytes each, of which a u32 is the first four: little-endian.
    let mut values: Vec<u64> = args
        .iter()
        .map(|a| match *a {
            Arg::Ptr(v) => v,
            Arg::U32(v) => v.into(),
        })
        .collect();
    let mut params: Vec<*mut c_void> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
    let (grid, block, stream) = ((grid.0, grid.1, 1), (threads, 1, 1), handle as sys::CUstream);
    // SAFETY: the kernel's parameters are these, and touch what its module has checked (the invariant of addresses);
    // the stream is the caller's to vouch for.
    unsafe { result::launch_kernel(function.cu_function(), grid, block, 0, stream, &mut params) }
}

impl Bounce {
    fn download(&mut self, stream: &CudaStream, from: u64, to: &mut [u8]) -> std::result::Result<(), DriverError> {
        let pinned = match self.0 {
            Some(at) => at,
            // SAFETY: plain pinned memory, freed when this is dropped.
            None => *self.0.insert(unsafe { result::malloc_host(2 * HALF, 0) }?),
        };
        // SAFETY: `pinned` has two halves; each is read only after the stream was waited for, and written by the device
        // only after it was read. `from` is as long as `to` by the invariant of addresses.
        unsafe {
            let half =
                |i: usize, len: usize| std::slice::from_raw_parts_mut(pinned.cast::<u8>().add(i % 2 * HALF), len);
            let chunks: Vec<&mut [u8]> = to.chunks_mut(HALF).collect();
            let lens: Vec<usize> = chunks.iter().map(|c| c.len()).collect();
            let start = |i: usize| match lens.get(i) {
                Some(&len) => result::memcpy_dtoh_async(half(i, len), from + (i * HALF) as u64, stream.cu_stream()),
                None => Ok(()),
            };
            start(0)?;
            for (i, chunk) in chunks.into_iter().enumerate() {
                stream.synchronize()?;
                start(i + 1)?;
                chunk.copy_from_slice(half(i, lens[i]));
            }
        }
        Ok(())
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        if let Some(at) = self.0 {
            // SAFETY: `malloc_host` gave it; downloads wait for the stream before they return.
            let _ = unsafe { result::free_host(at) };
        }
    }
}
