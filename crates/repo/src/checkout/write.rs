//! Writes and removes files durably, so that what a checkout reports is on the disk: data first, then names, then
//! directories. Files are written in batches under temporary names, each synced on a thread of its own while the next
//! is decoded.

use crate::{
    checkout::{
        CheckedOut, Expected, Job,
        disk::{make_dirs, remove_empty},
        link::{Links, set_read_only},
        object_of,
        replace::{Outcome, is_same, place, take_away},
    },
    repo::Repo,
};
use mdl_store::{Progress, RepoError, Result, read::restore::Temporary};
use std::{
    collections::BTreeSet,
    fs::File,
    io,
    path::{Path, PathBuf},
    thread,
};

/// Files that are synced at once, and bytes that may lie on the disk twice.
const BATCH_FILES: usize = 32;
const BATCH_BYTES: u64 = 256 << 20;
/// Failures to open a directory after which its names need no sync, or can have none.
const PASSED_OVER: [io::ErrorKind; 4] = [
    io::ErrorKind::NotFound,
    io::ErrorKind::NotADirectory,
    io::ErrorKind::InvalidInput,
    io::ErrorKind::PermissionDenied,
];

/// Directories whose entries changed.
#[derive(Debug, Default)]
pub(super) struct Touched(BTreeSet<PathBuf>);

impl Touched {
    /// The file at `path` came or went; what is between it and `root` may be new, and so may `root`.
    pub fn add(&mut self, path: &Path, root: &Path) {
        for dir in path.ancestors().skip(1) {
            if !self.0.insert(dir.to_owned()) || !dir.starts_with(root) {
                break;
            }
        }
    }

    /// Makes the names durable.
    pub fn sync(&self) -> Result<()> {
        for dir in &self.0 {
            let done = File::open(dir).and_then(|d| d.sync_all());
            match done.map_err(|e| (e.kind(), e)) {
                // It was removed with its last file, and perhaps a file has its name, or that of one above; some file
                // systems sync no directories, or let only their owners open them.
                Err((kind, _)) if PASSED_OVER.contains(&kind) => {}
                done => done.map_err(|(_, e)| RepoError::io(format!("cannot sync {}", dir.display()))(e))?,
            }
        }
        Ok(())
    }
}

/// Whether a file is what was expected of it: by its state where that tells, else by its bytes.
fn still(repo: &Repo, path: &Path, rel: &str, expected: &Expected) -> Result<bool> {
    match expected {
        Expected::Held(seen) if seen.told => is_same(path, seen),
        Expected::Held(seen) => {
            Ok(is_same(path, seen)? && object_of(repo, path, rel)?.is_some_and(|now| now.file == seen.file))
        }
        Expected::Anything => Ok(true),
        Expected::Absent => Ok(false),
    }
}

/// Removes files, and the directories that this leaves empty.
pub(super) fn remove_all(
    repo: &Repo,
    gone: &[(&str, PathBuf, Expected)],
    root: &Path,
    touched: &mut Touched,
    done: &mut CheckedOut,
) -> Result<()> {
    for (rel, path, expected) in gone {
        touched.add(path, root);
        let outcome = take_away(path, expected, &|at| still(repo, at, rel, expected))?;
        kept(rel, outcome)?;
        remove_empty(path, root);
        done.removed += 1;
    }
    Ok(())
}

pub(super) fn write_files(
    repo: &Repo,
    jobs: &[Job<'_>],
    root: &Path,
    links: Option<&Links<'_>>,
    touched: &mut Touched,
    done: &mut CheckedOut,
    progress: &dyn Progress,
) -> Result<()> {
    repo.odb().prefetch_files(jobs.iter().map(|j| j.entry))?;
    progress.begin("checking out", jobs.iter().map(|j| j.entry.size).fold(0, u64::saturating_add));
    for batch in batches(jobs) {
        let written = write_batch(repo, batch, root, links, progress)?;
        for (job, (new, shared)) in batch.iter().zip(written) {
            touched.add(&job.path, root);
            let outcome = place(new, &job.path, &job.expected, &|at| still(repo, at, job.rel, &job.expected))?;
            kept(job.rel, outcome)?;
            done.written += 1;
            done.bytes = done.bytes.saturating_add(job.entry.size);
            done.shared += u64::from(shared);
            links.inspect(|links| links.note(job.entry, &job.path));
        }
    }
    progress.end();
    Ok(())
}

/// Files under temporary names, whole and synced, and whether each shares its blocks with an earlier checkout's.
fn write_batch(
    repo: &Repo,
    jobs: &[Job<'_>],
    root: &Path,
    links: Option<&Links<'_>>,
    progress: &dyn Progress,
) -> Result<Vec<(Temporary, bool)>> {
    thread::scope(|scope| {
        let mut written = Vec::with_capacity(jobs.len());
        for job in jobs {
            if let Some(dir) = job.path.parent() {
                make_dirs(dir, root)?;
            }
            let shared = links.map_or(Ok(None), |links| links.reuse(job.entry, &job.path))?;
            let is_shared = shared.is_some();
            let (new, file) = match shared {
                Some(shared) => {
                    progress.advance(job.entry.size);
                    shared
                }
                None => repo.odb().restore_beside(job.entry, &job.path, progress)?,
            };
            if links.is_some() && !is_shared {
                set_read_only(&file, job.entry).map_err(RepoError::io(format!("cannot write {}", new.0.display())))?;
            }
            written.push((new, is_shared, scope.spawn(move || file.sync_all())));
        }
        type Writing<'s> = (Temporary, bool, thread::ScopedJoinHandle<'s, io::Result<()>>);
        let synced = |(new, is_shared, syncing): Writing<'_>| {
            let ended = syncing.join().unwrap_or_else(|_| Err(io::Error::other("the thread that syncs ended early")));
            ended.map_err(RepoError::io(format!("cannot sync {}", new.0.display())))?;
            Ok((new, is_shared))
        };
        written.into_iter().map(synced).collect()
    })
}

/// The files in the order and the groups in which they are written.
pub(super) fn batches<'a, 'j>(mut rest: &'j [Job<'a>]) -> impl Iterator<Item = &'j [Job<'a>]> {
    std::iter::from_fn(move || {
        let (batch, later) = rest.split_at_checked(batch_len(rest))?;
        rest = later;
        Some(batch)
    })
}

fn batch_len(jobs: &[Job<'_>]) -> usize {
    let mut bytes = 0u64;
    let fits = |job: &&Job<'_>| {
        bytes = bytes.saturating_add(job.entry.size);
        bytes <= BATCH_BYTES
    };
    jobs.iter().take(BATCH_FILES).take_while(fits).count().max(1)
}

fn kept(rel: &str, outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Kept(aside) => Err(RepoError::FileKept { file: rel.to_owned(), aside }),
    }
}
