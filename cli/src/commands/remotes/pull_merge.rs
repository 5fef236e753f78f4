//! `mdl pull --merge`: makes one version of two sides that have parted.

use super::Fetched;
use crate::{
    commands::{prelude::*, replay},
    errors::unforced,
};
use mdl_repo::{
    ErrorKind, FastForward, MergeConflict, MergeOutcome, MergeRequest, Method, Override, Remote, Rule, Side, Strategy,
};

/// A strategy of `mdl merge`, by its name.
pub fn strategy(text: &str) -> std::result::Result<Rule, String> {
    let side = match text {
        "ours" => Some(Side::Ours),
        "theirs" => Some(Side::Theirs),
        _ => None,
    };
    let method = || Method::from_name(text).map(|method| Rule::Weights(Strategy::new(method)));
    let names = || Method::ALL.map(Method::name).join(", ");
    side.map(Rule::Side).or_else(method).ok_or_else(|| format!("strategies are {}, ours, theirs", names()))
}

/// Merges what was fetched into the present branch.
pub fn merge(
    context: &mut Context,
    repo: &Repo,
    (name, remote, done): (&str, &Remote, &Fetched),
    (tip, label): (&Id, &str),
    (rule, sides): (&Rule, &replay::Sides),
) -> Result<()> {
    let of_side = |globs: &[String], side: Side| {
        globs.iter().map(move |glob| Override { glob: glob.clone(), rule: Rule::Side(side) }).collect::<Vec<_>>()
    };
    let request = MergeRequest {
        others: vec![(*tip, label.to_owned())],
        strategy: rule.clone(),
        overrides: [of_side(&sides.ours, Side::Ours), of_side(&sides.theirs, Side::Theirs)].concat(),
        with_state: false,
        message: None,
        fast_forward: FastForward::Allowed,
    };
    if !done.moves.is_empty() && !context.global.json && context.chatty() {
        done.tell(context, remote)?;
    }
    let outcome = mdl_repo::merge_versions(repo, &request, &context.bars).map_err(unforced)?;
    let result = match &outcome {
        MergeOutcome::UpToDate => "up_to_date",
        MergeOutcome::FastForward { .. } => "fast_forward",
        MergeOutcome::Merged(_) => "merged",
        MergeOutcome::Conflicts(_) => "conflicts",
    };
    let (from, conflicts) = match &outcome {
        MergeOutcome::Merged(made) => (Some(made.from), &[][..]),
        MergeOutcome::Conflicts(conflicts) => (None, &conflicts[..]),
        _ => (None, &[][..]),
    };
    let document = || {
        let mut document = done.json(name);
        document["result"] = result.into();
        document["from"] = from.map(|id| id.to_hex()).into();
        document["commit"] = repo.refs().head_commit()?.map(|id| id.to_hex()).into();
        document["conflicts"] = conflicts.iter().map(conflict_json).collect();
        Ok(document)
    };
    if context.wants_text(document)? {
        if let MergeOutcome::Merged(made) = &outcome {
            let what = count(made.computed as u64, "tensor");
            writeln!(context.out, "Merged {label} ({}, {what} computed) -> {}", rule.name(), made.id.short())?;
        }
        for conflict in conflicts {
            let place = conflict.tensor.as_ref().map_or_else(String::new, |tensor| format!(" {tensor}"));
            let line = format!("{}{place}: {}", conflict.path, conflict.reason.text());
            writeln!(context.out, "  {}", context.paint.red(&visible(&line)))?;
        }
    }
    refuse(conflicts)
}

fn conflict_json(conflict: &MergeConflict) -> Value {
    json!({"path": conflict.path, "tensor": conflict.tensor, "reason": conflict.reason.name()})
}

fn refuse(conflicts: &[MergeConflict]) -> Result<()> {
    if conflicts.is_empty() {
        return Ok(());
    }
    let hint = "name a side for each, by --ours GLOB (this one) or --theirs GLOB, and pull again; or replay this side's \
                versions with `mdl pull --rebase`";
    Err(CliError::Own {
        kind: ErrorKind::Conflict,
        message: "these changed on both sides; nothing was merged".to_owned(),
        hint: hint.to_owned(),
    })
}
