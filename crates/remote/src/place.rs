//! Locations of repositories as users write them: a directory, a bucket, a server.
//!
//! Credentials come from the environment of each store's own tools, never from a URL, and are in no message.

use crate::{
    clients::{self, client},
    object::ObjectStorage,
};
use mdl_repo::{
    DIR, RepoError, Result,
    storage::{LocalStorage, Storage},
};
use std::{env, fmt, path::PathBuf, sync::Arc};
use url::Url;

/// Whose object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// S3, and whatever speaks its protocol: `s3://BUCKET/PREFIX`.
    S3,
    /// Google Cloud Storage: `gs://BUCKET/PREFIX`.
    Google,
    /// Azure Blob Storage: `az://CONTAINER/PREFIX`.
    Azure,
    /// This process, for tests: `memory://NAME/PREFIX`.
    Memory,
}

/// A place where a repository is or will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory.
    Local(PathBuf),
    /// A prefix of a bucket.
    Bucket {
        /// Whose.
        kind: Kind,
        /// The bucket (container, for Azure).
        name: String,
        /// Without a `/` at its ends; may be empty.
        prefix: String,
    },
    /// A repository that a server has.
    Http(Url),
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::S3, Kind::Google, Kind::Azure, Kind::Memory];

    fn scheme(self) -> &'static str {
        match self {
            Kind::S3 => "s3",
            Kind::Google => "gs",
            Kind::Azure => "az",
            Kind::Memory => "memory",
        }
    }
}

/// Never repeats the text: what is wrong with it may be the password in it.
fn usage(scheme: &str, what: &str) -> RepoError {
    RepoError::usage(
        format!("this {scheme}:// URL is no place: {what}"),
        "write a directory, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or https://HOST/OWNER/NAME; \
         credentials come from the environment (a server's token from MDL_TOKEN) or ~/.config/mdl/credentials.json",
    )
}

impl Place {
    /// Reads a place as users write it: a URL, or else the path of a directory. `Usage`: a scheme that nothing here
    /// knows, a name that cannot be, credentials or a query in the URL.
    pub fn parse(text: &str) -> Result<Place> {
        // A directory may be called like that too: what is before has a `/` then.
        let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| !scheme.contains('/')) else {
            return match text {
                "" => Err(RepoError::usage("an empty path is no place", "")),
                path => Ok(Place::Local(path.into())),
            };
        };
        let scheme = scheme.to_ascii_lowercase();
        match (scheme.as_str(), Kind::ALL.into_iter().find(|k| k.scheme() == scheme)) {
            (_, Some(kind)) => parse_bucket(kind, rest),
            ("file", _) => parse_file(text),
            ("http" | "https", _) => parse_http(&scheme, text),
            _ => Err(usage(&scheme, "nothing here knows its scheme")),
        }
    }

    /// Its bytes; a server's repository has none to reach.
    pub fn storage(&self) -> Result<Arc<dyn Storage>> {
        match self {
            Place::Local(path) => {
                let inner = path.join(DIR);
                let root = if inner.is_dir() { inner } else { path.clone() };
                Ok(Arc::new(LocalStorage::new(root)))
            }
            Place::Bucket { kind, name, prefix } => {
                clients::check(*kind, |name| env::var(name).ok())?;
                let made = client(*kind, name, true).and_then(|store| Ok((store, client(*kind, name, false)?)));
                let (store, once) = made.map_err(|e| {
                    RepoError::user(format!("cannot use {self}: {e}"), "check the environment: see docs/buckets.md")
                })?;
                Ok(Arc::new(ObjectStorage::new(store, once, prefix, &self.to_string())))
            }
            Place::Http(_) => Err(RepoError::user(
                format!("{self} is a server's repository, and no storage"),
                "clone it, or name the bucket itself",
            )),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Local(path) => path.display().fmt(f),
            Place::Bucket { kind, name, prefix } if prefix.is_empty() => write!(f, "{}://{name}", kind.scheme()),
            Place::Bucket { kind, name, prefix } => write!(f, "{}://{name}/{prefix}", kind.scheme()),
            Place::Http(url) => url.as_str().trim_end_matches('/').fmt(f),
        }
    }
}

