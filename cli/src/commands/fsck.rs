//! `mdl fsck`: checks that everything stored is intact, and names the versions that damage affects.

use super::prelude::*;
use mdl_repo::{Affected, Problem};
use std::collections::{BTreeMap, BTreeSet};

/// Most locations listed per problem.
const SHOWN: usize = 20;
/// Versions named per location.
const FEW: usize = 5;

/// Check everything that is stored
///
/// Reads every byte, decodes and hashes every object, and follows every reference. Damage is told with the versions,
/// files and tensors it affects, and ends in exit code 5.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl fsck\n  mdl fsck --quick\n  mdl fsck --json | jq '.problems[].affected'")]
pub struct Args {
    /// Only check stored bytes by their checksums: as fast as the disk reads.
    #[arg(long)]
    quick: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let report = mdl_repo::fsck(&repo, args.quick, &context.bars)?;
    if context.global.json {
        context.json(&json!({
            "ok": report.problems.is_empty(),
            "quick": args.quick,
            "packs": report.packs,
            "objects": report.objects,
            "stored_bytes": report.bytes,
            "not_fetched": report.not_fetched,
            "problems": report.problems,
        }))?;
    } else {
        report.problems.iter().try_for_each(|p| problem(context, p))?;
        if context.chatty() {
            let (packs, objects) = (count(report.packs, "pack"), count(report.objects, "object"));
            let verdict = match report.problems.len() as u64 {
                0 => context.paint.green("no problems"),
                n => context.paint.red(&count(n, "problem")),
            };
            writeln!(context.out, "{packs}, {objects}, {}: {verdict}", size(report.bytes))?;
            if report.not_fetched > 0 {
                let objects = count(report.not_fetched, "object");
                writeln!(context.out, "{objects} not here: this repository is partial, and they were not fetched")?;
            }
        }
    }
    if report.problems.is_empty() {
        return Ok(());
    }
    context.finish()?;
    Err(CliError::Damaged(report.problems.len() as u64))
}

fn problem(context: &mut Context, p: &Problem) -> Result<()> {
    let damaged = context.paint.red("damaged:");
    writeln!(context.out, "{damaged} {}: {}", p.what, p.reason)?;
    if p.affected.is_empty() {
        return Ok(writeln!(context.out, "  no version that a name reaches is affected")?);
    }
    // The same tensor is often part of many versions: they share a line.
    let mut places: BTreeMap<(&str, Option<&str>), Vec<String>> = BTreeMap::new();
    for Affected { commit, path, tensor } in &p.affected {
        places.entry((path, tensor.as_deref())).or_default().push(commit.short());
    }
    for ((path, tensor), commits) in places.iter().take(SHOWN) {
        let what = match (path.is_empty(), tensor) {
            (true, _) => "the commit itself".to_owned(),
            (_, Some(tensor)) => format!("{path}: {tensor}"),
            (_, None) => (*path).to_owned(),
        };
        let more = commits.len().saturating_sub(FEW);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let shown: Vec<&str> = commits.iter().take(FEW).map(String::as_str).collect();
        writeln!(context.out, "  {what}  in {}{more}", shown.join(", "))?;
    }
    let all: BTreeSet<String> = p.affected.iter().map(|a| a.commit.short()).collect();
    // Every affected version is named: one that is not named is whole.
    if places.len() > SHOWN || places.values().any(|c| c.len() > FEW) {
        let all: Vec<String> = all.into_iter().collect();
        writeln!(context.out, "  in all {}:", count(all.len() as u64, "version"))?;
        for line in all.chunks(8) {
            writeln!(context.out, "    {}", line.join(", "))?;
        }
    }
    if places.len() > SHOWN {
        writeln!(context.out, "  ... {} more places; --json lists all", places.len() - SHOWN)?;
    }
    Ok(())
}
