//! Extractors for handlers: the repository of the request, opened once the caller's right to it is checked.
//!
//! `identify` has found the caller, the registry opens. A handler that takes none of these checks by itself.

use crate::{
    app::{App, work},
    auth::{Caller, Scope, record},
    content::Reader,
    incoming::{Holder, NO_TOKEN},
    listener::Peer,
    middleware::body_limit,
    problem::{Problem, Result},
    registry::{RepoKey, RepoName, State},
    tasks::fair::Party,
};
use axum::extract::{FromRequestParts, RawPathParams};
use http::{StatusCode, request::Parts};
use mdl_objects::Signature;
use mdl_repo::Repo;
use std::sync::Arc;

/// Setting of a repository that anonymous callers may read.
pub const ANONYMOUS_READ: &str = "serve.anonymous_read";

/// A repository that the caller has a right to.
#[derive(Clone, Debug)]
pub struct Access {
    /// The server.
    pub app: App,
    /// Its name.
    pub name: RepoName,
    /// The open repository.
    pub repo: Arc<Repo>,
    /// The caller.
    pub caller: Caller,
    /// Key of rate limits: the token, else the address.
    pub client: Arc<str>,
}

impl Access {
    /// Returns the key of the repository's server state.
    pub fn key(&self) -> Result<RepoKey> {
        RepoKey::new(&self.name, &self.repo)
    }

    /// Returns whose quota the caller's incoming bytes count against.
    pub fn holder(&self) -> Result<Holder> {
        Ok(Holder { repo: self.key()?, token: self.caller.id().unwrap_or(NO_TOKEN).to_owned() })
    }

    /// Client and repository that the request's resources are counted to.
    pub fn party(&self) -> Party {
        Party::new(self.client.clone(), self.name.to_string())
    }

    /// The caller, for commits and the reflog; none: who the repository is configured with.
    pub fn signature(&self) -> Option<Signature> {
        self.caller.signature(&self.repo.config().signature())
    }

    /// The repository, read on behalf of the caller.
    pub fn reader(&self) -> Reader {
        Reader { app: self.app.clone(), repo: self.repo.clone(), party: self.party() }
    }

    /// Runs blocking work on the repository.
    pub async fn work<T: Send + 'static>(&self, f: impl FnOnce(&Repo) -> Result<T> + Send + 'static) -> Result<T> {
        let repo = self.repo.clone();
        work(move || f(&repo)).await
    }
}

/// Extractor: the caller may read the repository `{owner}/{name}` of the path.
#[derive(Clone, Debug)]
pub struct Read(pub Access);

/// Extractor: the caller may write to the repository `{owner}/{name}` of the path.
#[derive(Clone, Debug)]
pub struct Write(pub Access);

/// Extractor: the caller may do everything with the repository `{owner}/{name}` of the path.
#[derive(Clone, Debug)]
pub struct Admin(pub Access);

/// Extractor: the caller may make some repositories; [`App::allow_making`] checks which, once the name is known.
#[derive(Clone, Debug)]
pub struct Maker(pub Caller);

impl App {
    /// Opens a repository if the caller has this scope on it. Only such a caller learns whether it exists and can be
    /// opened. A read-only server allows only to read.
    pub async fn access(&self, caller: Caller, name: RepoName, scope: Scope) -> Result<Access> {
        let (access, state) = self.open_for(caller, name, scope).await?;
        self.refuse_changes(scope)?;
        record::note_used(&access, scope, state);
        Ok(access)
    }

    async fn open_for(&self, caller: Caller, name: RepoName, scope: Scope) -> Result<(Access, State)> {
        let opened = match self.registry().unchanged(&name) {
            Some(found) => Ok(found),
            None => {
                let (app, asked) = (self.clone(), name.clone());
                work(move || app.registry().open_with_state(&asked)).await
            }
        };
        let open = opened.as_ref().is_ok_and(|(repo, _)| is_open(repo));
        if !caller.may(scope, &name, open) {
            if open && scope == Scope::Read {
                return Err(misdirected());
            }
            return Err(refusal(&caller, &name, scope));
        }
        body_limit::allow(scope);
        let (repo, state) = opened?;
        let client = client(&caller, None);
        Ok((Access { app: self.clone(), name, repo, caller, client }, state))
    }

    /// Checks that a right that was used to read still holds, and the repository is the one that was opened.
    pub(super) async fn still_readable(&self, used: record::Used) -> Result<()> {
        let caller = self.caller_now(&used.access.caller)?;
        let (_, state) = self.open_for(caller, used.access.name, Scope::Read).await?;
        match state.is_same_repository(&used.state) {
            true => Ok(()),
            false => Err(Problem::busy("the repository was replaced meanwhile: ask again", 1)),
        }
    }

