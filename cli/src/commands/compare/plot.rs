//! Plots the comparison as SVG: ratio at every checkpoint (Inshrinkerator's Figure 10), ratio against error or quality
//! (its Figure 1), ratios over all (its Figure 11).

use super::Results;
use crate::errors::Result;
use mdl_repo::RepoError;
use mdl_rivals::compare::Verdict;
use std::{fmt::Write, fs, path::Path};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Room for labels: left, top, right (the legend), bottom.
const ROOM: [f64; 4] = [64.0, 36.0, 190.0, 48.0];
/// Colours that people of all eyesights tell apart (Okabe and Ito), then the same again.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933"];

/// A line or a cloud of one system.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Writes `checkpoints.svg`, `tradeoff.svg` and `ratios.svg`.
pub fn write(folder: &Path, results: &Results) -> Result<()> {
    let failed = || RepoError::io(format!("cannot write to {}", folder.display()));
    fs::create_dir_all(folder).map_err(failed())?;
    let by = |f: &dyn Fn(&super::Row) -> Option<(f64, f64)>| {
        let mut all: Vec<Series> = Vec::new();
        for r in &results.rows {
            let Some(p) = f(r).filter(|p| p.0.is_finite() && p.1.is_finite()) else {
                continue;
            };
            match all.iter_mut().find(|s| s.name == r.asked) {
                Some(s) => s.points.push(p),
                None => all.push(Series { name: r.asked.clone(), points: vec![p] }),
            }
        }
        all
    };
    let ratio = |r: &super::Row| r.measured.as_ref().map(|m| m.ratio());
    let steps = by(&|r| Some(((r.at + 1) as f64, ratio(r)?)));
    let judged = results.lower_is_better.is_some();
    let cost = |r: &super::Row| match (&r.verdict, judged) {
        (Some(Verdict::Quality(q)), _) => Some(*q),
        (_, true) => None,
        (_, false) => r.measured.as_ref().map(|m| m.relative_error),
    };
    let cloud = by(&|r| Some((cost(r)?, ratio(r)?)));
    let axis = if judged { "quality" } else { "relative L2 error" };
    let totals: Vec<Series> = steps.iter().map(|s| total(results, &s.name)).collect();
    for (name, svg) in [
        ("checkpoints.svg", chart("Ratio at every checkpoint", "checkpoint", &steps, true)),
        ("tradeoff.svg", chart("Ratio against what it costs", axis, &cloud, false)),
        ("ratios.svg", bars("Ratio over all checkpoints", &totals)),
    ] {
        fs::write(folder.join(name), svg).map_err(failed())?;
    }
    Ok(())
}

/// The ratio of one system over the whole history.
fn total(results: &Results, name: &str) -> Series {
    let rows = results.rows.iter().filter(|r| r.asked == name);
    let sizes = rows.filter_map(|r| r.measured.as_ref()).map(|m| (m.logical_bytes, m.stored_bytes));
    let (a, b) = sizes.fold((0, 0), |s, m| (s.0 + m.0, s.1 + m.1));
    Series { name: name.to_owned(), points: vec![(0.0, a as f64 / (b as f64).max(1.0))] }
}

/// `&`, `<` and `>` as SVG has them.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Where a chart's points lie, and the numbers at its edges.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame {
    /// Around all points, a little wider; ratios on a logarithmic axis.
    fn from_series(series: &[Series]) -> Frame {
        let all = || series.iter().flat_map(|s| &s.points);
        let ends = |f: &dyn Fn(&(f64, f64)) -> f64| {
            let low = all().map(f).fold(f64::INFINITY, f64::min);
            let high = all().map(f).fold(f64::NEG_INFINITY, f64::max);
            let wide = (high - low).max(1e-12 + 0.02 * high.abs());
            if low.is_finite() { (low - 0.05 * wide, high + 0.05 * wide) } else { (0.0, 1.0) }
        };
        Frame { x: ends(&|p| p.0), y: ends(&|p| p.1.max(1e-3).log2()) }
    }

    fn place(&self, p: (f64, f64)) -> (f64, f64) {
        let share = |v: f64, (low, high): (f64, f64)| (v - low) / (high - low);
        let (w, h) = (WIDTH - ROOM[0] - ROOM[2], HEIGHT - ROOM[1] - ROOM[3]);
        let y = share(p.1.max(1e-3).log2(), self.y);
        (ROOM[0] + share(p.0, self.x) * w, HEIGHT - ROOM[3] - y * h)
    }
}

fn head(title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{}\" y=\"22\" font-size=\"15\">{}</text>\n",
        ROOM[0],
        escape(title)
    )
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escape(text);
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn chart(title: &str, axis: &str, series: &[Series], lines: bool) -> String {
    let (mut out, frame) = (head(title), Frame::from_series(series));
    let (right, bottom) = (WIDTH - ROOM[2], HEIGHT - ROOM[3]);
    for i in 0..=4 {
        let f = f64::from(i) / 4.0;
        let ratio = (frame.y.0 + f * (frame.y.1 - frame.y.0)).exp2();
        let x = frame.x.0 + f * (frame.x.1 - frame.x.0);
        let (px, py) = frame.place((x, ratio));
        let _ = writeln!(out, "<path d=\"M{} {py:.1}H{right}\" stroke=\"#ddd\"/>", ROOM[0]);
        text(&mut out, ROOM[0] - 6.0, py + 4.0, "end", &format!("{ratio:.3}"));
        text(&mut out, px, bottom + 16.0, "middle", &format!("{x:.4}"));
    }
    text(&mut out, (ROOM[0] + right) / 2.0, HEIGHT - 10.0, "middle", axis);
    text(&mut out, 6.0, ROOM[1] - 4.0, "start", "times smaller");
    for (i, s) in series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let points: Vec<(f64, f64)> = s.points.iter().map(|&p| frame.place(p)).collect();
        if lines && points.len() > 1 {
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
                path.join(" ")
            );
        }
        for (x, y) in &points {
            let name = escape(&s.name);
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"><title>{name}</title></circle>"
            );
        }
        let y = ROOM[1] + 14.0 * i as f64;
        let _ = writeln!(out, "<circle cx=\"{}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/>", right + 14.0, y - 4.0);
        text(&mut out, right + 24.0, y, "start", &shorten(&s.name));
    }
    out + "</svg>\n"
}

fn bars(title: &str, series: &[Series]) -> String {
    let mut out = head(title);
    let most = series.iter().filter_map(|s| s.points.first()).map(|p| p.1).fold(1.0, f64::max);
    let each = (HEIGHT - ROOM[1] - 12.0) / series.len().max(1) as f64;
    for (i, s) in series.iter().enumerate() {
        let (ratio, y) = (s.points.first().map_or(0.0, |p| p.1), ROOM[1] + each * i as f64);
        let (left, room) = (ROOM[2], WIDTH - ROOM[2] - 70.0);
        let colour = COLOURS[i % COLOURS.len()];
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
            ratio / most * room,
            each * 0.8
        );
        text(&mut out, left - 6.0, y + each * 0.5 + 3.0, "end", &shorten(&s.name));
        text(&mut out, left + ratio / most * room + 6.0, y + each * 0.5 + 3.0, "start", &format!("{ratio:.2}"));
    }
    out + "</svg>\n"
}

/// A legend has room for so much.
fn shorten(name: &str) -> String {
    match name.char_indices().nth(25) {
        Some((at, _)) => format!("{}...", &name[..at]),
        None => name.to_owned(),
    }
}
