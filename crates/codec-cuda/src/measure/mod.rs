//! Benchmarks of the engine on a device: passes, schemes and a whole lossy commit, each beside a copy inside the
//! device's memory.
//!
//! A figure has two times, both medians: what its kernels take, from events around every launch, and what the whole
//! call takes on the clock, with everything that the host does in between and all that goes over the bus. They come
//! from different runs, so that the events do not slow the clock down. Between launches a device that waits for the
//! host adds a few microseconds to each kernel's time.

mod commit;
mod data;
mod figures;
mod schemes;

pub use commit::{Commit, Stage};

use crate::{
    DeviceError, Result, Session, View,
    device::{COPY, Driver, Lane, Timed, cuda},
    engine::CudaEngine,
};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Runs that are timed where they take longer than [`LONG`] together.
const FEW: usize = 5;
const LONG: Duration = Duration::from_secs(4);

/// What is measured, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of the GPU; none for the shim.
    pub device: Option<u32>,
    /// Bytes of the tensor of every figure: more than the device's caches hold.
    pub bytes: usize,
    /// Parameters of the model that is committed.
    pub parameters: usize,
    /// Runs of which the median is given.
    pub runs: usize,
    /// Only figures whose names have this in them.
    pub only: Option<String>,
}

/// Something that was measured.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What.
    pub name: String,
    /// Bytes of the tensor.
    pub bytes: u64,
    /// Bytes that cannot but be read and written: the tensor and, where one is made, the other tensor. Compressed
    /// bytes are not counted.
    pub moved: u64,
    /// Runs.
    pub runs: usize,
    /// Time of all kernels of a run; where several streams work side by side it may be longer than the run.
    pub kernel_ms: f64,
    /// Time of a run.
    pub wall_ms: f64,
    /// A copy of as many bytes inside the device's memory, just before: bytes read and written in a second, by 10^9.
    pub copy_gbps: f64,
    /// Length of all encodings.
    pub encoded: Option<u64>,
    /// Kernels, milliseconds of a run, launches of a run.
    pub kernels: Vec<Timed>,
}

/// Something to tell as soon as it is known.
#[derive(Clone, Debug)]
pub enum News {
    /// The device: its name, and numbers.
    Device(String, Vec<(&'static str, u64)>),
    /// A figure.
    Figure(Figure),
    /// The commit.
    Commit(Commit),
}

/// Where figures come from, and where they go.
struct Bench<'a> {
    engine: CudaEngine,
    options: Options,
    tell: &'a mut dyn FnMut(News),
}

/// Measures everything.
///
/// # Errors
/// No such device, or it failed; a decoder that gave other bytes.
pub fn run(options: &Options, tell: &mut dyn FnMut(News)) -> std::result::Result<(), DeviceError> {
    let (engine, facts) = match options.device {
        Some(n) => (crate::gpu(n)?, cuda::Cuda::new(n)?.facts()?.to_vec()),
        None => (shim()?, Vec::new()),
    };
    tell(News::Device(engine.driver.name(), facts));
    let mut bench = Bench { engine, options: options.clone(), tell };
    figures::all(&mut bench)?;
    schemes::all(&mut bench)?;
    commit::all(&mut bench)
}

#[cfg(feature = "shim")]
fn shim() -> Result<CudaEngine> {
    Ok(crate::shim(1 << 30))
}

#[cfg(not(feature = "shim"))]
fn shim() -> Result<CudaEngine> {
    Err(DeviceError::Absent("built without the shim".to_owned()))
}

impl Bench<'_> {
    fn driver(&self) -> Arc<dyn Driver> {
        self.engine.driver.clone()
    }

    /// A stream whose memory is given back with it.
    fn session(&self) -> Result<Session> {
        Ok(Session::new(Lane::new(self.driver())?))
    }

    /// Whether the options select one of these.
    fn wants(&self, names: &[&str]) -> bool {
        let only = self.options.only.as_deref();
        only.is_none_or(|only| names.iter().any(|n| n.contains(only)))
    }

    /// Times work that waits for the device before it returns.
    fn figure(
        &mut self,
        name: &str,
        bytes: usize,
        moved: usize,
        mut work: impl FnMut() -> Result<()>,
    ) -> Result<Figure> {
        let driver = self.driver();
        let copy_gbps = self.copy(bytes)?;
        // Memory is allocated, kernels are loaded.
        work()?;
        let wall = runs(self.options.runs, || {
            let start = Instant::now();
            work()?;
            Ok(1e3 * start.elapsed().as_secs_f64())
        })?;
        driver.profile(true);
        driver.profiled();
        let timed = runs(self.options.runs, || {
            work()?;
            Ok(driver.profiled())
        });
        driver.profile(false);
        let timed = timed?;
        let sums = timed.iter().map(|run| run.iter().map(|k| k.1).sum()).collect();
        Ok(Figure {
            name: name.to_owned(),
            bytes: bytes as u64,
            moved: moved as u64,
            runs: wall.len(),
            kernel_ms: median(sums),
            wall_ms: median(wall),
            copy_gbps,
            encoded: None,
            kernels: by_kernel(&timed),
        })
    }

