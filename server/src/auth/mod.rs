//! Authentication and authorisation of requests.
//!
//! `tokens` keeps bearer tokens, `sessions` browser logins, `guard` says whether tokens are needed, `hosts` and
//! `origins` keep other sites' pages out, `identify` is the middleware, `access` has the extractors that handlers take.

mod access;
mod failures;
mod guard;
mod hosts;
mod identify;
mod origins;
pub(crate) mod record;
mod sessions;
#[cfg(test)]
mod tests;
mod tokens;

pub(crate) use access::client;
pub use access::{ANONYMOUS_READ, Access, Admin, Maker, Read, Write, is_open};
pub use failures::Failures;
pub use guard::Guard;
pub use hosts::Hosts;
pub use identify::identify;
pub use sessions::Sessions;
pub use tokens::{FILE as TOKENS_FILE, NewToken, Scope, Token, Tokens};

use crate::{problem::Result, registry::RepoName};
use http::HeaderMap;
use mdl_objects::Signature;
use std::sync::Arc;

/// The caller of a request.
#[derive(Clone, Debug)]
pub enum Caller {
    /// No token; has this scope everywhere (none: only read what is open to all).
    Anonymous(Option<Scope>),
    /// No token, and a host name that is not this server's: may not even read what is open to all.
    Misdirected,
    /// The bearer of a token.
    Bearer(Arc<Token>),
    /// A browser session of a token: read-only, whatever the token allows.
    Session(Arc<Token>),
}

impl Caller {
    /// Returns whether the caller has this scope on a repository; `open`: anonymous callers may read it.
    pub fn may(&self, scope: Scope, name: &RepoName, open: bool) -> bool {
        let open = open && scope == Scope::Read && !matches!(self, Caller::Misdirected);
        open || self.granted(|token| token.covers(name)) >= Some(scope)
    }

    /// Returns whether the caller has this scope on every repository.
    pub fn may_everywhere(&self, scope: Scope) -> bool {
        self.granted(Token::covers_all) >= Some(scope)
    }

    /// Returns whether the caller may have this scope on some repository.
    pub fn may_somewhere(&self, scope: Scope) -> bool {
        self.granted(|_| true) >= Some(scope)
    }

    /// What the caller may do, if its token, where it has one, covers what is asked about.
    fn granted(&self, covers: impl Fn(&Token) -> bool) -> Option<Scope> {
        match self {
            Caller::Misdirected => None,
            Caller::Anonymous(granted) => *granted,
            Caller::Bearer(token) => covers(token).then_some(token.scope),
            Caller::Session(token) => covers(token).then_some(Scope::Read),
        }
    }

    /// Returns whether the caller has no token.
    pub fn is_anonymous(&self) -> bool {
        self.token().is_none()
    }

    /// Returns the caller's token.
    pub fn token(&self) -> Option<&Token> {
        match self {
            Caller::Anonymous(_) | Caller::Misdirected => None,
            Caller::Bearer(token) | Caller::Session(token) => Some(token),
        }
    }

    /// The name of the caller.
    pub fn name(&self) -> &str {
        self.token().map_or("anonymous", |token| &token.name)
    }

    /// Key of rate limits, if the caller is known.
    pub fn id(&self) -> Option<&str> {
        self.token().map(|token| token.id.as_str())
    }

    /// Author of the caller's commits; none: the one the repository is configured with.
    pub fn signature(&self, configured: &Signature) -> Option<Signature> {
        self.token().map(|token| Signature { name: token.name.clone(), email: String::new(), ..configured.clone() })
    }
}

impl Hosts {
    /// Refuses a request that asks for a host which is not this server's.
    pub fn refuse_others(&self, headers: &HeaderMap) -> Result<()> {
        match self.know(headers) {
            true => Ok(()),
            false => Err(access::misdirected()),
        }
    }
}
