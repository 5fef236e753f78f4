//! Evaluates candidates of a lossy commit by a Python function, on the caller's thread: the search runs beside it
//! and asks.

use crate::{
    errors::{Outcome, raise},
    pools::apart,
};
use mdl_repo::{Evaluator, ReplacedTensor};
use pyo3::{PyErr, prelude::*};
use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender, channel},
};

/// A tensor of a candidate that is not the checkpoint's. Its bytes are not copied: they are at `address`, never written
/// to, for as long as this object is.
#[pyclass(frozen, module = "mdl._native")]
#[derive(Debug)]
pub struct Replaced(ReplacedTensor);

#[pymethods]
impl Replaced {
    #[getter]
    fn file(&self) -> &str {
        &self.0.file
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype.name()
    }

    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.0.shape.clone()
    }

    #[getter]
    fn address(&self) -> usize {
        self.0.bytes.as_ptr().expose_provenance()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.0.bytes.len()
    }
}

/// Candidates to be measured.
enum Candidates {
    Directories(Vec<PathBuf>),
    Tensors(Vec<Vec<ReplacedTensor>>),
}

/// Asks for the numbers of some candidates; the answers come back in their order, none where one could not be measured.
struct Asker {
    ask: Sender<Candidates>,
    answers: Receiver<Answer>,
    width: usize,
    takes_tensors: bool,
    gave_up: bool,
}

/// Numbers; none at all after an exception.
type Answer = Option<Vec<Option<f64>>>;

impl Asker {
    fn all(&mut self, n: usize, candidates: Candidates) -> Vec<Option<f64>> {
        let answer =
            if self.gave_up || self.ask.send(candidates).is_err() { None } else { self.answers.recv().ok().flatten() };
        self.gave_up |= answer.is_none();
        answer.unwrap_or_else(|| vec![None; n])
    }
}

impl Evaluator for Asker {
    fn evaluate(&mut self, dir: &Path) -> Option<f64> {
        self.all(1, Candidates::Directories(vec![dir.to_owned()])).first().copied().flatten()
    }

    fn gave_up(&self) -> bool {
        self.gave_up
    }

    fn width(&self) -> usize {
        self.width
    }

    fn evaluate_all(&mut self, dirs: &[&Path]) -> Vec<Option<f64>> {
        self.all(dirs.len(), Candidates::Directories(dirs.iter().map(|&dir| dir.to_owned()).collect()))
    }

    fn takes_tensors(&self) -> bool {
        self.takes_tensors
    }

    fn evaluate_tensors(&mut self, candidates: &[Vec<ReplacedTensor>]) -> Vec<Option<f64>> {
        self.all(candidates.len(), Candidates::Tensors(candidates.to_vec()))
    }
}

/// Runs `work` beside this thread, which meanwhile calls `function(directory)` whenever the search asks. An exception
/// of the function ends the search: nothing is committed, and the exception is raised. Where it has
/// `evaluate_all(directories)`, that is called with up to `width` (an attribute) directories at a time; where it has
/// `evaluate_tensors(candidates)`, that with lists of [`Replaced`] in their place, and no directories are made.
pub fn judged<T: Send>(
    py: Python<'_>,
    function: &Bound<'_, PyAny>,
    work: impl FnOnce(&mut dyn Evaluator) -> Outcome<T> + Send,
) -> PyResult<T> {
    let takes_tensors = function.hasattr("evaluate_tensors")?;
    let width = match takes_tensors || function.hasattr("evaluate_all")? {
        true => function.getattr_opt("width")?.map_or(Ok(1), |w| w.extract())?,
        false => 1,
    };
    let (ask, asked) = channel();
    let (answer, answers) = channel();
    let function = function.clone().unbind();
    let (failure, outcome) = py.detach(move || {
        std::thread::scope(|scope| {
            let mut failure: Option<PyErr> = None;
            let search = scope.spawn(move || {
                let mut asker = Asker { ask, answers, width, takes_tensors, gave_up: false };
                apart(|| work(&mut asker))
            });
            while let Ok(candidates) = asked.recv() {
                let measured = Python::attach(|py| measure(function.bind(py), candidates));
                let numbers = measured.map_err(|e| failure = Some(e)).ok();
                if answer.send(numbers).is_err() {
                    break;
                }
            }
            (failure, search.join())
        })
    });
    match (failure, outcome) {
        (Some(e), _) => Err(e),
        (None, Ok(done)) => done.map_err(|e| raise(py, &e)),
        (None, Err(panic)) => std::panic::resume_unwind(panic),
    }
}

/// Asks `evaluate_all` where the function has it, else the function itself for one after the other.
fn measure(function: &Bound<'_, PyAny>, candidates: Candidates) -> PyResult<Vec<Option<f64>>> {
    let finite = |number: Option<f64>| number.filter(|n| n.is_finite());
    let dirs = match candidates {
        Candidates::Directories(dirs) => dirs,
        Candidates::Tensors(candidates) => {
            let shown = |tensors: Vec<ReplacedTensor>| tensors.into_iter().map(Replaced).collect::<Vec<_>>();
            let candidates: Vec<_> = candidates.into_iter().map(shown).collect();
            let numbers: Vec<Option<f64>> = function.call_method1("evaluate_tensors", (candidates,))?.extract()?;
            return Ok(numbers.into_iter().map(finite).collect());
        }
    };
    if let Some(all) = function.getattr_opt("evaluate_all")? {
        let numbers: Vec<Option<f64>> = all.call1((dirs,))?.extract()?;
        return Ok(numbers.into_iter().map(finite).collect());
    }
    let call = |dir: &PathBuf| Ok(finite(function.call1((dir,))?.extract()?));
    dirs.iter().map(call).collect()
}
