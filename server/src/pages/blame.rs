//! Blame page: which tensors changed in which versions, and by how much where asked for, as a heat map over time.

use crate::pages::{
    computing::{AGAIN, Computations, Job, Standing, unfinished},
    heat::{Colours, LEVELS, legend},
    layout::scroll,
    prelude::*,
};
use mdl_repo::{
    Amounts, Blame, BlameQuery, BlamedChange, BlamedTensor, BlamedVersion, Change, Progress, Selection, layer_of,
};
use std::{collections::BTreeMap, sync::Arc};

/// Versions and rows that are drawn.
const VERSIONS: usize = 60;
const ROWS: usize = 120;
/// What takes the time where amounts are asked for.
const DOING: &str = "Every tensor is decoded before and after each change, once.";

#[derive(Debug, Deserialize)]
pub struct Chosen {
    glob: Option<String>,
    /// `amounts`: by how much.
    by: Option<String>,
}

/// A table of changes whose amounts are computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured(Arc<Blame>);

impl Job for Measured {
    type Output = Blame;

    fn run(&self, repo: &Repo, progress: &dyn Progress) -> Result<Blame> {
        let mut found = (*self.0).clone();
        found.measure(repo, Amounts::All, progress)?;
        Ok(found)
    }

    fn tensors(found: &Blame) -> usize {
        found.tensors.iter().map(|t| 1 + t.changes.len()).sum()
    }
}

/// A row of the map: a layer, or a tensor where there are few.
struct Row<'a> {
    name: String,
    tensors: Vec<&'a BlamedTensor>,
}

/// `GET /{owner}/{name}/blame/{rev}`
pub async fn show(
    Extension(measured): Extension<Computations<Measured>>,
    Read(access): Read,
    Path(at): Path<AtRev>,
    Query(chosen): Query<Chosen>,
) -> Result<Response> {
    let glob = chosen.glob.map(|g| g.trim().to_owned()).filter(|g| !g.is_empty());
    let by_amounts = chosen.by.as_deref() == Some("amounts");
    let (rev, asked) = (at.rev.clone(), glob.clone());
    // Ids alone: nothing is decoded yet.
    let found = access.clone().heavy(move |access, progress| {
        let repo = &*access.repo;
        let id = revision::resolve(repo, &rev)?;
        let selection = Selection::new(&asked.into_iter().collect::<Vec<_>>())?;
        let query = BlameQuery { selection, amounts: Amounts::None, row: None, versions: VERSIONS };
        Ok(mdl_repo::blame(repo, &id, &query, progress)?)
    });
    let found = Arc::new(found.await?);
    let name = &access.name;
    let standing = match by_amounts {
        true => measured.ask(&access, Measured(found)).await?,
        false => Standing::Done(found),
    };
    let content = html! {
        h1 { "Changes over time" }
        (form(name, &at.rev, glob.as_deref().unwrap_or_default(), by_amounts))
        @match &standing {
            Standing::Done(found) => (map(name, found, by_amounts)),
            Standing::UnderWay(share) => (unfinished("Measuring", DOING, Some(*share))),
            Standing::Waiting => (unfinished("Measuring", DOING, None)),
        }
    };
    let mut frame = Frame::new("Changes over time", name, Tab::Commits, Some(&at.rev), &access.caller);
    if !matches!(standing, Standing::Done(_)) {
        frame.refresh = Some(AGAIN);
    }
    Ok(page(&frame, &content))
}

