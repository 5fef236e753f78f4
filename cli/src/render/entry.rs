//! Renders one commit as text and as JSON.

use super::{Paint, count, date, ratio, short_number, size, subject, visible};
use mdl_objects::{Commit, Id, Resume, Signature, Summary};
use mdl_repo::{BoundsRecord, Fidelity, Odb, PrunedMark, Quality, Standing};
use mdl_server::api::entry::Notes;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `name <mail>`
pub fn person(who: &Signature) -> String {
    if who.email.is_empty() { visible(&who.name) } else { visible(&format!("{} <{}>", who.name, who.email)) }
}

/// Names that point at a commit: `(HEAD -> main, tag: v1)`.
fn labels_text(labels: &[String], paint: Paint) -> String {
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

/// `28.0x`. Where no tensor is new a ratio would say nothing about compression.
fn smaller(s: &Summary) -> String {
    match (s.tensors, s.new_tensors) {
        (1.., 0) => "no new tensor".to_owned(),
        _ => ratio(s.logical_bytes, s.stored_bytes),
    }
}

/// `1.2 MiB (72.3x) once approximate`: what an approximation takes, if exact contents lie beside it while it is new.
pub fn approximation(s: &Summary, quality: &Quality) -> Option<String> {
    let bytes = s.stored_bytes.checked_sub(quality.exact_bytes?)?;
    Some(format!("{} ({}) once approximate", size(bytes), ratio(s.logical_bytes, bytes)))
}

/// `86.7 MiB -> 3.1 MiB (28.0x)`, and behind it `, 1.2 MiB (72.3x) once approximate`
fn cost(commit: &Commit) -> String {
    let s = &commit.summary;
    let text = format!("{} -> {} ({})", size(s.logical_bytes), size(s.stored_bytes), smaller(s));
    let quality = Quality::from_commit(commit).ok().flatten();
    let later = quality.and_then(|q| approximation(s, &q));
    later.map_or(text.clone(), |later| format!("{text}, {later}"))
}

/// `3 files, 12 tensors, 2 new`
fn contents(s: &Summary) -> String {
    let (files, tensors) = (count(s.files, "file"), count(s.tensors, "tensor"));
    format!("{files}, {tensors}, {} new", s.new_tensors)
}

/// `3 files, 12 tensors, 2 new; 86.7 MiB -> 3.1 MiB stored (28.0x)`
pub fn stored(s: &Summary) -> String {
    let (before, after) = (size(s.logical_bytes), size(s.stored_bytes));
    format!("{}; {before} -> {after} stored ({})", contents(s), smaller(s))
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

/// When a version gave up contents, as of a clock in UTC.
pub fn marked_at(mark: &PrunedMark) -> String {
    date(&Signature { name: String::new(), email: String::new(), time_ms: mark.time_ms, utc_offset_min: 0 })
}

/// `optimizer.pt, rng_state.pth and 6 files more`: what a version lost.
pub fn left_out(mark: &PrunedMark) -> String {
    const NAMED: usize = 4;
    let named: Vec<&str> = mark.without.keys().take(NAMED).map(String::as_str).collect();
    let more = mark.without.len().saturating_sub(NAMED) as u64;
    let more = if more > 0 { format!(" and {} more", count(more, "file")) } else { String::new() };
    visible(&format!("{}{more}", named.join(", ")))
}

/// A version as listings show it: its commit, the names that stand on it, and what it gives today.
pub struct Entry<'a> {
    id: &'a Id,
    /// With what was noted on it later.
    commit: Commit,
    notes: &'a Notes,
    standing: Standing,
    /// None: it cannot be told, as a newer program made the record of quality.
    fidelity: Option<Fidelity>,
}

impl<'a> Entry<'a> {
    pub fn new(odb: &Odb, notes: &'a Notes, id: &'a Id, commit: &Commit) -> mdl_repo::Result<Entry<'a>> {
        let standing = notes.pruned.standing(odb, id, commit)?;
        let fidelity = notes.pruned.fidelity(odb, id, commit).ok();
        Ok(Entry { id, commit: notes.noted.annotated(id, commit.clone()), notes, standing, fidelity })
    }

    fn head(&self, id: &str, paint: Paint) -> String {
        format!("{}{}", paint.yellow(id), labels_text(self.notes.labels.names_of(self.id), paint))
    }

    /// What a run that goes on from it gets back today.
    fn resume(&self) -> Option<Resume> {
        let tree = if let Standing::StandIn(tree, _) = &self.standing { tree } else { &self.commit.tree };
        mdl_repo::pruned::resume(&self.commit, tree)
    }

    /// Whether it is, or may become, other than what training had.
    fn is_lossy(&self) -> bool {
        let lossy = |q: Quality| q.family != "lossless";
        let is_marked = self.notes.pruned.stand_ins(self.id).next().is_some();
        let is_lossy = || Quality::from_commit(&self.commit).is_ok_and(|q| q.is_some_and(lossy));
        is_marked || self.commit.approximation.is_some() || is_lossy()
    }

    /// Whether a collection has taken all that it held.
    fn is_gone(&self) -> bool {
        self.fidelity == Some(Fidelity::Gone)
    }

    /// `approximate since Fri Oct 2 10:12:00 2026 +0000 (exact: latest 1)`
    fn holds(&self) -> String {
        let Some(fidelity) = self.fidelity.filter(|_| self.is_lossy()) else {
            return String::new();
        };
        let record = &self.notes.pruned;
        let since = |mark: &PrunedMark| format!("{} ({})", marked_at(mark), mark.rules);
        let is_given = |mark: &PrunedMark| matches!(&self.standing, Standing::StandIn(_, given) if given == mark);
        let aged = record.aged(self.id).filter(|_| fidelity != Fidelity::Weights).map(|mark| match self.standing {
            Standing::StandIn(..) => format!("approximate since {}", since(mark)),
            Standing::Committed => format!("exact until a collection: aged {}", since(mark)),
            Standing::Gone => fidelity.name().to_owned(),
        });
        let weights = record.weights(self.id).map(|mark| match is_given(mark) {
            true => format!("weights, without {} since {}", left_out(mark), since(mark)),
            false => format!("with optimizer state until a collection: {} to go since {}", left_out(mark), since(mark)),
        });
        let text = match (aged, weights) {
            (None, None) => fidelity.name().to_owned(),
            (aged, weights) => aged.into_iter().chain(weights).collect::<Vec<_>>().join("; "),
        };
        visible(&text)
    }

    /// `acc, wandb by Ada on 2026-11-24 10:00:00 +0000`
    fn noted(&self) -> String {
        let mut by: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
        for (key, note, _) in self.notes.noted.on(self.id) {
            let at = PrunedMark { time_ms: note.time_ms, ..PrunedMark::default() };
            by.entry((&note.by, marked_at(&at))).or_default().push(key);
        }
        let said = by.iter().map(|((who, at), keys)| format!("{} by {who} on {at}", keys.join(", ")));
        visible(&said.collect::<Vec<_>>().join("; "))
    }

    /// The version in a paragraph, the message indented.
    pub fn full(&self, paint: Paint) -> Vec<String> {
        let Entry { id, commit, .. } = self;
        let mut lines = vec![self.head(&format!("commit {id}"), paint)];
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
        field("Noted:", self.noted());
        if let Some(from) = &commit.resumed_from {
            field("Resumed:", format!("from {}", from.short()));
        }
        field("Resume:", self.resume().map_or_else(String::new, |r| r.name().to_owned()));
        field("Holds:", self.holds());
        field("Quality:", quality(commit));
        field("Stored:", format!("{}; {}", cost(commit), contents(&commit.summary)));
        if let Some(mark) = self.notes.pruned.get(id) {
            let then = if self.is_gone() { "contents are gone" } else { "`mdl prune --undo` takes it back until a gc" };
            field("Pruned:", visible(&format!("{} (kept were: {}; {then})", marked_at(mark), mark.rules)));
        }
        lines.push(String::new());
        lines.extend(commit.message.trim_end().lines().map(|l| format!("    {}", visible(l)).trim_end().to_owned()));
        lines
    }

    /// The version in a line.
    pub fn short(&self, paint: Paint) -> String {
        let commit = &self.commit;
        let mut parts = vec![self.head(&self.id.short(), paint)];
        if !place(commit).is_empty() {
            parts.push(paint.cyan(&format!("[{}]", place(commit))));
        }
        parts.push(subject(&commit.message));
        if !commit.metrics.is_empty() {
            parts.push(paint.bold(&metrics(commit)));
        }
        let fidelity = self.fidelity.filter(|_| self.is_lossy() && !self.is_gone()).map(Fidelity::name);
        parts.extend(fidelity.map(|name| paint.dim(name)));
        if let Ok(Some(q)) = Quality::from_commit(commit)
            && q.family != "lossless"
        {
            let measured = if q.unevaluated() { ", unevaluated" } else { "" };
            let loosened = if q.bounds.as_ref().is_some_and(|b| b.loosened) { " (loosened)" } else { "" };
            parts.push(paint.dim(&format!("{}{loosened}{measured}", q.family)));
        }
        // What is approximate resumes so, and what has weights only, too.
        let is_told = |name: &str| fidelity == Some(name) || self.fidelity == Some(Fidelity::Weights);
        let resume = self.resume().map(Resume::name).filter(|name| !is_told(name));
        parts.extend(resume.map(|name| paint.dim(name)));
        parts.push(paint.dim(&cost(commit)));
        if self.notes.pruned.get(self.id).is_some() {
            parts.push(paint.red(if self.is_gone() { "gone" } else { "pruned" }));
        }
        parts.join(" ")
    }
}

pub fn signature(who: &Signature) -> Value {
    json!({"name": who.name, "email": who.email})
}

pub fn json(odb: &Odb, notes: &Notes, id: &Id, commit: &Commit) -> mdl_repo::Result<Value> {
    Ok(serde_json::to_value(notes.commit_info(odb, id, commit)?).unwrap_or_default())
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
