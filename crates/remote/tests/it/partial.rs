//! Partial repositories as the sending side: what they are missing is fetched in few steps, or the error says where it
//! is.

use crate::support::{Place, engine, files, model, near, noise, place};
use mdl_objects::Id;
use mdl_remote::{
    DirectPeer, completed,
    fetch::receive,
    push::{Push, push},
    sync::Want,
};
use mdl_repo::{CommitRequest, ErrorKind, Promisor, Remote, Repo, Result, Silent};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

const MAIN: &str = "refs/heads/main";

fn want(tip: Id, depth: Option<u32>) -> Want {
    Want { tips: vec![tip], depth, ..Want::default() }
}

/// A clone of the newest generation only.
fn shallow(from: &Place, tip: Id) -> Place {
    let mut to = place();
    receive(&to.repo, &near(from), want(tip, Some(1)), &Silent).expect("received");
    let remote = Remote {
        url: from.dir.path().display().to_string(),
        partial: true,
        depth: Some(1),
        only: Vec::new(),
        branch: None,
    };
    to.repo.set_remote("origin", Some(&remote)).expect("remote");
    mdl_repo::move_ref(&to.repo, MAIN, None, Some(tip), None, "clone").expect("moved");
    to
}

/// Versions of many tensors and files, in directories.
fn many(place: &Place, versions: u64) -> Vec<Id> {
    let one = |v: u64| {
        let tensors: Vec<(String, Vec<f32>)> = (0..30).map(|i| (format!("t{i}"), noise(1000 * v + i, 50))).collect();
        let named: Vec<(&str, Vec<f32>)> = tensors.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        place.write("a/b/model.safetensors", &model(&named));
        place.write("a/other.safetensors", &model(&named[..7]));
        place.write("step.txt", v.to_string().as_bytes());
        let request = CommitRequest { message: v.to_string(), ..CommitRequest::default() };
        mdl_repo::commit(&place.repo, &request, &Silent).expect("commit").id
    };
    (0..versions).map(one).collect()
}

/// Fetches what is wanted, and counts how often it was asked.
#[derive(Debug)]
struct Counting {
    here: Repo,
    there: DirectPeer,
    asked: Arc<AtomicUsize>,
}

impl Promisor for Counting {
    fn supply(&self, ids: &[Id]) -> Result<()> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let want = Want { objects: ids.to_vec(), partial: true, ..Want::default() };
        receive(&self.here, &self.there, want, &Silent).map(drop)
    }
}

#[test]
fn what_a_partial_clone_lacks_is_brought_in_few_steps_when_it_is_pushed_elsewhere() {
    let (whole, third) = (place(), place());
    let ids = many(&whole, 8);
    let clone = shallow(&whole, ids[7]);
    let asked = Arc::new(AtomicUsize::new(0));
    let open = || Repo::open(clone.dir.path(), engine()).expect("open");
    let repo = open().with_promisor(Arc::new(Counting {
        here: open().without_index(),
        there: near(&whole),
        asked: asked.clone(),
    }));
    let wish = Push { name: MAIN.to_owned(), new: Some(ids[7]), force: false, lease: None };
    let done = push(&repo, &near(&third), &[wish], "push", &Silent).expect("push");
    assert!(done.refs.iter().all(|(_, r)| r.is_ok()));
    // Trees of three levels, manifests, and all that they name.
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked <= 5, "asked {asked} times");
    let there = Repo::open(third.dir.path(), engine()).expect("open");
    ids.iter().for_each(|id| assert_eq!(mdl_repo::files(&there, id).expect("files").len(), 3));
    assert_eq!(files(&there, &ids[0]), files(&whole.repo, &ids[0]));
    assert_eq!(mdl_repo::fsck(&there, false, &Silent).expect("fsck").problems, []);
}

#[test]
fn a_partial_repository_says_where_the_rest_is() {
    let whole = place();
    let ids = whole.train(3);
    let clone = shallow(&whole, ids[2]);
    let url = whole.dir.path().display().to_string();
    // All of it: not here.
    let (other, peer) = (place(), near(&clone));
    let e = receive(&other.repo, &peer, want(ids[2], None), &Silent).expect_err("partial");
    let hint = e.hint().unwrap_or_default();
    assert!(e.kind() == ErrorKind::User && e.to_string().contains(&url) && hint.contains(&url), "{e}");
    // Objects that are here are sent; asking for the missing ones fails.
    let second = shallow(&clone, ids[2]);
    assert_eq!(files(&second.repo, &ids[2]), files(&whole.repo, &ids[2]));
    let lazy = completed(Repo::open(second.dir.path(), engine()).expect("open"), &engine());
    let e = mdl_repo::files(&lazy, &ids[0]).expect_err("it is further away");
    let shown = format!("{e} {}", e.hint().unwrap_or_default());
    assert!(shown.contains(&clone.dir.path().display().to_string()), "{shown}");
    assert!(shown.contains(&format!("clone from {url}")), "{shown}");
    // A commit that neither side has is not said to be elsewhere.
    let e = receive(&other.repo, &peer, want(Id::from_bytes([9; 32]), None), &Silent).expect_err("nothing");
    assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
}

#[test]
fn what_the_place_that_was_asked_lacks_too_is_said_with_its_name() {
    let (whole, bare) = (place(), place());
    let ids = whole.train(3);
    let clone = shallow(&whole, ids[2]);
    let mut repo = Repo::open(clone.dir.path(), engine()).expect("open");
    let remote = Remote {
        url: bare.dir.path().display().to_string(),
        partial: true,
        depth: Some(1),
        only: Vec::new(),
        branch: None,
    };
    repo.set_remote("origin", Some(&remote)).expect("remote");
    let repo = completed(repo, &engine());
    for e in [
        mdl_repo::files(&repo, &ids[0]).expect_err("nowhere"),
        mdl_remote::sync::plan_transfer(&repo, &want(ids[2], None), &Silent).expect_err("nowhere"),
    ] {
        assert_eq!(e.kind(), ErrorKind::NotFound);
        assert!(e.to_string().contains(&format!("asked {}", remote.url)), "{e}");
    }
}
