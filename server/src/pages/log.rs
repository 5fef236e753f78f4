//! History page, newest first, with the commit graph.

use crate::pages::{
    graph::{self, MAX_LANES},
    prelude::*,
    refs::Labels,
    series,
};
use mdl_repo::{LaneRow, Lanes, Pruned, Step};

/// Commits a page.
const PAGE: usize = 50;
/// Bytes of a message that are kept for its first line.
const MESSAGE: usize = 4 << 10;
/// Metrics in a row.
const METRICS: usize = 3;
const COLUMNS: [&str; 7] = ["", "Commit", "#Step", "Metrics", "#Size", "#Stored", "#Ratio"];

#[derive(Debug, Deserialize)]
pub struct Asked {
    after: Option<String>,
    #[serde(default)]
    all: u8,
}

/// Start of a page: after a commit, at the commits that the lanes wait for.
struct After {
    last: Id,
    waiting: Vec<Id>,
}

impl After {
    fn parse(text: &str) -> Result<After> {
        let bad = || Problem::usage("`after` is none of this server's");
        let mut ids = text.split('.').take(MAX_LANES + 2).map(|t| t.parse::<Id>().map_err(|_| bad()));
        Ok(After { last: ids.next().ok_or_else(bad)??, waiting: ids.collect::<Result<Vec<Id>>>()? })
    }
}

/// Some commits of a history, as they are shown.
pub struct Log {
    rows: Vec<Shown>,
    labels: Labels,
    pruned: Pruned,
    /// The next page's `after`.
    next: Option<String>,
}

/// A commit in a row: only what is shown is kept.
struct Shown {
    id: Id,
    commit: Commit,
    about: About,
    metrics: Markup,
    lanes: LaneRow,
}

impl Shown {
    fn from_step(step: Step, about: About, lanes: LaneRow) -> Shown {
        let Step { id, mut commit } = step;
        let metrics = metrics(&commit);
        commit.shorten();
        mdl_objects::shorten(&mut commit.message, MESSAGE);
        (commit.metrics, commit.meta, commit.quality) = (Default::default(), Default::default(), None);
        Shown { id, commit, about, metrics, lanes }
    }
}

/// The commits that a page begins with, and the lanes that are open there.
fn starts(repo: &Repo, from: Id, names: &Names, all: bool, after: Option<&After>) -> Result<(Vec<Id>, Lanes<Id>)> {
    let mut tips = vec![from];
    if all {
        tips.extend(names.branches.iter().chain(&names.tags).map(|(_, id)| *id));
    }
    let Some(after) = after else {
        return Ok((tips, Lanes::new(&[], MAX_LANES)));
    };
    let mut out = after.waiting.clone();
    if all {
        // A tip as new as the last commit of the page before was on it or on an earlier one.
        let key = |id: &Id| -> Result<(i64, Id)> { Ok((repo.odb().commit(id)?.author.time_ms, *id)) };
        let last = key(&after.last)?;
        for tip in tips {
            if key(&tip)? < last {
                out.push(tip);
            }
        }
    }
    Ok((out, Lanes::new(&after.waiting, MAX_LANES)))
}

impl Log {
    /// At most `limit` commits.
    pub fn gather(repo: &Repo, from: Id, names: &Names, limit: usize) -> Result<Log> {
        Log::page(repo, from, names, false, None, limit)
    }

    fn page(repo: &Repo, from: Id, names: &Names, all: bool, after: Option<&After>, limit: usize) -> Result<Log> {
        let (starts, mut lanes) = starts(repo, from, names, all, after)?;
        let mut history = mdl_repo::history(repo, &starts)?;
        let (mut rows, pruned) = (Vec::with_capacity(limit), mdl_repo::pruned(repo)?);
        let noted = mdl_repo::shown_notes(repo)?;
        for step in history.by_ref().take(limit) {
            let Step { id, commit } = step?;
            let step = Step { commit: noted.annotated(&id, commit), id };
            let row = lanes.commit(&step.id, &step.commit.parents);
            let about = About::new(repo, &pruned, &step.id, &step.commit)?;
            rows.push(Shown::from_step(step, about, row));
        }
        let last = rows.last().map(|shown| shown.id);
        let more = rows.len() == limit && history.next().is_some();
        let next = last.filter(|_| more).map(|last| {
            let ids: Vec<String> = std::iter::once(&last).chain(lanes.waiting()).map(Id::to_hex).collect();
            ids.join(".")
        });
        Ok(Log { rows, labels: names.labels(), pruned, next })
    }

