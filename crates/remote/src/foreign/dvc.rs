//! Files of DVC: what a `.dvc` file or `dvc.lock` tracks, listings of directories, the setting of the cache.

use super::{Unreadable, is_hex};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A `.dvc` file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tracked {
    outs: Vec<Out>,
    wdir: Option<String>,
}

/// `dvc.lock`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lock {
    stages: BTreeMap<String, Tracked>,
}

/// Something that DVC tracks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Out {
    /// Path, from the working directory of its stage.
    pub path: String,
    /// Id of the content: MD5, and `.dir` behind it for a directory's listing. DVC has none before the first run.
    pub md5: Option<String>,
    /// `md5` since DVC 3; before, the id of a text was that of its text with Unix line ends.
    pub hash: Option<String>,
    /// Whether it is executable.
    pub isexec: bool,
}

/// An entry of a directory's listing.
#[derive(Debug, Deserialize)]
struct Listed {
    md5: String,
    relpath: String,
}

/// What a `.dvc` file (or, `is_lock`, a `dvc.lock`) tracks, each with the directory that its path is from.
///
/// # Errors
/// It is no such file: damaged, or with the marks of a merge.
pub fn tracked(bytes: &[u8], is_lock: bool) -> Result<Vec<(String, Out)>, Unreadable> {
    let text = std::str::from_utf8(bytes)?;
    let tracked: Vec<Tracked> = match is_lock {
        true => serde_saphyr::from_str::<Lock>(text).map_err(Box::new)?.stages.into_values().collect(),
        false => vec![serde_saphyr::from_str(text).map_err(Box::new)?],
    };
    let outs = tracked.into_iter().flat_map(|t| {
        let dir = t.wdir.unwrap_or_default();
        t.outs.into_iter().map(move |out| (dir.clone(), out))
    });
    Ok(outs.collect())
}

/// The files of a directory that lies at `path`: where each lies, and its MD5.
///
/// # Errors
/// It is no listing; a path that leads out of the directory.
pub fn listing(bytes: &[u8], path: &str) -> Result<Vec<(String, String)>, Unreadable> {
    let listed: Vec<Listed> = serde_json::from_slice(bytes)?;
    let placed = listed.into_iter().map(|Listed { md5, relpath }| {
        let inside = join(&[path, &relpath]).filter(|rel| rel.strip_prefix(path).is_some_and(|r| r.starts_with('/')));
        inside.map(|rel| (rel, md5)).ok_or(Unreadable::Path(relpath))
    });
    placed.collect()
}

/// A path of these parts, without `.` and `..`; none: it leads outside.
pub fn join(parts: &[&str]) -> Option<String> {
    let mut out: Vec<&str> = Vec::new();
    for part in parts.iter().flat_map(|p| p.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(out.pop()?),
            part => out.push(part),
        }
    }
    let is_absolute = parts.last()?.starts_with('/');
    (!out.is_empty() && !is_absolute).then(|| out.join("/"))
}

/// Where a cache has an id: its first two digits, and the rest. None: it is no id.
pub fn place_of(id: &str) -> Option<(&str, &str)> {
    is_hex(id.strip_suffix(".dir").unwrap_or(id), 16).then(|| id.split_at_checked(2))?
}

/// The directory that the settings of a repository name as its cache: `dir` in the section `[cache]`.
pub fn cache_setting(text: &str) -> Option<String> {
    let mut in_cache = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            in_cache = line.trim_matches(['[', ']']).trim() == "cache";
        } else if let Some((key, value)) = line.split_once('=').filter(|_| in_cache)
            && key.trim() == "dir"
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_within() {
        assert_eq!(join(&["models", "", "a.pt"]).as_deref(), Some("models/a.pt"));
        assert_eq!(join(&["models/x", "..", "./a.pt"]).as_deref(), Some("models/a.pt"));
        for parts in [["", "", "../a"], ["a", "../..", "b"], ["", "", "/etc/passwd"], ["", "", "."]] {
            assert_eq!(join(&parts), None, "{parts:?}");
        }
        let list = |rel: &str| listing(format!(r#"[{{"md5": "x", "relpath": "{rel}"}}]"#).as_bytes(), "data");
        assert_eq!(list("a/./b").expect("inside"), [("data/a/b".to_owned(), "x".to_owned())]);
        for rel in ["../data2/a", "..", "/a", ".", "", "../data"] {
            assert!(matches!(list(rel), Err(Unreadable::Path(named)) if named == rel), "{rel:?}");
        }
    }

    #[test]
    fn files_of_dvc_are_read() {
        let text =
            "outs:\n- md5: d8e8fca2dc0f896fd7cb4cb0031ba249.dir\n  size: 4\n  nfiles: 1\n  hash: md5\n  path: data\n";
        let [(_, out)] = &tracked(text.as_bytes(), false).expect("read")[..] else { unreachable!() };
        assert_eq!((out.path.as_str(), out.hash.as_deref()), ("data", Some("md5")));
        let id = out.md5.as_deref().expect("an id");
        assert_eq!(place_of(id), Some(("d8", "e8fca2dc0f896fd7cb4cb0031ba249.dir")));
        for bad in ["", "d8", "../../etc/passwd", "é8e8fca2dc0f896fd7cb4cb0031ba24", ".dir"] {
            assert_eq!(place_of(bad), None);
        }
        let lock = "schema: '2.0'\nstages:\n  train:\n    cmd: python train.py\n    outs:\n\
            \x20   - path: model.pt\n      md5: d8e8fca2dc0f896fd7cb4cb0031ba249\n";
        assert_eq!(tracked(lock.as_bytes(), true).expect("read")[0].1.path, "model.pt");
        assert!(tracked(b"<<<<<<< HEAD\n", false).is_err());
        assert_eq!(
            cache_setting("[core]\nremote = x\n['remote \"x\"']\nurl = y\n[cache]\n    dir = ../shared\n").as_deref(),
            Some("../shared")
        );
    }
}
