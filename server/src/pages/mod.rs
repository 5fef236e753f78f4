//! Pages for people: repositories, history, files, comparisons, drawn on the server. Neighbours: `mdl-repo` has what they show, `auth`
//! says who may look. They must not change anything in a repository.
//!
//! Each file gathers plain data first and then writes markup from it. Markup escapes by itself; the one place that passes HTML
//! on is `card`, behind a sanitiser.

mod assets;
mod card;
mod commands;
mod commit;
mod compare;
mod computing;
mod error;
mod files;
mod graph;
mod heat;
mod layout;
mod log;
mod login;
mod overview;
mod plot;
mod refs;
mod repos;
mod scale;
mod series;
mod tensors;
mod text;

use crate::app::App;
use axum::{Extension, Router, middleware, routing::get};
use computing::Comparisons;
use series::Histories;

/// Routes.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/", get(repos::show))
        .route("/login", get(login::show).post(login::sign_in))
        .route("/logout", get(login::show).post(login::sign_out))
        .route("/{owner}/{name}", get(overview::show))
        .route("/{owner}/{name}/commits/{rev}", get(log::show))
        .route("/{owner}/{name}/commit/{rev}", get(commit::show))
        .route("/{owner}/{name}/tree/{rev}", get(files::root))
        .route("/{owner}/{name}/tree/{rev}/{*path}", get(files::directory))
        .route("/{owner}/{name}/blob/{rev}/{*path}", get(files::file))
        .route("/{owner}/{name}/compare", get(compare::choose))
        .route("/{owner}/{name}/compare/{a}/{b}", get(compare::show))
        .layer(Extension(Comparisons::new()))
        .layer(Extension(Histories::new()))
        .layer(middleware::from_fn(error::dress))
        .merge(assets::routes())
}
