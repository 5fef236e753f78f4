//! What a bisection tells: the next version, the first bad one, its log.

use crate::commands::prelude::*;
use mdl_repo::{Mark, Outlook, Verdict};

/// Versions listed where none can be tested.
const SHOWN: usize = 20;

fn title(repo: &Repo, id: &Id) -> String {
    let message = repo.odb().commit(id).map(|c| subject(&c.message)).unwrap_or_default();
    format!("{} {message}", id.short())
}

pub fn json_of(outlook: &Outlook) -> Value {
    let hex = |ids: &[Id]| ids.iter().map(Id::to_hex).collect::<Vec<_>>();
    match outlook {
        Outlook::Waiting { bad, good } => json!({"state": "waiting", "bad": bad, "good": good}),
        Outlook::Test { commits, left, steps } => {
            json!({"state": "test", "next": hex(commits), "left": left, "steps": steps})
        }
        Outlook::Found { commit, probability } => {
            json!({"state": "found", "first_bad": commit.to_hex(), "probability": probability})
        }
        Outlook::Undecided { commits } => json!({"state": "undecided", "any_of": hex(commits)}),
    }
}

/// A line or more on what is left to do.
pub fn lines_of(repo: &Repo, outlook: &Outlook) -> Vec<String> {
    match outlook {
        Outlook::Waiting { bad: false, good: false } => vec!["Name a bad version and a good one".to_owned()],
        Outlook::Waiting { bad: false, .. } => vec!["Name a bad version: `mdl bisect bad REV`".to_owned()],
        Outlook::Waiting { .. } => vec!["Name a good version: `mdl bisect good REV`".to_owned()],
        Outlook::Test { commits, left, steps } => {
            let about = count(u64::from(*steps), "test");
            let mut lines = vec![format!("{} left, at most {about} more", count(*left as u64, "version"))];
            lines.extend(commits.iter().map(|id| format!("next: {}", title(repo, id))));
            lines
        }
        Outlook::Found { commit, probability } => {
            let sure = probability.filter(|p| *p < 1.0).map(|p| format!(" (probability {p:.3})")).unwrap_or_default();
            vec![format!("{} is the first bad version{sure}", commit.short()), format!("  {}", title(repo, commit))]
        }
        Outlook::Undecided { commits } => {
            let mut lines = vec!["None that is left can be tested; the first bad version is any of".to_owned()];
            lines.extend(commits.iter().take(SHOWN).map(|id| format!("  {}", title(repo, id))));
            if commits.len() > SHOWN {
                lines.push(format!("  ... {} more", commits.len() - SHOWN));
            }
            lines
        }
    }
}

pub fn outlook(context: &mut Context, repo: &Repo, outlook: &Outlook) -> Result<()> {
    if context.wants_text(|| Ok(json_of(outlook)))? { context.print(&lines_of(repo, outlook)) } else { Ok(()) }
}

fn mark_json(mark: &Mark) -> Value {
    json!({"commit": mark.commit.to_hex(), "verdict": mark.verdict.name(), "noisy": mark.noisy})
}

pub fn log(context: &mut Context) -> Result<()> {
    let repo = context.repo()?;
    let Some(found) = mdl_repo::bisection(&repo)? else {
        return Err(super::super::shared::refused("no bisection is under way", "start one with `mdl bisect start`"));
    };
    if context.global.json {
        let (branch, commit) = (found.head.branch(), found.head.detached());
        return context.json(&json!({
            "branch": branch,
            "commit": commit.map(|id| id.to_hex()),
            "checkout": found.checkout,
            "marks": found.marks.iter().map(mark_json).collect::<Vec<_>>(),
            "noise": found.noise.map(|n| json!({"repeat": n.repeat, "rate": n.rate})),
        }));
    }
    let begin = if found.checkout { "mdl bisect start" } else { "mdl bisect start --no-checkout" };
    writeln!(context.out, "{begin}")?;
    for mark in &found.marks {
        let noisy = if mark.noisy && mark.verdict != Verdict::Skip { "# one of several: " } else { "" };
        writeln!(context.out, "# {}: {}", mark.verdict.name(), title(&repo, &mark.commit))?;
        writeln!(context.out, "{noisy}mdl bisect {} {}", mark.verdict.name(), mark.commit)?;
    }
    Ok(())
}
