//! Commit page: message, metrics, changed files, storage of the new tensors.

use crate::pages::{log::ranked, prelude::*, refs::Labels, tensors::Reported};
use mdl_objects::Resume;
use mdl_repo::{Files, PrunedMark, Quality, Recipe, Rule, provenance::Provenance};

/// Characters of a message, and metrics, keys and files that are shown.
const MESSAGE: usize = 8000;
const METRICS: usize = 200;
const META: usize = 200;
const FILES: usize = 500;

struct Shown {
    id: Id,
    commit: Commit,
    about: About,
    resume: Option<Resume>,
    labels: Labels,
    pruned: Option<PrunedMark>,
    /// None: gc has removed the contents of the version or its parent.
    files: Option<Vec<File>>,
    quality: Option<Quality>,
    tensors: Option<Reported>,
}

struct File {
    path: String,
    change: &'static str,
    before: Option<u64>,
    after: Option<u64>,
}

fn gather(repo: &Repo, rev: &str, start: usize) -> Result<Shown> {
    let id = revision::resolve(repo, rev)?;
    let version = Version::read(repo, id)?;
    let commit = version.commit.clone();
    let collected = mdl_repo::is_collected(repo, &id)?;
    let parent_gone = commit.parents.first().map(|parent| mdl_repo::is_collected(repo, parent)).transpose()?;
    let record = mdl_repo::pruned(repo)?;
    let annotated = mdl_repo::shown_notes(repo)?.annotated(&id, commit.clone());
    Ok(Shown {
        labels: Names::read(repo)?.labels(),
        about: About::new(repo, &record, &id, &commit)?,
        resume: mdl_repo::pruned::resume(&commit, &version.tree),
        pruned: record.get(&id).cloned(),
        files: (!collected && parent_gone != Some(true)).then(|| files(repo, &version)).transpose()?,
        // A record of a newer program must not hide the rest.
        quality: Quality::from_commit(&commit).ok().flatten(),
        tensors: (!collected).then(|| Reported::gather(repo, &commit, start)).transpose()?,
        id,
        commit: annotated,
    })
}

/// Returns all files with their changes; those that differ from the first parent's come first.
fn files(repo: &Repo, version: &Version) -> Result<Vec<File>> {
    let (before, after) = match version.commit.parents.first() {
        Some(parent) => Version::read(repo, *parent)?.files_beside(repo, version)?,
        None => (Files::new(), version.files(repo)?),
    };
    let same = |a: &Entry, b: &Entry| (a.mode, a.id, a.executable) == (b.mode, b.id, b.executable);
    let there = after.iter().map(|(path, entry)| {
        let old = before.get(path);
        let change = match old {
            None => "added",
            Some(old) if same(old, entry) => "",
            Some(_) => "modified",
        };
        File { path: path.clone(), change, before: old.map(|e| e.size), after: Some(entry.size) }
    });
    let mut out: Vec<File> = there.collect();
    let gone = before.into_iter().filter(|(path, _)| !after.contains_key(path));
    out.extend(gone.map(|(path, e)| File { path, change: "deleted", before: Some(e.size), after: None }));
    out.sort_by_key(|f| f.change.is_empty());
    Ok(out)
}

