//! Renders one commit as text and as JSON.

use super::{Paint, count, date, ratio, short_number, size, subject, visible};
use mdl_objects::{Commit, Id, Signature, Summary};
use mdl_repo::{BoundsRecord, PrunedMark, Quality};
use mdl_server::api::entry::CommitInfo;
use serde_json::{Value, json};

/// Names that point at a commit, as `log` shows them: `HEAD -> main`, `tag: v1`.
pub type Labels = [String];

/// `name <mail>`
pub fn person(who: &Signature) -> String {
    if who.email.is_empty() { visible(&who.name) } else { visible(&format!("{} <{}>", who.name, who.email)) }
}

fn labels_text(labels: &Labels, paint: Paint) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let shown: Vec<String> =
        labels.iter().map(|l| if l.starts_with("tag: ") { paint.yellow(l) } else { paint.green(l) }).collect();
    format!(" ({})", shown.join(", "))
}

/// `loss=0.41 acc=0.9`
pub fn metrics(commit: &Commit) -> String {
    let all = commit.metrics.iter().map(|(k, &v)| format!("{k}={}", short_number(v)));
    visible(&all.collect::<Vec<_>>().join(" "))
}

/// `step 12000, epoch 1.5`
fn place(commit: &Commit) -> String {
    let step = commit.step.map(|s| format!("step {s}"));
    let epoch = commit.epoch.map(|e| format!("epoch {}", short_number(e)));
    step.into_iter().chain(epoch).collect::<Vec<_>>().join(", ")
}

/// `86.7 MiB -> 3.1 MiB (28.0x)`
pub fn cost(commit: &Commit) -> String {
    let Summary { logical_bytes, stored_bytes, .. } = commit.summary;
    format!("{} -> {} ({})", size(logical_bytes), size(stored_bytes), ratio(logical_bytes, stored_bytes))
}

/// `3 files, 12 tensors, 2 new`
fn contents(s: &Summary) -> String {
    let (files, tensors) = (count(s.files, "file"), count(s.tensors, "tensor"));
    format!("{files}, {tensors}, {} new", s.new_tensors)
}

/// `3 files, 12 tensors, 2 new; 86.7 MiB -> 3.1 MiB stored (28.0x)`
pub fn stored(s: &Summary) -> String {
    let (before, after) = (size(s.logical_bytes), size(s.stored_bytes));
    let smaller = ratio(s.logical_bytes, s.stored_bytes);
    format!("{}; {before} -> {after} stored ({smaller})", contents(s))
}

/// `bins, 16 bins; 1.4012 against 1.4001 exact, at most 1.4021 (progress 0.25)`
pub fn measured(q: &Quality) -> String {
    let mut text = q.configuration.clone();
    match (q.measured, q.exact, q.limit) {
        _ if q.unevaluated() => text.push_str("; unevaluated"),
        (Some(measured), Some(exact), Some(limit)) => {
            let [measured, exact, limit] = [measured, exact, limit].map(short_number);
            text.push_str(&format!("; {measured} against {exact} exact, at most {limit} ({})", q.gate));
        }
        _ => {}
    }
    text
}

/// `lattice, step 2^-7.5; 1.4012 against 1.4001 exact, at most 1.4021 (progress 0.25)`
fn quality(commit: &Commit) -> String {
    let Ok(Some(q)) = Quality::from_commit(commit) else {
        return String::new();
    };
    let mut text = match q.family.as_str() {
        "lossless" if !q.unevaluated() => q.configuration.clone(),
        _ => measured(&q),
    };
    if let Some(error) = q.rel_l2 {
        text.push_str(&format!("; relative error {}", short_number(error)));
    }
    text.push_str(&q.bounds.as_ref().filter(|_| q.family != "lossless").map(bounded).unwrap_or_default());
    if q.moments != "exact" {
        text.push_str(&format!("; moments {}", q.moments));
    }
    visible(&text)
}

