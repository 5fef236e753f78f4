//! Bearer tokens: created, stored as hashes, compared in constant time.

use crate::{
    auth::guard::Marker,
    problem::{Problem, Result},
    process::state::{failed, now_ms, random_hex, write_private},
    registry::RepoName,
    request::stamp::Stamp,
};
use globset::{GlobBuilder, GlobMatcher};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};
use utoipa::ToSchema;

/// Name of the file in the server's own directory.
pub const FILE: &str = "tokens.json";
const PREFIX: &str = "mdl_";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// How much a token allows; each includes those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// See and download.
    Read,
    /// Commit, upload, move refs.
    Write,
    /// Make repositories, change settings, run maintenance, set webhooks.
    Admin,
}

impl Scope {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Admin => "admin",
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Scope, String> {
        let all = [Scope::Read, Scope::Write, Scope::Admin];
        let found = all.into_iter().find(|s| s.name() == text);
        found.ok_or_else(|| format!("{text:?} is none of read, write and admin"))
    }
}

/// A token as it is stored: without what its bearer shows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Token {
    /// Public part: names it in lists and logs.
    pub id: String,
    /// Its owner or purpose: author of its commits.
    pub name: String,
    /// BLAKE3 of the whole token. 256 random bits need no slow hash.
    hash: String,
    /// The repositories it is good for: a glob over `owner/name`, where `*` stops at `/`; `**` means all.
    pub repo: String,
    /// What it allows there.
    pub scope: Scope,
    /// When it was made: milliseconds since 1970.
    pub created_ms: i64,
    /// When it expires; none: never.
    pub expires_ms: Option<i64>,
    #[serde(skip)]
    matcher: Option<GlobMatcher>,
}

/// A token to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Its owner or purpose.
    pub name: String,
    /// Glob over `owner/name`.
    pub repo: String,
    /// What it allows.
    pub scope: Scope,
    /// Milliseconds since 1970 when it ends; none: never.
    pub expires_ms: Option<i64>,
}

impl Token {
    /// Whether it is good for a repository.
    pub fn covers(&self, name: &RepoName) -> bool {
        self.matcher.as_ref().is_some_and(|m| m.is_match(name.to_string()))
    }

    /// Whether it is good for every repository.
    pub fn covers_all(&self) -> bool {
        matches!(self.repo.as_str(), "**" | "*/*")
    }

    /// Whether it expired.
    pub fn is_over(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|end| end <= now_ms)
    }
}

fn matcher(glob: &str) -> std::result::Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(glob).literal_separator(true).build();
    glob.map(|g| g.compile_matcher()).map_err(|e| e.to_string())
}

#[derive(Default, Serialize, Deserialize)]
struct File {
    version: u32,
    tokens: Vec<Token>,
}

#[derive(Default)]
struct CachedTokens {
    stamp: Option<Stamp>,
    /// Whether another change of the file would show in its stamp.
    settled: bool,
    tokens: Vec<Arc<Token>>,
}

