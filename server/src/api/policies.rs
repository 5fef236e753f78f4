//! Route `GET .../policies`: the policies that a lossy commit may name.

use crate::request::prelude::*;
use mdl_repo::Policy;

/// Policies on a page: by default, and at most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// A policy.
#[derive(Debug, Serialize, ToSchema)]
struct PolicyInfo {
    name: String,
    /// Id of its text, where the repository has its own.
    id: Option<String>,
    /// Whether it is the built-in one.
    built_in: bool,
    /// What the built-in one of this name is, in a line.
    about: Option<String>,
    /// Its text (TOML).
    text: String,
    /// Whether a commit can name it: its text is sound.
    usable: bool,
}

/// Some policies, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PolicyPage {
    policies: Vec<PolicyInfo>,
    /// Pass as `after` for the next page; none: this is the last.
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// The `next` of the page before.
    after: Option<String>,
    /// Policies a page.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// List the policies of lossy commits
#[utoipa::path(
    get, path = "/policies", tag = "repositories", params(ListQuery), responses((status = 200, body = PolicyPage))
)]
pub(super) async fn list(Read(access): Read, Query(query): Query<ListQuery>) -> Result<Json<PolicyPage>> {
    work(move || {
        let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let mut all = mdl_repo::policies(&access.repo)?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.retain(|p| query.after.as_ref().is_none_or(|after| p.name > *after));
        let next = all.get(limit).and_then(|_| all.get(limit - 1)).map(|p| p.name.clone());
        all.truncate(limit);
        let policies = all.into_iter().map(|p| PolicyInfo {
            usable: Policy::parse(&p.name, &p.text).is_ok(),
            name: p.name,
            id: p.id.map(|id| id.to_hex()),
            built_in: p.id.is_none(),
            about: p.about.map(str::to_owned),
            text: p.text,
        });
        Ok(Json(PolicyPage { policies: policies.collect(), next }))
    })
    .await
}
