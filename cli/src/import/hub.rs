//! A model on a Hugging Face Hub, with the commits of a revision.

use super::{
    Kind, Request, Scratch, Source, SourceFile, SourceVersion, dated,
    ids::{Hash, Verified},
    mark_of, short, titled,
};
use crate::commands::prelude::*;
use jiff::Timestamp;
use mdl_objects::Signature;
use mdl_remote::foreign::hub::{ENDPOINT, HubCommit, HubFile, HubModel};
use mdl_repo::ErrorKind;
use std::{
    collections::{BTreeSet, HashMap},
    rc::Rc,
};

pub struct HubSource {
    model: HubModel,
    name: String,
    revision: String,
    scratch: Rc<Scratch>,
    verified: Verified,
}

impl HubSource {
    pub fn open(request: Request) -> Result<HubSource> {
        let named = std::env::var("HF_ENDPOINT").ok().filter(|e| !e.is_empty());
        let (url, name) = split(&request.place);
        // What --endpoint names is trusted with HF_TOKEN; a host in a link that was pasted is not.
        let is_named = request.endpoint.is_some();
        let endpoint = request.endpoint.or(url).or(named).unwrap_or_else(|| ENDPOINT.to_owned());
        if name.is_empty() || name.split('/').count() > 2 {
            return Err(CliError::usage(format!("{name:?} names no model"), "write OWNER/NAME"));
        }
        Ok(HubSource {
            model: HubModel::new(&endpoint, &name, is_named)?,
            name,
            revision: request.revision.unwrap_or_else(|| "main".to_owned()),
            scratch: request.scratch,
            verified: Verified::default(),
        })
    }

    /// The file on disk, fetched unless an earlier version, or a run before, has brought the same bytes.
    fn fetched(&mut self, revision: &str, file: &HubFile) -> Result<(PathBuf, String)> {
        let (hash, id) = match &file.lfs {
            Some(lfs) => (Hash::Sha256, lfs.oid.clone()),
            None => (Hash::GitBlob, file.oid.clone()),
        };
        if id.len() < 40 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(super::bad(format!("the Hub gives {} the id {id:?}", file.path), ""));
        }
        let what = format!("{} of {}@{}", file.path, self.name, short(revision));
        let (model, verified) = (&self.model, &mut self.verified);
        let check = |path: &Path| verified.check(path, hash, &id, &what);
        let path = self.scratch.file(&id, check, |part| Ok(model.download(revision, file, part)?))?;
        Ok((path, id))
    }
}

/// `https://host/OWNER/NAME`, `hf://OWNER/NAME` or `OWNER/NAME`: the endpoint, if there is one, and the name.
fn split(place: &str) -> (Option<String>, String) {
    let place = place.strip_prefix("hf://").unwrap_or(place).trim_end_matches('/');
    let Some((scheme, rest)) = place.split_once("://") else { return (None, place.to_owned()) };
    let mut parts: Vec<&str> = rest.split('/').collect();
    let names = parts.split_off(parts.len().saturating_sub(2).max(1));
    (Some(format!("{scheme}://{}", parts.join("/"))), names.join("/"))
}

fn author(commit: &HubCommit) -> Option<Signature> {
    let time: Timestamp = commit.date.parse().ok()?;
    let name = commit.authors.first().map(|a| a.user.clone()).filter(|n| !n.is_empty());
    let (time_ms, utc_offset_min) = dated(time.as_millisecond(), 0);
    Some(Signature {
        name: name.unwrap_or_else(|| mdl_repo::UNKNOWN.to_owned()),
        email: String::new(),
        time_ms,
        utc_offset_min,
    })
}

impl Source for HubSource {
    fn versions(&mut self) -> Result<Vec<SourceVersion>> {
        let refs = self.model.refs().map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                CliError::hinted(error, "write OWNER/NAME as the Hub has it; a private model needs HF_TOKEN")
            }
            _ => error.into(),
        })?;
        let mut tags: HashMap<String, Vec<String>> = HashMap::new();
        for tag in refs.tags {
            tags.entry(tag.target_commit).or_default().push(tag.name);
        }
        let mut commits = self.model.commits(&self.revision)?;
        commits.reverse();
        let version = |commit: HubCommit| SourceVersion {
            message: titled(&[commit.title.trim(), commit.message.trim()].join("\n\n"), &commit.id),
            author: author(&commit),
            tags: tags.remove(&commit.id).unwrap_or_default(),
            key: commit.id,
            ..SourceVersion::default()
        };
        Ok(commits.into_iter().map(version).collect())
    }

    fn files(&mut self, version: &SourceVersion) -> Result<Vec<SourceFile>> {
        let (mut files, mut used) = (Vec::new(), BTreeSet::new());
        for file in self.model.files(&version.key)? {
            let (path, id) = self.fetched(&version.key, &file)?;
            used.insert(path.clone());
            files.push(SourceFile { rel: file.path, executable: false, size: file.size, path, id, verified: true });
        }
        self.scratch.keep(&used);
        Ok(files)
    }

    fn mark(&self, version: &SourceVersion) -> (String, String) {
        mark_of(Kind::Hub, &format!("{}@{}", self.name, version.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_models() {
        assert_eq!(split("ada/gpt"), (None, "ada/gpt".to_owned()));
        assert_eq!(split("hf://ada/gpt/"), (None, "ada/gpt".to_owned()));
        assert_eq!(
            split("http://localhost:7878/ada/gpt"),
            (Some("http://localhost:7878".to_owned()), "ada/gpt".to_owned())
        );
        assert_eq!(split("https://x/hub/ada/gpt").0.as_deref(), Some("https://x/hub"));
    }
}
