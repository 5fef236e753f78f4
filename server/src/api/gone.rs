//! Cancels long work when its client disconnects.

use crate::{
    app::{App, work},
    content::STREAM_UNITS,
    problem::Result,
    tasks::fair::Party,
};
use mdl_repo::Progress;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// When the request is dropped, tells the work that the client is gone.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets the work ask whether its client is gone.
#[derive(Debug)]
pub(crate) struct Watch(Arc<AtomicBool>);

impl Progress for Watch {
    fn begin(&self, _what: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn end(&self) {}

    fn stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs work that takes memory and time for a client: as many at once as there is memory for; cancels it when the
/// request is dropped.
///
/// # Errors
/// Those of `f`; 503: too many wait for memory.
pub(crate) async fn heavy<T: Send + 'static>(
    app: &App,
    party: &Party,
    f: impl FnOnce(&Watch) -> Result<T> + Send + 'static,
) -> Result<T> {
    let permit = app.content().decoders().permit(party, STREAM_UNITS).await?;
    let gone = Arc::new(AtomicBool::new(false));
    let (_waiting, watch) = (Waiting(gone.clone()), Watch(gone));
    work(move || {
        let _permit = permit;
        f(&watch)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use std::{sync::mpsc, time::Duration};

    #[tokio::test]
    async fn work_hears_that_nobody_waits_any_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let app = App::new(Options::new(dir.path()), Arc::new(mdl_codec::CpuEngine::default())).expect("an app");
        let (send, heard) = mpsc::channel();
        let ada = Party::new("ada", "a/x");
        let long = heavy(&app, &ada, move |watch| {
            let mut looks = 0;
            while !watch.stopped() && looks < 1000 {
                std::thread::sleep(Duration::from_millis(10));
                looks += 1;
            }
            let _ = send.send(watch.stopped());
            Ok(())
        });
        assert!(tokio::time::timeout(Duration::from_millis(50), long).await.is_err());
        let heard = tokio::task::spawn_blocking(move || heard.recv_timeout(Duration::from_secs(5)));
        assert_eq!(heard.await.expect("a task"), Ok(true));
    }
}