    /// As [`figure`](Self::figure), and reports it with the length of encodings, if the options select it.
    fn tell(
        &mut self,
        name: &str,
        [bytes, moved]: [usize; 2],
        encoded: Option<u64>,
        work: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        if self.wants(&[name]) {
            let figure = self.figure(name, bytes, moved, work)?;
            (self.tell)(News::Figure(Figure { encoded, ..figure }));
        }
        Ok(())
    }

    /// Bytes read and written in a second, by 10^9, of a copy inside the device's memory.
    fn copy(&self, bytes: usize) -> Result<f64> {
        let driver = self.driver();
        let session = self.session()?;
        let (from, to) = (session.zeroed(bytes)?, session.buffer(bytes)?);
        let once = || {
            session.copy(from.view(), to.view())?;
            session.wait()
        };
        once()?;
        driver.profile(true);
        driver.profiled();
        let times = runs(self.options.runs, || {
            once()?;
            let timed = driver.profiled();
            Ok(timed.iter().filter(|t| t.0 == COPY).map(|t| t.1).sum())
        });
        driver.profile(false);
        Ok(2e-6 * bytes as f64 / median(times?))
    }
}

/// Does work so often, or a few times if it takes long.
fn runs<T>(wanted: usize, mut work: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
    let start = Instant::now();
    let mut out = Vec::new();
    while out.len() < wanted && (out.len() < FEW || start.elapsed() < LONG) {
        out.push(work()?);
    }
    Ok(out)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    let (n, middle) = (of.len(), of.len() / 2);
    match n {
        0 => f64::NAN,
        _ if n % 2 == 1 => of[middle],
        _ => (of[middle - 1] + of[middle]) / 2.0,
    }
}

/// The medians of each kernel, most time first.
fn by_kernel(runs: &[Vec<Timed>]) -> Vec<Timed> {
    let mut of: BTreeMap<&'static str, (Vec<f64>, u64)> = BTreeMap::new();
    for (name, ms, launches) in runs.iter().flatten() {
        let one = of.entry(name).or_default();
        one.0.push(*ms);
        one.1 = *launches;
    }
    let mut out: Vec<Timed> = of.into_iter().map(|(name, (ms, n))| (name, median(ms), n)).collect();
    out.sort_by(|a, b| b.1.total_cmp(&a.1));
    out
}

/// Fails unless the two hold the same bytes.
fn same(session: &Session, what: &str, a: View<'_>, b: View<'_>) -> Result<()> {
    let hashes = crate::blake3::hash_all(session, "measure", &[(Vec::new(), a), (Vec::new(), b)])?;
    match hashes.as_slice() {
        [a, b] if a == b => Ok(()),
        _ => Err(DeviceError::Failed(format!("{what} decodes to something else"))),
    }
}

#[cfg(all(test, feature = "shim"))]
mod tests {
    use super::*;

    #[test]
    fn everything_is_measured_and_comes_back() {
        let options = Options { device: None, bytes: 64 << 10, parameters: 1, runs: 1, only: None };
        let (mut figures, mut commits) = (Vec::new(), 0);
        run(&options, &mut |news| match news {
            News::Figure(f) => figures.push(f),
            News::Commit(c) => {
                commits += 1;
                assert!(c.released_ms > 0.0 && c.released_ms < c.done_ms && c.encoded > 0);
            }
            News::Device(name, _) => assert!(name.starts_with("shim")),
        })
        .unwrap();
        assert_eq!((figures.len(), commits), (27, 1));
        for f in &figures {
            assert!(f.kernel_ms > 0.0 && f.wall_ms > 0.0 && f.copy_gbps > 0.0, "{f:?}");
            assert!(f.encoded.is_none_or(|e| e < f.bytes) && !f.kernels.is_empty(), "{f:?}");
        }
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
        let runs = [vec![("a", 1.0, 2), ("b", 9.0, 1)], vec![("a", 3.0, 2), ("b", 7.0, 1)]];
        assert_eq!(by_kernel(&runs), [("b", 8.0, 1), ("a", 2.0, 2)]);
    }
}
