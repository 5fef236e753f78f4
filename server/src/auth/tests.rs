//! Tests: if the caller loses its right while a request is handled, the prepared answer is not sent.

use crate::{
    app::App,
    auth::{ANONYMOUS_READ, NewToken, Read, Scope, identify},
    options::Options,
    registry::RepoName,
};
use axum::{Router, body::Body, extract::State, middleware, routing::get};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use mdl_codec::CpuEngine;
use mdl_repo::Repo;
use std::{path::Path, sync::Arc};
use tower::ServiceExt;

struct Fixture {
    dir: tempfile::TempDir,
    app: App,
    token: (String, String),
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["ada/gpt", "ada/other"] {
            Repo::init(&dir.path().join(name), true, "main", Arc::new(CpuEngine::new())).expect("a repository");
        }
        let app = App::new(Options::new(dir.path()), Arc::new(CpuEngine::new())).expect("an app");
        let new = NewToken { name: "ada".to_owned(), repo: "**".to_owned(), scope: Scope::Read, expires_ms: None };
        let (token, shown) = app.tokens().create(new).expect("a token");
        let fixture = Fixture { dir, app, token: (token.id, shown) };
        fixture.open_to_all(true);
        fixture
    }

    fn open_to_all(&self, open: bool) {
        let said = if open { "true" } else { "false" };
        let name: RepoName = "ada/gpt".parse().expect("a name");
        let set = self.app.registry().configure(&name, &[(ANONYMOUS_READ, Some(said))]);
        set.expect("a setting");
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::new(self.dir.path()).join(name)
    }

    /// Status and body of a request, `meanwhile` being what happens once it is allowed and before it is answered.
    async fn ask(
        &self,
        shows_token: bool,
        meanwhile: impl Fn() + Clone + Send + Sync + 'static,
    ) -> (StatusCode, String) {
        let answer = move |_: State<App>, _: Read| {
            meanwhile();
            async { "kept-private" }
        };
        let router = Router::new()
            .route("/{owner}/{name}", get(answer))
            .layer(middleware::from_fn_with_state(self.app.clone(), identify))
            .with_state(self.app.clone());
        let mut request = Request::get("/ada/gpt");
        if shows_token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.token.1));
        }
        let request = request.body(Body::empty()).expect("a request");
        let response = router.oneshot(request).await.expect("an answer");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_stays_is_not_lost() {
    let f = Fixture::new();
    for shows_token in [false, true] {
        let answer = f.ask(shows_token, || {}).await;
        assert_eq!(answer, (StatusCode::OK, "kept-private".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_is_closed_meanwhile_is_not_sent() {
    let f = Fixture::new();
    let config = f.path("ada/gpt").join("config");
    let (status, body) = f.ask(false, move || std::fs::write(&config, "").expect("closed")).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(!body.contains("kept-private"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_revoked_meanwhile_gets_nothing_more() {
    let f = Fixture::new();
    f.open_to_all(false);
    let (app, id) = (f.app.clone(), f.token.0.clone());
    let (status, body) = f.ask(true, move || app.tokens().revoke(&id).expect("revoked")).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(!body.contains("kept-private"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_replaced_meanwhile_is_not_sent_as_the_one_that_was() {
    let f = Fixture::new();
    let (gpt, other, away) = (f.path("ada/gpt"), f.path("ada/other"), f.path("ada/away"));
    let replace = move || {
        std::fs::rename(&gpt, &away).expect("moved");
        std::fs::rename(&other, &gpt).expect("moved");
    };
    let (status, body) = f.ask(true, replace.clone()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(!body.contains("kept-private"));
    let (status, _) = f.ask(false, || {}).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "the one that came is not open to all");
}
