//! Checks that the files of a settled checkpoint are complete: every container parses, and every shard that an index
//! names is there.

use crate::checkpoints::find::{WatchedEntry, is_temporary};
use mdl_files::{FileSource, ScanError, scan};
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path};

const INDEX: &str = ".index.json";
/// Largest index of shards that is read.
const MOST: u64 = 256 << 20;

/// Result of reading the headers.
#[derive(Debug, PartialEq, Eq)]
pub enum Whole {
    /// It can be committed.
    Yes,
    /// No file of it has tensors: it is no checkpoint.
    NoTensors,
    /// It is not, or not yet.
    No(String),
}

/// Files that writers of distributed checkpoints leave last, beside data that only they read: torch's (Megatron-Core,
/// NeMo, torchtitan) and Orbax's.
const LAST: [&str; 2] = [".metadata", "_CHECKPOINT_METADATA"];
/// Data of torch's.
const SHARD: &str = ".distcp";

/// Whether it is a distributed checkpoint, or has some in it (a model's and an optimizer's); or which file is missing.
fn distributed(found: &WatchedEntry) -> Result<bool, String> {
    let split = |rel: &String| rel.rsplit_once('/').map_or_else(Default::default, |(dir, _)| dir.to_owned());
    let is_last = |rel: &&String| LAST.contains(&rel.rsplit('/').next().unwrap_or(rel));
    let ended: BTreeSet<String> = found.stamp.keys().filter(is_last).map(split).collect();
    let begun: BTreeSet<String> = found.stamp.keys().filter(|rel| rel.ends_with(SHARD)).map(split).collect();
    match begun.difference(&ended).next() {
        Some(dir) => Err(Path::new(dir).join(LAST[0]).display().to_string()),
        None => Ok(!ended.is_empty()),
    }
}

/// Reads the headers of all files.
pub fn check(found: &WatchedEntry) -> Whole {
    let mut tensors = match distributed(found) {
        Err(missing) => return Whole::No(format!("{missing} is not written yet")),
        Ok(is_distributed) => is_distributed,
    };
    for rel in found.stamp.keys() {
        let path = found.file(rel);
        let source = match FileSource::open(&path) {
            Ok(source) => source,
            Err(e) => return Whole::No(format!("cannot read {rel}: {e}")),
        };
        match scan(&source, Path::new(rel)) {
            Ok(layout) => tensors |= !layout.extents.is_empty(),
            // A killed writer's leftover: no run resumes from it, but the checkpoint may be incomplete.
            Err(ScanError::Damaged { .. }) if is_temporary(rel.rsplit('/').next().unwrap_or(rel)) => {
                return Whole::No(format!("{rel} was left half written"));
            }
            Err(e) => return Whole::No(format!("{rel}: {e}")),
        }
        if let Some(missing) = rel.ends_with(INDEX).then(|| missing(found, rel)).flatten() {
            return Whole::No(format!("{missing}, which {rel} names, is missing"));
        }
    }
    if tensors { Whole::Yes } else { Whole::NoTensors }
}

/// Returns the first shard that an index names and that is missing.
fn missing(found: &WatchedEntry, index: &str) -> Option<String> {
    let path = found.file(index);
    if fs::metadata(&path).ok()?.len() > MOST {
        return None;
    }
    let document: Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
    let shards = document.get("weight_map")?.as_object()?.values();
    let shards: BTreeSet<&str> = shards.filter_map(Value::as_str).collect();
    let dir = index.rsplit_once('/').map_or(String::new(), |(dir, _)| format!("{dir}/"));
    let gone = |shard: &&str| !found.stamp.contains_key(&format!("{dir}{shard}"));
    shards.into_iter().find(gone).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoints::find::look;

    fn safetensors() -> Vec<u8> {
        let head = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
        bytes.extend(head.as_bytes());
        bytes.extend([0; 8]);
        bytes
    }

    fn checked(files: &[(&str, &[u8])]) -> Whole {
        let dir = tempfile::TempDir::new().expect("temp dir");
        fs::create_dir(dir.path().join("step_1")).expect("dir");
        for (name, bytes) in files {
            let path = dir.path().join("step_1").join(name);
            fs::create_dir_all(path.parent().expect("parent")).expect("dirs");
            fs::write(path, bytes).expect("write");
        }
        check(&look(dir.path(), &[]).expect("look").entries[0])
    }

    #[test]
    fn files_that_are_whole_and_files_that_are_not() {
        let whole = safetensors();
        assert_eq!(checked(&[("w.safetensors", &whole), ("config.json", b"{}")]), Whole::Yes);
        assert_eq!(checked(&[("config.json", b"{}")]), Whole::NoTensors);
        assert!(matches!(checked(&[("w.safetensors", &whole[..whole.len() - 1])]), Whole::No(_)));
        assert!(matches!(checked(&[("w.safetensors", &whole), ("o.pt", b"")]), Whole::No(_)));
    }

    #[test]
    fn distributed_checkpoints_are_whole_with_their_last_file() {
        let data = ("__0_0.distcp", b"opaque".as_slice());
        assert!(matches!(checked(&[data]), Whole::No(why) if why.contains(".metadata")));
        assert_eq!(checked(&[data, (".metadata", b"x")]), Whole::Yes);
        // Accelerate writes the model's, and then the optimizer's.
        let model = [("model_0/__0_0.distcp", b"x".as_slice()), ("model_0/.metadata", b"x")];
        let optimizer = ("optimizer_0/__0_0.distcp", b"x".as_slice());
        let half = [model[0], model[1], optimizer];
        assert!(matches!(checked(&half), Whole::No(why) if why.contains("optimizer_0/.metadata")));
        assert_eq!(checked(&[model[0], model[1], optimizer, ("optimizer_0/.metadata", b"x")]), Whole::Yes);
        assert_eq!(checked(&[("d", b"x"), ("_CHECKPOINT_METADATA", b"{}")]), Whole::Yes);
        assert!(matches!(checked(&[data, (".metadata", b"x"), ("w.safetensors", b"cut")]), Whole::No(_)));
    }

    #[test]
    fn shards_that_an_index_names_must_be_there() {
        let whole = safetensors();
        let index = br#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#;
        let name = "model.safetensors.index.json";
        let first = ("1.safetensors", whole.as_slice());
        assert!(matches!(checked(&[first, (name, index)]), Whole::No(why) if why.contains("2.safetensors")));
        assert_eq!(checked(&[first, ("2.safetensors", &whole), (name, index)]), Whole::Yes);
    }
}
