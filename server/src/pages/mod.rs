//! pages
use crate::app::App;
use axum::Router;
/// Routes.
pub fn routes() -> Router<App> {
    Router::new()
}
