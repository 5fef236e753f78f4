//! Which files and tensors of a version some patterns choose, by ids alone: no tensor is decoded.

use crate::{pruned, repo::Repo};
use globset::{GlobBuilder, GlobMatcher};
use mdl_objects::{Commit, Id, Mode};
use mdl_store::{RepoError, Result};
use std::collections::{BTreeMap, HashMap};

/// A choice of files and tensors: what any of some patterns `FILE` or `FILE:TENSOR` matches.
#[derive(Clone, Debug)]
pub struct Selection {
    rules: Vec<(GlobMatcher, Option<GlobMatcher>)>,
}

fn glob(text: &str, separators: bool) -> Result<GlobMatcher> {
    let built = GlobBuilder::new(text).literal_separator(separators).build();
    let built = built.map_err(|e| {
        let hint = "FILE or FILE:TENSOR with *, ? and [..], such as \"model.safetensors:*embed*\"";
        RepoError::usage(format!("{text:?} is not a pattern: {}", e.kind()), hint)
    })?;
    Ok(built.compile_matcher())
}

impl Selection {
    /// What any of these patterns matches; with none, everything. `*` matches within a directory, `**` across; a
    /// pattern without `/` matches files in any directory; in a tensor's name `*` matches everything. `:TENSOR` means
    /// tensors in any file.
    ///
    /// # Errors
    /// `Usage`: one is no pattern.
    pub fn new(patterns: &[String]) -> Result<Selection> {
        let mut rules = Vec::new();
        for text in patterns {
            let (file, tensor) = match text.split_once(':') {
                Some((file, tensor)) => (file, Some(glob(tensor, false)?)),
                None => (text.as_str(), None),
            };
            let file = if file.is_empty() { "**" } else { file };
            rules.push((glob(file, true)?, tensor.clone()));
            if !file.contains('/') {
                rules.push((glob(&format!("**/{file}"), true)?, tensor));
            }
        }
        Ok(Selection { rules })
    }

    /// Whether all of a file is chosen.
    pub fn file(&self, path: &str) -> bool {
        self.rules.is_empty() || self.rules.iter().any(|(file, tensor)| tensor.is_none() && file.is_match(path))
    }

    /// Whether something of a file may be chosen.
    pub(crate) fn some_of(&self, path: &str) -> bool {
        self.rules.is_empty() || self.rules.iter().any(|(file, _)| file.is_match(path))
    }

    /// Whether a tensor of a file is chosen.
    pub fn tensor(&self, path: &str, name: &str) -> bool {
        let wants = |(file, tensor): &(GlobMatcher, Option<GlobMatcher>)| {
            file.is_match(path) && tensor.as_ref().is_none_or(|t| t.is_match(name))
        };
        self.rules.is_empty() || self.rules.iter().any(wants)
    }
}

/// What is chosen of a version: paths, or `FILE:TENSOR`, with ids.
pub(crate) type Chosen = BTreeMap<String, Id>;

/// Reads what a selection chooses of versions, and remembers that of files that it has read.
pub(crate) struct Chooser<'a> {
    repo: &'a Repo,
    selection: &'a Selection,
    record: pruned::Pruned,
    /// By path: the manifest that was read last, and its tensors that are chosen.
    known: HashMap<String, (Id, Vec<(String, Id)>)>,
}

impl<'a> Chooser<'a> {
    pub fn new(repo: &'a Repo, selection: &'a Selection) -> Result<Chooser<'a>> {
        Ok(Chooser { repo, selection, record: pruned::pruned(repo)?, known: HashMap::new() })
    }

    /// What is chosen of a version; none: its contents are gone.
    pub fn choose(&mut self, id: &Id, commit: &Commit) -> Result<Option<Chosen>> {
        let odb = self.repo.odb();
        let tree = match self.record.standing(odb, id, commit)? {
            pruned::Standing::Committed => commit.tree,
            pruned::Standing::StandIn(tree, _) => tree,
            pruned::Standing::Gone => return Ok(None),
        };
        let mut out = Chosen::new();
        for (path, entry) in odb.files(&tree)? {
            if self.selection.file(&path) {
                out.insert(path, entry.id);
            } else if entry.mode == Mode::Manifest && self.selection.some_of(&path) {
                if self.known.get(&path).is_none_or(|(id, _)| *id != entry.id) {
                    let manifest = odb.manifest(&entry.id)?;
                    let named = manifest.tensors.iter().zip(manifest.listed_names());
                    let chosen = named.filter(|(_, name)| self.selection.tensor(&path, name));
                    let chosen = chosen.map(|(t, name)| (format!("{path}:{name}"), t.id)).collect();
                    self.known.insert(path.clone(), (entry.id, chosen));
                }
                out.extend(self.known.get(&path).into_iter().flat_map(|(_, chosen)| chosen).cloned());
            }
        }
        Ok(Some(out))
    }
}
