//! Storage of a commit's new tensors: by encoding scheme and one by one.

use crate::pages::prelude::*;
use mdl_objects::Kind;
use mdl_repo::{Report, TensorReport};
use std::{cmp::Reverse, collections::BTreeMap};

/// Tensors a page.
const PAGE: usize = 100;
/// Stored bytes of a report that is read.
const MAX_REPORT: u64 = 64 << 20;

/// A page of a commit's report.
#[derive(Debug)]
pub struct Reported {
    /// Scheme, tensors, bytes, stored bytes.
    schemes: Vec<(String, u64, u64, u64)>,
    /// The largest in storage first.
    tensors: Vec<TensorReport>,
    /// Place of the first.
    start: usize,
    all: usize,
}

impl Reported {
    /// The page that starts at a place.
    pub fn gather(repo: &Repo, commit: &Commit, start: usize) -> Result<Reported> {
        let mut report = read(repo, commit)?;
        let mut schemes: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
        for t in &report.tensors {
            let (n, logical, stored) = schemes.entry(&t.scheme).or_default();
            *n += 1;
            *logical = logical.saturating_add(t.logical);
            *stored = stored.saturating_add(t.stored);
        }
        let schemes = schemes.into_iter().map(|(s, (n, l, st))| (s.to_owned(), n, l, st)).collect();
        let all = report.tensors.len();
        report.tensors.sort_by_key(|t| Reverse(t.stored));
        Ok(Reported { schemes, tensors: report.tensors.into_iter().skip(start).take(PAGE).collect(), start, all })
    }

    /// Place of the next page's first.
    pub fn next(&self) -> Option<usize> {
        after(self.start, PAGE, self.all)
    }

    pub fn show(&self) -> Markup {
        html! {
            @if self.all == 0 { p.muted { "This version added no tensors." } } @else {
                (self.by_scheme())
                @if !self.tensors.is_empty() {
                    p.muted {
                        "Tensors " (text::grouped(self.start as u64 + 1))
                        " to " (text::grouped((self.start + self.tensors.len()) as u64))
                        " of " (text::grouped(self.all as u64)) ", the largest in storage first."
                    }
                    (self.one_by_one())
                }
            }
        }
    }

    fn by_scheme(&self) -> Markup {
        let rows = html! {
            @for (scheme, n, logical, stored) in &self.schemes { tr {
                th scope="row" { code { (text::name(scheme)) } }
                td.num { (text::grouped(*n)) }
                td.num { (text::size(*logical)) }
                td.num { (text::size(*stored)) }
                td.num { (text::ratio(*logical, *stored)) }
            } }
        };
        let columns = ["Scheme", "#Tensors", "#Bytes", "#Stored", "#Ratio"];
        table("Schemes", "", "New tensors by scheme", &columns, &rows)
    }

    fn one_by_one(&self) -> Markup {
        let lossy = self.tensors.iter().any(|t| t.max_abs.is_some() || t.rel_l2.is_some());
        let mut columns = vec!["Tensor", "Type", "Scheme", "#Bytes", "#Stored", "#Ratio", "#Depth"];
        if lossy {
            columns.extend(["#Largest error", "#Relative error", "#Worst row", "#Of its update"]);
        }
        let rows = html! { @for t in &self.tensors { (line(t, lossy)) } };
        table("Tensors", "wide", "New tensors, the largest in storage first", &columns, &rows)
    }
}

fn line(t: &TensorReport, lossy: bool) -> Markup {
    let error = |v: Option<f64>| v.map_or("exact".to_owned(), text::rough);
    let known = |v: Option<f64>| v.map_or("-".to_owned(), text::rough);
    html! {
        tr {
            th.break scope="row" { code { (text::name(&t.name)) } " " span.muted { (text::name(&t.path)) } }
            td { (text::name(&t.dtype)) }
            td { code { (text::name(&t.scheme)) } }
            td.num { (text::size(t.logical)) }
            td.num { (text::size(t.stored)) }
            td.num { (text::ratio(t.logical, t.stored)) }
            td.num { (t.depth) }
            @if lossy {
                td.num { (error(t.max_abs)) } td.num { (error(t.rel_l2)) }
                td.num { (known(t.worst_row)) } td.num { (known(t.worst_row_update)) }
            }
        }
    }
}

fn read(repo: &Repo, commit: &Commit) -> Result<Report> {
    let Some(id) = &commit.report else {
        return Ok(Report::default());
    };
    if repo.odb().find(id, Kind::Blob)?.record.len > MAX_REPORT {
        return Ok(Report::default());
    }
    let bytes = repo.odb().read(id, Kind::Blob)?;
    let parsed = serde_json::from_slice(&bytes);
    Ok(parsed.map_err(|e| RepoError::corrupt(format!("report {}", id.short()), e))?)
}
