//! Heat map of changed layers: tensors by layer and kind, coloured by relative change.

use crate::pages::{layout::scroll, scale::bounds, text};
use maud::{Markup, html};
use mdl_repo::{Change, TensorDiff};
use std::collections::{BTreeMap, HashMap};

/// Steps of colour.
pub const LEVELS: usize = 7;
/// Layers, kinds and further tensors that are drawn.
const ROWS: usize = 300;
const COLUMNS: usize = 40;
const OTHERS: usize = 60;

/// A tensor to place on the map.
#[derive(Debug)]
pub struct Placed<'a> {
    pub path: &'a str,
    pub name: &'a str,
    /// Its difference, and its place in the list of all; none: it is the same.
    pub diff: Option<(&'a TensorDiff, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    Same,
    /// Relative change, and the place in the list of all.
    Moved(f64, usize),
    /// Not comparable: added, deleted, reshaped, or no numbers.
    Other(&'static str, usize),
}

impl Cell {
    fn from_tensor(placed: &Placed<'_>) -> Cell {
        match placed.diff {
            None => Cell::Same,
            Some((d, at)) => match (d.rel_l2, d.change) {
                (Some(rel), _) => Cell::Moved(if rel.is_nan() { f64::INFINITY } else { rel }, at),
                (None, Change::Added) => Cell::Other("added", at),
                (None, Change::Deleted) => Cell::Other("deleted", at),
                (None, Change::Modified) => Cell::Other("not comparable", at),
            },
        }
    }

    fn rank(self) -> f64 {
        match self {
            Cell::Same => -1.0,
            Cell::Moved(rel, _) => rel,
            Cell::Other(..) => f64::INFINITY,
        }
    }

    fn words(self) -> String {
        match self {
            Cell::Same => "unchanged".to_owned(),
            Cell::Moved(rel, _) => format!("relative change {}", text::rough(rel)),
            Cell::Other(what, _) => what.to_owned(),
        }
    }
}

/// The bounds of the colours, by logarithms.
#[derive(Clone, Copy, Debug)]
pub struct Colours {
    low: f64,
    high: f64,
}

impl Colours {
    fn from_cells(cells: impl Iterator<Item = Cell>) -> Option<Colours> {
        Colours::from_changes(cells.filter_map(|c| match c {
            Cell::Moved(rel, _) => Some(rel),
            _ => None,
        }))
    }

    /// Of relative changes; none: none of them has a size.
    pub fn from_changes(changes: impl Iterator<Item = f64>) -> Option<Colours> {
        let (low, high) = bounds(changes.filter(|rel| *rel > 0.0 && rel.is_finite()).map(f64::ln))?;
        // Less than a factor of ten is no reason for all the colours there are.
        let missing = (std::f64::consts::LN_10 - (high - low)).max(0.0) / 2.0;
        Some(Colours { low: low - missing, high: high + missing })
    }

    /// From 1 to 7; infinite ones and NaN are the greatest.
    pub fn level(&self, rel: f64) -> usize {
        if rel.is_nan() {
            return LEVELS;
        }
        if rel <= 0.0 {
            return 1;
        }
        let share = (rel.ln() - self.low) / (self.high - self.low);
        // The greatest lies on the upper bound.
        1 + ((share * LEVELS as f64).floor().clamp(0.0, (LEVELS - 1) as f64) as usize)
    }

    fn from(&self, level: usize) -> f64 {
        (self.low + (self.high - self.low) * (level - 1) as f64 / LEVELS as f64).exp()
    }
}

/// Layers by kinds of tensors.
#[derive(Debug, Default)]
pub struct Heat {
    kinds: Vec<String>,
    rows: Vec<(String, Vec<Option<Cell>>)>,
    others: Vec<(String, Cell)>,
    /// Whether something was left out.
    cut: bool,
}

/// `model.layers.3.attention.wq.weight` is in layer 3 of `model.layers`, of kind `attention.wq.weight`.
fn split(name: &str) -> Option<(&str, u64, String)> {
    let mut at = 0;
    for part in name.split(['.', '/']) {
        let index = part.parse::<u64>().ok().filter(|_| at > 0 && part.len() <= 6);
        if let Some(index) = index {
            let kind = name.get(at + part.len() + 1..).filter(|k| !k.is_empty())?;
            return Some((name.get(..at - 1)?, index, starred(kind)));
        }
        at += part.len() + 1;
    }
    None
}

/// With numbers between the dots as stars: experts, blocks in blocks.
fn starred(kind: &str) -> String {
    let star = |part: &str| match part.bytes().all(|b| b.is_ascii_digit()) {
        true => "*".to_owned(),
        false => part.to_owned(),
    };
    kind.split('.').map(star).collect::<Vec<_>>().join(".")
}

/// A path without its digits: the parts of a checkpoint in many files belong together.
fn family(path: &str) -> String {
    path.chars().filter(|c| !c.is_ascii_digit()).collect()
}

impl Heat {
    pub fn from_tensors(tensors: &[Placed<'_>]) -> Heat {
        let mut layers: BTreeMap<(String, String, u64), HashMap<String, Cell>> = BTreeMap::new();
        let mut heat = Heat::default();
        for placed in tensors {
            let cell = Cell::from_tensor(placed);
            let Some((prefix, index, kind)) = split(placed.name) else {
                heat.others.push((placed.name.to_owned(), cell));
                continue;
            };
            let key = (family(placed.path), prefix.to_owned(), index);
            if !layers.contains_key(&key) && layers.len() >= ROWS {
                heat.cut = true;
                continue;
            }
            if !heat.kinds.contains(&kind) {
                if heat.kinds.len() >= COLUMNS {
                    heat.cut = true;
                    continue;
                }
                heat.kinds.push(kind.clone());
            }
            let slot = layers.entry(key).or_default().entry(kind).or_insert(cell);
            if cell.rank() > slot.rank() {
                *slot = cell;
            }
        }
        heat.cut |= heat.others.len() > OTHERS;
        heat.others.truncate(OTHERS);
        heat.kinds.sort();
        let several = layers.keys().any(|k| layers.keys().next().is_some_and(|first| first.0 != k.0));
        for ((family, prefix, index), cells) in layers {
            let from = if several { format!("{family}: ") } else { String::new() };
            let row = heat.kinds.iter().map(|k| cells.get(k).copied()).collect();
            heat.rows.push((format!("{from}{prefix}.{index}"), row));
        }
        heat
    }

    fn cells(&self) -> impl Iterator<Item = Cell> {
        let grid = self.rows.iter().flat_map(|(_, row)| row.iter().copied().flatten());
        grid.chain(self.others.iter().map(|o| o.1))
    }

    /// As markup; `url` leads to a tensor by its place in the list of all.
    pub fn show(&self, url: &dyn Fn(usize) -> String) -> Markup {
        let colours = Colours::from_cells(self.cells());
        let paint = Paint { colours, url };
        html! {
            @if let Some(colours) = colours { (legend(&colours)) }
            @if !self.rows.is_empty() { (scroll("Changes by layer", &self.grid(&paint))) }
            @if !self.others.is_empty() {
                h3 { "Outside the layers" }
                ul.strip {
                    @for (name, cell) in &self.others {
                        li { (paint.cell(name, *cell)) " " code.break { (text::name(name)) } }
                    }
                }
            }
            @if self.cut { p.muted { "Not all tensors are drawn; the list below has all." } }
        }
    }

    fn grid(&self, paint: &Paint<'_>) -> Markup {
        html! {
            table.heat {
                caption.hidden { "Relative change of each kind of tensor in each layer" }
                thead { tr {
                    td {}
                    @for kind in &self.kinds { th scope="col" { span { (text::clipped(&text::name(kind), 48)) } } }
                } }
                tbody { @for (layer, cells) in &self.rows { tr {
                    th scope="row" { (text::clipped(&text::name(layer), 48)) }
                    @for (cell, kind) in cells.iter().zip(&self.kinds) {
                        td { @if let Some(cell) = cell { (paint.cell(&format!("{layer}, {kind}"), *cell)) } }
                    }
                } } }
            }
        }
    }
}

struct Paint<'a> {
    colours: Option<Colours>,
    url: &'a dyn Fn(usize) -> String,
}

impl Paint<'_> {
    fn cell(&self, name: &str, cell: Cell) -> Markup {
        let words = format!("{}: {}", text::name(name), cell.words());
        let class = match cell {
            Cell::Same => "h0".to_owned(),
            Cell::Moved(rel, _) => format!("h{}", self.colours.map_or(LEVELS, |c| c.level(rel))),
            Cell::Other(..) => "hx".to_owned(),
        };
        html! {
            @match cell {
                Cell::Same => span.cell.(class) tabindex="0" role="img" aria-label=(words) title=(words) {},
                Cell::Moved(_, at) | Cell::Other(_, at) => {
                    a.cell.(class) href=((self.url)(at)) aria-label=(words) title=(words) {}
                },
            }
        }
    }
}

