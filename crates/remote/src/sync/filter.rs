//! A filter of the files and tensors of a version that a transfer takes: `FILE` or `FILE:TENSOR`, both as globs.

use globset::{GlobBuilder, GlobMatcher};
use mdl_store::{RepoError, Result};

/// A choice of files and tensors. Of a file that is chosen by some of its tensors only those are wanted, and not what
/// lies between them.
#[derive(Clone, Debug)]
pub struct Filter {
    text: Vec<String>,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    file: GlobMatcher,
    tensor: Option<GlobMatcher>,
}

fn glob(text: &str, separators: bool) -> Result<GlobMatcher> {
    let built = GlobBuilder::new(text).literal_separator(separators).build();
    let built = built.map_err(|e| {
        let hint = "write FILE or FILE:TENSOR with *, ? and [..], such as \"model.safetensors:*embed*\"";
        RepoError::user(format!("{text:?} is not a pattern: {}", e.kind()), hint)
    })?;
    Ok(built.compile_matcher())
}

impl Filter {
    /// What any of these patterns matches. `*` matches within a directory, `**` across; in a tensor's name it matches
    /// dots too.
    pub fn new(patterns: &[String]) -> Result<Filter> {
        let rule = |text: &String| {
            let (file, tensor) = match text.split_once(':') {
                Some((file, tensor)) => (file, Some(glob(tensor, false)?)),
                None => (text.as_str(), None),
            };
            let file = glob(file, true)?;
            Ok(Rule { file, tensor })
        };
        Ok(Filter { text: patterns.to_vec(), rules: patterns.iter().map(rule).collect::<Result<_>>()? })
    }

    /// The patterns.
    pub fn patterns(&self) -> &[String] {
        &self.text
    }

    /// Whether all of a file is wanted.
    pub fn file(&self, path: &str) -> bool {
        self.rules.iter().any(|r| r.tensor.is_none() && r.file.is_match(path))
    }

    /// Whether a tensor of a file is wanted.
    pub fn tensor(&self, path: &str, name: &str) -> bool {
        let wants = |r: &Rule| r.file.is_match(path) && r.tensor.as_ref().is_none_or(|t| t.is_match(name));
        self.rules.iter().any(wants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_tensors_are_told_by_their_patterns() {
        let only = Filter::new(&["model.safetensors:*embed*".to_owned(), "*.json".to_owned()]).expect("patterns");
        assert!(only.file("config.json") && !only.file("sub/config.json") && !only.file("model.safetensors"));
        assert!(only.tensor("model.safetensors", "a.embed.weight"));
        assert!(!only.tensor("model.safetensors", "a.norm.weight") && !only.tensor("other", "embed"));
        Filter::new(&["a[".to_owned()]).expect_err("no pattern");
    }
}
