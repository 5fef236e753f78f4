//! Filters of a log: by time, author, message, metrics and what a version touched.

use crate::{
    history::{
        Step,
        expression::Expression,
        touched::{Chooser, Chosen, Selection},
    },
    repo::Repo,
};
use mdl_objects::{Commit, Id};
use mdl_store::{RepoError, Result};

/// Which versions of a log are shown; all that is given must hold.
#[derive(Clone, Debug, Default)]
pub struct LogFilter {
    /// Committed at this time (milliseconds since 1970) or later.
    pub since: Option<i64>,
    /// Committed at this time or earlier.
    pub until: Option<i64>,
    /// The author's `name <address>` has this in it, in whatever case.
    pub author: Option<String>,
    /// The message has this in it, in whatever case.
    pub grep: Option<String>,
    /// The metrics are so, notes included.
    pub metric: Option<Expression>,
    /// It touched something of these: what the selection chooses differs from every parent, or is there without one.
    pub touching: Option<Selection>,
}

/// A metric of a version, by its name; `step` and `epoch` where no metric is named so.
pub fn metric_of(commit: &Commit, name: &str) -> Option<f64> {
    commit.metrics.get(name).copied().or_else(|| match name {
        "step" => commit.step.map(|s| s as f64),
        "epoch" => commit.epoch,
        _ => None,
    })
}

fn has(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}

impl LogFilter {
    /// Whether everything passes.
    pub fn is_empty(&self) -> bool {
        let LogFilter { since, until, author, grep, metric, touching } = self;
        since.is_none()
            && until.is_none()
            && author.is_none()
            && grep.is_none()
            && metric.is_none()
            && touching.is_none()
    }

    /// Whether a version passes, but for what it touched.
    pub fn says(&self, commit: &Commit) -> bool {
        let who = &commit.author;
        let person = || format!("{} <{}>", who.name, who.email);
        self.since.is_none_or(|t| who.time_ms >= t)
            && self.until.is_none_or(|t| who.time_ms <= t)
            && self.author.as_ref().is_none_or(|part| has(&person(), part))
            && self.grep.as_ref().is_none_or(|part| has(&commit.message, part))
            && self.metric.as_ref().is_none_or(|e| e.holds(&|name| metric_of(commit, name)))
    }

    /// Begins to filter versions of a repository.
    pub fn begin<'a>(&'a self, repo: &'a Repo) -> Result<Filtering<'a>> {
        let chooser = self.touching.as_ref().map(|s| Chooser::new(repo, s)).transpose()?;
        Ok(Filtering { repo, filter: self, chooser, known: Vec::new(), untold: 0 })
    }
}

/// A filter at work.
pub struct Filtering<'a> {
    repo: &'a Repo,
    filter: &'a LogFilter,
    chooser: Option<Chooser<'a>>,
    /// What was chosen of the last few versions: that of a parent is asked again when it is its turn.
    known: Vec<(Id, Option<Chosen>)>,
    untold: usize,
}

/// Versions whose choices are remembered.
const KNOWN: usize = 8;

impl Filtering<'_> {
    /// Whether a version passes; `commit` is the version as it is to be judged, its notes included.
    pub fn passes(&mut self, step: &Step) -> Result<bool> {
        if !self.filter.says(&step.commit) {
            return Ok(false);
        }
        if self.chooser.is_none() {
            return Ok(true);
        }
        let Some(own) = self.chosen(&step.id, Some(&step.commit))? else {
            self.untold += 1;
            return Ok(false);
        };
        for parent in &step.commit.parents {
            match self.chosen(parent, None)? {
                Some(before) if before == own => return Ok(false),
                Some(_) => {}
                None => {
                    self.untold += 1;
                    return Ok(false);
                }
            }
        }
        Ok(!step.commit.parents.is_empty() || !own.is_empty())
    }

    /// Versions of which it cannot be told whether they touched what was asked for, since contents are gone.
    pub fn untold(&self) -> usize {
        self.untold
    }

    fn chosen(&mut self, id: &Id, commit: Option<&Commit>) -> Result<Option<Chosen>> {
        if let Some((_, known)) = self.known.iter().find(|(k, _)| k == id) {
            return Ok(known.clone());
        }
        let read;
        let commit = match commit {
            Some(commit) => commit,
            None => {
                read = self.repo.odb().commit(id)?;
                &read
            }
        };
        let found = match &mut self.chooser {
            Some(chooser) => chooser.choose(id, commit)?,
            None => None,
        };
        if self.known.len() == KNOWN {
            self.known.remove(0);
        }
        self.known.push((*id, found.clone()));
        Ok(found)
    }
}

/// Milliseconds since 1970 of a time: RFC 3339, `2026-11-24`, `2026-11-24 10:00` (UTC where no zone is named), or an
/// age such as `2h`, `7d` or `3 weeks ago` before `now_ms`.
///
/// # Errors
/// `Usage`: it is none of these.
pub fn parse_time(text: &str, now_ms: i64) -> Result<i64> {
    let bad = || {
        RepoError::usage(
            format!("{text:?} is no time"),
            "a date (2026-11-24), a date and time (2026-11-24T10:00:00Z), or an age (90m, 2h, 7d, \"3 weeks ago\")",
        )
    };
    let trimmed = text.trim();
    if let Ok(time) = trimmed.parse::<jiff::Timestamp>() {
        return Ok(time.as_millisecond());
    }
    if let Ok(time) = trimmed.parse::<jiff::civil::DateTime>() {
        return time.to_zoned(jiff::tz::TimeZone::UTC).map(|t| t.timestamp().as_millisecond()).map_err(|_| bad());
    }
    let age = trimmed.trim_end_matches("ago").trim_end();
    let digits = age.find(|c: char| !c.is_ascii_digit()).unwrap_or(age.len());
    let n: i64 = age[..digits].parse().map_err(|_| bad())?;
    let seconds = match age[digits..].trim().trim_end_matches('s') {
        "" if age.ends_with('s') => 1,
        "sec" | "second" => 1,
        "m" | "min" | "minute" => 60,
        "h" | "hour" => 3600,
        "d" | "day" => 24 * 3600,
        "w" | "week" => 7 * 24 * 3600,
        "month" => 30 * 24 * 3600,
        "y" | "year" => 365 * 24 * 3600,
        _ => return Err(bad()),
    };
    n.checked_mul(seconds * 1000).and_then(|age| now_ms.checked_sub(age)).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let now = 1_800_000_000_000;
        let hour = 3_600_000;
        for (text, ms) in [
            ("2026-11-24", 1_795_478_400_000),
            ("2026-11-24T10:00:00Z", 1_795_514_400_000),
            ("2026-11-24 10:00", 1_795_514_400_000),
            ("2026-11-24T10:00:00+01:00", 1_795_510_800_000),
            ("2h", now - 2 * hour),
            ("90m", now - 90 * 60_000),
            ("30s", now - 30_000),
            ("3 weeks ago", now - 21 * 24 * hour),
            ("1 day ago", now - 24 * hour),
        ] {
            assert_eq!(parse_time(text, now).expect(text), ms, "{text}");
        }
        for text in ["", "soon", "2026-13-01", "7", "-1d", "99999999999999999d", "1 fortnight"] {
            parse_time(text, now).expect_err(text);
        }
    }
}