    /// Those of these repositories that the caller may read. One that cannot be opened must not hide the others.
    pub(crate) fn readable(
        &self,
        caller: &Caller,
        names: impl Iterator<Item = RepoName>,
    ) -> impl Iterator<Item = (RepoName, Arc<Repo>)> {
        names.filter_map(|name| {
            let repo = self.registry().open(&name).ok()?;
            caller.may(Scope::Read, &name, is_open(&repo)).then_some((name, repo))
        })
    }

    /// Checks that the caller may make a repository of this name.
    pub fn allow_making(&self, caller: &Caller, name: &RepoName) -> Result<()> {
        if !caller.may(Scope::Admin, name, false) {
            return Err(not_a_maker(caller, &name.to_string()));
        }
        self.refuse_changes(Scope::Admin)?;
        record::note_right(Scope::Admin, name);
        Ok(())
    }

    /// Refuses a scope beyond reading on a read-only server.
    pub fn refuse_changes(&self, scope: Scope) -> Result<()> {
        if self.options().read_only && scope > Scope::Read {
            let problem = Problem::forbidden("this server is read-only");
            return Err(problem.hint("changes go to where it was started without"));
        }
        Ok(())
    }
}

/// Returns whether anonymous callers may read it.
pub fn is_open(repo: &Repo) -> bool {
    repo.config().get(ANONYMOUS_READ).as_deref() == Some("true")
}

/// How a client sends a token.
const SEND: &str = "set MDL_TOKEN (for Hugging Face clients HF_TOKEN), or send `Authorization: Bearer TOKEN`; the \
    server's operator makes tokens with `mdl token create`";

fn refusal(caller: &Caller, name: &RepoName, scope: Scope) -> Problem {
    if caller.is_anonymous() {
        let what = format!("no token was sent: to {} {name} wants one", scope.verb());
        return Problem::unauthorized(what).hint(SEND).code("RepoNotFound");
    }
    if matches!(caller, Caller::Session(_)) && scope > Scope::Read {
        return Problem::forbidden("signing in is good for looking only").hint("send the token itself");
    }
    Problem::forbidden(format!("the token does not allow to {} {name}", scope.verb()))
        .hint("`mdl token list` shows what tokens allow")
}

fn not_a_maker(caller: &Caller, what: &str) -> Problem {
    match caller.is_anonymous() {
        true => Problem::unauthorized(format!("no token was sent: to make {what} wants one")).hint(SEND),
        false => Problem::forbidden(format!("the token does not allow to make {what}"))
            .hint("making a repository wants the scope admin; `mdl token list` shows what tokens allow"),
    }
}

/// Without a token, a host name that DNS rebinding led here is refused.
pub(super) fn misdirected() -> Problem {
    let message = "without a token this server answers only to names that it goes by";
    Problem::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", message)
        .hint("ask for localhost or the server's address; `mdl serve --host NAME` and --public-url add names")
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
    let get = |key: &str| params.iter().find(|(k, _)| *k == key).map(|(_, v)| v).unwrap_or_default();
    // git-lfs asks at `owner/name.git`.
    let name = get("name");
    let name = RepoName::new(get("owner"), name.strip_suffix(".git").unwrap_or(name))?;
    let caller = Caller::from_parts(parts);
    let client = client(&caller, parts.extensions.get::<Peer>());
    let (access, state) = app.open_for(caller, name, scope).await?;
    // A writer may also see what is being written, on a read-only server too.
    if !parts.method.is_safe() {
        app.refuse_changes(scope)?;
    }
    record::note_used(&access, scope, state);
    Ok(Access { client, ..access })
}

/// Returns the key of a client's limits: its token, else its address.
pub(crate) fn client(caller: &Caller, peer: Option<&Peer>) -> Arc<str> {
    let address = || peer.map(|p| p.0.to_string()).unwrap_or_default();
    caller.id().map_or_else(address, str::to_owned).into()
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

impl FromRequestParts<App> for Maker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Maker> {
        let caller = Caller::from_parts(parts);
        match caller.may_somewhere(Scope::Admin) {
            true => Ok(Maker(caller)),
            false => Err(not_a_maker(&caller, "a repository")),
        }
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Caller> {
        Ok(Caller::from_parts(parts))
    }
}

impl Caller {
    fn from_parts(parts: &Parts) -> Caller {
        parts.extensions.get::<Caller>().cloned().unwrap_or(Caller::Anonymous(None))
    }
}
