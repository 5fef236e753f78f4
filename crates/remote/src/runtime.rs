//! The async runtime on which every request of this crate runs, and how a blocking caller waits for it.
//!
//! Callers are plain threads, or threads that another runtime keeps for blocking work. They hand the future over and
//! wait on a channel: entering a runtime from within another is a panic, waiting for a channel is not.

use mdl_repo::{RepoError, Result, storage::without_forks};
use std::{
    future::Future,
    io,
    sync::{Mutex, PoisonError, mpsc},
};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// Threads that drive requests. They wait for the network; what computes is elsewhere.
const THREADS: usize = 4;

/// A forked child has none of its parent's threads: each process makes its own runtime, which is never let go.
fn shared() -> Result<&'static Runtime> {
    static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);
    let process = std::process::id();
    // A child that was forked in the middle would find the lock taken.
    without_forks(|| {
        let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
        match *runtime {
            Some((of, made)) if of == process => Ok(made),
            _ => {
                let made = Builder::new_multi_thread()
                    .worker_threads(THREADS)
                    .thread_name("mdl-remote")
                    .enable_all()
                    .build()
                    .map_err(RepoError::io("cannot start threads for the network"))?;
                let made: &'static Runtime = Box::leak(Box::new(made));
                *runtime = Some((process, made));
                Ok(made)
            }
        }
    })
}

/// Runs a future to its end on the shared runtime; the calling thread waits. Never to be called from a future that runs
/// there: it would hold the thread that is to go on. A future that panics is an error.
pub(crate) fn block_on<F>(future: F) -> Result<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (tell, told) = mpsc::sync_channel(1);
    spawn(async move {
        // The receiver is gone only if its thread is.
        let _ = tell.send(future.await);
    })?;
    told.recv().map_err(|e| RepoError::io("a request broke off")(io::Error::other(e)))
}

/// Lets a future run to its end on the shared runtime, while the calling thread does something else.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Result<JoinHandle<()>> {
    shared().map(|runtime| runtime.spawn(future))
}

/// Chooses the cryptography provider of TLS, before the first client is built.
pub(crate) fn choose_tls() {
    // Another part of the process may have chosen: then that is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_from_a_thread_and_from_within_another_runtime() {
        assert_eq!(block_on(async { 1 }).expect("ran"), 1);
        let other = Builder::new_multi_thread().enable_all().build().expect("runtime");
        let answer = other.block_on(async {
            let blocking = tokio::task::spawn_blocking(|| block_on(async { 2 }));
            blocking.await.expect("joined")
        });
        assert_eq!(answer.expect("ran"), 2);
    }

    #[test]
    fn a_forked_child_has_a_runtime_of_its_own() {
        assert_eq!(block_on(async { 1 }).expect("ran"), 1);
        // SAFETY: the child runs one future and ends; an alarm ends it where it waits for its parent's threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::alarm(20);
                libc::_exit(i32::from(block_on(async { 2 }).ok() != Some(2)));
            }
        }
        let mut status = -1;
        // SAFETY: waits for its own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child waited for threads that it has not");
    }

    #[test]
    fn a_future_that_panics_is_an_error() {
        let broken = block_on(async { assert!(std::hint::black_box(false), "on purpose") });
        assert!(broken.is_err());
    }
}
