//! Thread pools: one for callers who wait, one of low priority for background commits.
//!
//! A process that was forked has none of its parent's threads, so each process makes its own sets, when it first needs
//! them.

use mdl_repo::{RepoError, storage::without_forks};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

/// How far background work gives way to training (`nice`).
const NICE: i32 = 10;

/// Who waits for the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The caller waits for the result.
    Waiting,
    /// Background commit: the caller goes on.
    Background,
}

struct Pools {
    process: u32,
    waiting: Arc<ThreadPool>,
    background: Arc<ThreadPool>,
}

static POOLS: Mutex<Option<Pools>> = Mutex::new(None);

/// Lowers the calling thread's priority; where that is refused, work goes on as it is.
#[cfg(target_os = "linux")]
fn lower_priority(nice: i32) {
    let _ = rustix::process::setpriority_process(None, nice);
}

/// Elsewhere the call would be for the whole process.
#[cfg(not(target_os = "linux"))]
fn lower_priority(_nice: i32) {}

fn build(name: &'static str, nice: Option<i32>) -> Result<Arc<ThreadPool>, RepoError> {
    let pool: Result<ThreadPool, _> = ThreadPoolBuilder::new()
        .thread_name(move |i| format!("{name}-{i}"))
        .start_handler(move |_| {
            if let Some(nice) = nice {
                lower_priority(nice);
            }
        })
        .build();
    let failed = |e: rayon::ThreadPoolBuildError| RepoError::io("cannot start threads")(io::Error::other(e));
    let pool = pool.map_err(failed)?;
    // Once each thread has done something, what they make for the whole process when they start is made.
    pool.broadcast(|_| ());
    Ok(Arc::new(pool))
}

fn pool(priority: Priority) -> Result<Arc<ThreadPool>, RepoError> {
    let choose = |p: &Pools| match priority {
        Priority::Waiting => p.waiting.clone(),
        Priority::Background => p.background.clone(),
    };
    let process = std::process::id();
    // A child that was forked while another thread had the lock would find it taken.
    let made = without_forks(|| {
        let pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.as_ref().filter(|p| p.process == process).map(choose)
    });
    if let Some(pool) = made {
        return Ok(pool);
    }
    let pools = Pools { process, waiting: build("mdl", None)?, background: build("mdl-background", Some(NICE))? };
    let chosen = choose(&pools);
    // The parent's threads do not run here: waiting for them to end would take for ever.
    std::mem::forget(without_forks(|| POOLS.lock().unwrap_or_else(PoisonError::into_inner).replace(pools)));
    Ok(chosen)
}

/// Runs work on the threads for it.
pub fn on<T: Send>(priority: Priority, work: impl FnOnce() -> Result<T, RepoError> + Send) -> Result<T, RepoError> {
    pool(priority)?.install(work)
}

/// Runs work on threads that are made for it: work that waits for the caller, who may need the other threads meanwhile.
pub fn apart<T: Send>(work: impl FnOnce() -> Result<T, RepoError> + Send) -> Result<T, RepoError> {
    build("mdl-search", None)?.install(work)
}
