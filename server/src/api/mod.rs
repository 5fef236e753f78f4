//! Our own API, version 1: what every verb of the command line does, over HTTP. Neighbours: one file a group of routes; `mdl-repo`
//! does the work. Routes and their description are one thing (`utoipa`), so that the OpenAPI document cannot lag behind.

mod commits;
mod jobs;
mod repos;
mod uploads;
mod webhooks;

pub(crate) use commits::Commits;

use crate::{
    app::App,
    problem::{Problem, ProblemDocument, Result},
    registry::RepoName,
};
use axum::{Json, Router, routing::get};
use http::HeaderValue;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        OpenApi as Document,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};
use utoipa_axum::router::OpenApiRouter;

/// Where the API is.
pub const BASE: &str = "/api/v1";

#[derive(OpenApi)]
#[openapi(
    info(title = "mdl", description = "Versions of model checkpoints over HTTP. Errors are problem documents (RFC 9457)."),
    components(schemas(ProblemDocument)),
    modifiers(&Tokens),
    security((), ("token" = []))
)]
struct Api;

struct Tokens;

impl Modify for Tokens {
    fn modify(&self, document: &mut Document) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

fn described() -> OpenApiRouter<App> {
    let routes = OpenApiRouter::new()
        .merge(repos::routes())
        .merge(commits::routes())
        .merge(uploads::routes())
        .merge(jobs::routes())
        .merge(webhooks::routes());
    OpenApiRouter::with_openapi(Api::openapi()).nest(BASE, routes)
}

/// Where a thing of a repository is, for the header Location.
fn location(name: &RepoName, kind: &str, id: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(&format!("{BASE}/repos/{name}/{kind}/{id}")).map_err(Problem::internal)
}

/// The OpenAPI document.
pub fn document() -> Document {
    described().into_openapi()
}

/// The routes, and the document about them at `/api/v1/openapi.json`.
pub fn routes() -> Router<App> {
    let (router, document) = described().split_for_parts();
    router.route("/api/v1/openapi.json", get(|| async move { Json(document) }))
}