/// `GET /{owner}/{name}/commit/{rev}`
pub async fn show(Read(access): Read, Path(at): Path<AtRev>, Query(Start { start }): Query<Start>) -> Result<Response> {
    let shown = access.work(move |repo| gather(repo, &at.rev, start)).await?;
    let name = &access.name;
    let hex = shown.id.to_hex();
    let url = format!("{}/commit/{hex}", base(name));
    let next = shown.tensors.as_ref().and_then(Reported::next);
    let next = next.map(|n| format!("{url}?start={n}#tensors"));
    let first = (start > 0).then(|| format!("{url}#tensors"));
    let content = html! {
        (head(name, &shown))
        div.columns {
            div.main {
                (quality(shown.quality.as_ref()))
                section aria-labelledby="files" { h2 #files { "Files" } (file_table(name, &hex, shown.files.as_deref())) }
            }
            aside aria-label="About this version" { (details(name, &shown)) }
        }
        section aria-labelledby="tensors" {
            h2 #tensors { "New tensors" }
            @match &shown.tensors {
                Some(reported) => {
                    (reported.show())
                    (pager("Pages of tensors", first.as_deref(), next.as_deref()))
                }
                None => p.muted { "The contents of this version are gone." },
            }
        }
    };
    let title = text::subject(&shown.commit.message);
    Ok(page(&Frame::new(&title, name, Tab::Commits, Some(&hex), &access.caller), &content))
}

fn head(name: &RepoName, shown: &Shown) -> Markup {
    let (commit, base, hex) = (&shown.commit, base(name), shown.id.to_hex());
    let body = commit.message.trim_start().split_once('\n').map_or("", |(_, rest)| rest).trim();
    html! {
        h1.break {
            (text::subject(&commit.message)) " " (shown.about.label()) " " (shown.labels.markup_of(name, &shown.id))
        }
        @if let Some(mark) = &shown.pruned {
            p.bad { "Pruned on " (text::time(mark.time_ms)) " (kept were: " (text::name(&mark.rules)) ")." }
        }
        (shown.about.sentence())
        @if !body.is_empty() { pre.message { (text::clipped(body, MESSAGE)) } }
        p.byline {
            b { (text::name(&commit.author.name)) }
            @if !commit.author.email.is_empty() { " <" (text::name(&commit.author.email)) ">" }
            " \u{b7} " (text::time(commit.author.time_ms)) " \u{b7} " code.break { (hex) }
        }
        p.actions {
            a.button href={ (base) "/tree/" (hex) } { "Browse files" } " "
            @if let Some(parent) = commit.parents.first() {
                a.button href={ (base) "/compare/" (parent.to_hex()) "/" (hex) } { "Compare with parent" } " "
            }
            a.button href={ (base) "/commits/" (hex) } { "History" }
        }
    }
}

fn details(name: &RepoName, shown: &Shown) -> Markup {
    let (commit, s) = (&shown.commit, shown.commit.summary);
    let link = |id: &Id| html! { a href={ (base(name)) "/commit/" (id.to_hex()) } { code { (id.short()) } } };
    html! {
        section aria-labelledby="about" {
            h2 #about { "About" }
            dl.pairs {
                @if let Some(step) = commit.step { dt { "Step" } dd { (text::grouped(step)) } }
                @if let Some(epoch) = commit.epoch { dt { "Epoch" } dd { (text::number(epoch)) } }
                dt { "Parents" }
                dd {
                    @for parent in commit.parents.iter().take(16) { (link(parent)) " " }
                    @if commit.parents.is_empty() { "none" }
                }
                @if let Some(from) = &commit.resumed_from { dt { "Resumed from" } dd { (link(from)) } }
                @if let Some(resume) = shown.resume { dt { "Resume" } dd { (Resume::name(resume)) } }
                dt { "Files" } dd { (text::grouped(s.files)) " (" (text::size(s.logical_bytes)) ")" }
                dt { "Tensors" } dd { (text::grouped(s.tensors)) ", " (text::grouped(s.new_tensors)) " new" }
                dt { "Stored" } dd { (text::size(s.stored_bytes)) " (" (text::ratio(s.logical_bytes, s.stored_bytes)) ")" }
            }
        }
        (metrics(commit))
        (recipe(commit))
        (meta(commit))
        (origin(commit))
    }
}

fn metrics(commit: &Commit) -> Markup {
    let shown = ranked(commit, METRICS);
    html! {
        @if !shown.is_empty() {
            section aria-labelledby="metrics" {
                h2 #metrics { "Metrics" }
                dl.pairs {
                    @for (name, value) in &shown { dt { (text::name(name)) } dd.num { (text::number(*value)) } }
                }
                @if commit.metrics.len() > shown.len() { p.muted { (commit.metrics.len() - shown.len()) " more" } }
            }
        }
    }
}

/// How a merge was made of its parents.
fn recipe(commit: &Commit) -> Markup {
    let Some(recipe) = Recipe::from_commit(commit) else { return html! {} };
    let rule = |rule: &Rule| match rule {
        Rule::Side(_) => rule.name().to_owned(),
        Rule::Weights(strategy) => serde_json::to_string(strategy).unwrap_or_default(),
    };
    html! {
        section aria-labelledby="recipe" {
            h2 #recipe { "Recipe" }
            dl.pairs {
                dt { "Strategy" } dd.break { (text::clipped(&rule(&recipe.strategy), 400)) }
                dt { "Versions" } dd.num { (recipe.inputs.len()) }
                @if let Some(base) = &recipe.base { dt { "Common ancestor" } dd.break { (text::clipped(base, 64)) } }
                @for other in recipe.overrides.iter().take(META) {
                    dt { (text::name(&other.glob)) } dd.break { (text::clipped(&rule(&other.rule), 400)) }
                }
                @if recipe.with_state { dt { "Optimizer state" } dd { "computed too" } }
            }
        }
    }
}

/// Who signed it, and where it says that it comes from.
fn origin(commit: &Commit) -> Markup {
    let key = commit.signature.as_deref().map(mdl_repo::signing_key);
    let told = Provenance::summary_lines(commit);
    html! {
        @if key.is_some() || !told.is_empty() {
            section aria-labelledby="origin" {
                h2 #origin { "Origin" }
                dl.pairs {
                    @if let Some(key) = key {
                        dt { "Signed" }
                        dd.break {
                            @match key {
                                Some((kind, fingerprint)) => { (text::name(&kind)) " " (text::name(&fingerprint)) },
                                None => "by no SSH key",
                            }
                            " (not checked here: " code { "mdl verify-commit" } " does)"
                        }
                    }
                    @for (name, said) in told.iter().take(META) {
                        dt { (name) } dd.break { (text::clipped(&text::name(said), 400)) }
                    }
                }
            }
        }
    }
}

fn meta(commit: &Commit) -> Markup {
    html! {
        @if !commit.meta.is_empty() {
            section aria-labelledby="meta" {
                h2 #meta { "Notes" }
                dl.pairs { @for (key, value) in commit.meta.iter().take(META) {
                    dt { (text::name(key)) } dd.break { (text::clipped(value, 400)) }
                } }
                @if commit.meta.len() > META { p.muted { (commit.meta.len() - META) " more" } }
            }
        }
    }
}

fn quality(quality: Option<&Quality>) -> Markup {
    let Some(q) = quality else { return html! {} };
    let pair =
        |name: &str, value: Option<f64>| html! { @if let Some(v) = value { dt { (name) } dd { (text::number(v)) } } };
    let words =
        |name: &str, value: &str| html! { @if !value.is_empty() { dt { (name) } dd.break { (text::name(value)) } } };
    let exact_bytes = q.exact_bytes.map(|n| html! { dt { "Exact contents took" } dd { (text::size(n)) } });
    html! {
        section aria-labelledby="quality" {
            h2 #quality { "Quality" }
            @if q.unevaluated() { p.bad { "Lossy, and nothing was measured." } }
            dl.pairs.two {
                (words("Policy", &q.policy)) (words("Family", &q.family)) (words("Configuration", &q.configuration))
                (words("Gate", &q.gate)) (words("Direction", &q.direction))
                (pair("Measured", q.measured)) (pair("Exact", q.exact)) (pair("Limit", q.limit))
                dt { "Evaluations" } dd { (q.evaluations) }
                (pair("Largest error", q.max_abs)) (pair("Relative error", q.rel_l2))
                @if let Some(b) = &q.bounds {
                    (pair("Error of the update", b.update_error)) (pair("Worst row", b.worst_row))
                    (pair("Worst row's update", b.worst_row_update)) (words("Bounds", &b.text()))
                    dt { "Exact for a bound" } dd { (b.exact_tensors) " weights, " (b.exact_rows) " rows" }
                    dt { "Rows whose update is not seen" } dd { (b.hidden_rows) }
                }
                @if let Some(bytes) = exact_bytes { (bytes) }
                (words("Sensitivity", &q.sensitivity)) (words("Moments", &q.moments))
            }
            @if !q.warnings.is_empty() {
                ul { @for warning in q.warnings.iter().take(20) { li.bad { (text::clipped(warning, 400)) } } }
            }
        }
    }
}

fn file_table(name: &RepoName, hex: &str, files: Option<&[File]>) -> Markup {
    let Some(files) = files else {
        return html! { p.muted { "There is nothing to compare: the contents of this version or of its parent are gone." } };
    };
    let size = |bytes: Option<u64>| bytes.map_or(String::new(), text::size);
    let rows = html! {
        @for file in files.iter().take(FILES) { tr {
            th.break scope="row" {
                @if file.after.is_some() {
                    a href={ (base(name)) "/blob/" (hex) "/" (text::path(&file.path)) } { (text::name(&file.path)) }
                } @else { (text::name(&file.path)) }
            }
            td { @if !file.change.is_empty() { span.label.(file.change) { (file.change) } } }
            td.num { (size(file.after)) }
            td.num { (size(file.before)) }
        } }
    };
    html! {
        (table("Files", "wide", "Files, those that changed first", &["File", "Change", "#Size", "#Before"], &rows))
        @if files.len() > FILES {
            p.muted { (text::grouped((files.len() - FILES) as u64)) " more: " a href={ (base(name)) "/tree/" (hex) } { "browse files" } "." }
        }
    }
}
