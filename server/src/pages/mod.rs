//! HTML pages, rendered on the server: repositories, history, files, comparisons.
//!
//! Each file gathers plain data first and then writes markup from it. Markup escapes by itself; the one place that
//! passes HTML on is `card`, behind a sanitiser.

mod about;
mod assets;
mod blame;
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
mod prelude;
mod refs;
mod repos;
mod scale;
mod series;
mod tensors;
mod text;

use crate::request::routes::{Need, Routes};
use axum::{Extension, middleware};
use computing::Computations;
use serde::Deserialize;
use series::Histories;

/// Place of a page's first row.
#[derive(Debug, Deserialize)]
pub struct Start {
    #[serde(default)]
    pub start: usize,
}

pub fn routes() -> Routes {
    Routes::new()
        .get(Need::Anyone, "/", repos::show)
        .get(Need::Anyone, "/login", login::show)
        .post(Need::Anyone, "/login", login::sign_in)
        .get(Need::Anyone, "/logout", login::show)
        .post(Need::Anyone, "/logout", login::sign_out)
        .get(Need::Read, "/{owner}/{name}", overview::show)
        .get(Need::Read, "/{owner}/{name}/commits/{rev}", log::show)
        .get(Need::Read, "/{owner}/{name}/commit/{rev}", commit::show)
        .get(Need::Read, "/{owner}/{name}/blame/{rev}", blame::show)
        .get(Need::Read, "/{owner}/{name}/tree/{rev}", files::directory)
        .get(Need::Read, "/{owner}/{name}/tree/{rev}/{*path}", files::directory)
        .get(Need::Read, "/{owner}/{name}/blob/{rev}/{*path}", files::file)
        .get(Need::Read, "/{owner}/{name}/compare", compare::choose)
        .get(Need::Read, "/{owner}/{name}/compare/{a}/{b}", compare::show)
        .layer(Extension(Computations::<compare::Versus>::default()))
        .layer(Extension(Computations::<blame::Measured>::default()))
        .layer(Extension(Histories::new()))
        .layer(middleware::from_fn(error::dress))
        .merge(assets::routes())
}
