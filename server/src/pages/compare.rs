//! Compare page of two versions: which layers, files and tensors differ.

use crate::pages::{
    computing::{AGAIN, Computations, Job, Standing, unfinished},
    heat::{Heat, Placed},
    prelude::*,
};
use axum::response::Redirect;
use mdl_repo::{Change, FileDiff, Progress, TensorDiff};
use std::collections::HashSet;

/// Tensors a page, and files that are listed.
const PAGE: usize = 200;
const FILES: usize = 300;
/// What an unfinished comparison does.
const COMPARING: &str = "Every element of every tensor that differs is decoded and compared, once.";

/// Two versions to compare.
#[derive(Clone, Debug)]
pub struct Versus {
    ids: [Id; 2],
    /// What is known of what they give today.
    cache_ids: [Id; 2],
}

impl PartialEq for Versus {
    fn eq(&self, other: &Versus) -> bool {
        self.cache_ids == other.cache_ids
    }
}

#[derive(Debug)]
pub struct Comparison {
    pub files: Vec<FileDiff>,
    /// Tensors that are the same, of files that differ: path and name.
    pub same: Vec<(String, String)>,
}

impl Job for Versus {
    type Output = Comparison;

    fn run(&self, repo: &Repo, progress: &dyn Progress) -> Result<Comparison> {
        let [a, b] = &self.ids;
        let files = mdl_repo::diff(repo, a, b, progress)?;
        let after = mdl_repo::files(repo, b)?;
        let mut same = Vec::new();
        for file in files.iter().filter(|f| f.change == Change::Modified && f.same_tensors > 0) {
            let Some(entry) = after.get(&file.path).filter(|e| e.mode == Mode::Manifest) else {
                continue;
            };
            let differing: HashSet<&str> = file.tensors.iter().map(|t| t.name.as_str()).collect();
            let names = repo.odb().manifest(&entry.id)?.listed_names();
            let others = names.into_iter().filter(|n| !differing.contains(n.as_str()));
            same.extend(others.map(|n| (file.path.clone(), n)));
        }
        Ok(Comparison { files, same })
    }

    fn tensors(found: &Comparison) -> usize {
        found.same.len() + found.files.iter().map(|f| f.tensors.len()).sum::<usize>()
    }
}

#[derive(Debug, Deserialize)]
pub struct Chosen {
    a: Option<String>,
    b: Option<String>,
}

fn url(name: &RepoName, a: &str, b: &str) -> String {
    format!("{}/compare/{}/{}", base(name), text::segment(a), text::segment(b))
}

/// `GET /{owner}/{name}/compare`: a form, or on to what was chosen.
pub async fn choose(Read(access): Read, Query(chosen): Query<Chosen>) -> Result<Response> {
    let name = &access.name;
    let given = |rev: Option<String>| rev.map(|r| r.trim().to_owned()).filter(|r| !r.is_empty());
    let (a, b) = (given(chosen.a), given(chosen.b));
    if let (Some(a), Some(b)) = (&a, &b) {
        return Ok(Redirect::to(&url(name, a, b)).into_response());
    }
    let names = access.work(Names::read).await?;
    let content = html! {
        h1 { "Compare versions" }
        (form(name, &names, a.as_deref().unwrap_or("HEAD~1"), b.as_deref().unwrap_or("HEAD")))
        p.muted { "A version is a branch, a tag, an id, " code { "main~3" } ", " code { "main@step=1200" } " or " code { "main@best(loss)" } "." }
    };
    Ok(page(&Frame::new("Compare", name, Tab::Compare, None, &access.caller), &content))
}

