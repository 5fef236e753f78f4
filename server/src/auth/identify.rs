//! Middleware that identifies the caller before any handler runs, and checks its right again before the answer is sent.
//!
//! An invalid token is refused even where none is needed: a client whose token ended should learn of it. An invalid
//! cookie is not: a browser could otherwise not reach the login page.

use crate::{
    app::App,
    audit::{Entry, Event},
    auth::{Caller, Scope, access::misdirected, origins::refuse_other_sites, record::Record},
    listener::Peer,
    problem::{Problem, Result},
};
use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::net::IpAddr;

/// Middleware: adds the [`Caller`] to the request, or refuses.
pub async fn identify(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let record = Record::default();
    let mut entry = Entry::new(&app, &request, record.clone());
    let stale = app.sessions().is_shown(request.headers()) && app.takes_sessions(&request);
    let mut response = match app.caller_of(&request) {
        Ok(caller) => {
            let stale = stale && !matches!(caller, Caller::Session(_));
            entry.set_caller(&caller);
            request.extensions_mut().insert(caller);
            let mut response = record.answer_of(next.run(request)).await;
            if stale {
                forget_session(&app, response.headers_mut());
            }
            app.unless_lost(&record, response).await
        }
        Err(problem) => {
            if problem.status == StatusCode::UNAUTHORIZED {
                record.note_event(Event::TokenRefused);
            }
            problem.into_response()
        }
    };
    entry.answered(response.status());
    keep_private(&mut response);
    response
}

/// Clears the cookie of an expired session.
fn forget_session(app: &App, headers: &mut HeaderMap) {
    if let Ok(cookie) = HeaderValue::from_str(&app.sessions().forget()) {
        headers.entry(header::SET_COOKIE).or_insert(cookie);
    }
}

/// Marks an answer that depends on rights as private: no cache may give it to others, nor to a caller that lost them.
fn keep_private(response: &mut Response) {
    let failed = response.status().is_client_error() || response.status().is_server_error();
    let headers = response.headers_mut();
    let said = headers.get(header::CACHE_CONTROL);
    if said.is_some_and(|v| v.as_bytes().starts_with(b"public")) && !failed {
        return;
    }
    if failed {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    } else if said.is_none() {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    }
    let vary: Vec<&[u8]> = headers.get_all(header::VARY).iter().map(HeaderValue::as_bytes).collect();
    if !vary.iter().any(|v| v.windows(6).any(|w| w.eq_ignore_ascii_case(b"cookie"))) {
        headers.append(header::VARY, HeaderValue::from_static("Authorization, Cookie"));
    }
}

impl App {
    /// Identifies the caller.
    fn caller_of(&self, request: &Request) -> Result<Caller> {
        let headers = request.headers();
        let from = request.extensions().get::<Peer>().copied().unwrap_or_default().0;
        refuse_other_sites(self.options(), request.method(), headers)?;
        match shown(headers) {
            Ok(None) => {}
            Ok(Some(shown)) => {
                return match self.tokens().find(&shown)? {
                    Some(token) => Ok(Caller::Bearer(token)),
                    None => Err(self.no_good(from, "the token is wrong, was revoked or is over")),
                };
            }
            Err(Unreadable) => return Err(self.no_good(from, "the Authorization header cannot be read")),
        }
        let known = self.hosts().know(headers);
        if known && self.takes_sessions(request) && self.sessions().is_shown(headers) {
            if let Some(token) = self.sessions().token(headers, self.tokens())? {
                return Ok(Caller::Session(token));
            }
            self.failures().count(from)?;
        }
        match (known, self.anonymous_scope()?) {
            (true, granted) => Ok(Caller::Anonymous(granted)),
            (false, Some(_)) => Err(misdirected()),
            (false, None) => Ok(Caller::Misdirected),
        }
    }

    /// Builds the 401 of an invalid token, or the 429 after too many of them from an address.
    pub(crate) fn no_good(&self, from: IpAddr, message: &str) -> Problem {
        match self.failures().count(from) {
            Ok(()) => Problem::unauthorized(message),
            Err(too_many) => too_many,
        }
    }

    /// Returns whether a session cookie counts: for pages, and downloads that they link to.
    fn takes_sessions(&self, request: &Request) -> bool {
        let path = request.uri().path();
        let programs = path.starts_with("/api/") || path == "/metrics" || path.contains("/info/lfs/");
        request.method().is_safe() && !programs
    }

    /// Returns what anonymous callers may do everywhere: as the operator set; else everything while the server is open.
    fn anonymous_scope(&self) -> Result<Option<Scope>> {
        match self.options().anonymous {
            Some(said) => Ok(said.scope()),
            None => Ok(self.guard().is_open(self.tokens())?.then_some(Scope::Admin)),
        }
    }

    /// Identifies the caller again, by the current tokens and options.
    pub(super) fn caller_now(&self, caller: &Caller) -> Result<Caller> {
        let over = || Problem::unauthorized("the token was revoked or is over");
        let again = |id: &str| self.tokens().by_id(id)?.ok_or_else(over);
        Ok(match caller {
            Caller::Anonymous(_) => Caller::Anonymous(self.anonymous_scope()?),
            Caller::Misdirected => Caller::Misdirected,
            Caller::Bearer(token) => Caller::Bearer(again(&token.id)?),
            Caller::Session(token) => Caller::Session(again(&token.id)?),
        })
    }

    /// Returns the answer, or a refusal if the right to it was lost while it was prepared: no byte of it was sent yet.
    async fn unless_lost(&self, record: &Record, response: Response) -> Response {
        let told = response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED;
        // A write that was done is not undone.
        let used = record.used().filter(|used| told && used.scope == Scope::Read);
        match used {
            None => response,
            Some(used) => match self.still_readable(used).await {
                Ok(()) => response,
                Err(problem) => problem.into_response(),
            },
        }
    }
}

/// An `Authorization` header in no known form.
struct Unreadable;

/// Returns the token of a request: a bearer token, or a password (git-lfs, curl -u).
fn shown(headers: &HeaderMap) -> std::result::Result<Option<String>, Unreadable> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| Unreadable)?;
    if values.next().is_some() {
        return Err(Unreadable);
    }
    // hf_xet says this where it has no token.
    if text.trim_end().eq_ignore_ascii_case("bearer") {
        return Ok(None);
    }
    let (scheme, rest) = text.split_once(' ').ok_or(Unreadable)?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Ok(Some(rest.trim().to_owned())),
        "basic" => {
            let bytes = BASE64_STANDARD.decode(rest.trim()).map_err(|_| Unreadable)?;
            let text = String::from_utf8(bytes).map_err(|_| Unreadable)?;
            let (_, password) = text.split_once(':').ok_or(Unreadable)?;
            Ok(Some(password.to_owned()))
        }
        _ => Err(Unreadable),
    }
}
