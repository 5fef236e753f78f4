//! Long work beside the caller's thread, which meanwhile shows how far it is and hears Ctrl-C.

use crate::{
    errors::{Outcome, raise},
    pools::{Priority, on},
};
use mdl_repo::Progress;
use pyo3::{exceptions::PyKeyboardInterrupt, prelude::*};
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

/// How often the caller's thread looks up.
const PAUSE: Duration = Duration::from_millis(25);

/// How far the work is.
#[derive(Default)]
struct Watch {
    /// What is being done, and how much there is of it (0: unknown); none between two parts of the work.
    part: Mutex<Option<(String, u64)>>,
    done: AtomicU64,
    stop: AtomicBool,
}

impl Watch {
    fn set(&self, part: Option<(String, u64)>) {
        self.done.store(0, Ordering::Relaxed);
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = part;
    }

    fn part(&self) -> Option<(String, u64)> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Progress for Watch {
    fn begin(&self, what: &str, total: u64) {
        self.set(Some((what.to_owned(), total)));
    }

    fn advance(&self, n: u64) {
        self.done.fetch_add(n, Ordering::Relaxed);
    }

    fn end(&self) {
        self.set(None);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Runs `work` without the interpreter's lock. Meanwhile `show(what, done, total)` is called on this thread, with
/// `None` in place of `what` between two parts. Ctrl-C, and an exception of `show`, cancel the work: it ends between
/// two steps, leaves a sound repository, and the exception is raised. So it is where the work has ended meanwhile: what
/// that changed is there, and who wants to stop a loop of such work can.
pub fn watched<T: Send>(
    py: Python<'_>,
    show: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&dyn Progress) -> Outcome<T> + Send,
) -> PyResult<T> {
    let watch = Watch::default();
    let show = show.map(|f| f.clone().unbind());
    let (tell, told) = channel();
    let (done, raised) = py.detach(move || {
        thread::scope(|scope| {
            let watch = &watch;
            scope.spawn(move || tell.send(on(Priority::Waiting, || work(watch))));
            let mut raised = None;
            loop {
                match told.recv_timeout(PAUSE) {
                    Ok(done) => return (Some(done), raised),
                    // The thread has panicked; the scope raises that again.
                    Err(RecvTimeoutError::Disconnected) => return (None, raised),
                    Err(RecvTimeoutError::Timeout) => {
                        // Once it is stopping nothing is shown, but the program's handlers of signals go on.
                        let show = show.as_ref().filter(|_| raised.is_none());
                        if let Err(e) = Python::attach(|py| look(py, watch, show)) {
                            watch.stop.store(true, Ordering::Relaxed);
                            raised.get_or_insert(e);
                        }
                    }
                }
            }
        })
    });
    match (done, raised) {
        (_, Some(e)) => Err(e),
        (Some(Ok(done)), None) => Ok(done),
        (Some(Err(e)), None) => Err(raise(py, &e)),
        (None, None) => Err(PyKeyboardInterrupt::new_err("the work has ended")),
    }
}

fn look(py: Python<'_>, watch: &Watch, show: Option<&Py<PyAny>>) -> PyResult<()> {
    py.check_signals()?;
    let Some(show) = show else { return Ok(()) };
    let (what, total) = watch.part().unzip();
    show.call1(py, (what, watch.done.load(Ordering::Relaxed), total.unwrap_or(0))).map(drop)
}
