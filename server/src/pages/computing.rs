//! Computes and caches comparisons for pages: each once for all requests, the last few kept, a few per client at once.
//!
//! Each takes a share of the decoding memory, and is cancelled when its page is no longer requested.

use crate::{
    content::{Reader, STREAM_UNITS},
    pages::prelude::*,
};
use mdl_repo::{Change, FileDiff, Progress};
use parking_lot::Mutex;
use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Most cached comparisons, and tensors in all of them together.
const REMEMBERED: usize = 16;
const MAX_TENSORS: usize = 400_000;
/// Most running comparisons, in all and per client.
const UNDER_WAY: usize = 32;
const UNDER_WAY_PER_CLIENT: usize = 2;
/// How long a comparison goes on without requests for it.
const KEPT: Duration = Duration::from_secs(60);
/// Poll interval for whether it is still requested.
const LOOK: Duration = Duration::from_secs(5);
/// How long a request waits for one.
const WAIT_LIMIT: Duration = Duration::from_millis(2500);

#[derive(Debug)]
pub struct Comparison {
    pub files: Vec<FileDiff>,
    /// Tensors that are the same, of files that differ: path and name.
    pub same: Vec<(String, String)>,
}

#[derive(Debug)]
pub enum Standing {
    Done(Arc<Comparison>),
    /// Share that is done, 0 to 1.
    UnderWay(f64),
    /// Others come first.
    Waiting,
}

/// The repository, and the ids that what the versions give is known by.
type Key = (RepoName, Id, Id);

type Outcome = Result<Arc<Comparison>>;

#[derive(Debug)]
struct Flight {
    key: Key,
    /// The client that asked first.
    client: Arc<str>,
    outcome: watch::Receiver<Option<Outcome>>,
    meter: Arc<Meter>,
}

impl Flight {
    fn tensors(&self) -> usize {
        match &*self.outcome.borrow() {
            Some(Ok(c)) => c.same.len() + c.files.iter().map(|f| f.tensors.len()).sum::<usize>(),
            _ => 0,
        }
    }

    fn is_under_way(&self) -> bool {
        // A task that died leaves nothing to wait for.
        self.outcome.borrow().is_none() && self.outcome.has_changed().is_ok()
    }

    fn is_good(&self) -> bool {
        self.is_under_way() || matches!(&*self.outcome.borrow(), Some(Ok(_)))
    }
}

/// Bytes that were compared, of how many.
#[derive(Debug)]
struct Meter {
    done: AtomicU64,
    all: AtomicU64,
    asked: Mutex<Instant>,
    app: App,
}

impl Progress for Meter {
    fn begin(&self, _: &str, total: u64) {
        self.all.store(total, Ordering::Relaxed);
    }

    fn advance(&self, n: u64) {
        self.done.fetch_add(n, Ordering::Relaxed);
    }

    fn end(&self) {}

    fn stopped(&self) -> bool {
        self.app.is_stopping() || self.is_forgotten()
    }
}

impl Meter {
    fn is_forgotten(&self) -> bool {
        self.asked.lock().elapsed() > KEPT
    }

