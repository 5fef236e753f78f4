//! Cancels long work when its client disconnects.

use crate::{app::work, auth::Access, content::STREAM_UNITS, problem::Result};
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

/// Progress that is not shown: work only asks it whether to stop.
pub(crate) struct StopWhen<F>(pub F);

impl<F: Fn() -> bool + Sync> Progress for StopWhen<F> {
    fn begin(&self, _what: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn end(&self) {}

    fn stopped(&self) -> bool {
        (self.0)()
    }
}

impl Access {
    /// Runs work that takes memory and time for a client: as many at once as there is memory for, 503 where too many
    /// wait for it; cancels it when the request is dropped.
    pub(crate) async fn heavy<T, F>(self, f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Access, &dyn Progress) -> Result<T> + Send + 'static,
    {
        let permit = self.app.content().decoders.permit(&self.party(), STREAM_UNITS).await?;
        let gone = Arc::new(AtomicBool::new(false));
        let _waiting = Waiting(gone.clone());
        work(move || {
            let _permit = permit;
            f(&self, &StopWhen(|| gone.load(Ordering::Relaxed)))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        app::App,
        auth::{Caller, Scope},
        options::Options,
        registry::RepoName,
    };
    use std::{sync::mpsc, time::Duration};

    #[tokio::test]
    async fn work_hears_that_nobody_waits_any_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let app = App::new(Options::new(dir.path()), Arc::new(mdl_codec::CpuEngine::default())).expect("an app");
        let (send, heard) = mpsc::channel();
        let name = RepoName::new("ada", "x").expect("a name");
        app.registry().create(&name, "main").expect("a repository");
        let access = app.access(Caller::Anonymous(Some(Scope::Read)), name, Scope::Read).await.expect("a right");
        let long = access.heavy(move |_, watch| {
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
