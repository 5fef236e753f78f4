//! Browser sessions: random ids in cookies, kept as hashes, each bound to a token.
//!
//! A session ends with its token, when it expires, with signing out, and with the server. It is read-only.

use crate::{
    auth::{Token, Tokens},
    problem::Result,
    process::state::{now_ms, random_hex},
};
use http::{HeaderMap, header};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// Cookie name over HTTP.
const PLAIN: &str = "mdl_session";
/// Cookie name over HTTPS: browsers send a `__Host-` cookie to this host only, and never by HTTP.
const SECURE: &str = "__Host-mdl_session";
const SECRET_BYTES: usize = 32;
/// How long a session lasts.
const SECONDS: i64 = 7 * 24 * 3600;
/// Sessions at a time, and of one token; the oldest ends.
const MAX: usize = 10_000;
const MAX_OF_A_TOKEN: usize = 100;

#[derive(Debug)]
struct Session {
    token: String,
    until_ms: i64,
    /// Order of signing in.
    number: u64,
}

#[derive(Debug, Default)]
struct All {
    /// By the hash of the secret, which is stored nowhere.
    sessions: HashMap<blake3::Hash, Session>,
    begun: u64,
}

/// All browser sessions.
#[derive(Debug)]
pub struct Sessions {
    secure: bool,
    all: Mutex<All>,
}

impl Sessions {
    /// No sessions yet; `secure`: browsers use HTTPS.
    pub fn new(secure: bool) -> Sessions {
        Sessions { secure, all: Mutex::default() }
    }

    fn name(&self) -> &'static str {
        if self.secure { SECURE } else { PLAIN }
    }

    /// Starts a session for a valid token; returns the cookie to set.
    pub fn begin(&self, token: &Token) -> Result<String> {
        let secret = random_hex(SECRET_BYTES)?;
        let until_ms = now_ms().saturating_add(SECONDS * 1000);
        let mut all = self.all.lock();
        all.begun += 1;
        let session = Session { token: token.id.clone(), until_ms, number: all.begun };
        all.make_room(&token.id);
        all.sessions.insert(blake3::hash(secret.as_bytes()), session);
        Ok(self.cookie(&secret, SECONDS))
    }

    /// Returns the secret in a request's cookie.
    fn shown<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let all = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok());
        let mut pairs = all.flat_map(|v| v.split(';')).filter_map(|p| p.trim().split_once('='));
        pairs.find(|(k, v)| *k == self.name() && !v.is_empty()).map(|(_, v)| v)
    }

    /// Returns whether a request has a session cookie, valid or not.
    pub fn is_shown(&self, headers: &HeaderMap) -> bool {
        self.shown(headers).is_some()
    }

    /// Returns the token of a request's session, if both are valid now.
    pub fn token(&self, headers: &HeaderMap, tokens: &Tokens) -> Result<Option<Arc<Token>>> {
        let Some(secret) = self.shown(headers) else {
            return Ok(None);
        };
        // Looked up by its hash: the timing reveals nothing about the secret.
        let hash = blake3::hash(secret.as_bytes());
        let found = self.all.lock().sessions.get(&hash).filter(|s| s.until_ms > now_ms()).map(|s| s.token.clone());
        let token = found.map(|id| tokens.by_id(&id)).transpose()?.flatten();
        if token.is_none() {
            self.all.lock().sessions.remove(&hash);
        }
        Ok(token)
    }

    /// Ends a request's session; returns its user.
    pub fn end(&self, headers: &HeaderMap) -> Option<String> {
        let hash = blake3::hash(self.shown(headers)?.as_bytes());
        self.all.lock().sessions.remove(&hash).map(|s| s.token)
    }

    /// Returns the cookie that clears the session in the browser.
    pub fn forget(&self) -> String {
        self.cookie("", 0)
    }

    fn cookie(&self, secret: &str, seconds: i64) -> String {
        let secure = if self.secure { "; Secure" } else { "" };
        let name = self.name();
        format!("{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    /// Drops expired sessions.
    pub fn sweep(&self) {
        let now = now_ms();
        self.all.lock().sessions.retain(|_, s| s.until_ms > now);
    }
}

impl All {
    /// Ends the oldest sessions where there are too many.
    fn make_room(&mut self, token: &str) {
        let of_token = self.sessions.values().filter(|s| s.token == token).count();
        if of_token >= MAX_OF_A_TOKEN {
            self.end_oldest(|s| s.token == token);
        }
        if self.sessions.len() >= MAX {
            self.end_oldest(|_| true);
        }
    }

    fn end_oldest(&mut self, of: impl Fn(&Session) -> bool) {
        let oldest = self.sessions.iter().filter(|(_, s)| of(s)).min_by_key(|(_, s)| s.number);
        if let Some(hash) = oldest.map(|(hash, _)| *hash) {
            self.sessions.remove(&hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{NewToken, Scope};

    fn shown(cookie: &str) -> HeaderMap {
        let pair = cookie.split(';').next().expect("a pair");
        HeaderMap::from_iter([(header::COOKIE, pair.parse().expect("a header"))])
    }

    fn token(tokens: &Tokens) -> Token {
        let new = NewToken { name: "ada".to_owned(), repo: "**".to_owned(), scope: Scope::Read, expires_ms: None };
        tokens.create(new).expect("a token").0
    }

    #[test]
    fn a_session_ends_with_its_token_with_signing_out_and_with_its_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let (tokens, sessions) = (Tokens::new(dir.path()), Sessions::new(false));
        let ada = token(&tokens);
        let good = |cookie: &str| sessions.token(&shown(cookie), &tokens).expect("read").is_some();
        let (first, second, third) = (begin(&sessions, &ada), begin(&sessions, &ada), begin(&sessions, &ada));
        assert!(first != second && good(&first) && good(&second));
        assert_eq!(sessions.end(&shown(&first)), Some(ada.id.clone()));
        assert!(!good(&first) && good(&second));
        sessions.all.lock().sessions.values_mut().for_each(|s| s.until_ms = 1);
        assert!(!good(&second));
        sessions.sweep();
        assert!(sessions.all.lock().sessions.is_empty() && !good(&third));
        let last = begin(&sessions, &ada);
        assert!(good(&last));
        tokens.revoke(&ada.id).expect("revoked");
        assert!(!good(&last));
        assert!(!good("mdl_session=x") && !good("mdl_session=") && !good("other=x"));
    }

    fn begin(sessions: &Sessions, token: &Token) -> String {
        sessions.begin(token).expect("a session")
    }

    #[test]
    fn sessions_are_bounded_and_the_oldest_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let (tokens, sessions) = (Tokens::new(dir.path()), Sessions::new(true));
        let (ada, bob) = (token(&tokens), token(&tokens));
        let (first, other) = (begin(&sessions, &ada), begin(&sessions, &bob));
        let all: Vec<String> = (0..MAX_OF_A_TOKEN).map(|_| begin(&sessions, &ada)).collect();
        let good = |cookie: &str| sessions.token(&shown(cookie), &tokens).expect("read").is_some();
        assert!(!good(&first) && good(&other) && all.iter().all(|c| good(c)));
        assert!(first.starts_with("__Host-mdl_session=") && first.contains("; Secure") && first.contains("; HttpOnly"));
        assert!(!good(&all[0].replace("__Host-", "")), "the name of the plain one is not taken");
    }
}
