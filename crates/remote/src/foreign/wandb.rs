//! Manifests of W&B's artifacts: paths with MD5 and length, or with an address of what W&B only refers to.

use super::Unreadable;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use std::collections::BTreeMap;

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

/// A file of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Path in the artifact.
    pub path: String,
    /// MD5 in hexadecimal digits. None: W&B only refers to it, and has an id of where that is: an ETag, another hash.
    pub md5: Option<String>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Whether W&B only refers to it.
    pub is_reference: bool,
}

/// Whether a file is a manifest of W&B: other programs have manifests too.
pub fn is_manifest(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Manifest>(bytes).is_ok()
}

/// The files of a manifest, by their paths.
///
/// # Errors
/// It is none; a path that leads elsewhere; a file without MD5.
pub fn manifest(bytes: &[u8]) -> Result<Vec<Listed>, Unreadable> {
    let parsed: Manifest = serde_json::from_slice(bytes)?;
    let listed = parsed.contents.into_iter().map(|(path, content)| {
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(Unreadable::Path(path));
        }
        let digest = BASE64_STANDARD.decode(&content.digest).ok().filter(|d| d.len() == 16);
        let (md5, is_reference) = (digest.map(hex::encode), content.r#ref.is_some());
        match md5.is_some() || is_reference {
            true => Ok(Listed { path, md5, size: content.size, is_reference }),
            false => Err(Unreadable::Digest(path)),
        }
    });
    listed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_once_and_inside() {
        let of = |path: &str, content: &str| manifest(format!(r#"{{"contents": {{"{path}": {content}}}}}"#).as_bytes());
        let one = of("a/b", r#"{"digest": "sZRqySSS0jR8YjW00mERhA==", "size": 6}"#).expect("read");
        let md5 = Some("b1946ac92492d2347c6235b4d2611184".to_owned());
        assert_eq!(one, [Listed { path: "a/b".to_owned(), md5, size: Some(6), is_reference: false }]);
        let elsewhere = of("x", r#"{"digest": "etag", "ref": "s3://b/x"}"#).expect("read");
        assert_eq!((&elsewhere[0].md5, elsewhere[0].is_reference), (&None, true));
        assert!(matches!(of("x", r#"{"digest": "etag"}"#), Err(Unreadable::Digest(path)) if path == "x"));
        for path in ["", "../x", "/x", "a//b", "a/."] {
            assert!(matches!(of(path, r#"{"digest": ""}"#), Err(Unreadable::Path(named)) if named == path));
        }
        assert!(!is_manifest(b"{}") && is_manifest(br#"{"contents": {}}"#));
    }
}
