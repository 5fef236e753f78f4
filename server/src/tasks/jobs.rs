//! Background maintenance jobs: compact, gc, fsck. Their results are kept in memory until the server stops.
//!
//! A repository has one job at a time, a client a few; of those that wait, the one whose client has fewest running
//! comes next.

use crate::{
    app::{App, work},
    auth::Access,
    problem::{Problem, ProblemDocument, Result},
    process::state::{now_ms, random_hex},
    registry::RepoKey,
    tasks::fair::{Limits, Party, Pool},
};
use http::{HeaderValue, StatusCode, header};
use mdl_repo::{CompactOptions, GcOptions, Progress, Repo, RepoError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::Notify;
use utoipa::ToSchema;

/// Most jobs that run at a time, in all and per client.
const RUNNING: u32 = 3;
const RUNNING_PER_CLIENT: u32 = 2;
/// Most jobs that wait or run, in all and per client, and most jobs that are remembered.
const UNDER_WAY: usize = 32;
const UNDER_WAY_PER_CLIENT: usize = 8;
const REMEMBERED: usize = 256;
/// Most problems listed by a check, and locations of each; the counts are complete.
const PROBLEMS: usize = 200;
const PLACES: usize = 50;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Short delta chains, few packs.
    Compact,
    /// What nothing reaches is deleted.
    Gc,
    /// Everything stored is read and checked.
    Fsck,
}

/// What is to be done, and how.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// What.
    pub kind: JobKind,
    /// compact, gc: only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// gc: neither the reflog nor the hours of grace keep anything.
    #[serde(default)]
    pub prune_now: bool,
    /// fsck: only check stored bytes by their checksums.
    #[serde(default)]
    pub quick: bool,
}

/// How far a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It waits for others.
    Queued,
    /// It is at work.
    Running,
    /// It did what it was to do.
    Done,
    /// It could not.
    Failed,
    /// It was stopped.
    Cancelled,
}

/// The part of a job that is being done.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct JobPart {
    /// In words.
    pub what: String,
    /// Units (mostly bytes) that are done.
    pub done: u64,
    /// Units there are; 0: unknown.
    pub total: u64,
}

/// A job as it is shown.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct JobInfo {
    /// Its name.
    pub id: String,
    /// What it does.
    pub kind: JobKind,
    /// How far it is.
    pub state: JobState,
    /// The part that is being done, or was last.
    pub progress: JobPart,
    /// What it came to, as `mdl compact`, `mdl gc` and `mdl fsck` say it with `--json`. A check that found damage has
    /// `ok: false`.
    pub result: Option<Value>,
    /// Why it failed.
    pub error: Option<ProblemDocument>,
    /// Who asked for it.
    pub by: String,
    /// When: milliseconds since 1970.
    pub created_ms: i64,
    /// When it began.
    pub started_ms: Option<i64>,
    /// When it ended.
    pub ended_ms: Option<i64>,
}

/// A job.
#[derive(Debug)]
pub struct Job {
    pub id: String,
    repo: RepoKey,
    party: Party,
    pub new: NewJob,
    cancelled: AtomicBool,
    /// Notified when it is cancelled: it then leaves the queue.
    bell: Notify,
    info: Mutex<JobInfo>,
}

/// The jobs that the server remembers.
#[derive(Debug)]
pub struct Jobs {
    all: Mutex<VecDeque<Arc<Job>>>,
    running: Pool,
}

impl Job {
    fn is_over(&self) -> bool {
        !matches!(self.info.lock().state, JobState::Queued | JobState::Running)
    }

    /// Cancels it; a queued one ends at once. False: it had ended.
    pub fn cancel(&self) -> bool {
        self.cancelled.store(true, Ordering::Relaxed);
        self.bell.notify_one();
        let mut info = self.info.lock();
        if info.state == JobState::Queued {
            (info.state, info.ended_ms) = (JobState::Cancelled, Some(now_ms()));
            return true;
        }
        info.state == JobState::Running
    }

    /// As it is now.
    pub fn info(&self) -> JobInfo {
        self.info.lock().clone()
    }

    fn begin(&self) -> bool {
        let mut info = self.info.lock();
        let is_queued = info.state == JobState::Queued;
        if is_queued {
            (info.state, info.started_ms) = (JobState::Running, Some(now_ms()));
        }
        is_queued
    }

    fn end(&self, outcome: Result<std::result::Result<Value, RepoError>>) {
        let (state, result, error) = match outcome {
            Ok(Ok(result)) => (JobState::Done, Some(result), None),
            Ok(Err(RepoError::Stopped { .. })) => (JobState::Cancelled, None, None),
            Ok(Err(error)) => (JobState::Failed, None, Some(Problem::from(error).document())),
            Err(problem) => (JobState::Failed, None, Some(problem.document())),
        };
        let mut info = self.info.lock();
        (info.state, info.result, info.error, info.ended_ms) = (state, result, error, Some(now_ms()));
    }
}

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs {
            all: Mutex::default(),
            running: Pool::new(Limits {
                all: RUNNING,
                per_client: RUNNING_PER_CLIENT,
                per_repo: 1,
                shares: RUNNING as usize,
                // `add` bounds them.
                waiting: usize::MAX,
                waiting_per_client: usize::MAX,
            }),
        }
    }
}

