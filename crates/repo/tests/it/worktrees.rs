//! Linked work trees: what each is on is kept whichever of them collects, and a branch is in one of them only.

use crate::support::{Place, engine, place};
use mdl_repo::{
    CheckoutOptions, CommitRequest, GcOptions, Head, Repo, RepoError, Silent, WorkTree, add_work_tree, commit,
    lock_linked_work_tree, prune_work_trees, remove_work_tree, resolve, work_trees,
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

struct Shared {
    main: Place,
    /// Where linked work trees are.
    other: TempDir,
}

impl Shared {
    fn new() -> Shared {
        let main = place();
        main.write("a.txt", b"one");
        main.commit("one");
        Shared { main, other: TempDir::new().expect("a directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.other.path()).expect("a directory").join(name)
    }

    fn add(&self, name: &str, head: &Head) -> Result<WorkTree, RepoError> {
        let repo = &self.main.repo;
        let commit = repo.refs().tip(head)?.expect("a commit");
        add_work_tree(repo, &self.path(name), &commit, head, &CheckoutOptions::default(), &Silent).map(|(tree, _)| tree)
    }

    fn detached(&self, name: &str) -> Repo {
        let at = resolve(&self.main.repo, "main").expect("main");
        self.add(name, &Head::Detached(at)).expect("a work tree");
        self.open(name)
    }

    fn branched(&self, name: &str) -> Repo {
        let at = resolve(&self.main.repo, "main").expect("main");
        mdl_repo::create_branch(&self.main.repo, name, &at, false).expect("a branch");
        self.add(name, &Head::Branch(name.to_owned())).expect("a work tree");
        self.open(name)
    }

    fn open(&self, name: &str) -> Repo {
        Repo::open(&self.path(name), engine()).expect("a work tree")
    }
}

fn commit_in(repo: &Repo, text: &str) -> mdl_objects::Id {
    fs::write(repo.work().expect("files").join("a.txt"), text).expect("written");
    let request = CommitRequest { message: text.to_owned(), ..CommitRequest::default() };
    commit(repo, &request, &Silent).expect("commit").id
}

fn collect(repo: &Repo) {
    let options = GcOptions { prune_now: true, ..GcOptions::default() };
    mdl_repo::gc(repo, &options, &Silent).expect("collected");
}

fn has_files(repo: &Repo, id: &mdl_objects::Id) -> bool {
    let out = TempDir::new().expect("a directory");
    mdl_repo::checkout_to(repo, id, out.path(), &CheckoutOptions::default(), &Silent).is_ok()
}

#[test]
fn a_work_tree_has_files_and_a_head_of_its_own_and_shares_the_rest() {
    let s = Shared::new();
    let linked = s.branched("side");
    assert_eq!(fs::read(s.path("side").join("a.txt")).expect("a file"), b"one");
    let id = commit_in(&linked, "two");
    assert_eq!(resolve(&s.main.repo, "side").expect("side"), id);
    assert_eq!(s.main.read("a.txt"), b"one");
    assert_eq!(s.main.repo.refs().head().expect("HEAD"), Head::Branch("main".to_owned()));
    assert!(mdl_repo::status(&s.main.repo, &Silent).expect("status").is_empty());
    assert!(mdl_repo::status(&linked, &Silent).expect("status").is_empty());
    let deep = s.path("side").join("sub/dir");
    fs::create_dir_all(&deep).expect("made");
    assert_eq!(Repo::discover(&deep, engine()).expect("found").work(), linked.work());
    let names: Vec<Option<String>> = work_trees(&linked).expect("list").into_iter().map(|t| t.name).collect();
    assert_eq!(names, [None, Some("side".to_owned())]);
}

#[test]
fn a_collection_from_any_work_tree_keeps_what_every_head_is_on() {
    let s = Shared::new();
    let (one, two) = (s.detached("one"), s.detached("two"));
    let (at_one, at_two) = (commit_in(&one, "1"), commit_in(&two, "2"));
    // The main work tree leaves its branch, too, and commits where nothing else reaches.
    let main = resolve(&s.main.repo, "main").expect("main");
    mdl_repo::attach(&s.main.repo, &Head::Detached(main), Some(main), &Silent).expect("detached");
    let at_main = commit_in(&s.main.repo, "3");
    for repo in [&s.main.repo, &one, &two] {
        collect(repo);
        for id in [at_one, at_two, at_main] {
            assert!(has_files(&s.main.repo, &id), "{} after a collection from {:?}", id.short(), repo.work());
        }
    }
    // What a work tree leaves goes, as anywhere.
    let newer = commit_in(&one, "4");
    mdl_repo::reset(&one, &main, true, &Silent).expect("reset");
    collect(&two);
    assert!(!has_files(&s.main.repo, &newer) && has_files(&s.main.repo, &at_two));
}

#[test]
fn moves_of_the_main_head_are_kept_by_collections_from_elsewhere() {
    let s = Shared::new();
    let main = resolve(&s.main.repo, "main").expect("main");
    mdl_repo::attach(&s.main.repo, &Head::Detached(main), Some(main), &Silent).expect("detached");
    let left = commit_in(&s.main.repo, "left");
    mdl_repo::reset(&s.main.repo, &main, true, &Silent).expect("reset");
    let linked = s.branched("side");
    let options = GcOptions { grace: Some(Duration::ZERO), ..GcOptions::default() };
    mdl_repo::gc(&linked, &options, &Silent).expect("collected");
    assert!(has_files(&s.main.repo, &left), "the reflog of HEAD has it");
}

#[test]
fn a_branch_is_in_one_work_tree_only() {
    let s = Shared::new();
    let linked = s.branched("side");
    let other = s.detached("other");
    let main = resolve(&s.main.repo, "main").expect("main");
    let go = |repo: &Repo, name: &str| {
        let tip = resolve(repo, name).expect("a branch");
        mdl_repo::checkout(repo, &tip, &Head::Branch(name.to_owned()), &CheckoutOptions::default(), &Silent)
    };
    let said = |e: RepoError| e.to_string();
    assert!(said(go(&s.main.repo, "side").expect_err("taken")).contains("checked out in"));
    assert!(said(go(&linked, "main").expect_err("taken")).contains("checked out in"));
    assert!(go(&other, "side").is_err() && go(&other, "main").is_err());
    let attach = |repo: &Repo, name: &str| mdl_repo::attach(repo, &Head::Branch(name.to_owned()), Some(main), &Silent);
    assert!(attach(&other, "side").is_err() && attach(&s.main.repo, "side").is_err());
    assert!(s.add("third", &Head::Branch("side".to_owned())).is_err());
    assert!(s.add("fourth", &Head::Branch("main".to_owned())).is_err());
    assert!(!s.path("third").exists() && !s.path("fourth").exists());
    assert!(mdl_repo::delete_branch(&s.main.repo, "side", true, &Silent).is_err());
    assert!(mdl_repo::rename_branch(&s.main.repo, "side", "new", &Silent).is_err());
    assert!(mdl_repo::create_branch(&s.main.repo, "side", &main, true).is_err());
    assert!(mdl_repo::move_ref(&s.main.repo, "refs/heads/side", Some(main), None, None, "gone").is_err());
    assert_eq!(linked.refs().head().expect("HEAD"), Head::Branch("side".to_owned()));
    // Once it is left, another may have it.
    mdl_repo::attach(&linked, &Head::Detached(main), Some(main), &Silent).expect("detached");
    go(&s.main.repo, "side").expect("free");
    go(&linked, "main").expect("free");
}

#[test]
fn of_many_that_go_to_one_branch_at_once_one_gets_there() {
    let s = Shared::new();
    let main = resolve(&s.main.repo, "main").expect("main");
    mdl_repo::create_branch(&s.main.repo, "wanted", &main, false).expect("a branch");
    let trees: Vec<Repo> = (0..4).map(|n| s.detached(&format!("t{n}"))).collect();
    let head = Head::Branch("wanted".to_owned());
    for _ in 0..20 {
        let won: Vec<bool> = std::thread::scope(|scope| {
            let head = &head;
            let go = |repo| scope.spawn(move || mdl_repo::attach(repo, head, Some(main), &Silent).is_ok());
            let all: Vec<_> = trees.iter().map(go).collect();
            all.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
        for repo in &trees {
            mdl_repo::attach(repo, &Head::Detached(main), Some(main), &Silent).expect("detached");
        }
    }
}

#[test]
fn removal_loses_nothing_that_is_in_no_version() {
    let s = Shared::new();
    let linked = s.branched("side");
    let path = s.path("side");
    let remove = |force| remove_work_tree(&s.main.repo, &path, force, &Silent);
    fs::write(path.join("new.txt"), "new").expect("written");
    fs::write(path.join(".mdlignore"), "*.log\n").expect("written");
    fs::write(path.join("train.log"), "ignored").expect("written");
    match remove(false).expect_err("unsaved files") {
        RepoError::FilesInTheWay { files } => assert_eq!(files, [".mdlignore", "new.txt", "train.log"]),
        e => panic!("{e}"),
    }
    assert!(path.join("train.log").exists());
    commit_in(&linked, "two");
    assert!(remove(false).is_err(), "what commits pass over is in no version");
    fs::remove_file(path.join("train.log")).expect("removed");
    lock_linked_work_tree(&s.main.repo, &path, Some("in use")).expect("locked");
    assert!(remove(true).expect_err("locked").to_string().contains("in use"));
    lock_linked_work_tree(&s.main.repo, &path, None).expect("unlocked");
    drop(linked);
    remove(false).expect("removed");
    assert!(!path.exists() && work_trees(&s.main.repo).expect("list").len() == 1);
    assert!(remove_work_tree(&s.main.repo, s.main.path(), true, &Silent).is_err(), "the main one");
    assert!(resolve(&s.main.repo, "side").is_ok(), "its branch stays");
}

#[test]
fn a_directory_that_is_gone_is_pruned_and_until_then_keeps_its_version() {
    let s = Shared::new();
    let id = commit_in(&s.detached("gone"), "2");
    let _kept = s.branched("kept");
    let away = s.path("away");
    fs::rename(s.path("gone"), &away).expect("moved");
    collect(&s.main.repo);
    assert!(has_files(&s.main.repo, &id));
    assert_eq!(prune_work_trees(&s.main.repo, true).expect("told").len(), 1);
    let link = |name: &str| s.main.path().join(".mdl/worktrees").join(name);
    fs::write(link("gone").join("locked"), "on a disk\n").expect("locked");
    assert!(prune_work_trees(&s.main.repo, false).expect("pruned").is_empty());
    fs::remove_file(link("gone").join("locked")).expect("unlocked");
    assert_eq!(prune_work_trees(&s.main.repo, false).expect("pruned").len(), 1);
    assert!(!link("gone").exists() && link("kept").exists());
    assert!(Repo::open(&away, engine()).is_err(), "its link leads nowhere");
    collect(&s.main.repo);
    assert!(!has_files(&s.main.repo, &id));
}

#[test]
fn a_place_in_another_work_tree_or_with_files_is_refused() {
    let s = Shared::new();
    let at = resolve(&s.main.repo, "main").expect("main");
    let add = |dir: &Path| {
        add_work_tree(&s.main.repo, dir, &at, &Head::Detached(at), &CheckoutOptions::default(), &Silent).map(drop)
    };
    assert!(add(&s.main.path().join("inside/deep")).is_err());
    assert!(add(&s.main.path().join(".mdl/x")).is_err());
    assert!(!s.main.path().join("inside").exists());
    fs::create_dir(s.path("full")).expect("made");
    fs::write(s.path("full").join("x"), "mine").expect("written");
    assert!(add(&s.path("full")).is_err());
    assert_eq!(fs::read(s.path("full").join("x")).expect("a file"), b"mine");
    fs::create_dir(s.path("empty")).expect("made");
    add(&s.path("empty")).expect("an empty one");
    assert!(add(&s.path("empty").join("x")).is_err());
}
