//! Line plots as SVG, each with its numbers in a table.
//!
//! Lines are drawn in a box that stretches; text and points are placed in percent, so that they keep their size at any
//! width.

use crate::pages::{
    layout,
    scale::{Scale, Unit},
    text,
};
use maud::{Markup, html};

/// Points of a line that are drawn; where there are more, each of so many stretches keeps its least and its greatest.
const POINTS: usize = 160;
/// Points that get a mark of their own.
const MARKED: usize = 60;
/// Side of the box that lines are drawn in.
const BOX: f64 = 1000.0;

#[derive(Debug)]
pub struct Plot {
    pub title: String,
    pub unit: Unit,
    /// What is on the horizontal axis.
    pub along: &'static str,
    /// Place of each point on it.
    pub x: Vec<f64>,
    pub lines: Vec<Line>,
}

/// A line: a value for each place that has one.
#[derive(Debug)]
pub struct Line {
    pub name: String,
    pub values: Vec<Option<f64>>,
}

impl Plot {
    /// Leaves as many points as can be seen, the extremes of the first line among them.
    #[must_use]
    pub fn thinned(self) -> Plot {
        let n = self.x.len();
        if n <= POINTS {
            return self;
        }
        let stretch = n.div_ceil(POINTS / 2);
        let value = |i: &usize| {
            let v = self.lines.first().and_then(|l| l.values.get(*i).copied().flatten());
            v.filter(|v| v.is_finite())
        };
        let mut kept = vec![0, n - 1];
        for start in (0..n).step_by(stretch) {
            let within = || (start..n.min(start + stretch)).filter(|i| value(i).is_some());
            let by = |a: &usize, b: &usize| value(a).partial_cmp(&value(b)).unwrap_or(std::cmp::Ordering::Equal);
            kept.extend(within().min_by(by));
            kept.extend(within().max_by(by));
        }
        kept.sort_unstable();
        kept.dedup();
        let pick = |all: &[Option<f64>]| kept.iter().map(|&i| all.get(i).copied().flatten()).collect();
        Plot {
            x: kept.iter().filter_map(|&i| self.x.get(i).copied()).collect(),
            lines: self.lines.iter().map(|l| Line { name: l.name.clone(), values: pick(&l.values) }).collect(),
            ..self
        }
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.lines.iter().flat_map(|l| l.values.iter().copied().flatten())
    }

    /// Returns the text alternative for screen readers.
    fn description(&self) -> String {
        let mut parts = Vec::new();
        for line in &self.lines {
            let mut all = line.values.iter().copied().flatten();
            let (first, last) = (all.next(), line.values.iter().rev().copied().flatten().next());
            if let (Some(first), Some(last)) = (first, last) {
                let (first, last) = (self.unit.show(first), self.unit.show(last));
                parts.push(format!("{}: from {first} to {last}", text::name(&line.name)));
            }
        }
        let odd = self.values().filter(|v| !v.is_finite()).count();
        if odd > 0 {
            parts.push(format!("{odd} values are not finite and not drawn"));
        }
        format!("{} points. {}.", self.x.len(), parts.join("; "))
    }

    /// Renders it; `id` makes element ids unique on the page.
    pub fn show(&self, id: usize) -> Markup {
        let x = Scale::linear(self.x.iter().copied(), Unit::Whole);
        let y = Scale::fitting(self.values(), self.unit);
        let (title, about) = (format!("plot-{id}-title"), format!("plot-{id}-about"));
        html! {
            figure.plot {
                figcaption {
                    b { (text::name(&self.title)) }
                    @if self.lines.len() > 1 {
                        @for (i, line) in self.lines.iter().enumerate() {
                            span.key.{ "c" (i) } { (text::name(&line.name)) }
                        }
                    } @else if let Some(last) = self.values().last() { span.muted { (self.unit.show(last)) } }
                    @if y.log { span.muted { "log scale" } }
                }
                svg.frame role="img" aria-labelledby={ (title) " " (about) } height="210" {
                    title id=(title) { (text::name(&self.title)) " over " (self.along) }
                    desc id=(about) { (self.description()) }
                    svg y="10" width="100%" height="164" {
                        (grid(&x, &y))
                        svg width="100%" height="100%" viewBox="0 0 1000 1000" preserveAspectRatio="none" {
                            @for (i, line) in self.lines.iter().enumerate() {
                                path.line.{ "c" (i) } d=(path(&self.x, &line.values, &x, &y)) {}
                            }
                        }
                        (self.marks(&x, &y))
                        text.axis x="100%" y="100%" dy="31" text-anchor="end" { (self.along) }
                    }
                }
                details { summary { "Data" } (self.table()) }
            }
        }
    }

