//! Options about signatures: what signs a commit or a tag, and whose signatures count.

use crate::errors::{CliError, Result};
use mdl_repo::{Repo, SignatureStatus, SignatureVerdict as Verdict, Signers, Signing};
use serde_json::{Value, json};
use std::path::PathBuf;

/// What signs.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SigningOptions {
    /// Sign with an SSH key: that of --key, else `user.signingKey`. `commit.gpgSign` and `tag.gpgSign` ask for it each
    /// time.
    #[arg(short = 'S', long, conflicts_with = "no_sign")]
    sign: bool,
    /// Key to sign with, and sign: the file of a private key, or of a public one that an ssh-agent has.
    #[arg(long, value_name = "FILE", conflicts_with = "no_sign")]
    key: Option<String>,
    /// Do not sign, whatever the settings say.
    #[arg(long)]
    no_sign: bool,
}

impl SigningOptions {
    pub fn signing(&self, repo: &Repo) -> Result<Signing> {
        Ok(match self.sign || self.key.is_some() {
            true => Signing::with_key(repo, self.key.as_deref())?,
            false if self.no_sign => Signing::Never,
            false => Signing::Configured,
        })
    }
}

/// Whose signatures count.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SignersOptions {
    /// List of allowed signers, in place of `gpg.ssh.allowedSignersFile`.
    #[arg(long, value_name = "FILE")]
    allowed_signers: Option<PathBuf>,
    /// List of revoked keys, in place of `gpg.ssh.revocationFile`.
    #[arg(long, value_name = "FILE")]
    revoked: Option<PathBuf>,
}

impl SignersOptions {
    pub fn signers(&self, repo: &Repo) -> Result<Signers> {
        Ok(Signers::configured_but(repo.config(), self.allowed_signers.as_deref(), self.revoked.as_deref())?)
    }
}

/// The members of a verdict.
pub fn verdict_json(verdict: &Verdict) -> Value {
    json!({
        "status": verdict.status.name(),
        "good": verdict.is_good(),
        "principal": verdict.principal,
        "fingerprint": verdict.fingerprint,
        "key_type": verdict.key_type,
        "reason": verdict.reason,
    })
}

/// Ends with the exit code of a verdict, which the output has told already.
pub fn end_with(verdict: &Verdict) -> Result<()> {
    Err(CliError::Ended(match verdict.status {
        SignatureStatus::Good => return Ok(()),
        SignatureStatus::Unsigned => 1,
        SignatureStatus::Bad => 5,
        SignatureStatus::Unknown => 10,
        SignatureStatus::Expired => 11,
        SignatureStatus::Revoked => 12,
        SignatureStatus::Unsupported => 13,
    }))
}
