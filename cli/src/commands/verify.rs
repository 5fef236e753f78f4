//! `mdl verify`: checks that a file equals the committed one.

use super::{prelude::*, shared::split_path};
use mdl_repo::Difference;

/// Compare a file, byte for byte, with its version in the repository
///
/// Exit code 0 if they are the same, 1 if they differ. Without :PATH the version's file is found by the place of FILE
/// in the work tree, else by its name.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl verify model.safetensors main
  mdl verify /mnt/copy.pt v1.0:checkpoints/last.pt")]
pub struct Args {
    /// File to check.
    file: PathBuf,
    /// Revision, or REV:PATH.
    #[arg(value_name = "REV[:PATH]", default_value = "HEAD", value_parser = crate::args::revision)]
    rev: String,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let (rev, inner) = split_path(&args.rev);
    let commit = mdl_repo::resolve(&repo, rev)?;
    let found = mdl_repo::verify(&repo, &args.file, &commit, inner, &context.bars)?;
    let (file, inner, id) = (args.file.display(), &found.inner, commit.short());
    let (size, byte, verdict) = match found.difference {
        None => (None, None, format!("same: {file} is {inner} of {id} ({} bytes)", found.size)),
        Some(Difference::Size(n)) => {
            (Some(n), None, format!("different: {file} has {n} bytes, {inner} of {id} has {}", found.size))
        }
        Some(Difference::Byte(n)) => (None, Some(n), format!("different: {file} and {inner} of {id} part at byte {n}")),
    };
    let document = json!({
        "same": found.difference.is_none(),
        "commit": commit.to_hex(),
        "path": found.inner,
        "size": found.size,
        "found_size": size,
        "first_difference": byte,
    });
    context.confirm(&document, verdict)?;
    if found.difference.is_none() {
        return Ok(());
    }
    context.finish()?;
    Err(CliError::Told)
}
