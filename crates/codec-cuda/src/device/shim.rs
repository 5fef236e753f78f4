//! The test driver: kernels compiled as C++ for the processor, one fiber for each of a block's threads, blocks in turn.
//! Slow, and blind to races; for tests of everything else. One of the modules with unsafe code.

use crate::{
    Arg, DeviceError, Kernel, Result,
    device::{COPY, Driver, Stream, Timed, Traffic, profile::Profile},
};
use mdl_codec::locks::Mutex;
use std::{
    alloc::{Layout, alloc, dealloc},
    collections::HashMap,
    ffi::{CString, c_char, c_int, c_uint, c_void},
    time::{Duration, Instant},
};

unsafe extern "C" {
    fn mdl_shim_launch(name: *const c_char, gx: c_uint, gy: c_uint, threads: c_uint, params: *mut *mut c_void)
    -> c_int;
}

/// A device whose memory is the process's.
#[derive(Debug)]
pub(crate) struct Shim {
    /// Length of each allocation by its address.
    live: Mutex<HashMap<u64, usize>>,
    /// Bytes that may be allocated at once.
    capacity: usize,
    traffic: Traffic,
    profile: Profile<Duration>,
}

const ALIGN: usize = 256;
/// What fresh memory, and memory that was given back, is filled with, so that a kernel that reads unwritten memory
/// shows.
const POISON: u8 = 0xA5;

impl Shim {
    /// A device with so many bytes of memory.
    pub(crate) fn new(capacity: usize) -> Shim {
        Shim { live: Mutex::default(), capacity, traffic: Traffic::default(), profile: Profile::default() }
    }

    /// Writes down how long work took.
    fn timed<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        if self.profile.is_on() {
            self.profile.add(name, start.elapsed());
        }
        done
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        let left: Vec<u64> = self.live.get_mut().keys().copied().collect();
        left.into_iter().for_each(|address| self.free(address));
    }
}

impl Driver for Shim {
    fn name(&self) -> String {
        "shim (kernels on the processor)".to_owned()
    }

    fn alloc(&self, len: usize) -> Result<u64> {
        let mut live = self.live.lock();
        let full = DeviceError::OutOfMemory { wanted: len };
        if live.values().sum::<usize>() + len > self.capacity {
            return Err(full);
        }
        let layout = Layout::from_size_align(len.max(1), ALIGN).map_err(|_| full.clone())?;
        // SAFETY: the layout has a size.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            return Err(full);
        }
        // SAFETY: fresh memory of this length.
        unsafe { at.write_bytes(POISON, len) };
        live.insert(at as u64, len);
        Ok(at as u64)
    }

    fn free(&self, address: u64) {
        let mut live = self.live.lock();
        if let Some(len) = live.remove(&address)
            && let Ok(layout) = Layout::from_size_align(len.max(1), ALIGN)
        {
            // SAFETY: `alloc` gave it with this layout, and it is freed once.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }

    fn spoil(&self, address: u64, len: usize) {
        // SAFETY: the invariant of addresses; every launch is over when it returns.
        unsafe { (address as *mut u8).write_bytes(POISON, len) };
    }

    fn stream(&self) -> Result<Stream> {
        Ok(Stream::Own(0))
    }

    fn upload(&self, _: Stream, to: u64, from: &[u8]) -> Result<()> {
        self.traffic.add_up(from.len());
        // SAFETY: the invariant of addresses.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
        Ok(())
    }

    fn download(&self, _: Stream, from: u64, to: &mut [u8]) -> Result<()> {
        self.traffic.add_down(to.len());
        // SAFETY: the invariant of addresses.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn fill(&self, _: Stream, at: u64, len: usize, byte: u8) -> Result<()> {
        // SAFETY: the invariant of addresses.
        unsafe { (at as *mut u8).write_bytes(byte, len) };
        Ok(())
    }

    fn copy(&self, _: Stream, from: u64, to: u64, len: usize) -> Result<()> {
        // SAFETY: the invariant of addresses.
        self.timed(COPY, || unsafe {
            std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len);
        });
        Ok(())
    }

    fn launch(&self, _: Stream, kernel: Kernel, grid: (u32, u32), threads: u32, args: &[Arg]) -> Result<()> {
        let failed = |why: &str| DeviceError::Kernel { name: kernel.name.to_owned(), why: why.to_owned() };
        let name = CString::new(kernel.name).map_err(|_| failed("no name"))?;
        // 8 bytes each, of which a u32 is the first four: little-endian.
        let mut values: Vec<u64> = args
            .iter()
            .map(|a| match *a {
                Arg::Ptr(v) => v,
                Arg::U32(v) => v.into(),
            })
            .collect();
        let mut params: Vec<*mut c_void> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
        // SAFETY: the kernel's parameters are these, by the invariant that its module keeps; they live until it
        // returns.
        let run = || unsafe { mdl_shim_launch(name.as_ptr(), grid.0, grid.1, threads, params.as_mut_ptr()) };
        match self.timed(kernel.name, run) {
            0 => Ok(()),
            1 => Err(failed("not found")),
            _ => Err(failed("a grid or block that no launch takes")),
        }
    }

    fn wait(&self, _: Stream) -> Result<()> {
        Ok(())
    }

    fn profile(&self, on: bool) {
        self.profile.switch(on);
    }

    fn profiled(&self) -> Vec<Timed> {
        self.profile.take(|time| 1e3 * time.as_secs_f64())
    }

    fn traffic(&self) -> &Traffic {
        &self.traffic
    }
}
