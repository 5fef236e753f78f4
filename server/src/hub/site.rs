//! The server's own base URL as the client sees it, for links in answers.

use crate::{middleware::proxies::base_url, request::prelude::*};
use axum::extract::FromRequestParts;
use http::request::Parts;

/// The server's address as the client sees it: `https://models.example.org`.
#[derive(Clone, Debug)]
pub(super) struct Site(String);

impl Site {
    /// A link to a path of this server, which begins with `/`.
    pub(super) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// Answers with a page, and a `Link` header to the next one, if there is one, at a path of this server.
    pub(super) fn page(&self, page: impl Serialize, next: Option<String>) -> Result<Response> {
        let mut response = Json(page).into_response();
        if let Some(path) = next {
            let link = HeaderValue::from_str(&format!("<{}>; rel=\"next\"", self.link(&path)));
            response.headers_mut().insert(header::LINK, link.map_err(Problem::internal)?);
        }
        Ok(response)
    }
}

impl FromRequestParts<App> for Site {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Site> {
        base_url(app.options(), &parts.headers).map(Site)
    }
}
