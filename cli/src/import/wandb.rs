//! W&B artifacts as directories: files beside a manifest with the MD5 of each. `NAME:v3` is the fourth version.

use super::{
    Kind, Request, Source, SourceFile, SourceVersion, bad,
    ids::{Hash, Verified},
    mark_of,
};
use crate::commands::prelude::*;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use std::{collections::BTreeMap, fs};

/// Names of a manifest.
const MANIFESTS: [&str; 2] = ["manifest.json", "wandb_manifest.json"];
/// Longest manifest that is read.
const LONGEST: u64 = 256 << 20;

/// A manifest, as W&B writes it.
#[derive(Debug, Deserialize)]
struct Manifest {
    contents: BTreeMap<String, Content>,
}

#[derive(Debug, Deserialize)]
struct Content {
    /// MD5 in Base64.
    digest: String,
    size: Option<u64>,
    /// Of a file that W&B only refers to.
    r#ref: Option<String>,
}

pub struct Artifacts {
    dirs: Vec<PathBuf>,
    cache: Option<PathBuf>,
    verified: Verified,
    notes: Vec<String>,
}

fn manifest_of(dir: &Path) -> Option<PathBuf> {
    MANIFESTS.iter().map(|name| dir.join(name)).find(|path| {
        // Other programs have manifests too.
        let text = fs::metadata(path).is_ok_and(|m| m.len() <= LONGEST).then(|| fs::read(path).ok()).flatten();
        text.is_some_and(|text| serde_json::from_slice::<Manifest>(&text).is_ok())
    })
}

fn subdirs(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.path()).filter(|p| p.is_dir()).collect()
}

/// Whether a directory is an artifact's, or has such directories.
pub fn has_manifests(dir: &Path) -> bool {
    manifest_of(dir).is_some() || subdirs(dir).iter().any(|d| manifest_of(d).is_some())
}

/// `NAME:v3` or `NAME-v3`: the name and 3.
fn order(dir: &Path) -> (String, u64) {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let split =
        name.rsplit_once([':', '-']).and_then(|(n, v)| Some((n.to_owned(), v.strip_prefix('v')?.parse().ok()?)));
    split.unwrap_or((name, u64::MAX))
}

impl Artifacts {
    pub fn open(request: Request) -> Result<Artifacts> {
        let dir = std::path::absolute(&request.place).map_err(RepoError::io("cannot find the current directory"))?;
        let mut dirs = if manifest_of(&dir).is_some() { vec![dir.clone()] } else { subdirs(&dir) };
        let (mut verified, mut notes) = (Vec::new(), Vec::new());
        dirs.sort_by_key(|d| order(d));
        for dir in dirs {
            match manifest_of(&dir) {
                Some(_) => verified.push(dir),
                None => notes.push(format!("left out {}: it has no manifest", dir.display())),
            }
        }
        if verified.is_empty() {
            let hint = "a manifest.json lies beside the files of an artifact";
            return Err(refused(format!("there is no artifact of W&B in {}", dir.display()), hint));
        }
        Ok(Artifacts { dirs: verified, cache: request.cache, verified: Verified::default(), notes })
    }
}

impl Source for Artifacts {
    fn versions(&mut self) -> Result<Vec<SourceVersion>> {
        let name = |dir: &PathBuf| dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let versions = self.dirs.iter().map(|dir| SourceVersion {
            key: name(dir),
            message: name(dir),
            ..SourceVersion::default()
        });
        Ok(versions.collect())
    }

    fn files(&mut self, version: &SourceVersion) -> Result<Vec<SourceFile>> {
        let dir = self.dirs.iter().find(|d| d.file_name().is_some_and(|n| n.to_string_lossy() == version.key.as_str()));
        let Some((dir, manifest)) = dir.and_then(|d| Some((d, manifest_of(d)?))) else { return Ok(Vec::new()) };
        let bytes = fs::read(&manifest).map_err(RepoError::io(format!("cannot read {}", manifest.display())))?;
        let parsed: Manifest = serde_json::from_slice(&bytes)
            .map_err(|e| bad(format!("{} cannot be read: {e}", manifest.display()), ""))?;
        let mut files = Vec::new();
        for (rel, content) in parsed.contents {
            if content.r#ref.is_some() && !dir.join(&rel).is_file() {
                self.notes.push(format!("left out {rel} of {}: W&B only refers to it", version.key));
                continue;
            }
            let what = format!("{rel} of {}", version.key);
            let digest = BASE64_STANDARD.decode(&content.digest).ok().filter(|d| d.len() == 16);
            let id = hex::encode(digest.ok_or_else(|| bad(format!("the manifest has no MD5 of {what}"), ""))?);
            if rel.split('/').any(|part| matches!(part, "" | "." | "..")) {
                return Err(bad(format!("the manifest names {rel:?}"), ""));
            }
            let cached = self.cache.as_ref().map(|c| c.join("obj/md5").join(&id[..2]).join(&id[2..]));
            let path = [Some(dir.join(&rel)), cached].into_iter().flatten().find(|p| p.is_file()).ok_or_else(|| {
                let hint = "`wandb artifact get` brings it, --cache names W&B's cache (~/.cache/wandb/artifacts)";
                bad(format!("there is no {what}"), hint)
            })?;
            let size = self.verified.check(&path, Hash::Md5, &id, &what)?;
            if content.size.is_some_and(|wanted| wanted != size) {
                return Err(bad(format!("{what} has {size} bytes, and the manifest says otherwise"), ""));
            }
            files.push(SourceFile { rel, executable: false, path, size, id });
        }
        Ok(files)
    }

    fn mark(&self, version: &SourceVersion) -> (String, String) {
        mark_of(Kind::Wandb, &version.key)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_numbers() {
        let mut dirs = ["m:v10", "m:v9", "m-v2"].map(PathBuf::from);
        dirs.sort_by_key(|d| order(d));
        assert_eq!(dirs, ["m-v2", "m:v9", "m:v10"].map(PathBuf::from));
    }
}
