//! Computes and caches what takes long for pages: each once for all requests, the last few kept, a few per client at
//! once.
//!
//! Each takes a share of the decoding memory, and is cancelled when its page is no longer requested.

use crate::{
    content::{Reader, STREAM_UNITS},
    pages::prelude::*,
};
use mdl_repo::Progress;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Most cached results, and tensors in all of them together.
const REMEMBERED: usize = 16;
const MAX_TENSORS: usize = 400_000;
/// Most running computations, in all and per client.
const UNDER_WAY: usize = 32;
const UNDER_WAY_PER_CLIENT: usize = 2;
/// How long one goes on without requests for it.
const KEPT: Duration = Duration::from_secs(60);
/// Poll interval for whether it is still requested.
const LOOK: Duration = Duration::from_secs(5);
/// How long a request waits for one.
const WAIT_LIMIT: Duration = Duration::from_millis(2500);

/// What is computed; equal ones have equal results.
pub trait Job: Clone + Debug + PartialEq + Send + 'static {
    type Output: Debug + Send + Sync + 'static;

    fn run(&self, repo: &Repo, progress: &dyn Progress) -> Result<Self::Output>;

    /// How many tensors a result tells of.
    fn tensors(found: &Self::Output) -> usize;
}

#[derive(Debug)]
pub enum Standing<F> {
    Done(Arc<F>),
    /// Share that is done, 0 to 1.
    UnderWay(f64),
    /// Others come first.
    Waiting,
}

type Outcome<F> = watch::Receiver<Option<Result<Arc<F>>>>;

#[derive(Debug)]
struct Flight<J: Job> {
    repo: RepoName,
    job: J,
    /// The client that asked first.
    client: Arc<str>,
    outcome: Outcome<J::Output>,
    meter: Arc<Meter>,
}

impl<J: Job> Flight<J> {
    fn tensors(&self) -> usize {
        match &*self.outcome.borrow() {
            Some(Ok(found)) => J::tensors(found),
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

/// Bytes that are done, of how many.
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

/// Recent and running computations of a kind; a handle.
#[derive(Debug)]
pub struct Computations<J: Job>(Arc<Mutex<VecDeque<Flight<J>>>>);

impl<J: Job> Default for Computations<J> {
    fn default() -> Self {
        Computations(Arc::default())
    }
}

impl<J: Job> Clone for Computations<J> {
    fn clone(&self) -> Self {
        Computations(self.0.clone())
    }
}

impl<J: Job> Computations<J> {
    /// Returns the result, or its progress; the first request starts it.
    pub async fn ask(&self, access: &Access, job: J) -> Result<Standing<J::Output>> {
        let Some((mut outcome, meter)) = self.join(access, job) else {
            return Ok(Standing::Waiting);
        };
        let died = || Problem::internal("a computation ended without an outcome");
        let waited = tokio::time::timeout(WAIT_LIMIT, outcome.wait_for(Option::is_some)).await;
        let found = match waited {
            Err(_) => return Ok(Standing::UnderWay(meter.share())),
            Ok(Err(_)) => return Err(died()),
            Ok(Ok(found)) => found.clone(),
        };
        match found {
            Some(Ok(found)) => Ok(Standing::Done(found)),
            // Headers are for one request.
            Some(Err(problem)) => Err(Problem { code: None, moved: None, headers: Vec::new(), ..problem }),
            None => Err(died()),
        }
    }

    /// Joins a computation, or begins it; none: too many are under way.
    fn join(&self, access: &Access, job: J) -> Option<(Outcome<J::Output>, Arc<Meter>)> {
        let reader = access.reader();
        let mut flights = self.0.lock();
        flights.retain(Flight::is_good);
        if let Some(at) = flights.iter().position(|f| f.repo == access.name && f.job == job)
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
        let client = reader.party.client().clone();
        let outcome = begin(job.clone(), reader, meter.clone());
        let flight = Flight { repo: access.name.clone(), job, client, outcome: outcome.clone(), meter: meter.clone() };
        flights.push_back(flight);
        make_room(&mut flights);
        Some((outcome, meter))
    }
}

/// Drops the least recently used results.
fn make_room<J: Job>(flights: &mut VecDeque<Flight<J>>) {
    let too_much =
        |f: &VecDeque<Flight<J>>| f.len() > REMEMBERED || f.iter().map(Flight::tensors).sum::<usize>() > MAX_TENSORS;
    while too_much(flights) {
        let Some(oldest) = flights.iter().position(|f| !f.is_under_way()) else {
            return;
        };
        flights.remove(oldest);
    }
}

fn begin<J: Job>(job: J, reader: Reader, meter: Arc<Meter>) -> Outcome<J::Output> {
    let (tell, outcome) = watch::channel(None);
    tokio::spawn(async move {
        let permit = tokio::select! {
            permit = meter.app.content().decoders.permit(&reader.party, STREAM_UNITS) => permit,
            () = meter.forgotten() => Err(Problem::busy("it was given up", 1)),
        };
        let made = match permit {
            Ok(permit) => {
                work(move || {
                    let _permit = permit;
                    job.run(&reader.repo, &*meter)
                })
                .await
            }
            Err(problem) => Err(problem),
        };
        tell.send_replace(Some(made.map(Arc::new)));
    });
    outcome
}

/// Seconds until the page of what is unfinished reloads.
pub const AGAIN: u32 = 2;

/// In place of a result that is not there yet; `doing` says what takes the time.
pub fn unfinished(title: &str, doing: &str, share: Option<f64>) -> Markup {
    html! {
        section.wait aria-labelledby="wait" {
            h2 #wait { (title) "\u{2026}" }
            @match share {
                Some(share) => {
                    p { progress max="1" value=(format!("{share:.3}")) aria-label="Done" {} " " (format!("{:.0}%", share * 100.0)) }
                    p.muted { (doing) " This page comes again by itself." }
                }
                None => p.muted { "Others come first. This page comes again by itself." },
            }
        }
    }
}
