//! Bytes that are made faster than their client takes them. A few pieces wait in memory; where the client has kept its maker waiting for
//! some time, and others wait for the maker's memory, the rest goes to a file without a name: the maker is done and gives its memory back.
//! Neighbours: `body` and the API's streams send through it. It must not know what the bytes are.

use super::decoders::Decoders;
use crate::problem::{Problem, Result};
use bytes::Bytes;
use futures_util::{Stream, stream};
use mdl_repo::RepoError;
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Pieces of one response that wait in memory.
const AHEAD: usize = 4;
/// Between looks at whether the client is there, and others wait.
const LOOK: Duration = Duration::from_millis(100);

/// Room on disk for what slow clients have not taken yet.
#[derive(Debug)]
pub struct Overflow {
    dir: PathBuf,
    limit: u64,
    used: AtomicU64,
    patience: Duration,
    decoders: Decoders,
}

impl Overflow {
    /// At most `limit` bytes in files of `dir`. A client may keep its maker waiting for `patience` in all, and for longer while nobody
    /// waits for `decoders`.
    ///
    /// # Errors
    /// The directory cannot be had.
    pub fn new(dir: PathBuf, limit: u64, patience: Duration, decoders: Decoders) -> Result<Overflow> {
        crate::state::make(&dir)?;
        Ok(Overflow {
            dir,
            limit,
            used: AtomicU64::new(0),
            patience,
            decoders,
        })
    }

    /// Takes room, if there is any.
    fn reserve(&self, bytes: u64) -> bool {
        let grown = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .is_ok()
    }
}

/// Sends what a blocking producer makes. It ends when nobody listens any more.
pub fn produced<F>(overflow: &Arc<Overflow>, produce: F) -> impl Stream<Item = Result<Bytes>> + Send + 'static + use<F>
where
    F: FnOnce(&mut dyn FnMut(Bytes) -> mdl_repo::Result<()>) -> Result<()> + Send + 'static,
{
    let (queue, pieces) = mpsc::unbounded_channel();
    let mut out = Out {
        queue,
        slots: Arc::default(),
        waited: Duration::ZERO,
        file: None,
        overflow: overflow.clone(),
    };
    tokio::task::spawn_blocking(move || {
        if let Err(problem) = produce(&mut |bytes| out.send(bytes)) {
            let _ = out.queue.send(Err(problem));
        }
    });
    stream::unfold(pieces, |mut pieces| async move {
        let bytes = match pieces.recv().await? {
            Ok(Piece::Here(bytes, _slot)) => Ok(bytes),
            Ok(Piece::Put(part)) => part.read().await,
            Err(problem) => Err(problem),
        };
        Some((bytes, pieces))
    })
}

/// A piece that waits for the client, in memory or on disk.
enum Piece {
    Here(Bytes, Slot),
    Put(Part),
}

/// The maker's end.
struct Out {
    queue: mpsc::UnboundedSender<Result<Piece>>,
    slots: Arc<Slots>,
    /// How long the client has kept the maker waiting.
    waited: Duration,
    file: Option<Arc<Spilled>>,
    overflow: Arc<Overflow>,
}

impl Out {
    fn send(&mut self, bytes: Bytes) -> mdl_repo::Result<()> {
        let gone = || RepoError::user("the client went away", "");
        let piece = loop {
            if self.queue.is_closed() {
                return Err(gone());
            }
            let begun = Instant::now();
            if let Some(slot) = self.slots.take(LOOK) {
                self.waited += begun.elapsed();
                break Piece::Here(bytes, slot);
            }
            self.waited += begun.elapsed();
            if self.waited >= self.overflow.patience
                && self.overflow.decoders.crowded()
                && let Some(part) = self.put(&bytes)
            {
                break Piece::Put(part);
            }
        };
        self.queue.send(Ok(piece)).map_err(|_| gone())
    }

    /// Writes a piece to disk; none: there is no room, or the medium fails, and the client has to be waited for.
    fn put(&mut self, bytes: &Bytes) -> Option<Part> {
        let len = bytes.len() as u64;
        if !self.overflow.reserve(len) {
            return None;
        }
        let file = match &self.file {
            Some(file) => file.clone(),
            None => match Spilled::new(&self.overflow) {
                Ok(file) => self.file.insert(Arc::new(file)).clone(),
                Err(error) => {
                    self.overflow.used.fetch_sub(len, Ordering::Relaxed);
                    tracing::warn!(%error, "no file for what slow clients have not taken");
                    return None;
                }
            },
        };
        let at = file.len.fetch_add(len, Ordering::Relaxed);
        match file.file.write_all_at(bytes, at) {
            Ok(()) => Some(Part {
                file,
                at,
                len: bytes.len(),
            }),
            Err(error) => {
                tracing::warn!(%error, "cannot write what slow clients have not taken");
                None
            }
        }
    }
}

/// A file without a name, and the room that it takes.
struct Spilled {
    file: File,
    len: AtomicU64,
    overflow: Arc<Overflow>,
}

impl Spilled {
    fn new(overflow: &Arc<Overflow>) -> io::Result<Spilled> {
        Ok(Spilled {
            file: tempfile::tempfile_in(&overflow.dir)?,
            len: AtomicU64::new(0),
            overflow: overflow.clone(),
        })
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        let len = self.len.load(Ordering::Relaxed);
        self.overflow.used.fetch_sub(len, Ordering::Relaxed);
    }
}

