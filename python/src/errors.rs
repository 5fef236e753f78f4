//! Turns the repository's errors into the package's exceptions.

use mdl_repo::{ErrorKind, RepoError};
use pyo3::{PyErr, prelude::*, types::PyType};

/// Result of everything that the repository does.
pub type Outcome<T> = Result<T, RepoError>;

const MODULE: &str = "mdl.errors";

fn class(error: &RepoError) -> &'static str {
    match error.kind() {
        _ if error.is_full() => "FullError",
        ErrorKind::User => "UserError",
        ErrorKind::Usage => "UsageError",
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::Conflict => "ConflictError",
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::Io => "StorageError",
    }
}

/// The exception for an error: message and hint.
pub fn raise(py: Python<'_>, error: &RepoError) -> PyErr {
    let found = py.import(MODULE).and_then(|m| m.getattr(class(error)));
    match found.and_then(|c| c.cast_into::<PyType>().map_err(PyErr::from)) {
        Ok(class) => PyErr::from_type(class, (error.to_string(), error.hint())),
        Err(problem) => problem,
    }
}

/// Runs without the interpreter's lock.
pub fn free<T: Send>(py: Python<'_>, work: impl FnOnce() -> Outcome<T> + Send) -> PyResult<T> {
    py.detach(work).map_err(|e| raise(py, &e))
}