fn form(name: &RepoName, rev: &str, glob: &str, by_amounts: bool) -> Markup {
    html! {
        form.compare method="get" action={ (base(name)) "/blame/" (text::segment(rev)) } {
            div {
                label for="glob" { "Tensors" }
                input #glob name="glob" value=(glob) placeholder="FILE:TENSOR, such as :*embed*" spellcheck="false" autocomplete="off";
            }
            div {
                label for="by" { "Colours say" }
                select #by name="by" {
                    option value="share" selected[!by_amounts] { "what changed" }
                    option value="amounts" selected[by_amounts] { "by how much" }
                }
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

/// What colours say.
enum Shades {
    /// The share of a layer's tensors that changed.
    Share { of_layers: bool },
    /// By how much, at most; none: nothing has a size.
    Amounts(Option<Colours>),
}

impl Shades {
    fn legend(&self) -> Markup {
        let of_layers = match self {
            Shades::Amounts(Some(colours)) => return legend(colours),
            Shades::Amounts(None) => false,
            Shades::Share { of_layers } => *of_layers,
        };
        html! {
            ul.legend aria-label="Colours" {
                li { span.cell.h0 {} " unchanged" }
                @if of_layers {
                    li { span.cell.h1 {} " few of a layer's tensors changed" }
                }
                li { span.cell.h7 {} @if of_layers { " all of them changed" } @else { " changed" } }
                li { span.cell.hx {} " added or deleted" }
            }
        }
    }
}

fn map(name: &RepoName, found: &Blame, by_amounts: bool) -> Markup {
    let rows = rows(found);
    if rows.is_empty() {
        return html! { p.muted { "No such tensors." } };
    }
    let (drawn, more) = (rows.len().min(ROWS), rows.len().saturating_sub(ROWS));
    let drawn = &rows[..drawn];
    let amounts = || drawn.iter().flat_map(|r| &r.tensors).flat_map(|t| &t.changes).filter_map(|c| c.rel_l2);
    let shades = match by_amounts {
        true => Shades::Amounts(Colours::from_changes(amounts())),
        false => Shades::Share { of_layers: rows.iter().any(|r| r.tensors.len() > 1) },
    };
    html! {
        p.muted {
            (text::count(found.versions.len() as u64, "version")) ", oldest first"
            @if found.more { "; older ones are not looked at" }
            @if by_amounts {
                ". A colour says by how much the tensor changed that changed most, relative to what it was."
            } @else {
                ". A colour says that bytes changed, not by how much."
            }
        }
        (shades.legend())
        (scroll("Changes over time", &grid(name, found, drawn, &shades)))
        @if more > 0 { p.muted { (text::grouped(more as u64)) " more rows are not drawn: name fewer tensors." } }
    }
}

fn title(v: &BlamedVersion) -> String {
    v.step.map_or_else(|| v.id.short(), |step| format!("step {step}"))
}

fn grid(name: &RepoName, found: &Blame, rows: &[Row<'_>], shades: &Shades) -> Markup {
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
                @for (place, v) in found.versions.iter().enumerate() { td { (cell(row, place, v, shades)) } }
            } } }
        }
    }
}

/// The largest of the amounts of changes, NaN above all.
fn largest(changes: &[&BlamedChange]) -> Option<f64> {
    changes.iter().filter_map(|c| c.rel_l2).map(|v| if v.is_nan() { f64::INFINITY } else { v }).reduce(f64::max)
}

fn cell(row: &Row<'_>, place: usize, v: &BlamedVersion, shades: &Shades) -> Markup {
    let at = |t: &&'_ BlamedTensor| t.changes.binary_search_by_key(&place, |c| c.version).ok();
    let changes: Vec<&BlamedChange> = row.tensors.iter().filter_map(|t| t.changes.get(at(t)?)).collect();
    let modified = changes.iter().filter(|c| c.change == Change::Modified).count();
    let amount = largest(&changes);
    let level = match (shades, amount) {
        (Shades::Amounts(colours), Some(rel)) => colours.map_or(LEVELS, |c| c.level(rel)),
        _ => (modified * LEVELS).div_ceil(row.tensors.len()).clamp(1, LEVELS),
    };
    let class = match (changes.len(), modified) {
        (0, _) => "h0".to_owned(),
        (all, modified) if all > modified => "hx".to_owned(),
        // It changed its shape or type, or has no numbers.
        _ if matches!(shades, Shades::Amounts(_)) && amount.is_none() => "hx".to_owned(),
        _ => format!("h{level}"),
    };
    let said = match (changes.as_slice(), row.tensors.len()) {
        _ if v.gone => "contents gone".to_owned(),
        ([], _) => "unchanged".to_owned(),
        ([one], 1) => one.change.name().to_owned(),
        (some, all) => format!("{} of {} changed", some.len(), text::count(all as u64, "tensor")),
    };
    let by = amount.map(|rel| format!(", relative change {}", text::rough(rel))).unwrap_or_default();
    let words = format!("{}, {}: {said}{by}", text::name(&row.name), title(v));
    // Only what changed is a stop of the keyboard: there are thousands of cells.
    let stop = (!changes.is_empty()).then_some("0");
    html! { span.cell.(class) tabindex=[stop] role="img" aria-label=(words) title=(words) {} }
}