    /// Waits until it has not been requested for long.
    async fn forgotten(&self) {
        while !self.is_forgotten() {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn share(&self) -> f64 {
        let all = self.all.load(Ordering::Relaxed).max(1);
        (self.done.load(Ordering::Relaxed) as f64 / all as f64).clamp(0.0, 1.0)
    }
}

/// Recent and running comparisons; a handle.
#[derive(Clone, Debug, Default)]
pub struct Comparisons(Arc<Mutex<VecDeque<Flight>>>);

impl Comparisons {
    /// Returns the comparison of `b` to `a`, or its progress; the first request starts it.
    pub async fn ask(&self, access: &Access, a: &Version, b: &Version) -> Result<Standing> {
        let key = (access.name.clone(), a.cache_id(), b.cache_id());
        let Some((mut outcome, meter)) = self.join(key, (a.id, b.id), &access.reader()) else {
            return Ok(Standing::Waiting);
        };
        let waited = tokio::time::timeout(WAIT_LIMIT, outcome.wait_for(Option::is_some)).await;
        let found = match waited {
            Err(_) => return Ok(Standing::UnderWay(meter.share())),
            Ok(Err(_)) => return Err(Problem::internal("a comparison ended without an outcome")),
            Ok(Ok(found)) => found.clone(),
        };
        match found {
            Some(Ok(comparison)) => Ok(Standing::Done(comparison)),
            // Headers are for one request.
            Some(Err(problem)) => Err(Problem { code: None, moved: None, headers: Vec::new(), ..problem }),
            None => Err(Problem::internal("a comparison ended without an outcome")),
        }
    }

    /// Joins a comparison, or begins it; none: too many are under way.
    fn join(
        &self,
        key: Key,
        versions: (Id, Id),
        reader: &Reader,
    ) -> Option<(watch::Receiver<Option<Outcome>>, Arc<Meter>)> {
        let mut flights = self.0.lock();
        flights.retain(Flight::is_good);
        if let Some(at) = flights.iter().position(|f| f.key == key)
            && let Some(flight) = flights.remove(at)
        {
            *flight.meter.asked.lock() = Instant::now();
            let joined = (flight.outcome.clone(), flight.meter.clone());
            flights.push_back(flight);
            return Some(joined);
        }
        let under_way = || flights.iter().filter(|f| f.is_under_way());
        let own = under_way().filter(|f| f.client == *reader.party.client());
        if under_way().count() >= UNDER_WAY || own.count() >= UNDER_WAY_PER_CLIENT {
            return None;
        }
        let meter = Arc::new(Meter {
            done: AtomicU64::new(0),
            all: AtomicU64::new(0),
            asked: Mutex::new(Instant::now()),
            app: reader.app.clone(),
        });
        let outcome = begin(versions, reader.clone(), meter.clone());
        let client = reader.party.client().clone();
        flights.push_back(Flight { key, client, outcome: outcome.clone(), meter: meter.clone() });
        make_room(&mut flights);
        Some((outcome, meter))
    }
}

/// Drops the least recently used comparisons.
fn make_room(flights: &mut VecDeque<Flight>) {
    let too_much =
        |f: &VecDeque<Flight>| f.len() > REMEMBERED || f.iter().map(Flight::tensors).sum::<usize>() > MAX_TENSORS;
    while too_much(flights) {
        let Some(oldest) = flights.iter().position(|f| !f.is_under_way()) else {
            return;
        };
        flights.remove(oldest);
    }
}

fn begin((a, b): (Id, Id), reader: Reader, meter: Arc<Meter>) -> watch::Receiver<Option<Outcome>> {
    let (tell, outcome) = watch::channel(None);
    tokio::spawn(async move {
        let permit = tokio::select! {
            permit = meter.app.content().decoders.permit(&reader.party, STREAM_UNITS) => permit,
            () = meter.forgotten() => Err(Problem::busy("the comparison was given up", 1)),
        };
        let made = match permit {
            Ok(permit) => {
                work(move || {
                    let _permit = permit;
                    compare(&reader.repo, &a, &b, &*meter)
                })
                .await
            }
            Err(problem) => Err(problem),
        };
        tell.send_replace(Some(made.map(Arc::new)));
    });
    outcome
}

fn compare(repo: &Repo, a: &Id, b: &Id, progress: &dyn Progress) -> Result<Comparison> {
    let files = mdl_repo::diff(repo, a, b, progress)?;
    let after = mdl_repo::files(repo, b)?;
    let mut same = Vec::new();
    for file in files.iter().filter(|f| f.change == Change::Modified && f.same_tensors > 0) {
        let Some(entry) = after.get(&file.path).filter(|e| e.mode == Mode::Manifest) else {
            continue;
        };
        let differing: HashSet<&str> = file.tensors.iter().map(|t| t.name.as_str()).collect();
        let names = repo.odb().manifest(&entry.id)?.listed_names();
        let others = names.into_iter().filter(|n| !differing.contains(n.as_str()));
        same.extend(others.map(|n| (file.path.clone(), n)));
    }
    Ok(Comparison { files, same })
}
