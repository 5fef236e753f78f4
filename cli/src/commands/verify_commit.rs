//! `mdl verify-commit`: checks the signature of a version, and with --deep everything that it covers.

use super::{
    prelude::*,
    signing_options::{SignersOptions, end_with, verdict_json},
};
use mdl_objects::Commit;
use mdl_repo::{ClosureReport, Fidelity, SignatureVerdict as Verdict};
use std::fs;

/// Check the signature of a version
///
/// The signature covers the version's files, message, numbers and history: it is made over the commit, which names all
/// of them by their hashes. --deep reads and hashes all of it, so that a byte which was changed anywhere is found.
///
/// Exit code 0: signed by an allowed signer. 1: not signed. 5: the signature is not of this version, or --deep found
/// damage. 10: by a key that is not in the list of allowed signers. 11: by a key that did not count at the version's
/// date. 12: by a revoked key. 13: by a key of a kind that is not checked.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl config gpg.ssh.allowedSignersFile ~/.config/mdl/allowed_signers
  mdl verify-commit v1.0
  mdl verify-commit main --deep
  mdl verify-commit main --export /tmp/proof")]
pub struct Args {
    /// Revision.
    #[arg(default_value = "HEAD", value_parser = crate::args::revision)]
    rev: String,
    /// Also read, decode and hash everything that the signature covers.
    #[arg(long)]
    deep: bool,
    #[command(flatten)]
    signers: SignersOptions,
    /// Write what is signed to DIR/payload, and the signature to DIR/payload.sig, as `ssh-keygen -Y verify -n mdl`
    /// takes them.
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let id = mdl_repo::resolve(&repo, &args.rev)?;
    let (commit, verdict) = mdl_repo::verify_commit(&repo, &id, &args.signers.signers(&repo)?)?;
    if let Some(dir) = &args.export {
        export(dir, &commit.signed_bytes(), commit.signature.as_deref())?;
    }
    let closure = args.deep.then(|| mdl_repo::check_version(&repo, &id, &context.bars)).transpose()?;
    let fidelity = mdl_repo::pruned(&repo)?.fidelity(repo.odb(), &id, &commit)?;
    let mut document = verdict_json(&verdict);
    document["commit"] = id.to_hex().into();
    document["fidelity"] = fidelity.name().into();
    document["closure"] = closure.as_ref().map_or(Value::Null, closure_json);
    if context.wants_text(|| Ok(document))? {
        tell(context, &id, &commit, &verdict, fidelity)?;
        closure.as_ref().map_or(Ok(()), |c| tell_closure(context, c))?;
    }
    context.finish()?;
    match closure.map(|c| c.problems.len() as u64).filter(|n| *n > 0) {
        Some(n) => Err(CliError::Damaged(n)),
        None => end_with(&verdict),
    }
}

/// Writes what is signed, and its signature.
pub fn export(dir: &Path, payload: &[u8], signature: Option<&str>) -> Result<()> {
    let signature = signature.ok_or_else(|| CliError::usage("there is no signature to export", ""))?;
    let failed = |e| CliError::from(RepoError::io(format!("cannot write to {}", dir.display()))(e));
    fs::create_dir_all(dir).map_err(failed)?;
    fs::write(dir.join("payload"), payload).map_err(failed)?;
    fs::write(dir.join("payload.sig"), signature).map_err(failed)
}

fn closure_json(c: &ClosureReport) -> Value {
    json!({
        "versions": c.versions,
        "left_out": c.left_out,
        "objects": c.objects,
        "stored_bytes": c.bytes,
        "not_fetched": c.not_fetched,
        "problems": c.problems,
    })
}

/// The verdict in colour.
pub fn verdict_text(context: &Context, verdict: &Verdict) -> String {
    let text = visible(&verdict.text());
    if verdict.is_good() { context.paint.green(&text) } else { context.paint.red(&text) }
}

fn tell(context: &mut Context, id: &Id, commit: &Commit, verdict: &Verdict, fidelity: Fidelity) -> Result<()> {
    let text = verdict_text(context, verdict);
    writeln!(context.out, "{} {}: {text}", context.paint.yellow("commit"), id.short())?;
    if verdict.is_good() && fidelity != Fidelity::Exact {
        let (tree, today) = (commit.tree.short(), fidelity.name());
        let named = match commit.approximation {
            Some(approximation) => format!(", and the approximation (tree {})", approximation.short()),
            None => String::new(),
        };
        let line = format!(
            "the signature names the exact contents (tree {tree}){named}; what the version gives today is: {today}"
        );
        writeln!(context.out, "{}", context.paint.cyan(&line))?;
    }
    Ok(())
}

fn tell_closure(context: &mut Context, c: &ClosureReport) -> Result<()> {
    for p in &c.problems {
        writeln!(context.out, "{} {}: {}", context.paint.red("damaged:"), p.what, p.reason)?;
        for a in p.affected.iter().take(5) {
            let tensor = a.tensor.as_ref().map_or_else(String::new, |t| format!(": {t}"));
            let path = if a.path.is_empty() { "the commit itself" } else { &a.path };
            writeln!(context.out, "  {}{}  in {}", visible(path), visible(&tensor), a.commit.short())?;
        }
    }
    let verdict = match c.problems.len() as u64 {
        0 => context.paint.green("every byte is what the id says"),
        n => context.paint.red(&count(n, "problem")),
    };
    let (versions, objects) = (count(c.versions, "version"), count(c.objects, "object"));
    writeln!(context.out, "{versions}, {objects}, {}: {verdict}", size(c.bytes))?;
    if c.left_out > 0 {
        let n = count(c.left_out, "version");
        writeln!(context.out, "{n} of these gave up contents (pruned or aged), which can no longer be checked")?;
    }
    if c.not_fetched > 0 {
        writeln!(context.out, "{} not here: this repository is partial", count(c.not_fetched, "object"))?;
    }
    Ok(())
}