    fn marks(&self, x: &Scale, y: &Scale) -> Markup {
        let marked = self.x.len() <= MARKED;
        html! {
            @for (i, line) in self.lines.iter().enumerate() {
                @for (at, value) in self.x.iter().zip(&line.values) {
                    @if let Some(v) = value.filter(|v| marked && v.is_finite()) {
                        circle.{ "c" (i) } cx=(percent(x.place(*at))) cy=(percent(1.0 - y.place(v))) r="2.5" {
                            title { (self.along) " " (text::number(*at)) ": " (self.unit.show(v)) }
                        }
                    }
                }
            }
        }
    }

    fn table(&self) -> Markup {
        let (title, value) = (text::name(&self.title), |line: &Line, i: usize| line.values.get(i).copied().flatten());
        let names = self.lines.iter().map(|line| format!("#{}", text::name(&line.name)));
        let columns: Vec<String> = std::iter::once(format!("#{}", self.along)).chain(names).collect();
        let rows = html! {
            @for (i, at) in self.x.iter().enumerate() {
                @if self.lines.iter().any(|line| value(line, i).is_some()) {
                    tr {
                        th.num scope="row" { (text::number(*at)) }
                        @for line in &self.lines {
                            td.num { (value(line, i).map_or(String::new(), |v| self.unit.show(v))) }
                        }
                    }
                }
            }
        };
        layout::table(&format!("Data of {title}"), "", &format!("{title} by {}", self.along), &columns, &rows)
    }
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share.clamp(0.0, 1.0) * 100.0)
}

fn grid(x: &Scale, y: &Scale) -> Markup {
    html! {
        @for (at, name) in y.ticks() {
            @let at = percent(1.0 - at);
            line.grid x1="0" x2="100%" y1=(at) y2=(at) {}
            text.axis x="-8" y=(at) dy="4" text-anchor="end" { (name) }
        }
        @for (at, name) in x.ticks() {
            @let at = percent(at);
            line.tick x1=(at) x2=(at) y1="100%" y2="102%" {}
            text.axis x=(at) y="100%" dy="17" text-anchor="middle" { (name) }
        }
    }
}

/// The line through what is finite; it breaks at what is not, and passes over places without a value.
fn path(places: &[f64], values: &[Option<f64>], x: &Scale, y: &Scale) -> String {
    let mut out = String::new();
    let mut pen = 'M';
    for (at, value) in places.iter().zip(values) {
        match value {
            Some(v) if v.is_finite() => {
                let (px, py) = (x.place(*at) * BOX, (1.0 - y.place(*v)) * BOX);
                out.push_str(&format!("{pen}{px:.1} {py:.1}"));
                pen = 'L';
            }
            Some(_) => pen = 'M',
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(values: Vec<Option<f64>>) -> Plot {
        Plot {
            title: "loss".to_owned(),
            unit: Unit::Plain,
            along: "step",
            x: (0..values.len()).map(|i| i as f64).collect(),
            lines: vec![Line { name: "loss".to_owned(), values }],
        }
    }

    #[test]
    fn what_is_no_number_breaks_the_line_and_draws_nothing_odd() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 5e-324].map(Some);
        for values in [odd.to_vec(), vec![], vec![None], vec![Some(f64::NAN)], vec![Some(1.0)]] {
            let drawn = plot(values).show(0).into_string();
            let svg = drawn.split("<details>").next().unwrap_or_default();
            for attribute in svg.split("d=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(!attribute.contains("NaN") && !attribute.contains("inf"), "{attribute}");
            }
            assert!(!svg.contains("NaN%") && !svg.contains("inf%"), "{svg}");
        }
        let p = plot(vec![Some(1.0), Some(f64::NAN), Some(2.0), None, Some(3.0)]);
        let (x, y) = (Scale::linear(p.x.iter().copied(), Unit::Plain), Scale::fitting(p.values(), Unit::Plain));
        let drawn = path(&p.x, &p.lines[0].values, &x, &y);
        assert_eq!(drawn.matches('M').count(), 2, "{drawn}");
        assert_eq!(drawn.matches('L').count(), 1, "{drawn}");
        assert!(p.description().contains("1 values are not finite"));
    }

    #[test]
    fn thinning_keeps_the_ends_and_the_peaks() {
        let mut values: Vec<Option<f64>> = (0..1000).map(|i| Some(f64::from(i))).collect();
        values[500] = Some(1e6);
        let thin = plot(values).thinned();
        assert!(thin.x.len() <= POINTS + 2, "{}", thin.x.len());
        assert!(thin.values().any(|v| v == 1e6));
        assert_eq!((thin.x.first(), thin.x.last()), (Some(&0.0), Some(&999.0)));
    }
}
