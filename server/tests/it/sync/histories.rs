//! Histories and refs that travel: there and back, cut off in between, by several clients at once, pruned.

use super::{MAIN, clean, pack_bytes, served, served_repo, tensors, train, version, want, wish};
use crate::support::{
    commit,
    http::{ask, kept},
    live::{Live, files},
    noise,
};
use mdl_objects::Id;
use mdl_remote::{
    PART, Peer,
    fetch::{note_refs, receive},
    parts,
    push::push,
    read_stored,
    sync::{Bundle, Piece, RefMove},
};
use mdl_repo::{
    CompactOptions, ErrorKind, GcOptions, PruneOptions, PrunedMark, RefName, Repo, RepoError, Retention, Silent,
};
use mdl_server::auth::Scope;
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    fs::File,
    io::Write,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

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
    let plan = peer.plan_standalone(&tensors, &Silent).expect("plan").expect("it can");
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
        mdl_remote::sync::receive_pack(&there, &[arrived], None, &Silent).expect("sound");
    }
    assert_eq!(mdl_remote::missing_here(&there, &tensors).expect("lacking").len(), 0);
    assert_eq!(peer.known(&[ids[0], tensors[0]]).expect("known"), HashSet::from([ids[0]]));
    assert_eq!(peer.missing(&[ids[0], Id::from_bytes([1; 32])]).expect("lacking").len(), 1);
}

/// Bundles with all of a version.
fn bundles(repo: &Repo, tip: Id) -> Vec<Bundle> {
    let plan = mdl_remote::sync::plan_transfer(repo, &want(tip), &Silent).expect("plan");
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
    let lie = PrunedMark { time_ms: 1, rules: "none".to_owned(), ..PrunedMark::default() };
    peer.note_pruned(&[(ids[3], lie.clone()), (ids[4], lie)]).expect("asked");
    assert_eq!(marked(&there).len(), 3);
}
