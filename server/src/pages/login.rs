//! Login page: exchanges a token for the cookie of a read-only session.

use crate::{
    audit::{Event, Who},
    auth::{Caller, record},
    listener::Peer,
    pages::prelude::*,
};
use axum::body::Bytes;
use url::form_urlencoded;

/// Longest form that is read.
const MAX_FORM: usize = 16 << 10;
/// Longest return path.
const MAX_NEXT: usize = 4 << 10;

#[derive(Debug, Deserialize)]
pub struct Asked {
    next: Option<String>,
}

/// `GET /login`
pub async fn show(caller: Caller, Query(asked): Query<Asked>) -> Response {
    form(&caller, safe(asked.next.as_deref()), None)
}

/// `POST /login`
pub async fn sign_in(
    State(app): State<App>,
    caller: Caller,
    from: Peer,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response> {
    app.hosts().refuse_others(&headers)?;
    if body.len() > MAX_FORM {
        return Err(Problem::too_large("the form is too long"));
    }
    let next = safe(field(&body, "next").as_deref()).to_owned();
    let shown = field(&body, "token").unwrap_or_default().trim().to_owned();
    let checked = app.clone();
    let Some(token) = work(move || checked.tokens().find(&shown)).await? else {
        record::note_event(Event::TokenRefused, Who::unknown());
        app.failures().count(from.0)?;
        let mut refused = form(&caller, &next, Some("That token is wrong, was revoked or is over."));
        *refused.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(refused);
    };
    // A browser has one session.
    app.sessions().end(&headers);
    let cookie = app.sessions().begin(&token)?;
    record::note_event(Event::SignIn, Who::from_caller(&Caller::Session(token)));
    go(&next, &cookie)
}

/// `POST /logout`
pub async fn sign_out(State(app): State<App>, headers: HeaderMap) -> Result<Response> {
    if let Some(token) = app.sessions().end(&headers) {
        record::note_event(Event::SignOut, Who::of_session(&token));
    }
    go("/", &app.sessions().forget())
}

fn go(to: &str, cookie: &str) -> Result<Response> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| Problem::usage("it cannot be in a header"));
    let headers = [(header::LOCATION, value(to)?), (header::SET_COOKIE, value(cookie)?)];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

/// A field of a form; of several of one name, the first.
fn field(body: &[u8], name: &str) -> Option<String> {
    form_urlencoded::parse(body).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Returns a return path that stays on this site: a path, and nothing that a browser takes for a host.
fn safe(next: Option<&str>) -> &str {
    let stays = |n: &&str| {
        n.len() <= MAX_NEXT
            && n.starts_with('/')
            && !n.starts_with("//")
            && n.bytes().all(|b| b.is_ascii_graphic() && b != b'\\')
    };
    next.filter(stays).unwrap_or("/")
}

fn form(caller: &Caller, next: &str, wrong: Option<&str>) -> Response {
    let content = html! {
        h1 { "Sign in" }
        @if let Some(token) = caller.token() {
            p { "You are signed in as " b { (text::name(&token.name)) } " (" (token.scope.name()) " on " code { (text::name(&token.repo)) } ")." }
        }
        (fields_of(next, wrong))
        p.muted {
            "Tokens are made where the server runs: " code { "mdl token create --repo 'OWNER/*' --scope read" }
            ". The browser keeps no token but the name of a session, which is good for looking and downloading, not for changes."
        }
    };
    page(&Frame::plain("Sign in", Some(caller)), &content)
}

fn fields_of(next: &str, wrong: Option<&str>) -> Markup {
    html! {
        form.login method="post" action="/login" {
            @if let Some(why) = wrong { p.wrong #wrong role="alert" { (why) } }
            label for="token" { "Token" }
            input #token type="password" name="token" required autocomplete="current-password" spellcheck="false"
                aria-invalid=[wrong.map(|_| "true")] aria-describedby=[wrong.map(|_| "wrong")];
            input type="hidden" name="next" value=(next);
            button type="submit" { "Sign in" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_stays_here() {
        for good in ["/", "/a/b", "/a/b?x=1&y=%2F", "/a//b"] {
            assert_eq!(safe(Some(good)), good);
        }
        for bad in [
            "",
            "//evil.example",
            "https://evil.example",
            "/\\evil.example",
            "\\\\evil",
            "/a\r\nX: y",
            "/\t/evil",
            "a/b",
        ] {
            assert_eq!(safe(Some(bad)), "/", "{bad:?}");
        }
        assert_eq!(safe(None), "/");
    }

    #[test]
    fn forms_are_read() {
        let read = |name: &str| field(b"token=a%2Bb+c&next=%2Fx&token=second&odd", name);
        assert_eq!(read("token").as_deref(), Some("a+b c"));
        assert_eq!(read("next").as_deref(), Some("/x"));
    }
}
