//! Methods of a repository about its versions' history: filters of the log, notes, blame.

use crate::{
    errors::{Outcome, free},
    repo::Repo,
};
use mdl_repo::{Amounts, BlameQuery, Expression, NoteValue, RepoError, Selection, Silent};
use pyo3::prelude::*;
use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

/// Which versions a log shows.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct LogFilter {
    since: Option<String>,
    until: Option<String>,
    author: Option<String>,
    grep: Option<String>,
    metric: Option<String>,
    touching: Vec<String>,
}

impl LogFilter {
    pub(crate) fn read(&self) -> Outcome<mdl_repo::LogFilter> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let time = |text: &Option<String>| text.as_deref().map(|t| mdl_repo::parse_time(t, now)).transpose();
        let expression = |text: &str| Expression::parse(text).map_err(mdl_repo::ExpressionError::into_usage);
        Ok(mdl_repo::LogFilter {
            since: time(&self.since)?,
            until: time(&self.until)?,
            author: self.author.clone(),
            grep: self.grep.clone(),
            metric: self.metric.as_deref().map(expression).transpose()?,
            touching: (!self.touching.is_empty()).then(|| Selection::new(&self.touching)).transpose()?,
        })
    }
}

/// The version, what happened, and by how much.
type Blamed = (String, &'static str, Option<f64>);

#[pymethods]
impl Repo {
    /// Notes metrics and texts on a version, and removes what is noted under some keys; whether anything changed.
    fn note(
        &self,
        py: Python<'_>,
        rev: &str,
        metrics: BTreeMap<String, f64>,
        meta: BTreeMap<String, String>,
        remove: Vec<String>,
    ) -> PyResult<bool> {
        free(py, || {
            let metrics = metrics.into_iter().map(|(key, v)| (key, Some(NoteValue::Metric(v))));
            let meta = meta.into_iter().map(|(key, text)| (key, Some(NoteValue::Text(text))));
            let gone = remove.into_iter().map(|key| (key, None));
            let mut values = BTreeMap::new();
            for (key, value) in gone.chain(metrics).chain(meta) {
                if values.insert(key.clone(), value).is_some() {
                    let hint = "a key is a metric, a text, or removed";
                    return Err(RepoError::usage(format!("the note {key:?} is given twice"), hint));
                }
            }
            mdl_repo::set_notes(&self.inner, &self.id(rev)?, &values, None)
        })
    }

    /// What is noted on a version: metrics, and texts.
    fn notes(&self, py: Python<'_>, rev: &str) -> PyResult<(BTreeMap<String, f64>, BTreeMap<String, String>)> {
        free(py, || {
            let (mut metrics, mut meta) = (BTreeMap::new(), BTreeMap::new());
            let id = self.id(rev)?;
            for (key, _, value) in mdl_repo::notes(&self.inner)?.on(&id) {
                match value {
                    NoteValue::Metric(v) => drop(metrics.insert(key.to_owned(), *v)),
                    NoteValue::Text(text) => drop(meta.insert(key.to_owned(), text.clone())),
                }
            }
            Ok((metrics, meta))
        })
    }

    /// The versions in which each tensor changed, oldest first, by path and name.
    #[pyo3(signature = (rev, only, by, row, limit))]
    fn blame(
        &self,
        py: Python<'_>,
        rev: &str,
        only: Vec<String>,
        by: &str,
        row: Option<u64>,
        limit: usize,
    ) -> PyResult<Vec<(String, String, Vec<Blamed>)>> {
        let amounts = match by {
            "none" => Ok(Amounts::None),
            "last" => Ok(Amounts::Last),
            "all" => Ok(Amounts::All),
            other => Err(RepoError::usage(format!("by={other:?} is not known"), "by is \"last\", \"all\" or \"none\"")),
        };
        free(py, || {
            let query = BlameQuery { selection: Selection::new(&only)?, amounts: amounts?, row, versions: limit };
            let found = mdl_repo::blame(&self.inner, &self.id(rev)?, &query, &Silent)?;
            let version = |at: usize| found.versions.get(at).map(|v| v.id.to_hex()).unwrap_or_default();
            let tensors = found.tensors.iter().map(|t| {
                let changes = t.changes.iter().map(|c| (version(c.version), c.change.name(), c.rel_l2));
                (t.path.clone(), t.name.clone(), changes.collect())
            });
            Ok(tensors.collect())
        })
    }
}
