//! `mdl merge`: takes other versions into the present branch, their weights by a strategy.

use super::{
    merge_options::{MergeOptions, document, tell, undecided},
    prelude::*,
    replay::{Control, Sides},
};
use crate::errors::unforced;
use mdl_repo::{FastForward, MergeRequest, Operation, Rule, Side};

/// Merge other versions into the present branch
///
/// Where the present branch can move forward to the other version, it does. Where histories have parted, say how
/// weights become one: average, weighted, slerp, task-arithmetic, ties, dare-linear, dare-ties (with mergekit's names
/// and parameters, docs/merge.md), or ours or theirs for all files as they are on one side. Files without weights that
/// only one side changed are that side's. State of the optimizer is the present branch's. What cannot be decided is
/// listed, and nothing is changed.
///
/// The new version has all versions as parents, and the recipe: --verify makes it anew and compares every byte.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl merge ablation
  mdl merge maths code --strategy ties --density 0.4
  mdl merge exp --strategy slerp --t 0.3 --for 'lm_head.*=ours'
  mdl merge --verify main
  mdl merge --abort")]
pub struct Args {
    /// Revisions.
    #[arg(value_name = "REV", value_parser = crate::args::revision)]
    revs: Vec<String>,
    /// How weights become one.
    #[arg(short, long, value_name = "STRATEGY")]
    strategy: Option<String>,
    /// Message.
    #[arg(short, long)]
    message: Option<String>,
    /// Make a new version also where the branch could move forward.
    #[arg(long, conflicts_with = "ff_only")]
    no_ff: bool,
    /// Only move forward.
    #[arg(long)]
    ff_only: bool,
    /// Make a merge anew by its recipe and compare; nothing is changed.
    #[arg(long, value_name = "REV", conflicts_with_all = ["revs", "strategy"], value_parser = crate::args::revision)]
    verify: Option<String>,
    #[command(flatten)]
    options: MergeOptions,
    #[command(flatten)]
    control: Control,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    if let Some(rev) = &args.verify {
        return verify(context, &repo, rev);
    }
    match (args.control.is_given(), args.revs.is_empty()) {
        (true, true) => return args.control.run(context, &repo, Operation::Merge, &Sides::default()),
        (true, false) => {
            let message = "a revision begins anew, and --continue, --skip, --abort and --quit do not";
            return Err(CliError::usage(message, "see `mdl merge --help`"));
        }
        (false, true) => return Err(CliError::usage("a revision is wanted", "see `mdl merge --help`")),
        (false, false) => {}
    }
    let resolve = |rev: &String| Ok((mdl_repo::resolve(&repo, rev)?, rev.clone()));
    let others = args.revs.iter().map(resolve).collect::<Result<Vec<_>>>()?;
    let strategy = match &args.strategy {
        Some(name) => args.options.rule(name)?,
        None => unasked(context, &repo, &others, args)?,
    };
    let request = MergeRequest {
        others,
        strategy,
        overrides: args.options.overrides()?,
        with_state: args.options.with_state,
        message: args.message.clone(),
        fast_forward: match (args.no_ff, args.ff_only) {
            (true, _) => FastForward::Never,
            (_, true) => FastForward::Only,
            _ => FastForward::Allowed,
        },
    };
    let outcome = mdl_repo::merge_versions(&repo, &request, &context.bars).map_err(unforced)?;
    if context.wants_text(|| document(&repo, &outcome))? {
        tell(context, &repo, &outcome)?;
    }
    undecided(&outcome)
}

/// The rule where none was named: of a merge that could be a move forward, all is that of the other side.
fn unasked(context: &Context, repo: &Repo, others: &[(Id, String)], args: &Args) -> Result<Rule> {
    for (id, label) in others {
        let Some((here, there)) = mdl_repo::parted(repo, id, &context.bars)? else { continue };
        let error = RepoError::Parted { label: label.clone(), here, there };
        if args.ff_only {
            return Err(error.into());
        }
        let hint = format!(
            "say how weights become one, such as `mdl merge {label} --strategy average`; or put the \
                            versions here on top: `mdl rebase {label}`"
        );
        return Err(CliError::hinted(error, hint));
    }
    Ok(Rule::Side(if others.len() == 1 { Side::Theirs } else { Side::Ours }))
}

fn verify(context: &mut Context, repo: &Repo, rev: &str) -> Result<()> {
    let id = mdl_repo::resolve(repo, rev)?;
    let done = mdl_repo::verify_merge(repo, &id, &context.bars)?;
    let is_same = done.differing.is_empty();
    let document = || {
        Ok(json!({
            "commit": done.id.to_hex(), "result": if is_same { "same" } else { "differs" }, "files": done.files,
            "computed": done.computed, "differing": done.differing, "recipe": done.recipe,
        }))
    };
    if context.wants_text(document)? {
        let computed = count(done.computed as u64, "tensor");
        if is_same {
            let files = count(done.files, "file");
            writeln!(context.out, "{} is what its recipe makes: {files}, {computed} computed", done.id.short())?;
        }
        for path in &done.differing {
            writeln!(
                context.out,
                "  {}",
                context.paint.red(&visible(&format!("{path} is not what the recipe makes")))
            )?;
        }
    }
    if is_same { Ok(()) } else { Err(CliError::Told) }
}
