//! Looks at a request and says who asks, before any route sees it. Neighbours: `tokens`, `layers` puts it around everything. It
//! must not know routes.
//!
//! A token that is no good is refused even where nobody would need one: a client whose token ended should hear of it. Not so a cookie:
//! who looks at pages could otherwise not reach the one to sign in again.

use super::{Caller, Scope};
use crate::{
    app::App,
    problem::{Problem, Result},
};
use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, Method, header};
use std::net::IpAddr;

/// Cookie of people who signed in to look at pages. It is good for looking only.
pub const COOKIE: &str = "mdl_token";

/// Middleware: adds the [`Caller`] to the request, or refuses.
///
/// # Errors
/// A token that is wrong or over; a request that another site made a browser send.
pub async fn identify(State(app): State<App>, mut request: Request, next: Next) -> Result<Response> {
    let caller = app.clone().caller_of(request.method(), request.headers())?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

impl App {
    /// Who asks.
    ///
    /// # Errors
    /// As [`identify`].
    pub(crate) fn caller_of(&self, method: &Method, headers: &HeaderMap) -> Result<Caller> {
        refuse_other_sites(method, headers)?;
        if let Some(shown) = shown(headers)? {
            return match self.tokens().find(&shown)? {
                Some(token) => Ok(Caller::Bearer(token)),
                None => Err(Problem::unauthorized("the token is wrong, was revoked or is over")),
            };
        }
        let looks = method == Method::GET || method == Method::HEAD;
        if let Some(shown) = looks.then(|| cookie(headers)).flatten()
            && let Some(token) = self.tokens().find(&shown)?
        {
            return Ok(Caller::Bearer(token));
        }
        let granted = self.anonymous_scope()?;
        if granted.is_some() && self.is_loopback() {
            refuse_other_names(headers)?;
        }
        Ok(Caller::Anonymous(granted))
    }

    /// What those without a token may do everywhere: what the operator said; else everything as long as there are no tokens
    /// and only this machine can ask.
    fn anonymous_scope(&self) -> Result<Option<Scope>> {
        match self.options().anonymous {
            Some(said) => Ok(said.scope()),
            None if self.is_loopback() && self.tokens().all()?.is_empty() => Ok(Some(Scope::Admin)),
            None => Ok(None),
        }
    }
}

/// The token that a request shows: as a bearer, or as a password (git-lfs, curl -u).
fn shown(headers: &HeaderMap) -> Result<Option<String>> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    if let Some(value) = values.next() {
        let unreadable = || Problem::unauthorized("the Authorization header cannot be read");
        let text = value.to_str().map_err(|_| unreadable())?;
        let (scheme, rest) = text.split_once(' ').ok_or_else(unreadable)?;
        if values.next().is_some() {
            return Err(unreadable());
        }
        return match scheme.to_ascii_lowercase().as_str() {
            "bearer" => Ok(Some(rest.trim().to_owned())),
            "basic" => {
                let bytes = BASE64_STANDARD.decode(rest.trim()).map_err(|_| unreadable())?;
                let text = String::from_utf8(bytes).map_err(|_| unreadable())?;
                let (_, password) = text.split_once(':').ok_or_else(unreadable)?;
                Ok(Some(password.to_owned()))
            }
            _ => Err(unreadable()),
        };
    }
    Ok(None)
}

/// The token of somebody who signed in to look at pages.
fn cookie(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok());
    let pairs = all.flat_map(|v| v.split(';')).filter_map(|p| p.trim().split_once('='));
    pairs
        .filter(|(k, v)| *k == COOKIE && !v.is_empty())
        .map(|(_, v)| v.to_owned())
        .next()
}

/// A page of another site must not use a browser that can reach this server as its hands.
fn refuse_other_sites(method: &Method, headers: &HeaderMap) -> Result<()> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok());
    let foreign = match (text(header::ORIGIN), text(header::HOST)) {
        (Some(origin), Some(host)) => origin.split_once("://").map(|(_, o)| o) != Some(host),
        (Some(_), None) => true,
        (None, _) => false,
    };
    if foreign
        || matches!(
            text(header::HeaderName::from_static("sec-fetch-site")),
            Some("cross-site" | "same-site")
        )
    {
        return Err(Problem::forbidden("a page of another site sent this"));
    }
    Ok(())
}

/// Where no token is needed, a name that leads here by a trick of DNS must not do.
fn refuse_other_names(headers: &HeaderMap) -> Result<()> {
    let Some(host) = headers.get(header::HOST) else {
        return Ok(());
    };
    let host = host.to_str().unwrap_or_default();
    let name = match host.strip_prefix('[') {
        // Behind the bracket comes a port or nothing.
        Some(rest) => match rest.split_once(']') {
            Some((name, rest)) if rest.is_empty() || rest.starts_with(':') => name,
            _ => "",
        },
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let loopback = name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if loopback || name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost") {
        return Ok(());
    }
    Err(Problem::new(
        http::StatusCode::MISDIRECTED_REQUEST,
        "misdirected",
        "without tokens this server answers only to localhost and loopback addresses",
    ))
}
