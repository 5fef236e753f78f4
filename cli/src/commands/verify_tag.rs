//! `mdl verify-tag`: checks the signature of an annotated tag.

use super::{
    prelude::*,
    signing_options::{SignersOptions, end_with, verdict_json},
    verify_commit::{export, verdict_text},
};

/// Check the signature of a tag
///
/// The signature covers the tag's name and message and the version that it points at. Exit codes are those of
/// `verify-commit`. One that was made for a tag of another name is bad.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl verify-tag v1.0\n  mdl verify-tag v1.0 --allowed-signers signers --json")]
pub struct Args {
    /// Tag.
    tag: String,
    #[command(flatten)]
    signers: SignersOptions,
    /// Write what is signed to DIR/payload, and the signature to DIR/payload.sig.
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let (id, tag, verdict) = mdl_repo::verify_tag(&repo, &args.tag, &args.signers.signers(&repo)?)?;
    if let Some(dir) = &args.export {
        export(dir, &tag.signed_bytes(), tag.signature.as_deref())?;
    }
    let mut document = verdict_json(&verdict);
    document["tag"] = args.tag.clone().into();
    document["object"] = id.to_hex().into();
    document["commit"] = tag.target.to_hex().into();
    let line = format!("tag {} at {}: {}", args.tag, tag.target.short(), verdict_text(context, &verdict));
    context.confirm(&document, line)?;
    context.finish()?;
    end_with(&verdict)
}
