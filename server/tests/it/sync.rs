//! Clone, fetch and push over a socket: what is sent, resuming after a cut, rights, refusals.

use crate::support::{
    Root, commit,
    http::{Answer, ask, kept, request, send},
    live::{Live, files},
    noise, safetensors,
};
use axum::body::Body;
use http::{Request, StatusCode, header};
use mdl_objects::Id;
use mdl_remote::{
    PART, Peer,
    fetch::{note_refs, receive},
    parts,
    push::{Push, push},
    read_stored,
    sync::{Bundle, Piece, RefMove, Want},
};
use mdl_repo::{
    CompactOptions, ErrorKind, GcOptions, PruneOptions, PrunedMark, RefName, Remote, Repo, RepoError, Retention,
    Silent, storage::Prefix,
};
use mdl_server::{app::App, auth::Scope};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    fs::File,
    io::Write,
    net::TcpStream,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

const MAIN: &str = "refs/heads/main";

fn version(n: u64) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("model.safetensors", safetensors(&[("w", 120, 200), ("v", 50, 50)], n)),
        ("step.txt", n.to_string().into_bytes()),
    ]
}

fn train(repo: &Repo, steps: std::ops::Range<u64>) -> Vec<Id> {
    steps.map(|n| commit(repo, &version(n), &format!("step {n}"), n)).collect()
}

fn served() -> (Root, Live) {
    let root = Root::new();
    drop(root.repo("ada/gpt"));
    let live = Live::new(&root, root.options());
    (root, live)
}

fn wish(name: &str, new: Id) -> Push {
    Push { name: name.to_owned(), new: Some(new), force: false, lease: None }
}

fn want(tip: Id) -> Want {
    Want { tips: vec![tip], ..Want::default() }
}

fn clean(repo: &Repo) {
    assert_eq!(mdl_repo::fsck(repo, false, &Silent).expect("fsck").problems, []);
}

fn pack_bytes(repo: &Repo) -> u64 {
    let listed = repo.storage().list(&Prefix::fixed("packs/")).expect("list");
    listed.iter().map(|s| s.size).sum()
}

fn served_repo(live: &Live) -> std::sync::Arc<Repo> {
    live.app.registry().open(&crate::support::name("ada/gpt")).expect("open")
}

#[test]
fn a_history_goes_up_and_comes_down_again() {
    let (root, live) = served();
    let token = live.token("eve", Scope::Write);
    let peer = live.peer(Some(&token));
    let here = root.repo("bob/here");
    let ids = train(&here, 0..5);
    let mut heard = live.app.events().subscribe();
    let done = push(&here, &peer, &[wish(MAIN, ids[3]), wish("refs/tags/v1", ids[1])], "push", &Silent).expect("push");
    assert!(done.refs.len() == 2 && done.refs.iter().all(|(_, r)| r.is_ok()), "{done:?}");
    let event = heard.try_recv().expect("an event");
    assert_eq!((event.name.as_str(), event.new, event.by.as_str()), (MAIN, Some(ids[3]), "eve"));
    // One more is its delta; the same again is nothing, and no event is sent.
    let whole = pack_bytes(&here);
    let done = push(&here, &peer, &[wish(MAIN, ids[4])], "push", &Silent).expect("push");
    assert!(done.sent > 0 && done.sent < whole / 2, "{} of {whole}", done.sent);
    while heard.try_recv().is_some() {}
    let again = RefMove { name: MAIN.to_owned(), expected: Some(ids[3]), new: Some(ids[4]), force: false };
    let told = peer.move_refs(&[again], "the answer was lost").expect("answer");
    assert!(told[0].is_ok() && heard.try_recv().is_none());
    clean(&served_repo(&live));
    let log = served_repo(&live).refs().reflog(&RefName::parse(MAIN).expect("a name")).expect("log");
    assert!(log.iter().all(|l| l.who.name == "eve"), "{log:?}");
    // Down again.
    let reader = live.token("ann", Scope::Read);
    let peer = live.peer(Some(&reader));
    let there = root.repo("cid/there");
    let refs = peer.refs().expect("refs");
    assert_eq!((refs.head.as_deref(), refs.get(MAIN), refs.refs.len()), (Some("main"), Some(ids[4]), 2));
    let got = receive(&there, &peer, want(ids[4]), &Silent).expect("received");
    assert!(got.carried as f64 <= 1.25 * whole as f64, "{} of {whole}", got.carried);
    let noted = RefMove { name: "refs/remotes/origin/main".to_owned(), expected: None, new: Some(ids[4]), force: true };
    note_refs(&there, vec![noted], false, "fetch", &Silent).expect("noted");
    for id in &ids {
        assert_eq!(files(&there, id), files(&here, id));
    }
    clean(&there);
    let back = push(&here, &live.peer(Some(&token)), &[wish(MAIN, ids[0])], "push", &Silent);
    let (_, back) = back.expect("push").refs.remove(0);
    assert_eq!(back.expect_err("backward").kind(), ErrorKind::Conflict);
}