/// `, of the update 0.8; worst row 0.012, of its update 1.9; bounds: weight 0.15, update 2, first 0.002`
fn bounded(b: &BoundsRecord) -> String {
    let part =
        |name: &str, error: Option<f64>| error.map(|e| format!("{name} {}", short_number(e))).unwrap_or_default();
    let tensor = part(", of the update", b.update_error);
    let row = part("; worst row", b.worst_row) + &part(", of its update", b.worst_row_update);
    let hidden = match b.hidden_rows {
        0 => String::new(),
        n => format!("; {} whose update is not seen", count(n, "row")),
    };
    format!("{tensor}{row}{hidden}; {}", b.text())
}

/// When a version was pruned, as of a clock in UTC.
fn pruned_by(mark: &PrunedMark) -> Signature {
    Signature { name: String::new(), email: String::new(), time_ms: mark.time_ms, utc_offset_min: 0 }
}

/// The commit in a paragraph, the message indented.
pub fn full(id: &Id, commit: &Commit, pruned: Option<&PrunedMark>, labels: &Labels, paint: Paint) -> Vec<String> {
    let mut lines = vec![format!("{}{}", paint.yellow(&format!("commit {id}")), labels_text(labels, paint))];
    if commit.parents.len() > 1 {
        let parents: Vec<String> = commit.parents.iter().map(Id::short).collect();
        lines.push(format!("Merge:   {}", parents.join(" ")));
    }
    lines.push(format!("Author:  {}", person(&commit.author)));
    lines.push(format!("Date:    {}", date(&commit.author)));
    let mut field = |name: &str, text: String| {
        if !text.is_empty() {
            lines.push(format!("{name:<9}{text}"));
        }
    };
    field("Trained:", place(commit));
    field("Metrics:", metrics(commit));
    let meta: Vec<String> = commit.meta.iter().map(|(k, v)| format!("{k}={v}")).collect();
    field("Meta:", visible(&meta.join(" ")));
    if let Some(from) = &commit.resumed_from {
        field("Resumed:", format!("from {}", from.short()));
    }
    field("Resume:", commit.resume.map_or_else(String::new, |r| r.name().to_owned()));
    field("Quality:", quality(commit));
    field("Stored:", format!("{}; {}", cost(commit), contents(&commit.summary)));
    if let Some(mark) = pruned {
        field("Pruned:", visible(&format!("{} (kept were: {})", date(&pruned_by(mark)), mark.rules)));
    }
    lines.push(String::new());
    lines.extend(commit.message.trim_end().lines().map(|l| format!("    {}", visible(l)).trim_end().to_owned()));
    lines
}

/// The commit in a line.
pub fn short(id: &Id, commit: &Commit, pruned: Option<&PrunedMark>, labels: &Labels, paint: Paint) -> String {
    let mut parts = vec![format!("{}{}", paint.yellow(&id.short()), labels_text(labels, paint))];
    if !place(commit).is_empty() {
        parts.push(paint.cyan(&format!("[{}]", place(commit))));
    }
    parts.push(subject(&commit.message));
    if !commit.metrics.is_empty() {
        parts.push(paint.bold(&metrics(commit)));
    }
    if let Ok(Some(q)) = Quality::from_commit(commit)
        && q.family != "lossless"
    {
        let measured = if q.unevaluated() { ", unevaluated" } else { "" };
        let loosened = if q.bounds.as_ref().is_some_and(|b| b.loosened) { " (loosened)" } else { "" };
        parts.push(paint.dim(&format!("{}{loosened}{measured}", q.family)));
    }
    if let Some(resume) = commit.resume {
        parts.push(paint.dim(resume.name()));
    }
    parts.push(paint.dim(&cost(commit)));
    if pruned.is_some() {
        parts.push(paint.red("pruned"));
    }
    parts.join(" ")
}

pub fn signature(who: &Signature) -> Value {
    json!({"name": who.name, "email": who.email})
}

pub fn json(id: &Id, commit: &Commit, pruned: Option<&PrunedMark>, labels: &Labels) -> Value {
    serde_json::to_value(CommitInfo::new(id, commit, pruned, labels)).unwrap_or_default()
}

/// Adds a version's numbers to a document.
pub fn with_summary(mut document: Value, s: &Summary) -> Value {
    document["files"] = s.files.into();
    document["tensors"] = s.tensors.into();
    document["new_tensors"] = s.new_tensors.into();
    document["logical_bytes"] = s.logical_bytes.into();
    document["stored_bytes"] = s.stored_bytes.into();
    document
}
