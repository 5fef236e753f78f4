//! Parts of requests: routes and their rights, extractors, revisions, what versions give, file stamps.

pub(crate) mod extract;
pub(crate) mod prelude;
pub(crate) mod revision;
pub mod routes;
pub(crate) mod stamp;
pub(crate) mod today;
