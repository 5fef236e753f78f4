//! Disk buffer for responses that are produced faster than their client reads them. A few pieces wait in memory; if the
//! client keeps the producer waiting, and others wait for the producer's memory, the rest goes to an unnamed temporary
//! file: the producer ends and gives its memory back. Where the disk has no room for that, a client below the minimum
//! rate is cut off while others wait.
//!
//! No client gets more than a share of the room on disk.

use crate::{
    app::work,
    content::decoders::Decoders,
    problem::{Problem, Result},
    tasks::fair::Party,
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use mdl_repo::RepoError;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::HashMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Longest piece, and pieces of one response that wait in memory.
const PIECE: usize = 256 << 10;
const AHEAD: usize = 8;
/// Poll interval: is the client still there, do others wait.
const LOOK: Duration = Duration::from_millis(100);
/// One client may have at most this fraction (1/CLIENTS) of the room.
const CLIENTS: u64 = 4;

/// How long a producer waits for its client.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimits {
    /// How long a client may keep its producer waiting, in all, before the rest goes to disk if others wait.
    pub wait: Duration,
    /// Minimum rate of a client, in bytes a second, if others wait and there is no room on disk.
    pub least_rate: u64,
    /// The time over which that is measured; only what the producer spends waiting counts.
    pub window: Duration,
}

#[derive(Debug)]
pub struct DiskBuffer {
    dir: PathBuf,
    limit: u64,
    used: Mutex<Used>,
    limits: WaitLimits,
    decoders: Decoders,
}

/// Bytes on disk, in all and by client.
#[derive(Debug, Default)]
struct Used {
    all: u64,
    by_client: HashMap<Arc<str>, u64>,
}

impl DiskBuffer {
    /// At most `limit` bytes in files of `dir`.
    pub fn new(dir: PathBuf, limit: u64, limits: WaitLimits, decoders: Decoders) -> Result<DiskBuffer> {
        crate::process::state::make(&dir)?;
        Ok(DiskBuffer { dir, limit, used: Mutex::default(), limits, decoders })
    }

    /// Reserves room for a client, if there is any.
    fn reserve(&self, client: &Arc<str>, bytes: u64) -> bool {
        let mut used = self.used.lock();
        let own = used.by_client.get(client).copied().unwrap_or(0);
        let fits = |now: u64, limit: u64| now.checked_add(bytes).is_some_and(|sum| sum <= limit);
        let has_room = fits(used.all, self.limit) && fits(own, self.limit / CLIENTS);
        if has_room {
            used.all += bytes;
            *used.by_client.entry(client.clone()).or_default() += bytes;
        }
        has_room
    }

    fn release(&self, client: &Arc<str>, bytes: u64) {
        let mut used = self.used.lock();
        used.all = used.all.saturating_sub(bytes);
        if let Some(own) = used.by_client.get_mut(client) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                used.by_client.remove(client);
            }
        }
    }
}

/// Takes bytes; an error means that the client is gone, or too slow.
pub type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> mdl_repo::Result<()>;

