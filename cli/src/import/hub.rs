//! A model on a Hugging Face Hub, with the commits of a revision.

use super::{
    Kind, Request, Source, SourceFile, SourceVersion,
    ids::{Hash, Verified},
    mark_of,
};
use crate::commands::prelude::*;
use jiff::Timestamp;
use mdl_objects::Signature;
use mdl_remote::hub::{ENDPOINT, HubCommit, HubFile, HubModel};
use std::{
    collections::{BTreeSet, HashMap},
    fs,
};

pub struct HubSource {
    model: HubModel,
    name: String,
    revision: String,
    scratch: PathBuf,
    verified: Verified,
}

impl HubSource {
    pub fn open(request: Request) -> Result<HubSource> {
        let named = std::env::var("HF_ENDPOINT").ok().filter(|e| !e.is_empty());
        let (url, name) = split(&request.place);
        let endpoint = request.endpoint.or(url).or(named).unwrap_or_else(|| ENDPOINT.to_owned());
        if name.is_empty() || name.split('/').count() > 2 {
            return Err(CliError::usage(format!("{:?} names no model", request.place), "write OWNER/NAME"));
        }
        Ok(HubSource {
            model: HubModel::new(&endpoint, &name)?,
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
        let (path, part) = (self.scratch.join(&id), self.scratch.join(format!("{id}.part")));
        let what = format!("{} of {}@{}", file.path, self.name, &revision[..revision.len().min(10)]);
        if !path.is_file() {
            let download = |model: &HubModel| model.download(revision, file, &part);
            download(&self.model)?;
            if self.verified.check(&part, hash, &id, &what).is_err() {
                // What an earlier run left may have been of no use: once more, from the beginning.
                let _ = fs::remove_file(&part);
                download(&self.model)?;
            }
            self.verified.check(&part, hash, &id, &what)?;
            fs::rename(&part, &path).map_err(RepoError::io(format!("cannot write {}", path.display())))?;
        }
        self.verified.check(&path, hash, &id, &what)?;
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
    Some(Signature {
        name: name.unwrap_or_else(|| mdl_repo::UNKNOWN.to_owned()),
        email: String::new(),
        time_ms: time.as_millisecond(),
        utc_offset_min: 0,
    })
}

impl Source for HubSource {
    fn versions(&mut self) -> Result<Vec<SourceVersion>> {
        let refs = self.model.refs()?;
        let mut tags: HashMap<String, Vec<String>> = HashMap::new();
        for tag in refs.tags {
            tags.entry(tag.target_commit).or_default().push(tag.name);
        }
        let mut commits = self.model.commits(&self.revision)?;
        commits.reverse();
        let version = |commit: HubCommit| SourceVersion {
            message: [commit.title.trim(), commit.message.trim()].join("\n\n").trim().to_owned(),
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
            files.push(SourceFile { rel: file.path, executable: false, size: file.size, path, id });
        }
        // A history of large models must not lie here as a whole: what this version lacks, the next one hardly has.
        for old in fs::read_dir(&self.scratch).into_iter().flatten().flatten().filter(|e| !used.contains(&e.path())) {
            let _ = fs::remove_file(old.path());
        }
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