pub fn legend(colours: &Colours) -> Markup {
    html! {
        ul.legend aria-label="Colours: relative L2 change from" {
            li { span.cell.h0 {} " unchanged" }
            @for level in 1..=LEVELS { li { span.cell.{ "h" (level) } {} " " (text::rough(colours.from(level))) } }
            li { span.cell.hx {} " added, deleted or not comparable" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_codec::Dtype;

    fn diff(name: &str, rel_l2: Option<f64>) -> TensorDiff {
        TensorDiff {
            name: name.to_owned(),
            change: Change::Modified,
            dtype: Dtype::F32,
            shape: vec![2],
            changed: Some(1.0),
            rel_l2,
            max_abs: None,
            cosine: None,
        }
    }

    #[test]
    fn names_tell_layers() {
        let split = |name| split(name).map(|(p, i, k)| (p.to_owned(), i, k));
        let of = |p: &str, i, k: &str| Some((p.to_owned(), i, k.to_owned()));
        assert_eq!(split("model.layers.3.attention.wq.weight"), of("model.layers", 3, "attention.wq.weight"));
        assert_eq!(split("layers.3.experts.17.w1"), of("layers", 3, "experts.*.w1"));
        assert_eq!(split("layer1.0.conv1.weight"), of("layer1", 0, "conv1.weight"));
        for none in ["lm_head.weight", "", "0", "0.weight", "a.3", "a..", "x.99999999999.y"] {
            assert_eq!(split(none), None, "{none:?}");
        }
    }

    #[test]
    fn the_map_has_a_row_a_layer_and_colours_from_least_to_most() {
        let diffs: Vec<TensorDiff> = (0..12u32)
            .map(|i| diff(&format!("h.{i}.w"), Some(10f64.powi(-(i as i32)))))
            .chain([diff("head", Some(f64::INFINITY)), diff("h.3.b", None)])
            .collect();
        let mut placed: Vec<Placed<'_>> =
            diffs.iter().enumerate().map(|(i, d)| Placed { path: "m", name: &d.name, diff: Some((d, i)) }).collect();
        placed.push(Placed { path: "m", name: "h.4.b", diff: None });
        let heat = Heat::from_tensors(&placed);
        assert_eq!(heat.kinds, ["b", "w"]);
        assert_eq!(heat.rows.len(), 12);
        assert_eq!(heat.rows.iter().map(|r| r.0.as_str()).collect::<Vec<_>>()[10], "h.10");
        let colours = Colours::from_cells(heat.cells()).expect("colours");
        assert_eq!((colours.level(1.0), colours.level(1e-11), colours.level(f64::INFINITY)), (7, 1, 7));
        let shown = heat.show(&|at| format!("#t{at}")).into_string();
        assert!(
            shown.contains("aria-label=\"h.0, w: relative change 1\"") && shown.contains("class=\"cell h7\""),
            "{shown}"
        );
        assert!(shown.contains("h.4, b: unchanged") && shown.contains("h.3, b: not comparable"));
        assert!(shown.contains("head: relative change inf"));
    }
}
