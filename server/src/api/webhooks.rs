//! Routes `.../webhooks`: set, list and remove webhooks. A secret is never returned.

use crate::{
    request::prelude::*,
    tasks::webhooks::{Webhook, WebhookDelivery, address},
};

/// A webhook to be set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewWebhook {
    /// Where it goes: http or https, to a public address.
    #[schema(example = "https://ci.example.org/hooks/models")]
    url: String,
    /// Bodies are signed with it (`X-Mdl-Signature-256`). It cannot be read back.
    #[schema(min_length = 1, max_length = 256)]
    secret: Option<String>,
    /// The refs it is for, a glob over full names where `*` stops at `/`. Default: all.
    #[schema(example = "refs/heads/*", max_length = 256)]
    refs: Option<String>,
}

/// A webhook.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WebhookInfo {
    /// Its name.
    id: String,
    /// Where it goes.
    url: String,
    /// Whether it has a secret.
    signed: bool,
    /// The refs it is for; none: all.
    refs: Option<String>,
    /// Who set it.
    by: String,
    /// When: milliseconds since 1970.
    created_ms: i64,
    /// The last delivery since the server began.
    last_delivery: Option<WebhookDelivery>,
}

/// Webhooks of a repository.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WebhookList {
    webhooks: Vec<WebhookInfo>,
}

fn info(app: &App, hook: Webhook) -> WebhookInfo {
    WebhookInfo {
        signed: hook.is_signed(),
        last_delivery: app.webhooks().last_of(&hook.id),
        id: hook.id,
        url: hook.url,
        refs: hook.refs,
        by: hook.by,
        created_ms: hook.created_ms,
    }
}

/// List webhooks
#[utoipa::path(get, path = "/webhooks", tag = "webhooks", responses((status = 200, body = WebhookList)))]
pub(super) async fn list(Admin(access): Admin) -> Result<Json<WebhookList>> {
    work(move || {
        let hooks = access.app.webhooks().for_repo(&access.key()?)?;
        Ok(Json(WebhookList { webhooks: hooks.into_iter().map(|h| info(&access.app, h)).collect() }))
    })
    .await
}

/// Set a webhook
///
/// Whenever a ref moves, the URL gets a POST with `{repo, ref, old, new, by, time}`, tried three times.
#[utoipa::path(
    post, path = "/webhooks", tag = "webhooks", request_body = NewWebhook,
    responses((status = 201, body = WebhookInfo, headers(("Location" = String, description = "The webhook"))))
)]
pub(super) async fn add(Admin(access): Admin, Body(new): Body<NewWebhook>) -> Result<impl IntoResponse> {
    let url = address::check(&new.url, access.app.options().private_webhooks)?.to_string();
    work(move || {
        let hook = access.app.webhooks().add(&access.key()?, url, new.secret, new.refs, access.caller.name())?;
        let location = super::location(&access.name, "webhooks", &hook.id)?;
        Ok((StatusCode::CREATED, location, Json(info(&access.app, hook))))
    })
    .await
}

/// Look at a webhook
#[utoipa::path(get, path = "/webhooks/{id}", tag = "webhooks", responses((status = 200, body = WebhookInfo)))]
pub(super) async fn show(Admin(access): Admin, AtId(id): AtId) -> Result<Json<WebhookInfo>> {
    work(move || Ok(Json(info(&access.app, access.app.webhooks().find(&access.key()?, &id)?)))).await
}

/// Remove a webhook
#[utoipa::path(delete, path = "/webhooks/{id}", tag = "webhooks", responses((status = 204)))]
pub(super) async fn remove(Admin(access): Admin, AtId(id): AtId) -> Result<StatusCode> {
    work(move || access.app.webhooks().remove(&access.key()?, &id)).await?;
    Ok(StatusCode::NO_CONTENT)
}
