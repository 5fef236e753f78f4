//! Resolves a remote given by name or URL, and adds hints to its errors.

use super::{remote::kept, scratch};
use crate::{
    context::Context,
    errors::{CliError, Result},
};
use mdl_remote::Peer;
use mdl_repo::{Missing, Remote, Repo, RepoError};

/// The remote that is meant where none is named.
const DEFAULT: &str = "origin";

/// Whether what stands for a remote is a URL or a path, and no name.
pub fn is_url(text: &str) -> bool {
    text.contains('/') || matches!(text, "." | "..")
}

/// A remote by its name.
pub fn named(repo: &Repo, name: Option<&str>) -> Result<(String, Remote)> {
    let mut all = repo.config().remotes();
    let only = || all.keys().next().filter(|_| all.len() == 1).cloned();
    let name = match name {
        Some(name) => name.to_owned(),
        None => only().unwrap_or_else(|| DEFAULT.to_owned()),
    };
    match all.remove(&name) {
        Some(remote) => Ok((name, remote)),
        // Read first: what is no place may have a password in it, and is not repeated.
        None if is_url(&name) => Err(CliError::hinted(
            RepoError::not_found(Missing::Remote, kept(&name)?),
            "give the URL a name, below which its branches are noted: `mdl remote add NAME URL`",
        )),
        None if all.is_empty() => Err(RepoError::user(
            format!("there is no remote {name:?}: this repository knows no other place"),
            "name one: `mdl remote add origin URL`",
        )
        .into()),
        None => Err(RepoError::not_found(Missing::Remote, name).into()),
    }
}

/// A remote by its name, or a place that has none: a URL or a path.
pub fn named_or_url(repo: &Repo, text: Option<&str>) -> Result<(Option<String>, Remote)> {
    match text.filter(|t| is_url(t) && !repo.config().remotes().contains_key(*t)) {
        Some(url) => {
            let url = kept(url)?;
            Ok((None, Remote { url, ..Remote::default() }))
        }
        None => named(repo, text).map(|(name, remote)| (Some(name), remote)),
    }
}

/// An error of another place, with the next step that is true there: what is not found there is not to be looked for
/// here. `place` is a remote's name, or a URL.
pub fn elsewhere(place: &str) -> impl Fn(RepoError) -> CliError {
    move |error| {
        let hint = match &error {
            RepoError::NotFound { what: Missing::Repository, .. } => match is_url(place) {
                true => "check the URL; a server's ends with /OWNER/NAME".to_owned(),
                false => format!(
                    "check the URL of {place} (`mdl remote -v`; `mdl remote set-url {place} URL` changes it); a server's ends \
                     with /OWNER/NAME"
                ),
            },
            RepoError::NotFound { what: Missing::Branch | Missing::BranchOrTag, .. } => {
                format!("`mdl ls-remote {place}` lists what is there")
            }
            RepoError::Corrupt { .. } => {
                format!("the damage is at the other side ({place}), and nothing of it was taken: run `mdl fsck` there")
            }
            _ => return error.into(),
        };
        CliError::hinted(error, hint)
    }
}

/// The other side of a remote. `create`: a bucket without a repository gets one.
pub fn peer(context: &Context, repo: &Repo, remote: &Remote, create: Option<&str>) -> Result<Box<dyn Peer>> {
    let opened = mdl_remote::open(&remote.url, context.engine()?, &scratch(repo), create);
    opened.map_err(elsewhere(&remote.url))
}