fn parse_bucket(kind: Kind, rest: &str) -> Result<Place> {
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.contains(['@', ':']) {
        return Err(usage(kind.scheme(), "credentials are not taken from a URL"));
    }
    if name.is_empty() || !name.bytes().all(fits) {
        return Err(usage(kind.scheme(), "that is no bucket's name"));
    }
    let prefix = prefix.trim_matches('/');
    let odd =
        |part: &str| matches!(part, "" | "." | "..") || part.contains(['?', '#']) || part.chars().any(char::is_control);
    if !prefix.is_empty() && prefix.split('/').any(odd) {
        return Err(usage(kind.scheme(), "its prefix has an empty part, `.`, `..`, `?` or `#`"));
    }
    Ok(Place::Bucket { kind, name: name.to_owned(), prefix: prefix.to_owned() })
}

fn parse_file(text: &str) -> Result<Place> {
    let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
    let path = path.ok_or_else(|| usage("file", "write it as file:///DIRECTORY"))?;
    Ok(Place::Local(path))
}

fn parse_http(scheme: &str, text: &str) -> Result<Place> {
    let url = Url::parse(text).map_err(|e| usage(scheme, &e.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(usage(scheme, "credentials are not taken from a URL"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(usage(scheme, "it has a `?` or `#`"));
    }
    Ok(Place::Http(url))
}

/// A URL as it is kept: a directory by its whole path, since commands run anywhere.
///
/// # Errors
/// A URL that names no place; there is no current directory.
pub fn kept(url: &str) -> Result<String> {
    Ok(match Place::parse(url)? {
        Place::Local(path) => {
            let path = std::path::absolute(&path).map_err(RepoError::io("cannot find the current directory"))?;
            path.display().to_string()
        }
        place => place.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_shown_as_they_are_written() {
        for text in [
            "s3://b/a/p",
            "gs://b",
            "az://c/p",
            "memory://m",
            "https://h/o/n",
            "some/dir",
            "/abs",
            "/odd://dir",
            "./s3://dir",
        ] {
            assert_eq!(Place::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(Place::parse("file:///a/b").expect("file"), Place::Local("/a/b".into()));
        assert_eq!(Place::parse("s3://b/p/").expect("slash").to_string(), "s3://b/p");
    }

    #[test]
    fn what_is_no_place_is_refused_and_a_password_never_repeated() {
        for text in [
            "",
            "ftp://h/x",
            "s3://",
            "s3:///p",
            "s3://b/a//b",
            "s3://b/../c",
            "s3://b/p?x=1",
            "file://host/x",
            "https://h/o/n?token=1",
            "s3://key:hunter2@b/p",
            "https://me:hunter2@h/o/n",
            "https://hunter2@h/o/n",
            "ftp://me:hunter2@h",
        ] {
            let error = Place::parse(text).expect_err(text);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_storage_shows_its_url_and_nothing_of_its_clients() {
        let storage = Place::parse("s3://b/p").expect("place").storage().expect("storage");
        let shown = format!("{storage:?}");
        assert!(shown.contains("s3://b/p") && !shown.contains("redential"), "{shown}");
    }

    #[test]
    fn a_bucket_in_memory_is_shared_by_its_name() {
        use mdl_repo::storage::Key;
        let one = Place::parse("memory://place-test/p").expect("place").storage().expect("storage");
        let two = Place::parse("memory://place-test/p").expect("place").storage().expect("storage");
        one.put(&Key::fixed("k"), b"v").expect("put");
        assert_eq!(two.get(&Key::fixed("k")).expect("get"), Some(b"v".to_vec()));
        assert!(!two.excludes());
    }
}