    pub fn has_more(&self) -> bool {
        self.next.is_some()
    }

    pub fn table(&self, name: &RepoName) -> Markup {
        let width = self.rows.iter().map(|shown| graph::width(&shown.lanes)).max().unwrap_or(1);
        let rows = html! { @for shown in &self.rows { (self.line(name, shown, width)) } };
        table("Commits", "log", "Commits, newest first", &COLUMNS, &rows)
    }

    fn line(&self, name: &RepoName, shown: &Shown, width: usize) -> Markup {
        let Shown { id, commit, about, metrics, lanes } = shown;
        let cost = commit.summary;
        html! {
            tr {
                td.graph { (graph::show(lanes, commit.parents.len() > 1, width)) }
                th scope="row" {
                    div.subject {
                        a href={ (base(name)) "/commit/" (id.to_hex()) } { (text::subject(&commit.message)) }
                        " " (self.labels.markup_of(name, id)) (about.label())
                        @if let Some(mark) = self.pruned.get(id) {
                            span.label.bad title=(text::name(&mark.rules)) { "pruned" }
                        }
                    }
                    div.byline {
                        code { (id.short()) }
                        " \u{b7} " (text::clipped(&text::name(&commit.author.name), 40))
                        " \u{b7} " (text::time(commit.author.time_ms))
                    }
                }
                td.num { (commit.step.map_or(String::new(), text::grouped)) }
                td { (metrics) }
                td.num { (text::size(cost.logical_bytes)) }
                td.num { (text::size(cost.stored_bytes)) }
                td.num { (text::ratio(cost.logical_bytes, cost.stored_bytes)) }
            }
        }
    }
}

/// The first metrics of a commit.
fn metrics(commit: &Commit) -> Markup {
    html! {
        @for (name, value) in ranked(commit, METRICS) {
            span.metric { (text::clipped(&text::name(name), 24)) "\u{a0}" b { (text::number(value)) } } " "
        }
        @if commit.metrics.len() > METRICS { span.muted { "+" (commit.metrics.len() - METRICS) } }
    }
}

fn url(name: &RepoName, rev: &str, all: bool, after: Option<&str>) -> String {
    let query = match (all, after) {
        (false, None) => String::new(),
        (true, None) => "?all=1".to_owned(),
        (false, Some(after)) => format!("?after={after}"),
        (true, Some(after)) => format!("?all=1&after={after}"),
    };
    format!("{}/commits/{}{query}", base(name), text::segment(rev))
}

/// `GET /{owner}/{name}/commits/{rev}`
pub async fn show(Read(access): Read, Path(at): Path<AtRev>, Query(asked): Query<Asked>) -> Result<Response> {
    let after = asked.after.as_deref().map(After::parse).transpose()?;
    let (all, paged) = (asked.all != 0, after.is_some());
    let rev = at.rev.clone();
    let gathered = access.work(move |repo| {
        let from = revision::resolve(repo, &at.rev)?;
        let names = Names::read(repo)?;
        Ok((Log::page(repo, from, &names, all, after.as_ref(), PAGE)?, names))
    });
    let (log, names) = gathered.await?;
    let name = &access.name;
    let next = log.next.as_deref().map(|after| url(name, &rev, all, Some(after)));
    let first = paged.then(|| url(name, &rev, all, None));
    let content = html! {
        div.title {
            h1 { "Commits" }
            (refs::menu(&names, &rev, |r| url(name, r, all, None)))
            nav.switch aria-label="Which commits" {
                a href=(url(name, &rev, false, None)) aria-current=[(!all).then_some("true")] { "This revision" }
                a href=(url(name, &rev, true, None)) aria-current=[all.then_some("true")] { "All branches and tags" }
                a href={ (base(name)) "/blame/" (text::segment(&rev)) } { "Changes over time" }
            }
        }
        (log.table(name))
        (pager("Pages of commits", first.as_deref(), next.as_deref()))
    };
    Ok(page(&Frame::new("Commits", name, Tab::Commits, Some(&rev), &access.caller), &content))
}

/// Metrics that are put in order at most: a commit of an older program may have any number.
const MOST_RANKED: usize = 10_000;

/// Metrics in the order in which they are shown, at most `max`.
pub fn ranked(commit: &Commit, max: usize) -> Vec<(&String, f64)> {
    let mut all: Vec<(&String, f64)> = commit.metrics.iter().map(|(k, v)| (k, *v)).take(MOST_RANKED).collect();
    all.sort_by_cached_key(|(name, _)| series::rank(name));
    all.truncate(max);
    all
}
