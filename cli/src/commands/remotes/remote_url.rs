//! Resolves a remote given by name or URL, and adds hints to its errors.

use super::scratch;
use crate::commands::prelude::*;
use mdl_remote::{Peer, place::kept};
use mdl_repo::Remote;

/// Remote used if none is named.
const DEFAULT: &str = "origin";

/// Returns whether the text is a URL or a path rather than a remote's name.
pub fn is_url(text: &str) -> bool {
    text.contains('/') || matches!(text, "." | "..")
}

pub fn named(repo: &Repo, name: Option<&str>) -> Result<(String, Remote)> {
    let mut all = repo.config().remotes();
    let only = || all.keys().next().filter(|_| all.len() == 1).cloned();
    let name = match name {
        Some(name) => name.to_owned(),
        None => only().unwrap_or_else(|| DEFAULT.to_owned()),
    };
    match all.remove(&name) {
        Some(remote) => Ok((name, remote)),
        // Parsed first: an invalid URL may hold a password, and is not repeated in the message.
        None if is_url(&name) => Err(CliError::hinted(
            RepoError::not_found(Missing::Remote, kept(&name)?),
            "give the URL a name, below which its branches are noted: `mdl remote add NAME URL`",
        )),
        None if all.is_empty() => Err(refused(
            format!("there is no remote {name:?}: this repository knows no other place"),
            "name one: `mdl remote add origin URL`",
        )),
        None => Err(RepoError::not_found(Missing::Remote, name).into()),
    }
}

/// Returns a remote by its name, or an unnamed one by URL or path.
pub fn named_or_url(repo: &Repo, text: Option<&str>) -> Result<(Option<String>, Remote)> {
    match text.filter(|t| is_url(t) && !repo.config().remotes().contains_key(*t)) {
        Some(url) => {
            let url = kept(url)?;
            Ok((None, Remote { url, ..Remote::default() }))
        }
        None => named(repo, text).map(|(name, remote)| (Some(name), remote)),
    }
}

/// Adds hints to an error of the remote: what is not found there must not be looked for here. `place` is a remote's
/// name, or a URL.
pub fn elsewhere(place: &str) -> impl Fn(RepoError) -> CliError {
    move |error| {
        let hint = match &error {
            RepoError::NotFound { what: Missing::Repository, .. } => match is_url(place) {
                true => "check the URL; a server's ends with /OWNER/NAME".to_owned(),
                false => format!(
                    "check the URL of {place} (`mdl remote -v`; `mdl remote set-url {place} URL` changes it); a \
                     server's ends with /OWNER/NAME"
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

/// Connects to a remote. `create`: a bucket without a repository gets one.
pub fn peer(context: &Context, repo: &Repo, remote: &Remote, create: Option<&str>) -> Result<Box<dyn Peer>> {
    let opened = mdl_remote::open(&remote.url, context.engine()?, &scratch(repo), create);
    opened.map_err(elsewhere(&remote.url))
}