#[test]
fn a_server_refuses_by_itself_what_is_not_forward() {
    let (root, live) = served();
    let here = root.repo("bob/here");
    let ids = train(&here, 0..2);
    let peer = live.peer(None);
    push(&here, &peer, &[wish(MAIN, ids[1])], "push", &Silent).expect("push");
    let to = |expected, new, force| RefMove { name: MAIN.to_owned(), expected, new, force };
    let told = |m| peer.move_refs(&[m], "push").expect("answer").remove(0);
    let back = told(to(Some(ids[1]), Some(ids[0]), false)).expect_err("backward");
    assert!(matches!(back, RepoError::NotForward { old, new, .. } if (old, new) == (ids[1], ids[0])), "{back:?}");
    let stale = told(to(None, Some(ids[0]), true)).expect_err("stale");
    assert!(matches!(stale, RepoError::Conflict { found, .. } if found == Some(ids[1])), "{stale:?}");
    assert!(told(to(Some(ids[1]), None, true)).is_err(), "HEAD is on it");
    told(to(Some(ids[1]), Some(ids[0]), true)).expect("forced");
}

#[test]
fn tensors_are_made_whole_for_who_asks_and_can_be_read() {
    let (root, live) = served();
    let here = root.repo("bob/here");
    let ids = train(&here, 0..3);
    let peer = live.peer(None);
    push(&here, &peer, &[wish(MAIN, ids[2])], "push", &Silent).expect("push");
    let tensors = tensors(&here, &ids[2]);
    let plan = peer.offer_whole(&tensors, &Silent).expect("plan").expect("it can");
    let all: HashSet<Id> = plan.ids().collect();
    assert_eq!(all, tensors.iter().copied().collect());
    let there = root.repo("cid/there");
    let needed = plan.needed(&all).expect("needed");
    assert!(needed.records.iter().all(|(_, r)| r.depth == 0));
    for bundle in needed.bundles(1 << 30) {
        let path = root.path().join("bundle");
        let mut file = File::create(&path).expect("created");
        let mut write = |bytes: &[u8]| {
            file.write_all(bytes).expect("written");
            Ok(())
        };
        peer.read(&bundle.pieces(0..bundle.size), &mut write).expect("read");
        let arrived = mdl_remote::sync::Arrived { id: bundle.id, path };
        mdl_remote::sync::receive_pack(&there, &[arrived], &Silent).expect("sound");
    }
    assert_eq!(mdl_remote::lacking_here(&there, &tensors).expect("lacking").len(), 0);
    assert_eq!(peer.known(&[ids[0], tensors[0]]).expect("known"), HashSet::from([ids[0]]));
    assert_eq!(peer.lacking(&[ids[0], Id::from_bytes([1; 32])]).expect("lacking").len(), 1);
}

fn tensors(repo: &Repo, commit: &Id) -> Vec<Id> {
    let file = crate::support::entry(repo, commit, "model.safetensors");
    let manifest = repo.odb().manifest(&file.id).expect("a manifest");
    manifest.tensors.iter().map(|t| t.id).collect()
}

/// Bundles with all of a version.
fn bundles(repo: &Repo, tip: Id) -> Vec<Bundle> {
    let plan = mdl_remote::sync::offer(repo, &want(tip), &Silent).expect("plan");
    let all = plan.ids().collect();
    plan.needed(&all).expect("needed").bundles(1 << 30)
}