/// Streams what a blocking producer writes, in pieces. The producer ends when the client is gone.
pub fn body_from_producer<F>(
    disk_buffer: &Arc<DiskBuffer>,
    party: &Party,
    produce: F,
) -> impl Stream<Item = Result<Bytes>> + Send + 'static + use<F>
where
    F: FnOnce(Sink<'_>) -> Result<()> + Send + 'static,
{
    let (queue, pieces) = mpsc::unbounded_channel();
    let mut out = Producer {
        queue,
        slots: Arc::default(),
        waited: Duration::ZERO,
        pace: Pace::default(),
        file: None,
        party: party.clone(),
        disk_buffer: disk_buffer.clone(),
    };
    tokio::task::spawn_blocking(move || {
        let mut sink = |bytes: &[u8]| {
            let mut pieces = bytes.chunks(PIECE);
            pieces.try_for_each(|piece| out.send(Bytes::copy_from_slice(piece)))
        };
        if let Err(problem) = produce(&mut sink) {
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

/// Recent rate of a client, over the time that it kept its producer waiting.
#[derive(Default)]
struct Pace {
    waited: Duration,
    bytes: u64,
}

impl Pace {
    /// Returns whether the client was too slow over a whole window; then begins a new one.
    fn is_too_slow(&mut self, limits: &WaitLimits) -> bool {
        if self.waited < limits.window {
            return false;
        }
        let rate = self.bytes as f64 / self.waited.as_secs_f64().max(f64::MIN_POSITIVE);
        *self = Pace::default();
        rate < limits.least_rate as f64
    }
}

struct Producer {
    queue: mpsc::UnboundedSender<Result<Piece>>,
    slots: Arc<Slots>,
    /// How long the client has kept the producer waiting.
    waited: Duration,
    pace: Pace,
    file: Option<Arc<Spilled>>,
    party: Party,
    disk_buffer: Arc<DiskBuffer>,
}

impl Producer {
    fn send(&mut self, bytes: Bytes) -> mdl_repo::Result<()> {
        let gone = || RepoError::user("the client went away", "");
        self.pace.bytes += bytes.len() as u64;
        let piece = loop {
            if self.queue.is_closed() {
                return Err(gone());
            }
            let gives_way = self.waited >= self.disk_buffer.limits.wait && self.disk_buffer.decoders.0.is_contended();
            if gives_way {
                if let Some(slot) = self.slots.take(Duration::ZERO) {
                    break Piece::Here(bytes, slot);
                }
                if let Some(part) = self.put(&bytes) {
                    break Piece::Put(part);
                }
            }
            let begun = Instant::now();
            let slot = self.slots.take(LOOK);
            self.waited += begun.elapsed();
            self.pace.waited += begun.elapsed();
            if let Some(slot) = slot {
                break Piece::Here(bytes, slot);
            }
            let is_too_slow = gives_way && self.pace.is_too_slow(&self.disk_buffer.limits);
            if is_too_slow && self.disk_buffer.decoders.0.is_wanted_by_others(&self.party) {
                tracing::info!("a client that took its bytes too slowly is cut off: others wait");
                return Err(RepoError::user("the client is too slow, and others wait", ""));
            }
        };
        self.queue.send(Ok(piece)).map_err(|_| gone())
    }

    /// Writes a piece to disk; none: no room or an I/O error, and the producer has to wait for the client.
    fn put(&mut self, bytes: &Bytes) -> Option<Part> {
        let len = bytes.len() as u64;
        let client = self.party.client();
        if !self.disk_buffer.reserve(client, len) {
            return None;
        }
        let written = Spilled::write(&mut self.file, &self.disk_buffer, client, bytes);
        written
            .inspect_err(|error| {
                self.disk_buffer.release(client, len);
                tracing::warn!(%error, "cannot write what slow clients have not taken");
            })
            .ok()
    }
}

/// An unnamed temporary file, and the room that it takes.
struct Spilled {
    file: File,
    len: AtomicU64,
    client: Arc<str>,
    disk_buffer: Arc<DiskBuffer>,
}

impl Spilled {
    /// Appends bytes for which room is reserved, to a new file if there is none yet.
    fn write(
        spilled: &mut Option<Arc<Spilled>>,
        disk_buffer: &Arc<DiskBuffer>,
        client: &Arc<str>,
        bytes: &[u8],
    ) -> io::Result<Part> {
        let file = match spilled {
            Some(file) => file.clone(),
            None => {
                let file = tempfile::tempfile_in(&disk_buffer.dir)?;
                let (len, client, disk_buffer) = (AtomicU64::new(0), client.clone(), disk_buffer.clone());
                spilled.insert(Arc::new(Spilled { file, len, client, disk_buffer })).clone()
            }
        };
        let at = file.len.load(Ordering::Relaxed);
        file.file.write_all_at(bytes, at)?;
        file.len.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(Part { file, at, len: bytes.len() })
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        let len = self.len.load(Ordering::Relaxed);
        self.disk_buffer.release(&self.client, len);
    }
}

struct Part {
    file: Arc<Spilled>,
    at: u64,
    len: usize,
}

impl Part {
    async fn read(self) -> Result<Bytes> {
        let read = work(move || {
            let mut bytes = vec![0; self.len];
            self.file.file.read_exact_at(&mut bytes, self.at).map_err(Problem::internal)?;
            Ok(Bytes::from(bytes))
        });
        read.await
    }
}

/// Places for pieces in memory.
#[derive(Default)]
struct Slots {
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Slots {
    /// Waits this long for a place.
    fn take(self: &Arc<Slots>, wait: Duration) -> Option<Slot> {
        let mut taken = self.taken.lock();
        self.freed.wait_while_for(&mut taken, |n| *n >= AHEAD, wait);
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
        *self.0.taken.lock() -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::decoders::{Permit, STREAM_UNITS},
        *,
    };
    use futures_util::StreamExt;
    use std::{pin::pin, sync::mpsc::RecvTimeoutError};

    const PIECES: u8 = 20;
    const LEN: usize = 1000;
    /// Room of which a client's share is more than it needs.
    const ROOM: u64 = 1 << 20;

    struct Scene {
        disk_buffer: Arc<DiskBuffer>,
        decoders: Decoders,
        _dir: tempfile::TempDir,
    }

    fn scene(limit: u64, window: Duration) -> Scene {
        let dir = tempfile::tempdir().expect("a directory");
        let decoders = Decoders::new(0);
        let limits = WaitLimits { wait: Duration::from_millis(1), least_rate: u64::MAX, window };
        let disk_buffer = DiskBuffer::new(dir.path().join("o"), limit, limits, decoders.clone()).expect("room");
        Scene { disk_buffer: Arc::new(disk_buffer), decoders, _dir: dir }
    }

    const LONG: Duration = Duration::from_secs(3600);

    fn ada() -> Party {
        Party::new("ada", "a/x")
    }

    fn bob() -> Party {
        Party::new("bob", "b/y")
    }

    type Made = std::sync::mpsc::Receiver<Option<String>>;

    impl Scene {
        async fn all_memory(&self, party: &Party) -> Permit {
            let permit = tokio::time::timeout(Duration::from_secs(20), self.decoders.permit(party, STREAM_UNITS)).await;
            permit.expect("memory in time").map_err(|p| p.message).expect("memory")
        }

        fn wait_for_memory(&self, party: Party) -> tokio::task::JoinHandle<()> {
            let decoders = self.decoders.clone();
            tokio::spawn(async move { drop(decoders.permit(&party, STREAM_UNITS).await) })
        }

        fn used(&self) -> u64 {
            self.disk_buffer.used.lock().all
        }

        /// Pieces of 0, of 1, ..., and the producer's outcome.
        fn made(&self, permit: Permit) -> (impl Stream<Item = Result<Bytes>> + Send + 'static, Made) {
            let (tell, told) = std::sync::mpsc::channel();
            let pieces = body_from_producer(&self.disk_buffer, &ada(), move |send| {
                let _permit = permit;
                let done = (0..PIECES).try_for_each(|n| send(&[n; LEN]));
                let _ = tell.send(done.as_ref().err().map(ToString::to_string));
                Ok(done?)
            });
            (pieces, told)
        }
    }

    async fn word(told: Made, wait: Duration) -> (std::result::Result<Option<String>, RecvTimeoutError>, Made) {
        let waiting = tokio::task::spawn_blocking(move || (told.recv_timeout(wait), told));
        waiting.await.expect("a task")
    }

    async fn all(pieces: impl Stream<Item = Result<Bytes>>) -> bool {
        let got: Vec<_> = pieces.map(|p| p.map_err(|e| e.message).expect("a piece")).collect().await;
        got.len() == usize::from(PIECES) && got.iter().zip(0..).all(|(p, n)| **p == [n; LEN])
    }

    #[tokio::test]
    async fn a_maker_is_done_before_its_client_where_others_wait() {
        let scene = scene(ROOM, LONG);
        let (pieces, told) = scene.made(scene.all_memory(&ada()).await);
        // Nothing has been taken, and the memory is free again.
        drop(scene.all_memory(&bob()).await);
        assert_eq!(word(told, Duration::from_secs(20)).await.0, Ok(None));
        assert_eq!(scene.used(), (u64::from(PIECES) - AHEAD as u64) * LEN as u64);
        assert!(all(pieces).await);
        assert_eq!(scene.used(), 0);
        assert!(scene.disk_buffer.used.lock().by_client.is_empty());
    }

    #[tokio::test]
    async fn a_client_is_waited_for_where_no_other_waits_or_there_is_no_room() {
        for (limit, contended) in [(ROOM, false), (CLIENTS * 3 * LEN as u64, true), (0, true)] {
            let scene = scene(limit, LONG);
            let (pieces, told) = scene.made(scene.all_memory(&ada()).await);
            let other = contended.then(|| scene.wait_for_memory(bob()));
            let (early, told) = word(told, Duration::from_millis(500)).await;
            assert_eq!(early, Err(RecvTimeoutError::Timeout));
            assert!(scene.used() <= limit / CLIENTS, "a client has more than its share of the disk");
            assert!(all(pieces).await);
            assert_eq!(word(told, Duration::from_secs(20)).await.0, Ok(None));
            drop(other);
        }
    }

    #[tokio::test]
    async fn a_client_below_the_least_rate_is_cut_off_only_where_another_client_waits() {
        let scene = scene(0, Duration::from_millis(300));
        let (pieces, told) = scene.made(scene.all_memory(&ada()).await);
        let own = scene.wait_for_memory(ada());
        let (early, told) = word(told, Duration::from_secs(2)).await;
        assert_eq!(early, Err(RecvTimeoutError::Timeout), "it only keeps itself waiting");
        let other = scene.wait_for_memory(bob());
        let said = word(told, Duration::from_secs(20)).await.0;
        assert_eq!(said, Ok(Some("the client is too slow, and others wait".to_owned())));
        for waiting in [own, other] {
            let done = tokio::time::timeout(Duration::from_secs(20), waiting).await;
            assert!(done.is_ok_and(|d| d.is_ok()));
        }
        let got: Vec<_> = pieces.collect().await;
        assert!(got.last().is_some_and(Result::is_err), "a body that was cut must not look complete");
    }

    #[tokio::test]
    async fn a_maker_ends_when_its_client_is_gone() {
        for limit in [0, CLIENTS * 5 * LEN as u64] {
            let scene = scene(limit, LONG);
            let (pieces, told) = scene.made(scene.all_memory(&ada()).await);
            {
                let mut pieces = pin!(pieces);
                assert!(pieces.next().await.is_some_and(|p| p.is_ok()));
            }
            let said = word(told, Duration::from_secs(20)).await.0;
            assert_eq!(said, Ok(Some("the client went away".to_owned())));
            drop(scene.all_memory(&bob()).await);
            let until = Instant::now() + Duration::from_secs(20);
            while scene.used() > 0 {
                assert!(Instant::now() < until, "the room stays taken");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