/// A piece on disk.
struct Part {
    file: Arc<Spilled>,
    at: u64,
    len: usize,
}

impl Part {
    async fn read(self) -> Result<Bytes> {
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; self.len];
            self.file.file.read_exact_at(&mut bytes, self.at)?;
            Ok::<_, io::Error>(Bytes::from(bytes))
        });
        read.await.map_err(Problem::internal)?.map_err(Problem::internal)
    }
}

/// Places for pieces in memory.
#[derive(Default)]
struct Slots {
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits this long for a place.
    fn take(self: &Arc<Slots>, wait: Duration) -> Option<Slot> {
        let waited = self.freed.wait_timeout_while(self.lock(), wait, |n| *n >= AHEAD);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (*taken < AHEAD).then(|| {
            *taken += 1;
            Slot(self.clone())
        })
    }
}

/// A place that is taken until this is dropped.
struct Slot(Arc<Slots>);

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::decoders::{POUR, Permit},
        *,
    };
    use futures_util::StreamExt;
    use std::{pin::pin, sync::mpsc::RecvTimeoutError};

    const PIECES: u8 = 20;
    const LEN: usize = 1000;

    struct Scene {
        overflow: Arc<Overflow>,
        decoders: Decoders,
        _dir: tempfile::TempDir,
    }

    fn scene(limit: u64) -> Scene {
        let dir = tempfile::tempdir().expect("a directory");
        let decoders = Decoders::new(0);
        let patience = Duration::from_millis(1);
        let overflow = Overflow::new(dir.path().join("o"), limit, patience, decoders.clone()).expect("room");
        Scene {
            overflow: Arc::new(overflow),
            decoders,
            _dir: dir,
        }
    }

    type Made = std::sync::mpsc::Receiver<Option<String>>;

    /// Pieces of 0, of 1, ..., and the maker's last word.
    fn made(scene: &Scene, permit: Permit) -> (impl Stream<Item = Result<Bytes>> + Send + 'static, Made) {
        let (tell, told) = std::sync::mpsc::channel();
        let pieces = produced(&scene.overflow, move |send| {
            let _permit = permit;
            let done = (0..PIECES).try_for_each(|n| send(Bytes::from(vec![n; LEN])));
            let _ = tell.send(done.as_ref().err().map(ToString::to_string));
            Ok(done?)
        });
        (pieces, told)
    }

    async fn word(told: Made, wait: Duration) -> (std::result::Result<Option<String>, RecvTimeoutError>, Made) {
        let waiting = tokio::task::spawn_blocking(move || (told.recv_timeout(wait), told));
        waiting.await.expect("a task")
    }

    async fn all(pieces: impl Stream<Item = Result<Bytes>>) -> bool {
        let got: Vec<_> = pieces
            .map(|p| p.map_err(|e| e.message).expect("a piece"))
            .collect()
            .await;
        got.len() == usize::from(PIECES) && got.iter().zip(0..).all(|(p, n)| **p == [n; LEN])
    }

    #[tokio::test]
    async fn a_maker_is_done_before_its_client_where_others_wait() {
        let scene = scene(1 << 20);
        let (pieces, told) = made(&scene, scene.decoders.permit(POUR).await);
        // Nobody has taken anything, and the memory is free again.
        let permit = tokio::time::timeout(Duration::from_secs(20), scene.decoders.permit(POUR)).await;
        drop(permit.expect("memory"));
        assert_eq!(word(told, Duration::from_secs(20)).await.0, Ok(None));
        assert_eq!(scene.overflow.used.load(Ordering::Relaxed), 16 * LEN as u64);
        assert!(all(pieces).await);
        assert_eq!(scene.overflow.used.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_client_is_waited_for_where_nobody_else_waits_or_there_is_no_room() {
        for (scene, crowded) in [(scene(1 << 20), false), (scene(3 * LEN as u64), true), (scene(0), true)] {
            let permit = match crowded {
                true => scene.decoders.permit(POUR).await,
                false => scene.decoders.permit(0).await,
            };
            let (pieces, told) = made(&scene, permit);
            let (early, told) = word(told, Duration::from_millis(500)).await;
            assert_eq!(early, Err(RecvTimeoutError::Timeout));
            assert!(all(pieces).await);
            assert_eq!(word(told, Duration::from_secs(20)).await.0, Ok(None));
        }
    }

    #[tokio::test]
    async fn a_maker_ends_when_its_client_is_gone() {
        for limit in [0, 5 * LEN as u64] {
            let scene = scene(limit);
            let (pieces, told) = made(&scene, scene.decoders.permit(POUR).await);
            {
                let mut pieces = pin!(pieces);
                assert!(pieces.next().await.is_some_and(|p| p.is_ok()));
            }
            let said = word(told, Duration::from_secs(20)).await.0;
            assert_eq!(said, Ok(Some("the client went away".to_owned())));
            let freed = tokio::time::timeout(Duration::from_secs(20), scene.decoders.permit(POUR)).await;
            drop(freed.expect("memory"));
            let until = Instant::now() + Duration::from_secs(20);
            while scene.overflow.used.load(Ordering::Relaxed) > 0 {
                assert!(Instant::now() < until, "the room stays taken");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