#[test]
fn a_bundle_that_was_cut_off_goes_on_with_what_is_missing() {
    let (root, live) = served();
    let here = root.repo("bob/here");
    let tip = commit(&here, &[("noise.bin", noise(1, 4 * PART as usize + 1000))], "noise", 1);
    let bundles = bundles(&here, tip);
    let all: u64 = bundles.iter().map(|b| parts(b.size)).sum();
    assert!(all >= 5, "{all}");
    let reads = AtomicUsize::new(0);
    let send = |live: &Live, most: usize| {
        reads.store(0, Ordering::SeqCst);
        let read = |pieces: &[Piece]| {
            if reads.fetch_add(1, Ordering::SeqCst) >= most {
                return Err(RepoError::user("the line is cut", ""));
            }
            read_stored(&here, pieces)
        };
        live.peer(None).send(&bundles, &read, &Silent)
    };
    assert!(send(&live, 2).is_err());
    // The server may be another process by then.
    drop(live);
    let live = Live::new(&root, root.options());
    let sent = send(&live, usize::MAX).expect("sent");
    assert_eq!(reads.load(Ordering::SeqCst) as u64, all - 2);
    let size: u64 = bundles.iter().map(|b| b.size).sum();
    assert_eq!(sent, size - 2 * PART, "of {size}");
    // A lost answer: the same request gets it again; a restarted server has forgotten it and answers PartsMissing,
    // but the objects are there.
    let packs: Vec<Value> = bundles.iter().map(|b| json!({"id": b.id.to_string(), "size": b.size})).collect();
    let body = json!({"packs": packs});
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let again = runtime.block_on(ask(&live.app, "POST", "/sync/packs/take", Some(body.clone())));
    assert!(again.status == 200 && again.json["objects"].as_u64() > Some(0), "{}", again.text);
    drop(live);
    let live = Live::new(&root, root.options());
    let forgotten = runtime.block_on(ask(&live.app, "POST", "/sync/packs/take", Some(body)));
    assert_eq!(
        (forgotten.status.as_u16(), &forgotten.headers["x-error-code"]),
        (409, &"PartsMissing".parse().expect("a header"))
    );
    let peer = live.peer(None);
    let moves = RefMove { name: MAIN.to_owned(), expected: None, new: Some(tip), force: false };
    assert!(peer.move_refs(&[moves], "push").expect("moved")[0].is_ok());
    let repo = served_repo(&live);
    assert_eq!(files(&repo, &tip), files(&here, &tip));
    clean(&repo);
    let incoming = kept(root.path(), "ada/gpt").join("packs");
    assert_eq!(std::fs::read_dir(incoming).map_or(0, Iterator::count), 0);
}

#[test]
fn of_clients_that_move_one_ref_at_once_one_wins() {
    let (root, live) = served();
    let here = root.repo("bob/here");
    let base = train(&here, 0..1)[0];
    let tips: Vec<Id> = (1..9)
        .map(|n| {
            let id = commit(&here, &version(n), "a try", n);
            mdl_repo::move_ref(&here, MAIN, Some(id), Some(base), None, "back").expect("back");
            id
        })
        .collect();
    let peer = live.peer(None);
    let mut wishes = vec![wish(MAIN, base)];
    wishes.extend(tips.iter().enumerate().map(|(n, id)| wish(&format!("refs/heads/x{n}"), *id)));
    let done = push(&here, &peer, &wishes, "push", &Silent).expect("push");
    assert!(done.refs.iter().all(|(_, r)| r.is_ok()), "{done:?}");
    let race = |id: Id| {
        let m = RefMove { name: MAIN.to_owned(), expected: Some(base), new: Some(id), force: false };
        live.peer(None).move_refs(&[m], "race").expect("answer").remove(0)
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let racing: Vec<_> = tips.iter().map(|id| scope.spawn(move || race(*id))).collect();
        racing.into_iter().map(|r| r.join().expect("joined")).collect()
    });
    let won: Vec<usize> = (0..8).filter(|n| outcomes[*n].is_ok()).collect();
    assert_eq!(won.len(), 1, "{outcomes:?}");
    assert_eq!(peer.refs().expect("refs").get(MAIN), Some(tips[won[0]]));
    let lost = outcomes.iter().filter_map(|o| o.as_ref().err());
    assert!(lost.clone().all(|e| e.kind() == ErrorKind::Conflict), "{outcomes:?}");
}

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

/// Lets go of all versions but the newest ones, for good.
fn thin(repo: &Repo, n: u64) {
    let options = PruneOptions::default();
    mdl_repo::prune(repo, None, &Retention::LatestN { n }, &options).expect("prune");
    mdl_repo::compact(repo, &CompactOptions::default(), &Silent).expect("compact");
    let now = GcOptions { dry_run: false, prune_now: true, grace: None };
    mdl_repo::gc(repo, &now, &Silent).expect("gc");
}

#[test]
fn a_pruned_history_is_pushed_and_a_mark_takes_nothing_from_the_server() {
    let (root, live) = served();
    let here = root.repo("bob/here");
    let ids = train(&here, 0..5);
    thin(&here, 2);
    let peer = live.peer(Some(&live.token("eve", Scope::Write)));
    push(&here, &peer, &[wish(MAIN, ids[4])], "push", &Silent).expect("push");
    let there = served_repo(&live);
    let marked =
        |repo: &Repo| mdl_repo::pruned(repo).expect("record").iter().map(|(id, _)| *id).collect::<HashSet<Id>>();
    assert_eq!(marked(&there), marked(&here));
    assert_eq!(marked(&there).len(), 3);
    assert_eq!(files(&there, &ids[4]), files(&here, &ids[4]));
    clean(&there);
    // A pruned mark for a version that is whole there is ignored: the next collection does not free it.
    let lie = PrunedMark { time_ms: 1, rules: "none".to_owned() };
    peer.note_pruned(&[(ids[3], lie.clone()), (ids[4], lie)]).expect("asked");
    assert_eq!(marked(&there).len(), 3);
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
