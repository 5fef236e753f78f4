//! Delivers webhooks about moved refs, in the background.
//!
//! A repository, and an owner, have a share of the running and queued deliveries: slow or dead receivers do not delay
//! those of others.

use crate::{
    app::{App, work},
    problem::{Problem, Result},
    process::state::{now_ms, random_hex},
    tasks::{
        events::RefMoved,
        fair::{Limits, Party, Pool},
        webhooks::{Webhook, WebhookDelivery, address},
    },
};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Client, StatusCode, redirect};
use serde_json::json;
use sha2::Sha256;
use std::{error::Error, time::Duration};

/// Most running and queued deliveries, in all, for one owner and for one repository; more are dropped.
const QUEUE: Limits =
    Limits { all: 4096, per_client: 1024, per_repo: 256, shares: 4096, waiting: 0, waiting_per_client: 0 };
/// Most running deliveries; queued ones count in the other limit.
const RUNNING: Limits =
    Limits { all: 64, per_client: 16, per_repo: 4, shares: 64, waiting: usize::MAX, waiting_per_client: usize::MAX };
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses before retries.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Delivers until the app stops; what is not delivered by then is lost.
pub async fn run(app: App) {
    let client = match client(app.options().private_webhooks) {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "webhooks cannot be delivered");
            return;
        }
    };
    let (queue, running) = (Pool::new(QUEUE), Pool::new(RUNNING));
    let mut events = app.events().subscribe();
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = app.stopped() => return,
        };
        let (reader, repo) = (app.clone(), event.repo.clone());
        let hooks = work(move || reader.webhooks().for_repo(&repo)).await.unwrap_or_default();
        let party = party(&event);
        for hook in hooks.into_iter().filter(|h| h.is_about(&event.name)) {
            let Some(place) = queue.try_take(&party, 1) else {
                tracing::warn!(hook = hook.id, "too many deliveries wait: one is dropped");
                continue;
            };
            let (app, client, running, event) = (app.clone(), client.clone(), running.clone(), event.clone());
            tokio::spawn(async move {
                let _place = place;
                tokio::select! {
                    () = deliver(&app, &client, &running, &hook, &event) => {}
                    () = app.stopped() => {}
                }
            });
        }
    }
}

/// What a delivery counts to: the repository's owner and the repository.
fn party(event: &RefMoved) -> Party {
    Party::new(event.repo.name.owner(), event.repo.to_string())
}

fn client(private: bool) -> reqwest::Result<Client> {
    // Other code of this process may have installed one before: that will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .dns_resolver(address::Guarded { private })
        .redirect(redirect::Policy::none())
        // A proxy would resolve names itself, past our check.
        .no_proxy()
        .referer(false)
        .timeout(TIMEOUT)
        .connect_timeout(TIMEOUT)
        .pool_max_idle_per_host(0)
        .user_agent(concat!("mdl/", env!("CARGO_PKG_VERSION")))
        .build()
}

async fn deliver(app: &App, client: &Client, running: &Pool, hook: &Webhook, event: &RefMoved) {
    let delivery = match attempts(app, client, running, hook, event).await {
        Ok(delivery) => delivery,
        Err(problem) => {
            tracing::warn!(hook = hook.id, why = problem.message, "a webhook could not be delivered");
            return;
        }
    };
    let (ok, status, error) = (delivery.ok, &delivery.status, &delivery.error);
    tracing::info!(hook = hook.id, delivery = delivery.id, ok, ?status, ?error, "webhook");
    // A webhook removed meanwhile has no last delivery.
    let (app, hook, repo) = (app.clone(), hook.id.clone(), event.repo.clone());
    let _ = work(move || {
        app.webhooks().find(&repo, &hook)?;
        app.webhooks().last.lock().insert(hook, delivery);
        Ok(())
    })
    .await;
}

async fn attempts(
    app: &App,
    client: &Client,
    running: &Pool,
    hook: &Webhook,
    event: &RefMoved,
) -> Result<WebhookDelivery> {
    let (body, party) = (body(event), party(event));
    let mut delivery = WebhookDelivery {
        id: random_hex(16)?,
        r#ref: event.name.clone(),
        status: None,
        ok: false,
        error: None,
        tries: 0,
        time_ms: 0,
    };
    loop {
        let share = running.take(&party, 1).await;
        let share = share.map_err(|full| Problem::internal(format!("{full:?}")))?;
        let outcome = send(app, client, hook, &delivery.id, &body).await;
        drop(share);
        delivery.tries += 1;
        delivery.time_ms = now_ms();
        (delivery.status, delivery.error) = match outcome {
            Ok(status) => (Some(status.as_u16()), None),
            Err(why) => (None, Some(why)),
        };
        delivery.ok = delivery.status.is_some_and(|s| (200..300).contains(&s));
        let pause = usize::try_from(delivery.tries - 1).ok().and_then(|n| PAUSES.get(n));
        match pause.filter(|_| !delivery.ok) {
            Some(pause) => tokio::time::sleep(*pause).await,
            None => return Ok(delivery),
        }
    }
}

fn body(event: &RefMoved) -> String {
    json!({
        "repo": event.repo.to_string(),
        "ref": event.name,
        "old": event.old.map(|id| id.to_hex()),
        "new": event.new.map(|id| id.to_hex()),
        "by": event.by,
        "time": now_ms(),
    })
    .to_string()
}

/// `sha256=` and the HMAC of the body in hexadecimal digits.
pub(super) fn signature(secret: &str, body: &str) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).ok()?;
    mac.update(body.as_bytes());
    Some(format!("sha256={}", hex::encode(mac.finalize().into_bytes())))
}

async fn send(
    app: &App,
    client: &Client,
    hook: &Webhook,
    delivery: &str,
    body: &str,
) -> std::result::Result<StatusCode, String> {
    // The resolver does not see literal IP addresses, and the operator's options may have changed.
    let url = address::check(&hook.url, app.options().private_webhooks).map_err(|p| p.message)?;
    let mut request = client
        .post(url)
        .header("Content-Type", "application/json")
        .header("X-Mdl-Event", "ref")
        .header("X-Mdl-Delivery", delivery);
    if let Some(signature) = hook.secret.as_ref().and_then(|s| signature(s, body)) {
        request = request.header("X-Mdl-Signature-256", signature);
    }
    match request.body(body.to_owned()).send().await {
        Ok(response) => Ok(response.status()),
        Err(error) => Err(reason(&error)),
    }
}

/// Returns the innermost cause, without the URL: that may hold secrets.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it took too long".to_owned();
    }
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_rfc_4231() {
        let found = signature("Jefe", "what do ya want for nothing?");
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(found.as_deref(), Some(expected));
    }
}