impl Jobs {
    /// The jobs of a repository, the newest first.
    pub fn for_repo(&self, repo: &RepoKey) -> Vec<Arc<Job>> {
        let all = self.all.lock();
        all.iter().rev().filter(|j| j.repo == *repo).cloned().collect()
    }

    /// A job of a repository.
    pub fn find(&self, repo: &RepoKey, id: &str) -> Result<Arc<Job>> {
        let found = self.all.lock().iter().find(|j| j.id == id && j.repo == *repo).cloned();
        found.ok_or_else(|| Problem::not_found("job", id.chars().take(64).collect::<String>()))
    }

    /// Adds a job, if the repository has none under way and not too many others wait.
    fn add(&self, access: &Access, new: NewJob) -> Result<Arc<Job>> {
        let (repo, party) = (access.key()?, access.party());
        let id = random_hex(8)?;
        let mut all = self.all.lock();
        let under_way: Vec<&Arc<Job>> = all.iter().filter(|j| !j.is_over()).collect();
        if let Some(other) = under_way.iter().find(|j| j.repo == repo) {
            return Err(Problem::conflict(format!("job {} is under way in {repo}", other.id))
                .hint("wait until it is over, or cancel it with DELETE"));
        }
        let own = under_way.iter().filter(|j| j.party.client() == party.client());
        if own.count() >= UNDER_WAY_PER_CLIENT {
            let message = format!("{UNDER_WAY_PER_CLIENT} jobs of this client are under way");
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate", message)
                .header(header::RETRY_AFTER, HeaderValue::from_static("30")));
        }
        if under_way.len() >= UNDER_WAY {
            return Err(Problem::busy("too many jobs are under way", 30));
        }
        if all.len() >= REMEMBERED {
            let oldest = all.iter().position(|j| j.is_over());
            drop(oldest.and_then(|at| all.remove(at)));
        }
        let info = Mutex::new(JobInfo {
            id: id.clone(),
            kind: new.kind,
            state: JobState::Queued,
            progress: JobPart::default(),
            result: None,
            error: None,
            by: access.caller.name().to_owned(),
            created_ms: now_ms(),
            started_ms: None,
            ended_ms: None,
        });
        let job = Arc::new(Job { id, repo, party, new, cancelled: AtomicBool::default(), bell: Notify::new(), info });
        all.push_back(job.clone());
        Ok(job)
    }
}

/// Counts a job as long as it is under way, whatever becomes of it.
struct Counted(App);

impl Counted {
    fn new(app: &App) -> Counted {
        app.metrics().jobs.inc();
        Counted(app.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics().jobs.dec();
    }
}

impl Access {
    /// Starts a job. 409: the repository has one under way. 429: the client has too many, 503: all have, or the server
    /// is to stop.
    pub fn start_job(&self, new: NewJob) -> Result<Arc<Job>> {
        if self.app.is_stopping() {
            return Err(Problem::busy("the server is stopping", 30));
        }
        let job = self.app.jobs().add(self, new)?;
        let (app, repo, started) = (self.app.clone(), self.repo.clone(), job.clone());
        let counted = Counted::new(&app);
        tokio::spawn(async move {
            let _counted = counted;
            run_when_free(&app, &started, repo).await;
        });
        Ok(job)
    }
}

async fn run_when_free(app: &App, job: &Arc<Job>, repo: Arc<Repo>) {
    let share = tokio::select! {
        share = app.jobs().running.take(&job.party, 1) => share,
        () = job.bell.notified() => return,
        () = app.stopped() => {
            job.cancel();
            return;
        }
    };
    let Some(_share) = share.ok().filter(|_| job.begin()) else {
        return;
    };
    let progress = Watch { app: app.clone(), job: job.clone() };
    job.end(work(move || Ok(run(&repo, &progress))).await);
}

struct Watch {
    app: App,
    job: Arc<Job>,
}

impl Progress for Watch {
    fn begin(&self, what: &str, total: u64) {
        self.job.info.lock().progress = JobPart { what: what.to_owned(), done: 0, total };
    }

    fn advance(&self, n: u64) {
        self.job.info.lock().progress.done += n;
    }

    fn end(&self) {}

    fn stopped(&self) -> bool {
        self.job.cancelled.load(Ordering::Relaxed) || self.app.is_stopping()
    }
}

fn run(repo: &Repo, progress: &Watch) -> std::result::Result<Value, RepoError> {
    let new = progress.job.new;
    let dry_run = new.dry_run;
    if progress.stopped() {
        return Err(RepoError::Stopped { what: "the job" });
    }
    match new.kind {
        JobKind::Compact => Ok(json!(mdl_repo::compact(repo, &CompactOptions { dry_run }, progress)?)),
        JobKind::Gc => {
            let options = GcOptions { dry_run, prune_now: new.prune_now, grace: None };
            Ok(json!(mdl_repo::gc(repo, &options, progress)?))
        }
        JobKind::Fsck => {
            let mut r = mdl_repo::fsck(repo, new.quick, progress)?;
            let found = r.problems.len();
            r.problems.truncate(PROBLEMS);
            r.problems.iter_mut().for_each(|p| p.affected.truncate(PLACES));
            Ok(json!({
                "ok": found == 0,
                "quick": new.quick,
                "packs": r.packs,
                "objects": r.objects,
                "stored_bytes": r.bytes,
                "problems_found": found,
                "problems": r.problems,
            }))
        }
    }
}
