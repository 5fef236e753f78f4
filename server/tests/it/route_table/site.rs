//! Test fixture: a server with repositories of every kind, and requests to it as every kind of caller.

use crate::support::{self, Root, commit, safetensors};
use axum::{Router, body::Body};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use mdl_repo::DIR;
use mdl_server::{
    Rates,
    app::App,
    auth::{NewToken, Scope, Tokens},
    request::routes::{Need, Route},
};
use std::{collections::BTreeMap, fs, path::Path};
use tower::ServiceExt;

/// Names of the repositories, all of one length.
pub const PRIVATE: &str = "x1gpt";
pub const PUBLIC: &str = "x2gpt";
/// It cannot be opened.
pub const DAMAGED: &str = "x3gpt";
pub const ABSENT: &str = "x4gpt";
/// In names, messages and contents of what is private.
pub const SECRET: &str = "kept-between-us";

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    Nobody,
    WrongToken,
    Expired,
    Revoked,
    /// An administrator of another owner's repositories.
    Foreign,
    Read,
    Write,
    Admin,
    /// A browser in which an administrator signed in.
    Cookie,
    /// An administrator's token that a page of another site sends.
    CrossSite,
    /// A browser in which an administrator signed in, as a page of another site uses it.
    CrossSiteCookie,
}

impl Caller {
    pub const ALL: [Caller; 11] = [
        Caller::Nobody,
        Caller::WrongToken,
        Caller::Expired,
        Caller::Revoked,
        Caller::Foreign,
        Caller::Read,
        Caller::Write,
        Caller::Admin,
        Caller::Cookie,
        Caller::CrossSite,
        Caller::CrossSiteCookie,
    ];
}

pub struct Site {
    root: Root,
    router: Router,
    shown: BTreeMap<String, String>,
}

/// What came back.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    /// All that a client sees, with the repository's name taken out.
    pub fn seen(&self, name: &str) -> String {
        let mut lines: Vec<String> = self.headers.iter().map(|(k, v)| format!("{k}: {v:?}")).collect();
        lines.retain(|line| !line.starts_with("date:") && !line.starts_with("x-request-id:"));
        lines.sort();
        format!("{}\n{}\n\n{}", self.status, lines.join("\n"), self.body).replace(name, "NAME")
    }
}

fn token(tokens: &Tokens, repo: &str, scope: Scope, expires_ms: Option<i64>) -> (String, String) {
    let name = format!("{scope:?}").to_lowercase();
    let new = NewToken { name, repo: repo.to_owned(), scope, expires_ms };
    let (made, text) = tokens.create(new).expect("a token");
    (made.id, text)
}

impl Site {
    pub async fn new() -> Site {
        let root = Root::new();
        for name in [PRIVATE, PUBLIC, DAMAGED] {
            let mut repo = root.repo(&format!("ada/{name}"));
            let files = [
                ("model.safetensors", safetensors(&[("w", 4, 4)], 0)),
                ("README.md", format!("# {SECRET}").into_bytes()),
            ];
            commit(&repo, &files, SECRET, 1);
            if name == PUBLIC {
                repo.set_config(mdl_server::auth::ANONYMOUS_READ, Some("true")).expect("a setting");
            }
        }
        let damaged = root.path().join("ada").join(DAMAGED);
        let format = [damaged.join("format"), damaged.join(DIR).join("format")];
        fs::write(format.iter().find(|f| f.is_file()).expect("a format"), "no format").expect("damage");
        let mut options = root.options();
        options.token_failures = 0;
        let state = options.state_dir().expect("a state directory");
        mdl_server::process::state::make(&state).expect("a state directory");
        // Before the server starts: one that starts without tokens is open to all callers.
        let tokens = Tokens::new(&state);
        let (revoked, over) = token(&tokens, "**", Scope::Admin, None);
        tokens.revoke(&revoked).expect("revoked");
        let bearers = [
            (Caller::WrongToken, format!("mdl_0123456789ab_{}", "0".repeat(64))),
            (Caller::Expired, token(&tokens, "**", Scope::Admin, Some(1)).1),
            (Caller::Revoked, over),
            (Caller::Foreign, token(&tokens, "bob/*", Scope::Admin, None).1),
            (Caller::Read, token(&tokens, "ada/*", Scope::Read, None).1),
            (Caller::Write, token(&tokens, "ada/*", Scope::Write, None).1),
            (Caller::Admin, token(&tokens, "ada/*", Scope::Admin, None).1),
        ];
        let shown = bearers.into_iter().map(|(c, t)| (format!("{c:?}"), t)).collect();
        let app: App = root.app(options);
        let router = mdl_server::router(&app, &Rates::new(None));
        let mut site = Site { root, router, shown };
        let cookie = site.sign_in().await;
        site.shown.insert("Cookie".to_owned(), cookie);
        site
    }

    /// What a browser gets for an administrator's token.
    async fn sign_in(&self) -> String {
        let form = format!("token={}&next=/", self.shown["Admin"]);
        let request = Request::post("/login")
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = self.send(request.body(Body::from(form)).expect("a request")).await;
        let cookie = answer.headers.get(header::SET_COOKIE).expect("a cookie");
        let pair = cookie.to_str().expect("text").split(';').next();
        pair.unwrap_or_default().to_owned()
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
        Answer { status: parts.status, headers: parts.headers, body: String::from_utf8_lossy(&body).into_owned() }
    }

