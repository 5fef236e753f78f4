//! Routes of jobs (run, list, cancel) and webhooks (set, deliver, refuse).

use crate::support::{
    Root, commit, hex,
    http::{Answer, ask, form, form_request, send},
    noise, safetensors,
};
use hmac::{Hmac, KeyInit, Mac};
use mdl_server::app::App;
use serde_json::{Value, json};
use sha2::Sha256;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

fn fixture(private: bool) -> (Root, App) {
    let root = Root::new();
    let repo = root.repo("ada/gpt");
    for version in 0..4 {
        let files = [("model.safetensors", safetensors(&[("a", 64, 64)], version))];
        commit(&repo, &files, "a version", version);
    }
    drop(repo);
    let mut options = root.options();
    options.private_webhooks = private;
    let app = root.app(options);
    (root, app)
}

async fn over(app: &App, started: &Answer) -> Value {
    assert_eq!(started.status, 202, "{}", started.text);
    let id = started.json["id"].as_str().expect("an id");
    for _ in 0..500 {
        let job = ask(app, "GET", &format!("/jobs/{id}"), None).await.json;
        if !["queued", "running"].contains(&job["state"].as_str().expect("a state")) {
            return job;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    unreachable!("the job does not end");
}

async fn start(app: &App, job: Value) -> Answer {
    ask(app, "POST", "/jobs", Some(job)).await
}

#[tokio::test]
async fn jobs_run_and_are_remembered() {
    let (_root, app) = fixture(false);
    let job = over(&app, &start(&app, json!({"kind": "fsck"})).await).await;
    assert_eq!((&job["state"], &job["result"]["ok"]), (&json!("done"), &json!(true)), "{job}");
    let job = over(&app, &start(&app, json!({"kind": "compact", "dry_run": true})).await).await;
    assert_eq!((&job["state"], &job["result"]["dry_run"]), (&json!("done"), &json!(true)), "{job}");
    let job = over(&app, &start(&app, json!({"kind": "compact"})).await).await;
    assert_eq!((&job["state"], &job["result"]["packs_after"]), (&json!("done"), &json!(1)), "{job}");
    let job = over(&app, &start(&app, json!({"kind": "gc", "prune_now": true})).await).await;
    assert_eq!((&job["state"], &job["kind"], &job["by"]), (&json!("done"), &json!("gc"), &json!("anonymous")), "{job}");
    assert!(job["ended_ms"].as_i64() >= job["started_ms"].as_i64());
    let jobs = ask(&app, "GET", "/jobs", None).await.json;
    let kinds: Vec<&str> = jobs["jobs"].as_array().expect("jobs").iter().filter_map(|j| j["kind"].as_str()).collect();
    assert_eq!(kinds, ["gc", "compact", "compact", "fsck"]);
    for bad in [json!({}), json!({"kind": "format"}), json!({"kind": "gc", "x": 1})] {
        assert_eq!(start(&app, bad).await.status, 400);
    }
    assert_eq!(ask(&app, "GET", "/jobs/absent", None).await.status, 404);
    let id = jobs["jobs"][0]["id"].as_str().expect("an id");
    assert_eq!(ask(&app, "DELETE", &format!("/jobs/{id}"), None).await.status, 409);
}

#[tokio::test]
async fn damage_is_a_result() {
    let (root, app) = fixture(false);
    let packs = walk(root.path()).into_iter().filter(|p| p.extension().is_some_and(|e| e == "mdlp" || e == "pack"));
    let pack = packs.max_by_key(|p| p.metadata().map_or(0, |m| m.len())).expect("a pack");
    let mut bytes = std::fs::read(&pack).expect("bytes");
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x55;
    let mut permissions = pack.metadata().expect("about it").permissions();
    #[allow(clippy::permissions_set_readonly_false)]
    permissions.set_readonly(false);
    std::fs::set_permissions(&pack, permissions).expect("writable");
    std::fs::write(&pack, bytes).expect("written");
    let job = over(&app, &start(&app, json!({"kind": "fsck"})).await).await;
    assert_eq!((&job["state"], &job["result"]["ok"]), (&json!("done"), &json!(false)), "{job}");
    assert!(!job["result"]["problems"].as_array().expect("problems").is_empty());
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten().map(|e| e.path());
    entries.flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}

#[tokio::test]
async fn one_job_at_a_time_and_it_can_be_cancelled() {
    let root = Root::new();
    let repo = root.repo("ada/gpt");
    for n in 0..30 {
        commit(&repo, &[("x.bin", noise(n, 2_000_000))], "noise", n);
    }
    drop(repo);
    let app = root.app(root.options());
    let started = start(&app, json!({"kind": "fsck"})).await;
    assert_eq!(start(&app, json!({"kind": "gc"})).await.status, 409);
    let id = started.json["id"].as_str().expect("an id");
    let answer = ask(&app, "DELETE", &format!("/jobs/{id}"), None).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let job = over(&app, &started).await;
    assert_eq!((&job["state"], &job["result"]), (&json!("cancelled"), &Value::Null), "{job}");
    // So does a server that stops.
    let started = start(&app, json!({"kind": "fsck"})).await;
    app.stop();
    assert_eq!(over(&app, &started).await["state"], "cancelled");
}

/// Answers one request with a status, and gives what came.
async fn hear(listener: &TcpListener, status: &str) -> (String, String) {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut text = Vec::new();
    let (head, body) = loop {
        let mut buffer = [0; 4096];
        let n = stream.read(&mut buffer).await.expect("bytes");
        text.extend_from_slice(&buffer[..n]);
        let whole = String::from_utf8(text.clone()).expect("text");
        if let Some((head, body)) = whole.split_once("\r\n\r\n")
            && body.ends_with('}')
        {
            break (head.to_ascii_lowercase(), body.to_owned());
        }
    };
    let answer = format!("HTTP/1.1 {status}\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.expect("sent");
    (head, body)
}

#[tokio::test]
async fn webhooks_hear_of_commits() {
    let (root, app) = fixture(true);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let hook =
        json!({"url": format!("http://localhost:{port}/h?x=1"), "secret": "s3cret-words", "refs": "refs/heads/*"});
    let set = ask(&app, "POST", "/webhooks", Some(hook)).await;
    assert_eq!((set.status.as_u16(), &set.json["signed"]), (201, &json!(true)), "{}", set.text);
    let other = json!({"url": format!("http://127.0.0.1:{port}/tags"), "refs": "refs/tags/*"});
    assert_eq!(ask(&app, "POST", "/webhooks", Some(other)).await.status, 201);
    let list = ask(&app, "GET", "/webhooks", None).await;
    assert!(list.json["webhooks"].as_array().expect("webhooks").len() == 2 && !list.text.contains("s3cret-words"));
    use std::os::unix::fs::PermissionsExt;
    let file = root.path().join(".mdl-serve/webhooks.json");
    assert_eq!(file.metadata().expect("the file").permissions().mode() & 0o777, 0o600);

    let running = tokio::spawn(mdl_server::tasks::webhooks::run(app.clone()));
    tokio::task::yield_now().await;
    let meta = json!({"message": "m", "step": 9}).to_string();
    let made = send(&app, form_request(form(&[("meta", None, meta.as_bytes()), ("file", Some("a"), b"x")]))).await;
    assert_eq!(made.status, 201, "{}", made.text);
    // A redirect is not followed: it counts as a failure, and is tried again.
    let (head, body) = hear(&listener, "302 Found").await;
    let mut mac = Hmac::<Sha256>::new_from_slice(b"s3cret-words").expect("a key");
    mac.update(body.as_bytes());
    let digits = hex(&mac.finalize().into_bytes());
    assert!(head.contains(&format!("x-mdl-signature-256: sha256={digits}")), "{head}");
    assert!(head.starts_with("post /h?x=1 ") && head.contains("x-mdl-event: ref"), "{head}");
    let told: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(
        (&told["repo"], &told["ref"], &told["by"]),
        (&json!("ada/gpt"), &json!("refs/heads/main"), &json!("anonymous"))
    );
    assert_eq!((&told["new"], &told["old"]), (&made.json["commit"], &made.json["parent"]));
    let (second, _) = hear(&listener, "204 No Content").await;
    let delivery = |head: &str| head.lines().find(|l| l.starts_with("x-mdl-delivery")).map(str::to_owned);
    assert_eq!(delivery(&head), delivery(&second));
    let id = set.json["id"].as_str().expect("an id");
    let last = async {
        loop {
            let hook = ask(&app, "GET", &format!("/webhooks/{id}"), None).await.json;
            if !hook["last_delivery"].is_null() {
                return hook["last_delivery"].clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let last = tokio::time::timeout(Duration::from_secs(5), last).await.expect("a delivery");
    assert_eq!((&last["ok"], &last["status"], &last["tries"]), (&json!(true), &json!(204), &json!(2)), "{last}");
    assert_eq!(ask(&app, "DELETE", &format!("/webhooks/{id}"), None).await.status, 204);
    assert_eq!(ask(&app, "DELETE", &format!("/webhooks/{id}"), None).await.status, 404);
    app.stop();
    running.await.expect("stopped");
}

#[tokio::test]
async fn webhooks_stay_outside() {
    let (_root, app) = fixture(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://2130706433:{port}/"),
        "http://169.254.169.254/latest/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "http://u:p@example.org/".to_owned(),
        "https://example.org:25/".to_owned(),
    ] {
        let answer = ask(&app, "POST", "/webhooks", Some(json!({"url": url}))).await;
        assert_eq!(answer.status, 422, "{url}");
    }
    for bad in [json!({}), json!({"url": 1}), json!({"url": "https://example.org", "x": 1})] {
        assert_eq!(ask(&app, "POST", "/webhooks", Some(bad)).await.status, 400);
    }
    for bad in [json!({"refs": "["}), json!({"secret": ""}), json!({"secret": "x".repeat(257)})] {
        let mut hook = json!({"url": "https://example.org"});
        hook.as_object_mut().expect("an object").extend(bad.as_object().expect("an object").clone());
        assert_eq!(ask(&app, "POST", "/webhooks", Some(hook)).await.status, 422);
    }
    // A name that leads inside is found out when it is looked up.
    let hook = json!({"url": format!("http://localhost:{port}/")});
    let set = ask(&app, "POST", "/webhooks", Some(hook)).await;
    assert_eq!(set.status, 201, "{}", set.text);
    let running = tokio::spawn(mdl_server::tasks::webhooks::run(app.clone()));
    tokio::task::yield_now().await;
    let meta = json!({"message": "m", "step": 9}).to_string();
    send(&app, form_request(form(&[("meta", None, meta.as_bytes()), ("file", Some("a"), b"x")]))).await;
    let connected = tokio::time::timeout(Duration::from_secs(8), listener.accept()).await;
    assert!(connected.is_err(), "it was delivered");
    let id = set.json["id"].as_str().expect("an id");
    let hook = ask(&app, "GET", &format!("/webhooks/{id}"), None).await.json;
    let error = hook["last_delivery"]["error"].as_str().expect("an error");
    assert!(error.contains("not a public one"), "{hook}");
    app.stop();
    running.await.expect("stopped");
}
