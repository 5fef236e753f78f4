//! The threads that torch computes with, those of GNU's OpenMP runtime: they decode and encode weights.
//!
//! After a parallel region its threads wait busily for the next one, for milliseconds: threads of another pool would
//! have half of each core. And what they have decoded is where they compute next.

use mdl_codec::Team;
use pyo3::prelude::*;
use std::{
    any::Any,
    ffi::{c_int, c_uint, c_void},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::PathBuf,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// `GOMP_parallel`: calls a function with its argument on so many threads at once, the caller's among them.
type Parallel = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);

/// `omp_get_thread_num`: which of its team's threads the calling one is.
type Number = unsafe extern "C" fn() -> c_int;

struct Runtime {
    parallel: Parallel,
    number: Number,
    /// A process that was forked has none of its parent's threads, and the runtime does not know.
    process: u32,
}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Takes the runtime in a file, if the process has loaded it; until then the threads of [`crate::pools`] do the work.
/// Whether there is one now.
#[pyfunction]
pub fn use_openmp(py: Python<'_>, library: PathBuf) -> bool {
    py.detach(|| {
        if RUNTIME.get().is_none()
            && let Some(runtime) = open(library)
        {
            let _ = RUNTIME.set(runtime);
        }
        RUNTIME.get().is_some()
    })
}

/// Whether this process is a copy of its parent that has started no program since: torch may have had threads before.
#[cfg(target_os = "linux")]
fn is_forked() -> bool {
    /// `PF_FORKNOEXEC` among the flags of `/proc/PID/stat`, which are the seventh number after the name.
    const FORKED: u32 = 0x40;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let flags = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6)?.parse::<u32>().ok());
    flags.is_none_or(|flags| flags & FORKED != 0)
}

#[cfg(target_os = "linux")]
fn open(library: PathBuf) -> Option<Runtime> {
    if is_forked() {
        return None;
    }
    use libloading::os::unix::{Library, RTLD_LAZY};
    /// `RTLD_NOLOAD` of Linux: only what is there already, and so nothing of it runs now for the first time.
    const ONLY_IF_LOADED: i32 = 4;
    // SAFETY: nothing is loaded.
    let library = unsafe { Library::open(Some(library), RTLD_LAZY | ONLY_IF_LOADED) }.ok()?;
    // SAFETY: the type is that of GCC's interface since its version 4.9.
    let parallel = unsafe { *library.get::<Parallel>(b"GOMP_parallel\0").ok()? };
    // SAFETY: the type is that of OpenMP's standard.
    let number = unsafe { *library.get::<Number>(b"omp_get_thread_num\0").ok()? };
    // As long as the process.
    std::mem::forget(library);
    Some(Runtime { parallel, number, process: std::process::id() })
}

#[cfg(not(target_os = "linux"))]
fn open(_library: PathBuf) -> Option<Runtime> {
    None
}

/// A team of the runtime's threads.
#[derive(Debug)]
pub struct OpenMp {
    threads: usize,
}

impl OpenMp {
    /// A team of so many, where there is a runtime.
    pub fn team(threads: usize) -> Option<OpenMp> {
        let runtime = RUNTIME.get()?;
        (runtime.process == std::process::id()).then_some(OpenMp { threads: threads.max(1) })
    }
}

/// What a team is to do.
struct Region<'a> {
    runtime: &'a Runtime,
    /// A share for each thread, of numbers on end: the next one of it, and its end.
    shares: Vec<(AtomicUsize, usize)>,
    work: &'a (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Region<'_> {
    fn take_part(&self) {
        // SAFETY: it looks at the calling thread.
        let own = unsafe { (self.runtime.number)() }.try_into().unwrap_or(0);
        // Its own share first, which is where torch's product has it compute next, then what others have left.
        let shares = self.shares.iter().cycle().skip(own).take(self.shares.len());
        let all = || {
            for (next, end) in shares {
                let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                numbers.take_while(|i| i < end).for_each(self.work);
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(all)) {
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }
}

unsafe extern "C" fn enter(region: *mut c_void) {
    // SAFETY: it is `run`'s, which returns when all threads of the team have.
    unsafe { &*region.cast::<Region<'_>>() }.take_part();
}

impl Team for OpenMp {
    fn threads(&self) -> usize {
        self.threads
    }

    fn run(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        let Some(runtime) = RUNTIME.get() else { return (0..n).for_each(work) };
        let share = |t: usize| (AtomicUsize::new(t * n / self.threads), (t + 1) * n / self.threads);
        let shares = (0..self.threads).map(share).collect();
        let region = Region { runtime, shares, work, panic: Mutex::new(None) };
        // All of them, though there be less to do: for a smaller team the runtime ends threads, and makes them again
        // for the next region of torch's.
        let threads = self.threads.try_into().unwrap_or(1);
        // SAFETY: the region outlives the call, its fields may be used by several threads, and `enter` does not unwind.
        unsafe { (runtime.parallel)(enter, std::ptr::from_ref(&region).cast_mut().cast(), threads, 0) };
        if let Some(panic) = region.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }
}
