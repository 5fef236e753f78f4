//! Overview page of a repository: README, latest commits, plots of metrics, branches and tags, commands to copy.

use crate::pages::{
    card::{self, Card, Links},
    commands,
    log::Log,
    plot::{Line, Plot},
    prelude::*,
    scale::Unit,
    series::{self, Histories, Series},
};
use mdl_objects::{Kind, Tree};
use std::sync::Arc;

/// Commits that are listed.
const LATEST: usize = 8;
/// Metrics that are plotted.
const PLOTTED: usize = 12;
/// Names that are listed.
const NAMES: usize = 30;

struct Head {
    id: Id,
    commit: Commit,
    log: Log,
    series: Arc<Series>,
    /// The version's README, if it is there and is text.
    card: Option<String>,
    /// The largest checkpoint at the top.
    file: Option<String>,
}

fn gather(repo: &Repo, name: &RepoName, histories: &Histories) -> Result<(Names, Option<Head>)> {
    let names = Names::read(repo)?;
    let head = repo.refs().head_commit()?.map(|id| head(repo, name, histories, &names, id)).transpose()?;
    Ok((names, head))
}

fn head(repo: &Repo, name: &RepoName, histories: &Histories, names: &Names, id: Id) -> Result<Head> {
    let version = Version::read(repo, id)?;
    // A version whose contents are gone has no card; the rest can be shown.
    let tree = repo.odb().tree(&version.tree).unwrap_or_default();
    let checkpoints = tree.entries.iter().filter(|e| e.mode == Mode::Manifest);
    Ok(Head {
        id,
        log: Log::gather(repo, id, names, LATEST)?,
        series: histories.get_or_compute(name, repo, id)?,
        card: readme(repo, &tree),
        file: checkpoints.max_by_key(|e| e.size).map(|e| e.name.clone()),
        commit: version.commit,
    })
}

