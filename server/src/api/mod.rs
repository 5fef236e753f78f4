//! mdl's own HTTP API, `/api/v1`: what the commands of the CLI do. Routes carry their own description (`utoipa`), so
//! that the OpenAPI document cannot lag behind.

mod blame;
mod checkout;
mod commits;
pub mod diff;
pub mod entry;
mod files;
pub(crate) mod gone;
mod jobs;
pub mod listing;
mod log;
mod notes;
mod policies;
mod refs;
mod repos;
mod stats;
mod tensor;
mod uploads;
mod versions;
mod webhooks;

pub(crate) use commits::{Commits, Files, stored_files};

use crate::{
    app::App,
    problem::{PROBLEM_JSON, Problem, ProblemDocument, Result},
    registry::RepoName,
    request::routes::{Need, Needs, Routes, operations_mut},
};
use axum::{Json, extract::DefaultBodyLimit};
use http::{HeaderName, HeaderValue, header};
use mdl_objects::Id;
use utoipa::{
    Modify, OpenApi, PartialSchema, ToSchema,
    openapi::{
        ContentBuilder, OpenApi as Document, Ref, RefOr, Required, ResponseBuilder,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn},
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouterExt},
    routes,
};

/// Base path of the API.
pub const BASE: &str = "/api/v1";
/// Longest line in the reflog.
const MAX_LINE: usize = 300;

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

/// What the reflog keeps of a client's message.
pub(crate) fn reflog_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().chars().take(MAX_LINE).collect()
}

/// The routes of a repository.
fn of_repo() -> OpenApiRouter<App> {
    // Files are bounded by what `incoming` takes, all else by what is read of it.
    let commit = routes!(commits::create).needs(Need::Write).layer(DefaultBodyLimit::disable());
    OpenApiRouter::new()
        .routes(routes!(stats::stats).needs(Need::Read))
        .routes(routes!(diff::diff).needs(Need::Read))
        .routes(routes!(blame::blame).needs(Need::Read))
        .routes(routes!(policies::list).needs(Need::Read))
        .routes(routes!(refs::list).needs(Need::Read))
        .routes(routes!(refs::moving::put, refs::moving::delete).needs(Need::Write))
        .routes(routes!(log::log).needs(Need::Read))
        .routes(routes!(versions::commit).needs(Need::Read))
        .routes(routes!(notes::show).needs(Need::Read))
        .routes(routes!(notes::change).needs(Need::Write))
        .routes(routes!(versions::tree).needs(Need::Read))
        .routes(routes!(versions::tensors).needs(Need::Read))
        .routes(routes!(files::get, files::head).needs(Need::Read))
        .routes(routes!(tensor::get, tensor::head).needs(Need::Read))
        .routes(routes!(checkout::checkout).needs(Need::Read))
        .routes(commit)
        .routes(routes!(uploads::list, uploads::begin).needs(Need::Write))
        .routes(routes!(uploads::show, uploads::show_head, uploads::append, uploads::remove).needs(Need::Write))
        .routes(routes!(jobs::list, jobs::start).needs(Need::Write))
        .routes(routes!(jobs::show, jobs::cancel).needs(Need::Write))
        .routes(routes!(webhooks::list, webhooks::add).needs(Need::Admin))
        .routes(routes!(webhooks::show, webhooks::remove).needs(Need::Admin))
        .nest("/sync", crate::sync::routes())
}

fn described() -> OpenApiRouter<App> {
    let all = OpenApiRouter::new()
        .routes(routes!(repos::list).needs(Need::Anyone))
        .routes(routes!(repos::create).needs(Need::AdminOfNamed))
        .routes(routes!(repos::describe).needs(Need::Read))
        .routes(routes!(repos::set_up).needs(Need::Admin))
        .nest("/repos/{owner}/{name}", of_repo());
    OpenApiRouter::with_openapi(Api::openapi()).nest(BASE, all)
}

/// Returns the `Location` header with the URL of a resource of a repository.
fn location(name: &RepoName, kind: &str, id: &str) -> Result<[(HeaderName, HeaderValue); 1]> {
    let url = HeaderValue::from_str(&format!("{BASE}/repos/{name}/{kind}/{id}")).map_err(Problem::internal)?;
    Ok([(header::LOCATION, url)])
}

/// Adds what all operations have: the parameters of their path, and problem documents as the bodies of errors.
/// Rewrites `{*rest}` to `{rest}`: OpenAPI has no catch-all parameters.
fn completed(mut document: Document) -> Document {
    let paths = std::mem::take(&mut document.paths.paths).into_iter();
    document.paths.paths = paths
        .map(|(path, mut item)| {
            let path = path.replace("{*", "{");
            operations_mut(&mut item).for_each(|operation| add_parameters(operation, &path));
            // Its answers have no body.
            let head = item.head.take();
            operations_mut(&mut item).for_each(add_problems);
            item.head = head;
            (path, item)
        })
        .collect();
    document
}

/// Adds the parameters of the path that are not described, all of them text, before the others.
fn add_parameters(operation: &mut Operation, path: &str) {
    let mut others = operation.parameters.take().unwrap_or_default();
    let is_path = |p: &Parameter, name: &str| p.name == name && p.parameter_in == ParameterIn::Path;
    let is_described = |name: &str| others.iter().any(|p| matches!(p, RefOr::T(p) if is_path(p, name)));
    let names = path.split(['{', '}']).skip(1).step_by(2).filter(|name| !is_described(name));
    let mut all: Vec<RefOr<Parameter>> = names
        .map(|name| {
            let about = (name == "rev").then_some("Revision; its slashes percent-encoded.");
            let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).description(about);
            parameter.required(Required::True).schema(Some(String::schema())).build().into()
        })
        .collect();
    all.append(&mut others);
    operation.parameters = (!all.is_empty()).then_some(all);
}

fn add_problems(operation: &mut Operation) {
    let responses = &mut operation.responses.responses;
    responses.entry("default".to_owned()).or_insert_with(|| ResponseBuilder::new().into());
    for (_, response) in responses.iter_mut().filter(|(status, _)| *status == "default" || status.starts_with('4')) {
        if let RefOr::T(response) = response {
            let schema = Ref::from_schema_name("ProblemDocument");
            response.content.insert(PROBLEM_JSON.to_owned(), ContentBuilder::new().schema(Some(schema)).into());
        }
    }
}

/// The OpenAPI document.
pub fn document() -> Document {
    completed(described().into_openapi())
}

/// The routes, and the document about them at `/api/v1/openapi.json`.
pub fn routes() -> Routes {
    let (router, document) = described().split_for_parts();
    let routes = Routes::described(router, &document);
    let document = completed(document);
    routes.get(Need::Anyone, "/api/v1/openapi.json", || async move { Json(document) })
}
