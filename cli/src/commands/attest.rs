//! `mdl attest`: versions as in-toto statements.

use super::prelude::*;
use mdl_repo::{
    Signing,
    provenance::{Predicate, StatementRequest, statement},
};
use std::fs;

/// Export what a version is and where it comes from, for other tools
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl attest export main
  mdl attest export v1.0 --sign --key ~/.ssh/mdl_signing --out v1.0.intoto.json
  mdl attest export v1.0 --predicate model-signing | jq '.predicate.resources[].name'")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Export(Export),
}

/// Write a version as an in-toto statement
///
/// The statement names the version's files by their SHA-256, as they are given today, and says what the version says
/// of its code, command, environment, data sets and parents (SLSA provenance v1). With --predicate model-signing it is
/// the list of files that OpenSSF's model signing (v1.0) has signed. With --sign it is wrapped into a DSSE envelope
/// with an Ed25519 signature by an SSH key.
#[derive(Debug, clap::Args)]
struct Export {
    /// Revision.
    #[arg(default_value = "HEAD", value_parser = crate::args::revision)]
    rev: String,
    /// What is said: how it was made, or which files it has.
    #[arg(long, value_enum, default_value_t = Kind::Provenance, value_name = "KIND")]
    predicate: Kind,
    /// Name of the model in a model signing statement. Default: the revision.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// File to write. Default: standard output.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Sign it, with the key of --key, else that of `user.signingKey`.
    #[arg(short = 'S', long)]
    sign: bool,
    /// Key to sign with, and sign: the file of an Ed25519 key, or of a public one that an ssh-agent has.
    #[arg(long, value_name = "FILE")]
    key: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    Provenance,
    ModelSigning,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let What::Export(args) = &args.what;
    let repo = context.repo()?;
    let signing =
        (args.sign || args.key.is_some()).then(|| Signing::with_key(&repo, args.key.as_deref())).transpose()?;
    let id = mdl_repo::resolve(&repo, &args.rev)?;
    let predicate = match args.predicate {
        Kind::Provenance => Predicate::Provenance,
        Kind::ModelSigning => Predicate::ModelSigning,
    };
    let name = args.name.as_deref().unwrap_or(&args.rev);
    let asked = StatementRequest { predicate, name, anew: signing.is_some() };
    let statement = statement(&repo, &id, &asked, &context.bars)?;
    let document = match &signing {
        Some(Signing::With(signer)) => mdl_repo::sign_statement(signer, &statement)?,
        _ => statement,
    };
    let Some(out) = &args.out else {
        writeln!(context.out, "{document:#}")?;
        return context.finish();
    };
    let failed = RepoError::io(format!("cannot write {}", out.display()));
    fs::write(out, format!("{document:#}\n")).map_err(failed)?;
    let told = json!({"commit": id.to_hex(), "output": out.display().to_string(), "signed": signing.is_some()});
    context.confirm(&told, format!("Wrote {}", out.display()))
}
