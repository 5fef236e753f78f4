//! Prints the comparison as a table, as JSON and as CSV.

use super::{Results, Row};
use crate::{
    context::Context,
    errors::Result,
    render::{Align, Table, count, json_number, short_number, visible},
};
use mdl_rivals::compare::{Measured, Verdict, WEIGHT_BOUND};
use serde_json::{Value, json};
use std::io::Write;

/// Sums over a history: one line of the table.
struct Line<'a> {
    rows: Vec<&'a Row>,
}

impl Line<'_> {
    fn measured(&self) -> impl DoubleEndedIterator<Item = &Measured> {
        self.rows.iter().filter_map(|r| r.measured.as_ref())
    }

    fn sum(&self, f: impl Fn(&Measured) -> f64) -> f64 {
        self.measured().map(f).sum()
    }

    fn most(&self, f: impl Fn(&Measured) -> f64) -> f64 {
        self.measured().map(f).fold(0.0, f64::max)
    }

    /// The settings at the last checkpoint.
    fn name(&self) -> String {
        self.measured().next_back().map_or_else(|| self.rows[0].asked.clone(), |m| m.system.clone())
    }

    fn ratio(&self) -> f64 {
        self.sum(|m| m.logical_bytes as f64) / self.sum(|m| m.stored_bytes as f64)
    }
}

/// The systems in the order asked for.
fn lines(results: &Results) -> Vec<Line<'_>> {
    let first = results.rows.iter().take_while(|r| r.at == 0).count();
    let every = |i: usize| results.rows.iter().skip(i).step_by(first.max(1)).collect();
    (0..first).map(|i| Line { rows: every(i) }).collect()
}

fn quality(verdict: Option<&Verdict>) -> String {
    match verdict {
        Some(Verdict::Quality(q)) => short_number(*q),
        Some(Verdict::None(_)) => "none".to_owned(),
        None => String::new(),
    }
}

pub fn table(context: &mut Context, results: &Results) -> Result<()> {
    use Align::{Left, Right};
    let judged = results.lower_is_better.is_some();
    let mut table = Table::new(&[Left, Right, Right, Right, Right, Right, Right, Right, Right, Right]);
    let speed = |s: f64| format!("{s:.0}");
    let beyond = format!("rows > {}", short_number(WEIGHT_BOUND));
    let mut head = vec!["system", "ratio", "max error", "rel. error", "of update", "worst row", &beyond];
    head.extend(judged.then_some("quality").into_iter().chain(["enc MB/s", "dec MB/s"]));
    table.row(head.into_iter().map(str::to_owned));
    for line in lines(results) {
        let mut cells = vec![visible(&line.name())];
        if line.rows.iter().any(|r| r.measured.is_none()) {
            cells.push("no setting is good enough".to_owned());
            table.row(cells);
            continue;
        }
        cells.push(format!("{:.2}", line.ratio()));
        cells.push(short_number(line.most(|m| m.max_error)));
        cells.push(short_number(line.most(|m| m.relative_error)));
        let updates = line.measured().filter_map(|m| m.update_error).reduce(f64::max);
        cells.push(updates.map_or("-".to_owned(), short_number));
        cells.push(short_number(line.most(|m| m.worst_row)));
        cells.push(format!("{}", line.sum(|m| m.rows_beyond as f64)));
        if judged {
            cells.push(quality(line.rows.last().and_then(|r| r.verdict.as_ref())));
        }
        let bytes = line.sum(|m| m.logical_bytes as f64) / 1e6;
        cells.push(speed(bytes / line.sum(|m| m.encode_seconds)));
        cells.push(speed(bytes / line.sum(|m| m.decode_seconds)));
        table.row(cells);
    }
    context.print(&table.lines(0))?;
    let n = results.checkpoints.len() as u64;
    if n > 1 {
        let what = "ratios over all of them, the largest errors, the last quality; --json and --csv have each";
        writeln!(context.out, "{}", context.paint.dim(&format!("{}: {what}", count(n, "checkpoint"))))?;
    }
    if let Some(exact @ Some(_)) = results.exact.last().map(Option::as_ref) {
        writeln!(context.out, "quality without loss: {}", quality(exact))?;
    }
    for row in &results.rows {
        if let Some(Verdict::None(why)) = &row.verdict {
            context.note(&format!("note: {}: the evaluation {}", row.asked, visible(why)));
        }
    }
    Ok(())
}

fn verdict_json(verdict: Option<&Verdict>) -> Value {
    match verdict {
        Some(Verdict::Quality(q)) => json_number(*q),
        _ => Value::Null,
    }
}

pub fn json(results: &Results) -> Value {
    let row = |r: &Row| match &r.measured {
        None => json!({"asked": r.asked, "system": null}),
        Some(m) => json!({
            "asked": r.asked,
            "system": m.system,
            "logical_bytes": m.logical_bytes,
            "stored_bytes": m.stored_bytes,
            "ratio": m.ratio(),
            "max_error": json_number(m.max_error),
            "relative_error": json_number(m.relative_error),
            "update_error": m.update_error.map(json_number),
            "worst_row": json_number(m.worst_row),
            "rows_beyond": m.rows_beyond,
            "quality": verdict_json(r.verdict.as_ref()),
            "encode_mb_s": m.encode_speed(),
            "decode_mb_s": m.decode_speed(),
        }),
    };
    let checkpoint = |(i, name): (usize, &String)| {
        let rows: Vec<Value> = results.rows.iter().filter(|r| r.at == i).map(row).collect();
        json!({"checkpoint": name, "quality": verdict_json(results.exact[i].as_ref()), "systems": rows})
    };
    let all: Vec<Value> = results.checkpoints.iter().enumerate().map(checkpoint).collect();
    json!({"checkpoints": all, "lower_is_better": results.lower_is_better})
}

/// A field that may hold commas.
fn field(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

pub fn csv(results: &Results) -> String {
    let mut out = String::from(
        "checkpoint,asked,system,logical_bytes,stored_bytes,ratio,max_error,relative_error,update_error,worst_row,rows_beyond,\
         quality,encode_mb_s,decode_mb_s\n",
    );
    for r in &results.rows {
        let head = format!("{},{}", field(&results.checkpoints[r.at]), field(&r.asked));
        let Some(m) = &r.measured else {
            out.push_str(&format!("{head},,,,,,,,,,,,\n"));
            continue;
        };
        let quality = match r.verdict {
            Some(Verdict::Quality(q)) => q.to_string(),
            _ => String::new(),
        };
        let (system, ratio, encode, decode) = (field(&m.system), m.ratio(), m.encode_speed(), m.decode_speed());
        let Measured { logical_bytes, stored_bytes, max_error, relative_error, worst_row, rows_beyond, .. } = m;
        let update = m.update_error.map_or_else(String::new, |e| format!("{e:e}"));
        out.push_str(&format!(
            "{head},{system},{logical_bytes},{stored_bytes},{ratio:.4},{max_error:e},{relative_error:e},{update},\
             {worst_row:e},{rows_beyond},{quality},{encode:.1},{decode:.1}\n"
        ));
    }
    out
}
