//! `mdl tag`: lists, makes and deletes tags.

use super::{
    changes::delete_each,
    prelude::*,
    shared::{is_chosen, note_approximate, tag_object},
    signing_options::SigningOptions,
};
use crate::render::rfc3339;

/// List, make or delete tags: names that stay on one version
///
/// A tag with a message (-m) is an object of its own with author and date; one without is only a name.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl tag v1.0 -m \"the released weights\"
  mdl tag v1.0 -m \"the released weights\" --sign
  mdl tag best 'main@best(loss)'
  mdl tag -d v1.0")]
pub struct Args {
    /// NAME, and the revision to tag (default HEAD); names with -d.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Make an annotated tag; wants -m.
    #[arg(short, long, requires = "names", requires = "message")]
    annotate: bool,
    /// Message; makes an annotated tag.
    #[arg(short, long, value_name = "TEXT", requires = "names")]
    message: Option<String>,
    /// Delete tags.
    #[arg(short, long, requires = "names", conflicts_with_all = ["annotate", "message"])]
    delete: bool,
    /// List tags; NAME may be a glob such as 'v1.*'.
    #[arg(short, long, conflicts_with_all = ["annotate", "message", "delete"])]
    list: bool,
    /// With every tag its commit and message.
    #[arg(short, long)]
    verbose: bool,
    /// Move a tag that exists.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    signing: SigningOptions,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let names: Vec<&str> = args.names.iter().map(String::as_str).collect();
    if args.delete {
        return delete_each(context, "tag", &names, |name, _| Ok(mdl_repo::delete_tag(&repo, name)?));
    }
    match (args.list, names.as_slice()) {
        (true, patterns) | (_, patterns @ []) => list(context, &repo, patterns, args.verbose),
        (_, [name]) => create(context, &repo, name, "HEAD", args),
        (_, [name, rev]) => create(context, &repo, name, rev, args),
        _ => Err(CliError::usage("too many names", "write `mdl tag NAME REV`")),
    }
}

fn create(context: &mut Context, repo: &Repo, name: &str, rev: &str, args: &Args) -> Result<()> {
    mdl_repo::check_ref_name(name)?;
    let commit = mdl_repo::resolve(repo, rev)?;
    let signing = args.signing.signing(repo)?;
    let id = mdl_repo::create_signed_tag(repo, name, &commit, args.message.as_deref(), args.force, &signing)?;
    let signed = tag_object(repo, &id)?.is_some_and(|tag| tag.signature.is_some());
    note_approximate(context, repo, &commit)?;
    let document =
        json!({"tag": name, "commit": commit.to_hex(), "annotated": args.message.is_some(), "signed": signed});
    context.confirm(&document, format!("Tag {name} at {}", commit.short()))
}

fn list(context: &mut Context, repo: &Repo, patterns: &[&str], verbose: bool) -> Result<()> {
    let mut tags = repo.refs().list(TAGS)?;
    tags.retain(|(name, _)| is_chosen(patterns, name));
    let mut rows = Vec::new();
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Left]);
    for (name, id) in &tags {
        if !context.global.json && !verbose {
            table.row([name.clone()]);
            continue;
        }
        let (tag, commit) = (tag_object(repo, id)?, mdl_repo::peel(repo, id)?);
        let text = match &tag {
            Some(tag) => tag.message.clone(),
            None => repo.odb().commit(&commit)?.message,
        };
        table.row([name.clone(), commit.short(), subject(&text)]);
        rows.push(json!({
            "name": name,
            "commit": commit.to_hex(),
            "annotated": tag.is_some(),
            "signed": tag.as_ref().is_some_and(|t| t.signature.is_some()),
            "message": tag.as_ref().map(|t| &t.message),
            "date": tag.as_ref().map(|t| rfc3339(&t.tagger)),
        }));
    }
    if context.global.json {
        return context.json(&json!({"tags": rows}));
    }
    context.print(&table.lines(0))
}
