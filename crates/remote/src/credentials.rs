//! Tokens for servers: from the environment, or from a file that only its owner can read.

use mdl_repo::{RepoError, Result};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    env, fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use url::Url;

/// Holds the token for every server; wins over the file.
const TOKEN: &str = "MDL_TOKEN";
/// Names another file.
const FILE: &str = "MDL_CREDENTIALS";

/// What may be read of a credentials file: a table of tokens by the servers' origins.
#[derive(Deserialize)]
struct Entry {
    token: String,
}

fn file() -> Option<PathBuf> {
    if let Some(named) = env::var_os(FILE).filter(|v| !v.is_empty()) {
        return Some(named.into());
    }
    let base = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let base = base.or_else(|| env::var_os("HOME").map(|h| PathBuf::from(h).join(".config")))?;
    Some(base.join("mdl/credentials.json"))
}

/// The token for a server, if there is one: `MDL_TOKEN`, else that of its origin in `MDL_CREDENTIALS` (default:
/// `~/.config/mdl/credentials.json`, `{"https://host": {"token": "..."}}`). A file that others can read is refused.
pub fn token_for(url: &Url) -> Result<Option<String>> {
    match env::var(TOKEN) {
        Ok(token) if !token.is_empty() => Ok(Some(token)),
        _ => file().map_or(Ok(None), |path| from_file(&path, url)),
    }
}

fn from_file(path: &Path, url: &Url) -> Result<Option<String>> {
    let meta = match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        meta => meta.map_err(RepoError::io(format!("cannot read {}", path.display())))?,
    };
    if meta.mode() & 0o077 != 0 {
        return Err(RepoError::user(
            format!("{} can be read by others than its owner; no token was taken from it", path.display()),
            format!("run `chmod 600 {}`, and make new tokens if others may have read it", path.display()),
        ));
    }
    let text = fs::read_to_string(path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
    // What is wrong with it is not repeated: a piece of a token may be in it.
    let entries: BTreeMap<String, Entry> = serde_json::from_str(&text).map_err(|_| {
        let hint = r#"write {"https://HOST": {"token": "..."}}"#;
        RepoError::user(format!("{} is no credentials file", path.display()), hint)
    })?;
    let origin = url.origin();
    let same = |key: &str| Url::parse(key).is_ok_and(|u| u.origin() == origin);
    Ok(entries.into_iter().find(|(key, _)| same(key)).map(|(_, e)| e.token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_had_for_its_server_only_and_from_a_tight_file_only() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("credentials.json");
        let url = |text: &str| Url::parse(text).expect("url");
        assert_eq!(from_file(&path, &url("https://a.example/x/y")).expect("none"), None);
        fs::write(&path, r#"{"https://a.example": {"token": "secret"}}"#).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("mode");
        let e = from_file(&path, &url("https://a.example/x/y")).expect_err("loose");
        assert!(!e.to_string().contains("secret"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
        let found = from_file(&path, &url("https://a.example/x/y")).expect("read");
        assert_eq!(found.as_deref(), Some("secret"));
        for other in ["https://b.example/x", "http://a.example/x", "https://a.example:8443/x"] {
            assert_eq!(from_file(&path, &url(other)).expect("read"), None, "{other}");
        }
        fs::write(&path, "secret").expect("write");
        let e = from_file(&path, &url("https://a.example/")).expect_err("no file of ours");
        assert!(!e.to_string().contains("secret"));
    }
}