    pub async fn ask(&self, route: &Route, method: &Method, caller: Caller, name: &str) -> Answer {
        let (kind, body) = match route.path.as_str() {
            "/login" => ("application/x-www-form-urlencoded", format!("token={}", self.shown["Admin"])),
            _ => body(route, name),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(target(route, name))
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, kind);
        let ends = method == Method::POST && matches!(route.path.as_str(), "/login" | "/logout");
        for (name, mut value) in self.shows(caller) {
            if ends && name == "cookie" {
                // The session that others show goes on.
                value = self.sign_in().await;
            }
            request = request.header(name, value);
        }
        if method == Method::PATCH {
            request = request.header("upload-offset", "0");
        }
        let body = if method.is_safe() { Body::empty() } else { Body::from(body) };
        self.send(request.body(body).expect("a request")).await
    }

    fn shows(&self, caller: Caller) -> Vec<(&'static str, String)> {
        let bearer = |caller: &str| ("authorization", format!("Bearer {}", self.shown[caller]));
        let cookie = || ("cookie", self.shown["Cookie"].clone());
        let elsewhere =
            || vec![("origin", "https://evil.example".to_owned()), ("sec-fetch-site", "cross-site".to_owned())];
        match caller {
            Caller::Nobody => Vec::new(),
            Caller::Cookie => vec![cookie()],
            Caller::CrossSite => [vec![bearer("Admin")], elsewhere()].concat(),
            Caller::CrossSiteCookie => [vec![cookie()], elsewhere()].concat(),
            other => vec![bearer(&format!("{other:?}"))],
        }
    }

    /// Every file of the repositories with its bytes, less what any look at them may change.
    pub fn stored(&self) -> BTreeMap<String, Vec<u8>> {
        let mut out = BTreeMap::new();
        collect(self.root.path(), &mut out);
        out
    }
}

fn collect(dir: &Path, out: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if name.starts_with("index") || name == mdl_server::process::state::DIR || name.ends_with(".lock") {
            continue;
        }
        match path.is_dir() {
            true => collect(&path, out),
            false => drop(out.insert(path.display().to_string(), fs::read(&path).expect("bytes"))),
        }
    }
}

fn target(route: &Route, name: &str) -> String {
    let mut path = route.path.replace("{*", "{");
    let id = if path.contains("/sync/packs/") { "0".repeat(64) } else { "0".repeat(32) };
    let oid = "0".repeat(64);
    for (parameter, value) in [
        ("owner", "ada"),
        ("name", name),
        ("rev", "main"),
        ("path", "model.safetensors"),
        ("branch", "topic"),
        ("kind", "heads"),
        ("ref", "topic"),
        ("id", &id),
        ("oid", &oid),
        ("hash", &oid),
        ("session", "0123456789abcdef"),
        ("a", "main"),
        ("b", "main"),
        ("part", "0"),
        ("asset", "none.css"),
    ] {
        path = path.replace(&format!("{{{parameter}}}"), value);
    }
    assert!(!path.contains('{'), "{route}: what is a good value for its parameters?");
    match route.path.as_str() {
        p if p.ends_with("/diff") => path + "?a=main",
        p if p.ends_with("/tensor/{rev}/{*path}") => path + "?name=w",
        p if p.ends_with("/sync/packs/{id}") || p.ends_with("/parts/{part}") => path + "?size=100",
        _ => path,
    }
}

/// A body that does something where that is allowed; `{}` where none is known.
fn body(route: &Route, name: &str) -> (&'static str, String) {
    const JSON: &str = "application/json";
    let json = |text: &str| (JSON, text.to_owned());
    match (route.method, route.path.as_str()) {
        ("PUT", p) if p.ends_with("/refs/{kind}/{*ref}") => json(r#"{"target": "main"}"#),
        ("PATCH", "/api/v1/repos/{owner}/{name}") => json(r#"{"anonymous_read": true}"#),
        ("POST", "/api/v1/repos") => json(r#"{"name": "ada/new"}"#),
        ("POST", "/api/repos/create") => json(r#"{"name": "ada/hub"}"#),
        ("POST", p) if p.ends_with("/jobs") => json(r#"{"kind": "fsck"}"#),
        ("POST", p) if p.ends_with("/webhooks") => json(r#"{"url": "https://93.184.216.34/hook"}"#),
        ("POST", p) if p.ends_with("/uploads") => json(r#"{"size": 4}"#),
        ("POST", p) if p.ends_with("/notes/{rev}") => json(r#"{"notes": {"acc": 0.5}}"#),
        ("POST", p) if p.ends_with("/tag/{rev}") => json(r#"{"tag": "topic"}"#),
        ("POST", p) if p.ends_with("/commit/{rev}") => (
            "application/x-ndjson",
            "{\"key\": \"header\", \"value\": {\"summary\": \"x\"}}\n\
             {\"key\": \"file\", \"value\": {\"path\": \"x\", \"content\": \"eA==\", \"encoding\": \"base64\"}}\n"
                .to_owned(),
        ),
        ("POST", p) if p.ends_with("/commits") => {
            let form =
                support::http::form(&[("meta", None, br#"{"message": "x"}"#), ("file", Some("y"), name.as_bytes())]);
            ("multipart/form-data; boundary=x-boundary-x", String::from_utf8(form).expect("text"))
        }
        _ => json("{}"),
    }
}

/// Whether the route has a body of its own: allowed callers must come through with it.
pub fn does_something(route: &Route) -> bool {
    body(route, PRIVATE).1 != "{}" && route.need != Some(Need::Anyone)
}
