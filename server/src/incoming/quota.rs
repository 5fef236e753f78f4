//! Quota of incoming bytes per repository and per token: announced bytes count like received ones.

use crate::{
    problem::{Problem, Result},
    registry::RepoKey,
};
use http::StatusCode;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// Most incoming files of a repository, or of a token.
const MAX_FILES: u64 = 200_000;
/// All callers without a token together.
pub const NO_TOKEN: &str = "-";

/// Whom incoming bytes are counted to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The repository they are for.
    pub repo: RepoKey,
    /// Id of the token that sends them.
    pub token: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Account {
    Repo(RepoKey),
    Token(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    bytes: u64,
    files: u64,
}

/// Bytes held, and limits per repository and token.
#[derive(Clone, Debug)]
pub struct Quota {
    per_repo: u64,
    per_token: u64,
    used: Arc<Mutex<HashMap<Account, Used>>>,
}

/// Bytes of one file that are counted until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    quota: Quota,
    holder: Holder,
    pub(super) bytes: u64,
}

impl Holder {
    fn accounts(&self) -> [Account; 2] {
        [Account::Repo(self.repo.clone()), Account::Token(self.token.clone())]
    }
}

impl Quota {
    /// Nothing is held yet.
    pub fn new(per_repo: u64, per_token: u64) -> Quota {
        Quota { per_repo, per_token, used: Arc::default() }
    }

    /// Reserves quota for a file before any of its bytes is written. 507: the repository or the token has too many.
    pub fn reserve(&self, holder: &Holder, bytes: u64) -> Result<Reservation> {
        self.add(holder, Used { bytes, files: 1 })?;
        Ok(Reservation { quota: self.clone(), holder: holder.clone(), bytes })
    }

    /// Counts an existing file, whatever the limits are.
    pub fn count(&self, holder: Holder, bytes: u64) -> Reservation {
        note(&mut self.used.lock(), &holder, Used { bytes, files: 1 });
        Reservation { quota: self.clone(), holder, bytes }
    }

    fn add(&self, holder: &Holder, more: Used) -> Result<()> {
        let mut all = self.used.lock();
        for account in holder.accounts() {
            let used = all.get(&account).copied().unwrap_or_default();
            let (max, what) = match account {
                Account::Repo(_) => (self.per_repo, "the repository"),
                Account::Token(_) => (self.per_token, "who sends this"),
            };
            let bytes = used.bytes.checked_add(more.bytes).filter(|sum| *sum <= max);
            if bytes.is_none() || used.files + more.files > MAX_FILES {
                return Err(over(what, used, max));
            }
        }
        note(&mut all, holder, more);
        Ok(())
    }

    fn release(&self, holder: &Holder, less: Used) {
        let mut all = self.used.lock();
        for account in holder.accounts() {
            if let Some(used) = all.get_mut(&account) {
                used.bytes = used.bytes.saturating_sub(less.bytes);
                used.files = used.files.saturating_sub(less.files);
                if *used == Used::default() {
                    all.remove(&account);
                }
            }
        }
    }
}

fn note(all: &mut HashMap<Account, Used>, holder: &Holder, more: Used) {
    for account in holder.accounts() {
        let used = all.entry(account).or_default();
        *used = Used { bytes: used.bytes.saturating_add(more.bytes), files: used.files + more.files };
    }
}

fn over(what: &str, used: Used, max: u64) -> Problem {
    let message = format!(
        "{what} has {} bytes in {} files on their way in, and may have {max} bytes in {MAX_FILES} files",
        used.bytes, used.files
    );
    Problem::new(StatusCode::INSUFFICIENT_STORAGE, "quota", message)
        .hint("commit what has arrived, DELETE uploads that are not needed, or wait until what is not used is dropped")
}

impl Reservation {
    /// Counts more bytes before they are written.
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        self.quota.add(&self.holder, Used { bytes, files: 0 })?;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back what turned out not to be needed.
    pub fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.quota.release(&self.holder, Used { bytes: less, files: 0 });
        self.bytes -= less;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.quota.release(&self.holder, Used { bytes: self.bytes, files: 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_repo::Identity;

    fn holder(repo: &str, token: &str) -> Holder {
        Holder {
            repo: RepoKey { name: repo.parse().expect("a name"), identity: Identity::derived_from(repo.as_bytes()) },
            token: token.to_owned(),
        }
    }

    #[test]
    fn what_is_promised_counts_until_it_is_given_back() {
        let quota = Quota::new(100, 150);
        let (a, b) = (holder("ada/a", "t"), holder("ada/b", "t"));
        let mut first = quota.reserve(&a, 60).expect("room");
        assert_eq!(quota.reserve(&a, 41).expect_err("the repository's").status, 507);
        let second = quota.reserve(&b, 90).expect("room");
        assert_eq!(first.grow(1).expect_err("the token's").kind, "quota");
        assert_eq!(quota.reserve(&holder("ada/b", "u"), 11).expect_err("the repository's").status, 507);
        drop(second);
        first.grow(40).expect("room");
        first.shrink_to(10);
        let rest = quota.reserve(&a, 90).expect("room");
        assert!(quota.reserve(&a, u64::MAX).is_err());
        drop((first, rest));
        assert!(quota.used.lock().is_empty());
    }

    #[test]
    fn of_a_hundred_at_once_no_more_get_in_than_fit() {
        let (quota, a) = (Quota::new(50, u64::MAX), holder("ada/a", "t"));
        let got: Vec<_> = std::thread::scope(|s| {
            let all: Vec<_> = (0..100).map(|_| s.spawn(|| quota.reserve(&a, 1).ok())).collect();
            all.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        assert_eq!(got.iter().flatten().count(), 50);
        drop(got);
        assert!(quota.used.lock().is_empty());
    }

    #[test]
    fn what_was_there_before_counts_even_beyond_the_limit() {
        let (quota, a) = (Quota::new(50, 50), holder("ada/a", "t"));
        let old = quota.count(a.clone(), 80);
        assert!(quota.reserve(&a, 1).is_err());
        drop(old);
        quota.reserve(&a, 50).expect("room");
    }
}