fn readme(repo: &Repo, tree: &Tree) -> Option<String> {
    let is_card = |e: &&Entry| e.mode == Mode::Blob && e.name.eq_ignore_ascii_case("README.md") && e.size <= card::MAX;
    let entry = tree.entries.iter().find(is_card)?;
    let bytes = repo.odb().read(&entry.id, Kind::Blob).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// `GET /{owner}/{name}`
pub async fn show(
    Extension(histories): Extension<Histories>,
    Read(access): Read,
    headers: HeaderMap,
) -> Result<Response> {
    let name = access.name.clone();
    let found = access.work(move |repo| {
        let (names, head) = gather(repo, &name, &histories)?;
        // Rendering a card takes time, too: not on the async threads.
        let card = head.as_ref().and_then(|h| about(&name, h));
        Ok((names, head, card))
    });
    let (names, head, card) = found.await?;
    let name = &access.name;
    let content = html! {
        h1 { span.owner { (name.owner()) " / " } (name.name()) }
        @match &head {
            None => (empty(&names)),
            Some(head) => {
                @let rev = names.head.clone().unwrap_or_else(|| head.id.to_hex());
                (facts(name, &names, head))
                div.columns {
                    div.main {
                        (latest(name, &rev, head))
                        (plots(&head.series))
                        @if let Some(card) = card { section aria-labelledby="card" { h2 #card { "Model card" } (card) } }
                    }
                    aside aria-label="Use and names" {
                        (commands::show(&commands::origin(&access.app, &headers), name, &rev, head.file.as_deref()))
                        (named(name, "Branches", &names.branches))
                        (named(name, "Tags", &names.tags))
                    }
                }
            }
        }
    };
    let rev = names.head.as_deref();
    Ok(page(&Frame::new("", name, Tab::Overview, rev, &access.caller), &content))
}

fn empty(names: &Names) -> Markup {
    html! {
        p { "There are no commits yet." }
        @if let Some(branch) = &names.head { p.muted { "The first one will be on branch " code { (text::name(branch)) } "." } }
    }
}

fn about(name: &RepoName, head: &Head) -> Option<Markup> {
    let source = head.card.as_ref()?;
    let (base, rev) = (base(name), head.id.to_hex());
    let links = Links { page: format!("{base}/blob/{rev}/"), raw: format!("{base}/resolve/{rev}/") };
    Some(Card::parse(source).show(&links))
}

fn facts(name: &RepoName, names: &Names, head: &Head) -> Markup {
    let s = head.commit.summary;
    let versions = head.series.versions.len() as u64;
    let more = if head.series.more_versions { "+" } else { "" };
    let stored: u64 = head.series.versions.iter().map(|v| v.stored).fold(0, u64::saturating_add);
    let logical: u64 = head.series.versions.iter().map(|v| v.logical).fold(0, u64::saturating_add);
    html! {
        dl.facts {
            div { dt { "Branch" } dd { (names.head.as_deref().map_or("detached".to_owned(), text::name)) } }
            div { dt { "Versions" } dd { a href={ (base(name)) "/commits/HEAD" } { (text::grouped(versions)) (more) } } }
            div { dt { "Size" } dd { (text::size(s.logical_bytes)) } }
            div { dt { "Tensors" } dd { (text::grouped(s.tensors)) } }
            div { dt { "All versions" } dd { (text::size(logical)) } }
            div { dt { "Stored" } dd { (text::size(stored)) " (" (text::ratio(logical, stored)) ")" } }
        }
    }
}

fn latest(name: &RepoName, rev: &str, head: &Head) -> Markup {
    html! {
        section aria-labelledby="latest" {
            h2 #latest { "Latest commits" }
            (head.log.table(name))
            @if head.log.has_more() { p.more { a href={ (base(name)) "/commits/" (text::segment(rev)) } { "All commits" } } }
        }
    }
}

fn named(name: &RepoName, title: &str, refs: &[(String, Id)]) -> Markup {
    let id = title.to_lowercase();
    html! {
        @if !refs.is_empty() {
            section aria-labelledby=(id) {
                h2 id=(id) { (title) " " span.muted { (refs.len()) } }
                ul.names {
                    @for (short, at) in refs.iter().take(NAMES) {
                        li {
                            a href={ (base(name)) "/commits/" (text::segment(short)) } { (text::name(short)) }
                            " " a.muted href={ (base(name)) "/commit/" (at.to_hex()) } { code { (at.short()) } }
                        }
                    }
                    @if refs.len() > NAMES { li.muted { "\u{2026} " (refs.len() - NAMES) " more" } }
                }
            }
        }
    }
}

/// Places of versions along the axis: their steps, if all have one and they differ; else one by one.
fn places(series: &Series) -> (&'static str, Vec<f64>) {
    let steps: Option<Vec<u64>> = series.versions.iter().map(|v| v.step).collect();
    match steps {
        Some(steps) if steps.first() < steps.last() => ("step", steps.iter().map(|s| *s as f64).collect()),
        _ => ("version", (1..=series.versions.len()).map(|n| n as f64).collect()),
    }
}

fn storage(series: &Series, along: &'static str, x: &[f64]) -> [Plot; 2] {
    let line = |name: &str, values: Vec<Option<f64>>| Line { name: name.to_owned(), values };
    let plot = |title: &str, unit, lines| Plot { title: title.to_owned(), unit, along, x: x.to_vec(), lines };
    let all = &series.versions;
    let ratios = all.iter().map(|v| text::ratio_of(v.logical, v.stored)).collect();
    let stored = line("stored", all.iter().map(|v| Some(v.stored as f64)).collect());
    let logical = line("size", all.iter().map(|v| Some(v.logical as f64)).collect());
    [
        plot("Bytes a version", Unit::Bytes, vec![stored, logical]),
        plot("Ratio", Unit::Ratio, vec![line("ratio", ratios)]),
    ]
}

fn all_plots(series: &Series) -> Vec<Plot> {
    let (along, x) = places(series);
    let metric = |(name, values): &(String, Vec<Option<f64>>)| Plot {
        title: name.clone(),
        unit: Unit::Plain,
        along,
        x: x.clone(),
        lines: vec![Line { name: name.clone(), values: values.clone() }],
    };
    let mut metrics = series.metrics.iter().take(PLOTTED).map(metric);
    let first = metrics.next();
    let plots = first.into_iter().chain(storage(series, along, &x)).chain(metrics);
    plots.map(Plot::thinned).collect()
}

fn plots(series: &Series) -> Markup {
    let unseen = series.metrics.len().saturating_sub(PLOTTED);
    html! {
        @if series.versions.len() > 1 {
            section aria-labelledby="plots" {
                h2 #plots { "Training and storage" }
                @if series.more_versions { p.muted { "The last " (text::grouped(series::MAX as u64)) " versions on the way to HEAD." } }
                div.plots { @for (i, plot) in all_plots(series).iter().enumerate() { (plot.show(i)) } }
                @if unseen > 0 || series.more_metrics {
                    p.muted { (unseen) @if series.more_metrics { "+" } " more metrics are listed with each commit." }
                }
            }
        }
    }
}
