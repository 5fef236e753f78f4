//! Who asks, and what they may do. Neighbours: `tokens` has the bearers, `identify` looks at requests, `access` is what routes
//! take. It must not know what a route does.

mod access;
mod identify;
mod tokens;

pub use access::{ANONYMOUS_READ, Access, Admin, Read, Write, is_open};
pub use identify::{COOKIE, identify};
pub use tokens::{FILE as TOKENS_FILE, NewToken, Scope, Token, Tokens};

use crate::registry::RepoName;
use mdl_objects::Signature;
use std::sync::Arc;

/// Who asks.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Somebody without a token, who may do as much everywhere (none: only read what is open to all).
    Anonymous(Option<Scope>),
    /// The bearer of a token.
    Bearer(Arc<Token>),
}

impl Caller {
    /// Whether the caller may do this much with a repository; `open` says that anybody may read it.
    pub fn may(&self, scope: Scope, name: &RepoName, open: bool) -> bool {
        let granted = match self {
            Caller::Anonymous(granted) => *granted,
            Caller::Bearer(token) => token.covers(name).then_some(token.scope),
        };
        granted >= Some(scope) || (open && scope == Scope::Read)
    }

    /// Whether the caller may do this much with every repository.
    pub fn may_everywhere(&self, scope: Scope) -> bool {
        match self {
            Caller::Anonymous(granted) => *granted >= Some(scope),
            Caller::Bearer(token) => token.covers_all() && token.scope >= scope,
        }
    }

    /// Whether nobody the server knows asks.
    pub fn is_anonymous(&self) -> bool {
        matches!(self, Caller::Anonymous(_))
    }

    /// The name of the caller.
    pub fn name(&self) -> &str {
        match self {
            Caller::Anonymous(_) => "anonymous",
            Caller::Bearer(token) => &token.name,
        }
    }

    /// What limits on rates go by, where the caller is known.
    pub fn id(&self) -> Option<&str> {
        match self {
            Caller::Anonymous(_) => None,
            Caller::Bearer(token) => Some(&token.id),
        }
    }

    /// The author of what the caller commits now; none: the one the repository is configured with.
    pub fn signature(&self, configured: &Signature) -> Option<Signature> {
        match self {
            Caller::Anonymous(_) => None,
            Caller::Bearer(token) => Some(Signature {
                name: token.name.clone(),
                email: String::new(),
                ..configured.clone()
            }),
        }
    }
}
