//! The compression engine of this process (CPU or GPU), and the GPUs it can use.
//!
//! One for the whole process: a GPU's memory and streams are worth keeping. A forked child makes its own.

use crate::errors::free;
use mdl_codec::{CodecError, Engine, Span};
use mdl_codec_cuda::Choice;
use mdl_repo::{RepoError, storage::without_forks};
use pyo3::prelude::*;
use std::{
    env,
    sync::{Arc, Mutex, PoisonError},
};

/// Environment variable: the device to compress on if the caller named none.
const DEVICE: &str = "MDL_DEVICE";

struct Mine {
    process: u32,
    engine: Arc<dyn Engine>,
}

static ENGINE: Mutex<Option<Mine>> = Mutex::new(None);

/// Accesses the engine slot under its lock; a child forked meanwhile would find it locked.
fn mine<T>(f: impl FnOnce(&mut Option<Mine>) -> T) -> T {
    without_forks(|| f(&mut ENGINE.lock().unwrap_or_else(PoisonError::into_inner)))
}

pub fn engine() -> Result<Arc<dyn Engine>, RepoError> {
    let process = std::process::id();
    let made = mine(|m| m.as_ref().filter(|m| m.process == process).map(|m| m.engine.clone()));
    if let Some(engine) = made {
        return Ok(engine);
    }
    set(&env::var(DEVICE).ok().filter(|v| !v.is_empty()).unwrap_or_else(|| "auto".to_owned()))
}

fn set(text: &str) -> Result<Arc<dyn Engine>, RepoError> {
    let choice: Choice =
        text.parse().map_err(|why| RepoError::usage(format!("no device {text:?}: {why}"), "name one of these"))?;
    let engine = apart(|| mdl_codec_cuda::engine(choice))
        .map_err(|why| RepoError::user(format!("no work on {choice}: {why}"), "\"auto\" does without a GPU"))?;
    let new = Mine { process: std::process::id(), engine: engine.clone() };
    match mine(|m| m.replace(new)) {
        // A forked child must not release its parent's engine.
        Some(old) if old.process != std::process::id() => std::mem::forget(old),
        old => apart(|| drop(old)),
    }
    Ok(engine)
}

/// Runs work on a thread of its own: the driver's calls choose a current device for their thread, and torch has
/// one for the caller's.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| match s.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Copies bytes from a device.
pub fn read(span: Span, out: &mut [u8]) -> Result<(), CodecError> {
    let none = |why: String| CodecError::Device(why);
    let engine = engine().map_err(|e| none(e.to_string()))?;
    let device = engine.device(span.device()).ok_or_else(|| none(format!("cuda:{} is out of reach", span.device())))?;
    device.read(span, out)
}

/// Chooses where repositories that are opened from now on compress: `auto`, `cpu`, `cuda` or `cuda:N`.
#[pyfunction]
pub fn set_device(py: Python<'_>, device: &str) -> PyResult<()> {
    free(py, || set(device).map(drop))
}

/// Whether tensors in the memory of this GPU are compressed there. Starts the engine on it.
#[pyfunction]
pub fn reaches(py: Python<'_>, ordinal: u32) -> bool {
    py.detach(|| apart(|| engine().is_ok_and(|e| e.device(ordinal).is_some())))
}

/// Name of the engine, and bytes copied to and from this GPU so far.
#[pyfunction]
pub fn engine_facts(py: Python<'_>, ordinal: u32) -> (String, Option<(u64, u64)>) {
    let look = || match engine() {
        Ok(e) => (e.name().to_owned(), e.device(ordinal).map(|d| d.traffic())),
        Err(_) => ("none".to_owned(), None),
    };
    py.detach(|| apart(look))
}
