//! `mdl reflog`: where a branch or HEAD has been.

use super::prelude::*;
use crate::render::{date, rfc3339};

/// Show where a branch has been, newest first
///
/// Finds versions that no branch reaches any more: `main@{N}` names where main was N moves ago.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl reflog\n  mdl reflog main -n 5")]
pub struct Args {
    /// Branch, tag or HEAD.
    #[arg(default_value = "HEAD", value_name = "REF")]
    name: String,
    /// Show at most N moves.
    #[arg(short = 'n', long = "max-count", value_name = "N")]
    limit: Option<usize>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let full = match mdl_repo::full_ref(&repo, &args.name)? {
        Some(full) => full,
        // A deleted branch still has its log.
        None => {
            let gone = RefName::branch(&args.name).ok();
            let logged = repo.refs().logged()?;
            gone.filter(|gone| logged.contains(gone)).ok_or_else(|| not_found(Missing::Branch, &args.name))?
        }
    };
    let mut log = repo.refs().reflog(&full)?;
    log.truncate(args.limit.unwrap_or(usize::MAX));
    if context.global.json {
        let hex = |id: Option<Id>| id.map(|id| id.to_hex());
        let rows = log.iter().enumerate().map(|(n, e)| {
            json!({
                "name": format!("{}@{{{n}}}", args.name),
                "old": hex(e.old),
                "new": hex(e.new),
                "who": {"name": e.who.name, "email": e.who.email},
                "date": rfc3339(&e.who),
                "message": e.message,
            })
        });
        return context.json(&rows.collect::<Vec<Value>>());
    }
    for (n, e) in log.iter().enumerate() {
        let id = e.new.map_or_else(|| "deleted     ".to_owned(), |id| id.short());
        let (id, when) = (context.paint.yellow(&id), context.paint.dim(&date(&e.who)));
        let who = context.paint.dim(&entry::person(&e.who));
        writeln!(context.out, "{id} {}@{{{n}}}  {when}  {}  {who}", args.name, e.message)?;
    }
    Ok(())
}
