//! Single requests: parts that break off or lie, requests that make no sense, rights.

use super::{MAIN, served, tensors, train};
use crate::support::{
    Root,
    http::{Answer, ask, request, send},
    noise,
};
use axum::body::Body;
use http::{Request, StatusCode, header};
use mdl_remote::PART;
use mdl_repo::{Remote, storage::Prefix};
use mdl_server::{app::App, auth::Scope};
use serde_json::{Value, json};
use std::{
    io::Write,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

fn part_request(path: &str, hash: Option<&str>, body: Vec<u8>) -> Request<Body> {
    let mut request = request("PUT", path, "application/octet-stream", body);
    if let Some(hash) = hash {
        request.headers_mut().insert("x-mdl-blake3", hash.parse().expect("a header"));
    }
    request
}

async fn is(app: &App, request: Request<Body>, status: u16) -> Answer {
    let what = format!("{} {}", request.method(), request.uri());
    let answer = send(app, request).await;
    assert_eq!(answer.status.as_u16(), status, "{what}: {}", answer.text);
    answer
}

async fn post(app: &App, path: &str, json: Value, status: u16) -> Answer {
    is(app, request("POST", path, "application/json", json.to_string()), status).await
}

#[test]
fn what_came_of_a_part_before_the_line_broke_stays() {
    let (_root, live) = served();
    let (pack, bytes) = ("7".repeat(64), noise(3, PART as usize));
    let path = format!("/api/v1/repos/ada/gpt/sync/packs/{pack}/parts/0?size={PART}");
    let address = live.url.strip_prefix("http://").expect("an address");
    let half = PART as usize / 2 + 77;
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {PART}\r\nX-Mdl-Blake3: {}\r\n\r\n",
        blake3::hash(&bytes).to_hex()
    );
    let mut line = TcpStream::connect(address).expect("connected");
    line.write_all(head.as_bytes()).and_then(|()| line.write_all(&bytes[..half])).expect("sent");
    drop(line);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let missing = format!("/sync/packs/{pack}?size={PART}");
    let wanted = json!([{"part": 0, "from": half}]);
    let waited = Instant::now();
    while runtime.block_on(ask(&live.app, "GET", &missing, None)).json["missing"] != wanted {
        assert!(waited.elapsed() < Duration::from_secs(30), "it did not stay");
        thread::sleep(Duration::from_millis(20));
    }
    let rest = format!("/sync/packs/{pack}/parts/0?size={PART}&from={half}");
    let hash = blake3::hash(&bytes).to_hex().to_string();
    runtime.block_on(is(&live.app, part_request(&rest, Some(&hash), bytes[half..].to_vec()), 204));
    let there = runtime.block_on(ask(&live.app, "GET", &missing, None));
    assert_eq!(there.json["missing"], json!([]));
}