fn form(name: &RepoName, names: &Names, a: &str, b: &str) -> Markup {
    html! {
        form.compare method="get" action={ (base(name)) "/compare" } {
            div { label for="a" { "From" } input #a name="a" value=(a) list="revisions" required spellcheck="false" autocomplete="off"; }
            div { label for="b" { "To" } input #b name="b" value=(b) list="revisions" required spellcheck="false" autocomplete="off"; }
            button type="submit" { "Compare" }
            datalist #revisions {
                @for (short, _) in names.branches.iter().chain(&names.tags).take(200) { option value=(short) {} }
            }
        }
    }
}

/// `GET /{owner}/{name}/compare/{a}/{b}`
pub async fn show(
    Extension(comparisons): Extension<Computations<Versus>>,
    Read(access): Read,
    Path((_, _, a, b)): Path<(String, String, String, String)>,
    Query(Start { start }): Query<Start>,
) -> Result<Response> {
    let (from, to) = (a.clone(), b.clone());
    let found = access.work(move |repo| {
        let mut versions = Versions::new(repo);
        let mut read = |rev| Ok::<_, Problem>(versions.read(revision::resolve(repo, rev)?)?);
        let both = (read(&from)?, read(&to)?);
        Ok((both, Names::read(repo)?))
    });
    let ((from, to), names) = found.await?;
    let name = &access.name;
    let versus = Versus { ids: [from.id, to.id], cache_ids: [from.cache_id(), to.cache_id()] };
    let standing = comparisons.ask(&access, versus).await?;
    let (from, to) = (from.id, to.id);
    let mut frame = Frame::new("Compare", name, Tab::Compare, Some(&b), &access.caller);
    let here = url(name, &a, &b);
    let content = html! {
        h1 { "Compare versions" }
        (form(name, &names, &shortened(&a), &shortened(&b)))
        p.byline {
            a href={ (base(name)) "/commit/" (from.to_hex()) } { code { (from.short()) } } " \u{2192} "
            a href={ (base(name)) "/commit/" (to.to_hex()) } { code { (to.short()) } } " \u{b7} "
            a href=(url(name, &b, &a)) { "Other way round" }
        }
        @match &standing {
            Standing::Done(comparison) => (result(comparison, &here, start)),
            Standing::UnderWay(share) => (unfinished("Comparing", COMPARING, Some(*share))),
            Standing::Waiting => (unfinished("Comparing", COMPARING, None)),
        }
    };
    if !matches!(standing, Standing::Done(_)) {
        frame.refresh = Some(AGAIN);
    }
    Ok(page(&frame, &content))
}

/// All tensors that differ: those that cannot be compared first, then by how far they moved.
fn ordered(comparison: &Comparison) -> Vec<(&FileDiff, &TensorDiff)> {
    let all = comparison.files.iter().flat_map(|file| file.tensors.iter().map(move |t| (file, t)));
    let mut all: Vec<(&FileDiff, &TensorDiff)> = all.collect();
    let rank = |t: &TensorDiff| t.rel_l2.filter(|r| !r.is_nan()).unwrap_or(f64::INFINITY);
    all.sort_by(|x, y| rank(y.1).total_cmp(&rank(x.1)).then_with(|| x.1.name.cmp(&y.1.name)));
    all
}

fn result(comparison: &Comparison, here: &str, start: usize) -> Markup {
    let all = ordered(comparison);
    if comparison.files.is_empty() {
        return html! { p { "Nothing differs between these versions." } };
    }
    let differing = all.iter().enumerate();
    let differing = differing.map(|(i, (file, t))| Placed { path: &file.path, name: &t.name, diff: Some((*t, i)) });
    let same = comparison.same.iter().map(|(path, name)| Placed { path, name, diff: None });
    let mut placed: Vec<Placed<'_>> = differing.chain(same).collect();
    placed.sort_by_key(|p| p.name);
    let to_tensor = |at: usize| match at / PAGE * PAGE == start {
        true => format!("#t{at}"),
        false => format!("{here}?start={}#t{at}", at / PAGE * PAGE),
    };
    html! {
        @if !placed.is_empty() {
            section aria-labelledby="layers" { h2 #layers { "Changes by layer" } (Heat::from_tensors(&placed).show(&to_tensor)) }
        }
        section aria-labelledby="files" { h2 #files { "Files" } (file_table(&comparison.files)) }
        @if !all.is_empty() { (tensors(&all, here, start)) }
    }
}

fn file_table(files: &[FileDiff]) -> Markup {
    let size = |bytes: Option<u64>| bytes.map_or(String::new(), text::size);
    let rows = html! {
        @for f in files.iter().take(FILES) { tr {
            th.break scope="row" { (text::name(&f.path)) }
            td { span.label.(f.change.name()) { (f.change.name()) } @if f.mode_only { " executable bit" } }
            td.num { (size(f.size_before)) }
            td.num { (size(f.size_after)) }
            td.num { (text::grouped(f.tensors.len() as u64)) }
            td.num { (text::grouped(f.same_tensors)) }
        } }
        @if files.len() > FILES { tr { td.muted colspan="6" { (text::grouped((files.len() - FILES) as u64)) " more files" } } }
    };
    let columns = ["File", "Change", "#Before", "#After", "#Tensors changed", "#Same"];
    table("Files", "wide", "Files that differ", &columns, &rows)
}

fn tensors(all: &[(&FileDiff, &TensorDiff)], here: &str, start: usize) -> Markup {
    let next = after(start, PAGE, all.len()).map(|next| format!("{here}?start={next}#tensors"));
    let first = (start > 0).then(|| format!("{here}#tensors"));
    let columns = ["Tensor", "Change", "Type", "Shape", "#Elements changed", "#Relative L2", "#Largest", "#Cosine"];
    let rows = html! { @for (i, (file, t)) in all.iter().enumerate().skip(start).take(PAGE) { (line(i, file, t)) } };
    html! {
        section aria-labelledby="tensors" {
            h2 #tensors { "Tensors" }
            p.muted { (text::count(all.len() as u64, "tensor")) " changed, those that moved furthest first." }
            (table("Tensors", "wide", "Tensors that differ, those that moved furthest first", &columns, &rows))
            (pager("Pages of tensors", first.as_deref(), next.as_deref()))
        }
    }
}

fn line(at: usize, file: &FileDiff, t: &TensorDiff) -> Markup {
    let value = |v: Option<f64>| v.map_or("-".to_owned(), text::rough);
    html! {
        tr id={ "t" (at) } {
            th.break scope="row" { code { (text::name(&t.name)) } " " span.muted { (text::name(&file.path)) } }
            td { span.label.(t.change.name()) { (t.change.name()) } }
            td { (t.dtype.name()) }
            td { (text::shape(&t.shape)) }
            td.num { (t.changed.map_or("-".to_owned(), |c| format!("{:.1}%", c * 100.0))) }
            td.num { (value(t.rel_l2)) }
            td.num { (value(t.max_abs)) }
            td.num { (t.cosine.map_or("-".to_owned(), cosine)) }
        }
    }
}

/// A cosine: what is only nearly 1 shows how nearly (`1-3e-9`).
fn cosine(v: f64) -> String {
    let gap = 1.0 - v;
    if gap > 0.0 && gap < 1e-3 { format!("1-{}", text::rough(gap)) } else { text::rough(v) }
}
