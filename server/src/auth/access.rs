//! What routes about a repository take: the repository, opened, once the caller is known to be allowed. Neighbours: `identify` said
//! who asks, the registry opens. A route that takes none of these checks by itself.

use super::{Caller, Scope};
use crate::{
    app::App,
    problem::{Problem, Result},
    registry::RepoName,
};
use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use mdl_repo::Repo;
use std::sync::Arc;

/// Setting of a repository that anybody may read.
pub const ANONYMOUS_READ: &str = "serve.anonymous_read";

/// A repository somebody may do something with.
#[derive(Clone, Debug)]
pub struct Access {
    /// Its name.
    pub name: RepoName,
    /// It.
    pub repo: Arc<Repo>,
    /// Who asks.
    pub caller: Caller,
}

/// May read the repository `{owner}/{name}` of the path.
#[derive(Clone, Debug)]
pub struct Read(pub Access);

/// May write to the repository `{owner}/{name}` of the path.
#[derive(Clone, Debug)]
pub struct Write(pub Access);

/// May do everything with the repository `{owner}/{name}` of the path.
#[derive(Clone, Debug)]
pub struct Admin(pub Access);

impl App {
    /// A repository, if the caller may do this much with it. Whether it exists is told only to those who may.
    ///
    /// # Errors
    /// Not allowed; no such repository.
    pub async fn access(&self, caller: Caller, name: RepoName, scope: Scope) -> Result<Access> {
        // That it cannot be opened is told to those who may as well.
        let opened = self.repo(&name).await;
        let open = opened.as_ref().is_ok_and(|r| is_open(r));
        if !caller.may(scope, &name, open) {
            return Err(refusal(&caller, &name, scope));
        }
        crate::body_limit::allow(scope);
        let repo = opened?;
        Ok(Access { name, repo, caller })
    }
}

/// Whether anybody may read it.
pub fn is_open(repo: &Repo) -> bool {
    repo.config().get(ANONYMOUS_READ).as_deref() == Some("true")
}

fn refusal(caller: &Caller, name: &RepoName, scope: Scope) -> Problem {
    if caller.is_anonymous() {
        return Problem::unauthorized(format!("this wants a token for {name} ({})", scope.name())).code("RepoNotFound");
    }
    Problem::forbidden(format!("the token does not allow to {} {name}", scope.verb()))
        .hint("`mdl token list` shows what tokens allow")
}

impl Scope {
    const fn verb(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Write => "write to",
            Scope::Admin => "administer",
        }
    }
}

async fn from_parts(parts: &mut Parts, app: &App, scope: Scope) -> Result<Access> {
    let params = RawPathParams::from_request_parts(parts, app).await;
    let params = params.map_err(|_| Problem::usage("the path is not UTF-8"))?;
    let get = |key: &str| {
        params
            .iter()
            .find(|(k, _)| *k == key)
            .map(|(_, v)| v)
            .unwrap_or_default()
    };
    // git-lfs asks at `owner/name.git`.
    let name = get("name");
    let name = RepoName::new(get("owner"), name.strip_suffix(".git").unwrap_or(name))?;
    let caller = parts
        .extensions
        .get::<Caller>()
        .cloned()
        .unwrap_or(Caller::Anonymous(None));
    app.access(caller, name, scope).await
}

macro_rules! extractor {
    ($name:ident, $scope:expr) => {
        impl FromRequestParts<App> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<$name> {
                from_parts(parts, app, $scope).await.map($name)
            }
        }
    };
}

extractor!(Read, Scope::Read);
extractor!(Write, Scope::Write);
extractor!(Admin, Scope::Admin);

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Caller> {
        Ok(parts
            .extensions
            .get::<Caller>()
            .cloned()
            .unwrap_or(Caller::Anonymous(None)))
    }
}
