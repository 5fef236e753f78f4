//! mdl's own HTTP API, `/api/v1`: what the commands of the CLI do. Routes carry their own description (`utoipa`), so
//! that the OpenAPI document cannot lag behind.

mod checkout;
mod commits;
mod diff;
mod entry;
mod files;
pub(crate) mod gone;
mod jobs;
mod listing;
mod log;
mod policies;
mod refs;
mod repos;
mod stats;
mod stream;
mod tensor;
mod uploads;
mod versions;
mod webhooks;

pub(crate) use commits::Commits;

use crate::{
    app::App,
    problem::{Problem, ProblemDocument, Result},
    registry::RepoName,
    request::routes::{Need, Routes},
};
use axum::Json;
use http::HeaderValue;
use mdl_objects::Id;
use utoipa::{
    Modify, OpenApi, ToSchema,
    openapi::{
        OpenApi as Document,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};
use utoipa_axum::router::OpenApiRouter;

/// Base path of the API.
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

/// Bytes of a response.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
pub(crate) struct Binary(#[expect(dead_code, reason = "a name in the document")] Vec<u8>);

/// Parses an id of a client.
pub(crate) fn id(text: &str) -> Result<Id> {
    let wrong = |_| Problem::usage(format!("{:?} is no id", text.chars().take(100).collect::<String>()));
    text.parse().map_err(|e| wrong(e).hint("an id has 64 hexadecimal digits"))
}

fn described() -> OpenApiRouter<App> {
    let reading = OpenApiRouter::new()
        .merge(refs::routes())
        .merge(log::routes())
        .merge(versions::routes())
        .merge(files::routes())
        .merge(tensor::routes())
        .merge(diff::routes())
        .merge(checkout::routes())
        .merge(stats::routes())
        .merge(policies::routes());
    let writing = OpenApiRouter::new()
        .merge(commits::routes())
        .merge(uploads::routes())
        .merge(jobs::routes())
        .merge(webhooks::routes())
        .merge(crate::sync::routes());
    let all = OpenApiRouter::new().merge(repos::routes()).merge(reading).merge(writing);
    OpenApiRouter::with_openapi(Api::openapi()).nest(BASE, all)
}

/// Returns the URL of a resource of a repository, for the `Location` header.
fn location(name: &RepoName, kind: &str, id: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(&format!("{BASE}/repos/{name}/{kind}/{id}")).map_err(Problem::internal)
}

/// Rewrites `{*rest}` to `{rest}`: OpenAPI has no catch-all parameters.
fn plain(mut document: Document) -> Document {
    let paths = std::mem::take(&mut document.paths.paths);
    document.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    document
}

/// The OpenAPI document.
pub fn document() -> Document {
    plain(described().into_openapi())
}

/// The routes, and the document about them at `/api/v1/openapi.json`.
pub fn routes() -> Routes {
    let (router, document) = described().split_for_parts();
    let routes = Routes::described(router, &document);
    let document = plain(document);
    routes.get(Need::Anyone, "/api/v1/openapi.json", || async move { Json(document) })
}
