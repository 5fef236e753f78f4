//! Hub routes `whoami-v2`, `auth-check` and `repos/create`.

use crate::{
    auth::{ANONYMOUS_READ, Caller, Maker, Scope},
    hub::site::Site,
    registry::RepoName,
    request::prelude::*,
};
use serde_json::{Value, json};

/// `GET /api/whoami-v2`.
pub(super) async fn who_am_i(caller: Caller) -> Result<Json<Value>> {
    let Caller::Bearer(token) = &caller else {
        return Err(Problem::unauthorized("not signed in"));
    };
    let role = if token.scope == Scope::Read { "read" } else { "write" };
    Ok(Json(json!({
        "type": "user",
        "id": token.id,
        "name": token.name,
        "fullname": token.name,
        "email": null,
        "emailVerified": false,
        "canPay": false,
        "isPro": false,
        "periodEnd": null,
        "orgs": [],
        "auth": {
            "type": "access_token",
            "accessToken": {
                "displayName": token.name,
                "role": role,
                "createdAt": super::info::date(token.created_ms),
            },
        },
    })))
}

/// `GET /api/models/{owner}/{name}/auth-check`.
pub(super) async fn may_read(_: Read) -> Json<Value> {
    Json(json!({}))
}

/// `GET /api/models/{owner}/{name}/auth-check/write`.
pub(super) async fn may_write(_: Write) -> Json<Value> {
    Json(json!({}))
}

#[derive(Debug, Deserialize)]
pub(super) struct Card {
    #[serde(rename = "content")]
    _content: String,
}

/// `POST /api/validate-yaml`: accepts any card metadata.
pub(super) async fn validate(_: Body<Card>) -> Json<Value> {
    Json(json!({"errors": [], "warnings": []}))
}

#[derive(Debug, Deserialize)]
pub(super) struct NewRepo {
    name: String,
    organization: Option<String>,
    r#type: Option<String>,
    private: Option<bool>,
    visibility: Option<String>,
}

impl NewRepo {
    fn name(&self, caller: &Caller) -> Result<RepoName> {
        if let Some((owner, name)) = self.name.split_once('/') {
            return RepoName::new(owner, name);
        }
        match (&self.organization, caller) {
            (Some(owner), _) => RepoName::new(owner, &self.name),
            (None, Caller::Bearer(token)) => RepoName::new(&token.name, &self.name),
            (None, _) => Err(Problem::usage(format!("whose is {:?}?", self.name)).hint("name it OWNER/NAME")),
        }
    }

    /// Returns whether the client asked for a public repository.
    fn is_public(&self) -> bool {
        self.visibility.as_deref() == Some("public") || (self.visibility.is_none() && self.private == Some(false))
    }
}

/// `POST /api/repos/create`.
pub(super) async fn create(
    State(app): State<App>,
    Maker(caller): Maker,
    site: Site,
    Body(new): Body<NewRepo>,
) -> Result<Response> {
    if new.r#type.as_deref().is_some_and(|t| t != "model") {
        return Err(Problem::usage("only models live here").hint("leave out the repository's type"));
    }
    let name = new.name(&caller)?;
    app.allow_making(&caller, &name)?;
    let url = site.link(&format!("/{name}"));
    let (made, public) = (name.clone(), new.is_public());
    let done = work(move || {
        app.registry().create(&made, "main")?;
        if public {
            app.registry().configure(&made, &[(ANONYMOUS_READ, Some("true"))])?;
        }
        Ok(())
    })
    .await;
    match done {
        Ok(()) => Ok(Json(json!({"url": url, "name": name, "id": name})).into_response()),
        Err(problem) if problem.status == StatusCode::CONFLICT => exists(problem, &url),
        Err(problem) => Err(problem),
    }
}

/// Adds the URL to the refusal, where clients with `exist_ok` read it.
fn exists(problem: Problem, url: &str) -> Result<Response> {
    let mut document = serde_json::to_value(problem.document()).map_err(Problem::internal)?;
    if let Some(fields) = document.as_object_mut() {
        fields.insert("url".to_owned(), Value::from(url));
    }
    let headers = problem.into_response().headers().clone();
    let mut response = (StatusCode::CONFLICT, Json(document)).into_response();
    for (name, value) in &headers {
        if name != http::header::CONTENT_LENGTH {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
    Ok(response)
}
