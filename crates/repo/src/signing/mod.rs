//! SSH signatures of commits and tags: keys and agents that make them, lists of signers and revoked keys that judge
//! them.
//!
//! A signature is made over an object's canonical bytes without the signature, in the namespace `mdl`, in the format
//! of `ssh-keygen -Y sign` (SSHSIG). The object's id covers the signature, as git's does.

mod agent;
mod allowed;
mod envelope;
mod keygen;
mod signer;
mod verdict;
mod verify;

pub use allowed::{AllowedSigner, AllowedSigners, RevokedKeys};
pub use envelope::sign_statement;
pub use signer::Signer;
pub use verdict::{SignatureStatus, Verdict};
pub use verify::{Signers, signing_key, verify_commit, verify_tag};
pub(crate) use verify::{judge_commit, judge_tag};

use crate::repo::Repo;
use mdl_store::{RepoError, Result};
use std::{
    env,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What a signature is for, so that one made for something else counts for nothing here.
pub const NAMESPACE: &str = "mdl";
/// Bytes of a key file at most.
const MAX_KEY: u64 = 64 << 10;
/// Bytes of a list of keys at most.
const MAX_LIST: u64 = 16 << 20;

/// Whether what is made is signed, and by what.
#[derive(Clone, Debug, Default)]
pub enum Signing {
    /// As the settings say (`commit.gpgSign`, `tag.gpgSign`, `user.signingKey`).
    #[default]
    Configured,
    /// Not at all.
    Never,
    /// With this key.
    With(Arc<Signer>),
}

impl Signing {
    /// With the key of this name (see [`Signer::load`]), or where none is named with that of the settings.
    ///
    /// # Errors
    /// Nothing names a key; as [`Signer::load`].
    pub fn with_key(repo: &Repo, name: Option<&str>) -> Result<Signing> {
        configured(repo, name).map(Signing::With)
    }

    /// What signs a `commit` or a `tag`, if anything does. Asked for before long work, which a missing key would undo.
    pub(crate) fn signer(&self, repo: &Repo, what: &str) -> Result<Option<Arc<Signer>>> {
        match self {
            Signing::With(signer) => Ok(Some(signer.clone())),
            Signing::Configured if repo.signs && repo.config.signs(what) => configured(repo, None).map(Some),
            Signing::Configured | Signing::Never => Ok(None),
        }
    }
}

fn configured(repo: &Repo, name: Option<&str>) -> Result<Arc<Signer>> {
    let set = repo.config.get("user.signingKey");
    let name = name.map(str::to_owned).or(set).ok_or_else(|| {
        let hint = "name one: `user.signingKey`, or the option for it; `ssh-keygen -t ed25519` makes one";
        RepoError::user("no key to sign with is named", hint)
    })?;
    Signer::load(&name).map(Arc::new)
}

/// A path as it is written in a setting: `~/` is the home directory.
fn expanded(text: &str) -> PathBuf {
    match (text.strip_prefix("~/"), env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => PathBuf::from(text),
    }
}

/// A text file of at most this many bytes.
fn text_of(path: &Path, most: u64) -> Result<String> {
    let failed = || RepoError::io(format!("cannot read {}", path.display()));
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(most + 1).read_to_end(&mut bytes)).map_err(failed())?;
    let refused = |what: &str| RepoError::user(format!("{} {what}", path.display()), "name another file");
    if bytes.len() as u64 > most {
        return Err(refused(&format!("has more than {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| refused("is not text"))
}
