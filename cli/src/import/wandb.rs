//! W&B artifacts as directories, with a manifest that has the MD5 of each file or without. `NAME:v3` is the fourth
//! version.

use super::{
    Kind, Request, Source, SourceFile, SourceVersion, bad, files_below,
    ids::{Hash, Verified},
    mark_of,
};
use crate::commands::prelude::*;
use mdl_remote::foreign::wandb::{self, Listed};
use std::fs;

/// Names of a manifest.
const MANIFESTS: [&str; 2] = ["manifest.json", "wandb_manifest.json"];
/// Longest manifest that is read.
const LONGEST: u64 = 256 << 20;

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
        text.is_some_and(|text| wandb::is_manifest(&text))
    })
}

fn subdirs(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.path()).filter(|p| p.is_dir()).collect()
}

/// Whether a directory is an artifact's, or has such directories.
pub fn has_artifacts(dir: &Path) -> bool {
    // As `wandb artifact get` names it. A dash is in names of other things too.
    let is_artifact = |dir: &Path| {
        manifest_of(dir).is_some()
            || is_version(dir) && dir.file_name().is_some_and(|n| n.to_string_lossy().contains(':'))
    };
    is_artifact(dir) || subdirs(dir).iter().any(|d| is_artifact(d))
}

/// Whether a directory's name is that of a version.
fn is_version(dir: &Path) -> bool {
    order(dir).1 < u64::MAX
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
        let is_artifact = |dir: &Path| manifest_of(dir).is_some() || is_version(dir);
        let found = if is_artifact(&dir) { vec![dir.clone()] } else { subdirs(&dir) };
        let (mut dirs, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|d| is_artifact(d));
        dirs.sort_by_key(|d| order(d));
        let note = |d: PathBuf| format!("left out {}: it has no manifest, and is not called NAME:vN", d.display());
        let notes = others.into_iter().map(note).collect();
        if dirs.is_empty() {
            let hint = "a directory of an artifact is called NAME:vN, or has a manifest.json";
            return Err(refused(format!("there is no artifact of W&B in {}", dir.display()), hint));
        }
        Ok(Artifacts { dirs, cache: request.cache, verified: Verified::default(), notes })
    }

    /// The files of a directory without a manifest, as `wandb artifact get` leaves it.
    fn unverified(&mut self, dir: &Path, name: &str) -> Result<Vec<SourceFile>> {
        self.notes.push(format!("{name} could not be verified: it has no manifest"));
        files_below(dir)?.into_iter().map(|(rel, path)| plain(rel, path, name)).collect()
    }
}

/// A file that nothing is known of.
fn plain(rel: String, path: PathBuf, version: &str) -> Result<SourceFile> {
    let size = fs::metadata(&path).map_err(RepoError::io(format!("cannot read {}", path.display())))?.len();
    let id = format!("{version}/{rel}");
    Ok(SourceFile { rel, executable: false, path, size, id, verified: false })
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
        let Some(dir) = dir.cloned() else { return Ok(Vec::new()) };
        let Some(manifest) = manifest_of(&dir) else { return self.unverified(&dir, &version.key) };
        let bytes = fs::read(&manifest).map_err(RepoError::io(format!("cannot read {}", manifest.display())))?;
        let listed =
            wandb::manifest(&bytes).map_err(|e| bad(format!("{} cannot be read: {e}", manifest.display()), ""))?;
        let mut files = Vec::new();
        for Listed { path: rel, md5, size: wanted, is_reference } in listed {
            let what = format!("{rel} of {}", version.key);
            if is_reference && !dir.join(&rel).is_file() {
                self.notes.push(format!("left out {what}: W&B only refers to it"));
                continue;
            }
            let Some(id) = md5 else {
                self.notes.push(format!("{what} could not be verified: W&B only refers to it"));
                files.push(plain(rel.clone(), dir.join(&rel), &version.key)?);
                continue;
            };
            let cached = self.cache.as_ref().map(|c| c.join("obj/md5").join(&id[..2]).join(&id[2..]));
            let path = [Some(dir.join(&rel)), cached].into_iter().flatten().find(|p| p.is_file()).ok_or_else(|| {
                let hint = "`wandb artifact get` brings it, --cache names W&B's cache (~/.cache/wandb/artifacts)";
                bad(format!("there is no {what}"), hint)
            })?;
            let size = self.verified.check(&path, Hash::Md5, &id, &what)?;
            if wanted.is_some_and(|wanted| wanted != size) {
                return Err(bad(format!("{what} has {size} bytes, and the manifest says otherwise"), ""));
            }
            files.push(SourceFile { rel, executable: false, path, size, id, verified: true });
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