#[tokio::test]
async fn parts_that_lie_are_refused() {
    let root = Root::new();
    drop(root.repo("ada/gpt"));
    let mut options = root.options();
    (options.max_upload, options.quota_repo) = (100_000, Some(100_000));
    let app = root.app(options);
    let (pack, bytes) = ("7".repeat(64), noise(3, 5000));
    let right = blake3::hash(&bytes).to_hex().to_string();
    let at = |part: &str, size: u64| format!("/sync/packs/{pack}/parts/{part}?size={size}");
    for (path, hash, body, status) in [
        (at("0", 5000), Some("0".repeat(64)), bytes.clone(), 422),
        (at("0", 5000), Some("what".to_owned()), bytes.clone(), 400),
        (at("0", 5000), None, bytes.clone(), 400),
        (at("0", 5000), Some(right.clone()), bytes[..4999].to_vec(), 400),
        (at("0", 4999), Some(right.clone()), bytes.clone(), 413),
        (at("1", 5000), Some(right.clone()), bytes.clone(), 400),
        (at("18446744073709551615", 5000), Some(right.clone()), bytes.clone(), 400),
        (at("0", 0), Some(right.clone()), Vec::new(), 400),
        (at("0", 100_001), Some(right.clone()), bytes.clone(), 413),
        (at("-1", 5000), Some(right.clone()), bytes.clone(), 400),
    ] {
        is(&app, part_request(&path, hash.as_deref(), body), status).await;
    }
    let missing = format!("/sync/packs/{pack}?size=5000");
    let told = ask(&app, "GET", &missing, None).await;
    let cut = json!({"part": 0, "from": 4999});
    assert_eq!(told.json, json!({"part_bytes": PART, "missing": [cut]}));
    // Of a part that began otherwise nothing stays.
    let rest = at("0", 5000) + "&from=4999";
    is(&app, part_request(&rest, Some(&"0".repeat(64)), vec![1]), 422).await;
    let begun_anew = json!([{"part": 0, "from": 0}]);
    assert_eq!(ask(&app, "GET", &missing, None).await.json["missing"], begun_anew);
    for (from, body, status) in [(1, vec![1], 422), (5001, vec![1], 400), (4999, vec![1, 2], 413)] {
        let path = format!("{}&from={from}", at("0", 5000));
        is(&app, part_request(&path, Some(&right), body), status).await;
    }
    let packs = |size: u64| json!({"packs": [{"id": pack, "size": size}]});
    let refused = post(&app, "/sync/packs/take", packs(5000), 409).await;
    assert_eq!(refused.headers["x-error-code"], "PartsMissing");
    // All of it came, and it is no pack: it does not stay either.
    for _ in 0..2 {
        is(&app, part_request(&at("0", 5000), Some(&right), bytes.clone()), 204).await;
    }
    assert_eq!(ask(&app, "GET", &missing, None).await.json["missing"], json!([]));
    post(&app, "/sync/packs/take", packs(5000), 422).await;
    assert_eq!(ask(&app, "GET", &missing, None).await.json["missing"], begun_anew);
    // More than the repository may have under way.
    let many = noise(4, 60_000);
    let hash = blake3::hash(&many).to_hex().to_string();
    for (digit, status) in [("a", 204), ("b", 507)] {
        let path = format!("/sync/packs/{}/parts/0?size=60000", digit.repeat(64));
        is(&app, part_request(&path, Some(&hash), many.clone()), status).await;
    }
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_with_words() {
    let root = Root::new();
    let repo = root.repo("ada/gpt");
    let tip = train(&repo, 0..2)[1];
    let tensor = tensors(&repo, &tip)[0];
    let key = repo.storage().keys(&Prefix::fixed("packs/")).expect("packs").remove(0);
    let pack = key.trim_start_matches("packs/").trim_end_matches(".pack").to_owned();
    drop(repo);
    let app = root.app(root.options());
    let nobody = "1".repeat(64);
    let mark = |commit: &str, rules: &str| json!({"commit": commit, "time_ms": 5, "rules": rules});
    for (path, json, status) in [
        ("/sync/offer", json!({"tips": [nobody]}), 404),
        ("/sync/offer", json!({"tips": [tensor.to_hex()]}), 422),
        ("/sync/offer", json!({"objects": [nobody]}), 404),
        ("/sync/offer", json!({"tips": ["what"]}), 400),
        ("/sync/offer", json!({"depth": 0}), 400),
        ("/sync/offer", json!({"only": ["a["]}), 422),
        ("/sync/offer", json!({"only": ["a".repeat(600)]}), 413),
        ("/sync/offer", json!({"haves": vec![nobody.clone(); 65_537]}), 413),
        ("/sync/offer", json!({}), 200),
        ("/sync/offer", json!({"tips": [tip.to_hex()], "haves": [nobody, tensor.to_hex()]}), 200),
        ("/sync/whole", json!({"tensors": [tip.to_hex()]}), 404),
        ("/sync/whole", json!({"tensors": [tensor.to_hex(), tensor.to_hex()]}), 200),
        ("/sync/whole", json!({"tensors": []}), 200),
        ("/sync/read", json!({"pieces": [{"pack": nobody, "offset": 0, "len": 1}]}), 404),
        ("/sync/read", json!({"pieces": [{"pack": pack, "offset": u64::MAX, "len": 1}]}), 400),
        ("/sync/read", json!({"pieces": [{"pack": pack, "offset": 0, "len": 60_000_000}]}), 400),
        ("/sync/read", json!({"pieces": [{"pack": pack, "offset": 0, "len": u64::MAX}]}), 413),
        ("/sync/read", json!({"pieces": vec![json!({"pack": pack, "offset": 0, "len": 0}); 65_537]}), 413),
        ("/sync/read", json!({"pieces": []}), 200),
        ("/sync/refs", json!({"moves": [{"name": "refs/remotes/o/main", "expected": null, "new": null}]}), 400),
        ("/sync/refs", json!({"moves": [{"name": MAIN, "expected": null, "new": nobody}]}), 404),
        ("/sync/refs", json!({"moves": [{"name": MAIN, "expected": null, "new": tensor.to_hex()}]}), 422),
        ("/sync/refs", json!({"moves": [], "message": "x\ny"}), 200),
        ("/sync/packs/take", json!({"packs": [{"id": "what", "size": 1}]}), 400),
        ("/sync/packs/take", json!({"packs": []}), 200),
        ("/sync/pruned", json!({"pruned": []}), 204),
        ("/sync/pruned", json!({"pruned": vec![mark(&nobody, "r"); 2048]}), 204),
        ("/sync/pruned", json!({"pruned": vec![mark(&nobody, "r"); 2049]}), 413),
        ("/sync/pruned", json!({"pruned": [mark(&nobody, &"r".repeat(4097))]}), 413),
        ("/sync/pruned", json!({"pruned": [mark("what", "r")]}), 400),
        ("/sync/pruned", json!({"pruned": [{"commit": nobody}]}), 400),
    ] {
        post(&app, path, json, status).await;
    }
    let bad_name = json!({"moves": [{"name": "refs/heads/../x", "expected": null, "new": null}]});
    assert!(ask(&app, "POST", "/sync/refs", Some(bad_name)).await.status.is_client_error());
    for path in ["/sync/lacking", "/sync/known"] {
        let post = |bytes: Vec<u8>| request("POST", path, "application/octet-stream", bytes);
        is(&app, post(vec![0; 33]), 400).await;
        is(&app, post(vec![0; 32 * ((1 << 18) + 1)]), 413).await;
        is(&app, post(Vec::new()), 200).await;
    }
    let head = json!({"pieces": [
        {"pack": pack, "offset": 0, "len": 4}, {"pack": pack, "offset": 4, "len": 4}, {"pack": pack, "offset": 3, "len": 2},
    ]});
    let answer = post(&app, "/sync/read", head, 200).await;
    assert_eq!(
        (answer.text.as_str(), &answer.headers["content-length"]),
        ("MDLPACK\nPA", &"10".parse().expect("a header"))
    );
}

#[tokio::test]
async fn a_partial_repository_says_so_and_tells_no_path() {
    let (root, nowhere) = (Root::new(), "1".repeat(64));
    let mut repo = root.repo("ada/gpt");
    train(&repo, 0..1);
    for (url, told) in [("/srv/secret", false), ("https://h/ada/gpt", true)] {
        let remote = Remote { url: url.to_owned(), partial: true, depth: Some(1), only: Vec::new(), branch: None };
        repo.set_remote("origin", Some(&remote)).expect("remote");
        let app = root.app(root.options());
        let answer = post(&app, "/sync/offer", json!({"objects": [nowhere]}), 422).await;
        assert!(answer.text.contains("partial clone"), "{}", answer.text);
        assert_eq!(answer.text.contains(url), told, "{}", answer.text);
        post(&app, "/sync/offer", json!({"tips": [nowhere]}), 404).await;
    }
}

#[tokio::test]
async fn tokens_say_who_may() {
    let (root, id) = (Root::new(), "1".repeat(64));
    drop(root.repo("ada/gpt"));
    let app = root.app(root.options());
    let token = |repo: &str, scope| {
        let new = mdl_server::auth::NewToken { name: "eve".to_owned(), repo: repo.to_owned(), scope, expires_ms: None };
        format!("Bearer {}", app.tokens().create(new).expect("a token").1)
    };
    let (read, write, other) =
        (token("ada/*", Scope::Read), token("ada/*", Scope::Write), token("bob/*", Scope::Admin));
    let reading = [
        "GET /sync/refs",
        "POST /sync/offer",
        "POST /sync/whole",
        "POST /sync/read",
        "POST /sync/lacking",
        "POST /sync/known",
    ];
    let (show, part) = (format!("GET /sync/packs/{id}?size=9"), format!("PUT /sync/packs/{id}/parts/0?size=9"));
    let writing = ["POST /sync/refs", "POST /sync/packs/take", "POST /sync/pruned", &show, &part];
    let all = reading.iter().map(|r| (*r, false)).chain(writing.iter().map(|r| (*r, true)));
    for (route, writes) in all {
        let (method, path) = route.split_once(' ').expect("a route");
        let with = async |token: Option<&str>| {
            let mut request = request(method, path, "application/json", "{}");
            if let Some(token) = token {
                request.headers_mut().insert(header::AUTHORIZATION, token.parse().expect("a header"));
            }
            send(&app, request).await.status
        };
        assert_eq!(with(None).await, StatusCode::UNAUTHORIZED, "{route}");
        assert_eq!(with(Some(&other)).await, StatusCode::FORBIDDEN, "{route}");
        assert_eq!(with(Some(&read)).await == StatusCode::FORBIDDEN, writes, "{route}");
        let allowed = with(Some(&write)).await;
        assert!(!matches!(allowed.as_u16(), 401 | 403), "{route}: {allowed}");
    }
}
