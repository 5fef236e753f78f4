//! Blame page: which tensors changed in which versions, as a heat map over time.

use crate::pages::{layout::scroll, prelude::*};
use mdl_repo::{Amounts, Blame, BlameQuery, BlamedTensor, BlamedVersion, Change, Selection, layer_of};
use std::collections::BTreeMap;

/// Versions and rows that are drawn.
const VERSIONS: usize = 60;
const ROWS: usize = 120;
/// Steps of colour: by the share of a layer's tensors that changed.
const LEVELS: usize = 7;

#[derive(Debug, Deserialize)]
pub struct Chosen {
    glob: Option<String>,
}

/// A row of the map: a layer, or a tensor where there are few.
struct Row<'a> {
    name: String,
    tensors: Vec<&'a BlamedTensor>,
}

/// `GET /{owner}/{name}/blame/{rev}`
pub async fn show(Read(access): Read, Path(at): Path<AtRev>, Query(chosen): Query<Chosen>) -> Result<Response> {
    let glob = chosen.glob.map(|g| g.trim().to_owned()).filter(|g| !g.is_empty());
    let (rev, asked) = (at.rev.clone(), glob.clone());
    // Ids alone: no tensor is decoded for a page.
    let found = access.clone().heavy(move |access, progress| {
        let repo = &*access.repo;
        let id = revision::resolve(repo, &rev)?;
        let selection = Selection::new(&asked.into_iter().collect::<Vec<_>>())?;
        let query = BlameQuery { selection, amounts: Amounts::None, row: None, versions: VERSIONS };
        Ok(mdl_repo::blame(repo, &id, &query, progress)?)
    });
    let found = found.await?;
    let name = &access.name;
    let content = html! {
        h1 { "Changes over time" }
        (form(name, &at.rev, glob.as_deref().unwrap_or_default()))
        (map(name, &found))
    };
    Ok(page(&Frame::new("Changes over time", name, Tab::Commits, Some(&at.rev), &access.caller), &content))
}

fn form(name: &RepoName, rev: &str, glob: &str) -> Markup {
    html! {
        form.compare method="get" action={ (base(name)) "/blame/" (text::segment(rev)) } {
            div {
                label for="glob" { "Tensors" }
                input #glob name="glob" value=(glob) placeholder="FILE:TENSOR, such as :*embed*" spellcheck="false" autocomplete="off";
            }
            button type="submit" { "Show" }
        }
    }
}

/// Layers, or tensors where these are few.
fn rows(found: &Blame) -> Vec<Row<'_>> {
    let one_file = found.tensors.iter().all(|t| found.tensors.first().is_some_and(|first| first.path == t.path));
    let full = |t: &BlamedTensor, name: &str| match one_file {
        true => name.to_owned(),
        false => format!("{}:{name}", t.path),
    };
    if found.tensors.len() <= ROWS {
        return found.tensors.iter().map(|t| Row { name: full(t, &t.name), tensors: vec![t] }).collect();
    }
    let mut layers: BTreeMap<String, Vec<&BlamedTensor>> = BTreeMap::new();
    for t in &found.tensors {
        layers.entry(full(t, layer_of(&t.name))).or_default().push(t);
    }
    layers.into_iter().map(|(name, tensors)| Row { name, tensors }).collect()
}

fn map(name: &RepoName, found: &Blame) -> Markup {
    let rows = rows(found);
    if rows.is_empty() {
        return html! { p.muted { "No such tensors." } };
    }
    let (drawn, more) = (rows.len().min(ROWS), rows.len().saturating_sub(ROWS));
    let of_layers = rows.iter().any(|r| r.tensors.len() > 1);
    html! {
        p.muted {
            (text::count(found.versions.len() as u64, "version")) ", oldest first"
            @if found.more { "; older ones are not looked at" }
            ". A colour says that bytes changed, not by how much: comparing two versions does."
        }
        ul.legend aria-label="Colours" {
            li { span.cell.h0 {} " unchanged" }
            @if of_layers {
                li { span.cell.h1 {} " few of a layer's tensors changed" }
            }
            li { span.cell.h7 {} @if of_layers { " all of them changed" } @else { " changed" } }
            li { span.cell.hx {} " added or deleted" }
        }
        (scroll("Changes over time", &grid(name, found, &rows[..drawn])))
        @if more > 0 { p.muted { (text::grouped(more as u64)) " more rows are not drawn: name fewer tensors." } }
    }
}

fn title(v: &BlamedVersion) -> String {
    v.step.map_or_else(|| v.id.short(), |step| format!("step {step}"))
}

fn grid(name: &RepoName, found: &Blame, rows: &[Row<'_>]) -> Markup {
    html! {
        table.heat {
            caption.hidden { "Which tensors changed in which versions" }
            thead { tr {
                td {}
                @for v in &found.versions {
                    @let (url, about) = (format!("{}/commit/{}", base(name), v.id.to_hex()), text::subject(&v.subject));
                    th scope="col" { span { a href=(url) title=(about) { (title(v)) } } }
                }
            } }
            tbody { @for row in rows { tr {
                th scope="row" { (text::clipped(&text::name(&row.name), 48)) }
                @for (place, v) in found.versions.iter().enumerate() { td { (cell(row, place, v)) } }
            } } }
        }
    }
}

fn cell(row: &Row<'_>, place: usize, v: &BlamedVersion) -> Markup {
    let at =
        |t: &&BlamedTensor| t.changes.binary_search_by_key(&place, |c| c.version).ok().map(|i| t.changes[i].change);
    let changes: Vec<Change> = row.tensors.iter().filter_map(at).collect();
    let modified = changes.iter().filter(|c| **c == Change::Modified).count();
    let class = match (changes.len(), modified) {
        (0, _) => "h0".to_owned(),
        (all, modified) if all > modified => "hx".to_owned(),
        (_, modified) => format!("h{}", (modified * LEVELS).div_ceil(row.tensors.len()).clamp(1, LEVELS)),
    };
    let said = match (changes.as_slice(), row.tensors.len()) {
        _ if v.gone => "contents gone".to_owned(),
        ([], _) => "unchanged".to_owned(),
        ([one], 1) => one.name().to_owned(),
        (some, all) => format!("{} of {} changed", some.len(), text::count(all as u64, "tensor")),
    };
    let words = format!("{}, {}: {said}", text::name(&row.name), title(v));
    // Only what changed is a stop of the keyboard: there are thousands of cells.
    let stop = (!changes.is_empty()).then_some("0");
    html! { span.cell.(class) tabindex=[stop] role="img" aria-label=(words) title=(words) {} }
}