/// The tokens of a server.
pub struct Tokens {
    path: PathBuf,
    pub(super) marker: Marker,
    cached: RwLock<CachedTokens>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Tokens {
    /// The tokens in a server's state directory.
    pub fn new(state: &Path) -> Tokens {
        Tokens { path: state.join(FILE), marker: Marker::new(state), cached: RwLock::default() }
    }

    /// All tokens; the file is read anew if it has changed. Where that fails, every caller is refused.
    pub fn all(&self) -> Result<Vec<Arc<Token>>> {
        // Before the file is read: a concurrent change shows next time.
        let stamp = Stamp::from_path(&self.path).map_err(failed("read", &self.path))?;
        let settled = stamp.is_none_or(|s| s.is_settled());
        {
            let cached = self.cached.read();
            if cached.stamp == stamp && cached.settled {
                return Ok(cached.tokens.clone());
            }
        }
        let tokens: Vec<Arc<Token>> = self.read()?.tokens.into_iter().map(Arc::new).collect();
        *self.cached.write() = CachedTokens { stamp, settled, tokens: tokens.clone() };
        Ok(tokens)
    }

    /// Whether this server ever had a token, be it good or not.
    pub fn were_ever_made(&self) -> Result<bool> {
        Ok(Stamp::from_path(&self.path).map_err(failed("read", &self.path))?.is_some() || self.marker.is_set()?)
    }

    fn read(&self) -> Result<File> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(File::default()),
            Err(e) => return Err(failed("read", &self.path)(e)),
        };
        let mut file: File = serde_json::from_slice(&bytes).map_err(|e| failed("read", &self.path)(e.into()))?;
        for token in &mut file.tokens {
            token.matcher = matcher(&token.repo).ok();
        }
        Ok(file)
    }

    /// Creates a token; returns it with its secret, which is stored nowhere.
    pub fn create(&self, new: NewToken) -> Result<(Token, String)> {
        let matcher = matcher(&new.repo).map_err(|e| Problem::usage(format!("{:?} is no glob: {e}", new.repo)))?;
        let (id, secret) = (random_hex(ID_BYTES)?, random_hex(SECRET_BYTES)?);
        let text = format!("{PREFIX}{id}_{secret}");
        let token = Token {
            id,
            name: new.name,
            hash: blake3::hash(text.as_bytes()).to_hex().to_string(),
            repo: new.repo,
            scope: new.scope,
            created_ms: now_ms(),
            expires_ms: new.expires_ms,
            matcher: Some(matcher),
        };
        // First: no request may find the server open between here and the token's creation.
        self.marker.set()?;
        self.change(|tokens| {
            tokens.push(token.clone());
            Ok(())
        })?;
        Ok((token, text))
    }

    /// Revokes a token.
    pub fn revoke(&self, id: &str) -> Result<()> {
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|t| t.id != id);
            if tokens.len() == before { Err(Problem::not_found("token", id)) } else { Ok(()) }
        })
    }

    fn change(&self, f: impl FnOnce(&mut Vec<Token>) -> Result<()>) -> Result<()> {
        let _lock = crate::process::state::lock(&self.path)?;
        let mut file = self.read()?;
        file.version = 1;
        f(&mut file.tokens)?;
        let bytes = serde_json::to_vec_pretty(&file).map_err(Problem::internal)?;
        write_private(&self.path, &bytes).map_err(failed("write", &self.path))
    }

    /// Returns the token of this secret, if it is valid now.
    pub fn find(&self, shown: &str) -> Result<Option<Arc<Token>>> {
        let tokens = self.all()?;
        let id = shown.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).map(|(id, _)| id);
        let hash = blake3::hash(shown.as_bytes());
        let now = now_ms();
        // The id is public and its lookup may be timed. The rest is secret: hashes are compared in constant time.
        let same =
            |t: &&Arc<Token>| Some(t.id.as_str()) == id && blake3::Hash::from_hex(&t.hash).is_ok_and(|h| h == hash);
        Ok(tokens.iter().find(same).filter(|t| !t.is_over(now)).cloned())
    }

    /// Returns the token of an id, if it is valid now: to check again a caller it authenticated before.
    pub fn by_id(&self, id: &str) -> Result<Option<Arc<Token>>> {
        let now = now_ms();
        Ok(self.all()?.into_iter().find(|t| t.id == id && !t.is_over(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(scope: Scope, repo: &str, expires_ms: Option<i64>) -> NewToken {
        NewToken { name: "ada".to_owned(), repo: repo.to_owned(), scope, expires_ms }
    }

    #[test]
    fn a_token_is_found_by_what_its_bearer_shows_and_by_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::new(dir.path());
        let (made, text) = tokens.create(new(Scope::Write, "ada/*", None)).expect("made");
        let stored = fs::read_to_string(dir.path().join(FILE)).expect("stored");
        assert!(!stored.contains(text.rsplit('_').next().expect("a secret")), "the secret is not stored");
        assert_eq!(tokens.find(&text).expect("read").expect("found").id, made.id);
        let other = format!("{}0", &text[..text.len() - 1]);
        let other = if other == text { format!("{}1", &text[..text.len() - 1]) } else { other };
        for wrong in [other.as_str(), "", "mdl_", "mdl__", &text[1..], &format!("{text} ")] {
            assert!(tokens.find(wrong).expect("read").is_none(), "{wrong:?}");
        }
        tokens.revoke(&made.id).expect("revoked");
        assert!(tokens.find(&text).expect("read").is_none());
        assert!(tokens.revoke(&made.id).is_err());
    }

    #[test]
    fn globs_scopes_and_ends_bound_a_token() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::new(dir.path());
        let (token, _) = tokens.create(new(Scope::Write, "ada/*", None)).expect("made");
        let name = |text: &str| text.parse::<RepoName>().expect("a name");
        assert!(token.covers(&name("ada/gpt")) && !token.covers(&name("bob/gpt")) && !token.covers_all());
        let (all, _) = tokens.create(new(Scope::Read, "**", None)).expect("made");
        assert!(all.covers(&name("bob/gpt")) && all.covers_all());
        let (_, over) = tokens.create(new(Scope::Admin, "**", Some(1))).expect("made");
        assert!(tokens.find(&over).expect("read").is_none());
        assert!(tokens.create(new(Scope::Read, "a[", None)).is_err());
        assert!(Scope::Read < Scope::Write && Scope::Write < Scope::Admin);
    }
}
