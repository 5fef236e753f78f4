//! Merges: what is taken from which side, recipes that make the same bytes again, and nothing changed where something
//! is to be decided.

use crate::support::{Place, place};
use mdl_codec::Dtype;
use mdl_objects::Id;
use mdl_repo::{
    ErrorKind, FastForward, MergeOutcome, MergeReason, MergeRequest, MergedVersion, Method, Override, Recipe, Rule,
    Side, Silent, SoupKind, SoupRequest, Strategy, merge_bases, merge_versions, safetensors_header, soup, verify_merge,
};

/// A safetensors file of f32 vectors.
fn file(tensors: &[(&str, &[f32])]) -> Vec<u8> {
    let shapes: Vec<[u64; 1]> = tensors.iter().map(|t| [t.1.len() as u64]).collect();
    let list: Vec<(&str, Dtype, &[u64])> =
        tensors.iter().zip(&shapes).map(|(t, shape)| (t.0, Dtype::F32, &shape[..])).collect();
    let mut bytes = safetensors_header(&list).expect("a header");
    bytes.extend(tensors.iter().flat_map(|t| t.1).flat_map(|v| v.to_le_bytes()));
    bytes
}

fn model(a: [f32; 3], b: [f32; 2]) -> Vec<u8> {
    file(&[("layer.a", &a), ("layer.b", &b)])
}

const MODEL: &str = "model.safetensors";

/// Two branches of one base: `main`, checked out, and `exp`.
fn parted() -> (Place, [Id; 3]) {
    let p = place();
    p.write(MODEL, &model([0.0, 0.0, 4.0], [1.0, 1.0]));
    p.write("config.json", b"{}");
    let base = p.commit("base").id;
    mdl_repo::create_branch(&p.repo, "exp", &base, false).expect("branch");
    p.write(MODEL, &model([2.0, 0.0, 4.0], [1.0, 3.0]));
    let ours = p.commit("ours").id;
    go(&p, &base, "exp");
    p.write(MODEL, &model([4.0, 8.0, 4.0], [1.0, 1.0]));
    p.write("config.json", b"{\"by\": \"exp\"}");
    p.write("readme.md", b"new");
    let theirs = p.commit("theirs").id;
    go(&p, &ours, "main");
    (p, [base, ours, theirs])
}

fn go(p: &Place, id: &Id, branch: &str) {
    let head = mdl_repo::Head::Branch(branch.to_owned());
    mdl_repo::checkout(&p.repo, id, &head, &Default::default(), &Silent).expect("checkout");
}

fn request(theirs: Id, strategy: Rule) -> MergeRequest {
    MergeRequest {
        others: vec![(theirs, "exp".to_owned())],
        strategy,
        overrides: Vec::new(),
        with_state: false,
        message: None,
        fast_forward: FastForward::Allowed,
    }
}

fn weights(method: Method) -> Rule {
    Rule::Weights(Strategy::new(method))
}

fn merged(p: &Place, request: &MergeRequest) -> MergedVersion {
    match merge_versions(&p.repo, request, &Silent).expect("merged") {
        MergeOutcome::Merged(merged) => merged,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn weights_are_averaged_and_other_files_are_those_of_the_side_that_changed_them() {
    let (p, [base, ours, theirs]) = parted();
    let done = merged(&p, &request(theirs, weights(Method::Average)));
    assert_eq!(p.read(MODEL), model([3.0, 4.0, 4.0], [1.0, 2.0]));
    assert_eq!(p.read("config.json"), b"{\"by\": \"exp\"}");
    assert_eq!(p.read("readme.md"), b"new");
    let commit = p.repo.odb().commit(&done.id).expect("commit");
    assert_eq!(commit.parents, [ours, theirs]);
    assert_eq!(commit.message, "Merge exp (average)");
    assert_eq!((done.from, done.bases.clone(), done.computed), (ours, vec![base], 2));
    assert_eq!(Recipe::from_commit(&commit), Some(*done.recipe));
    assert_eq!(mdl_repo::resolve(&p.repo, "main").expect("main"), done.id);
    assert!(mdl_repo::status(&p.repo, &Silent).expect("status").is_empty());
    assert_eq!(mdl_repo::in_progress(&p.repo).expect("none"), None);
    let again = merge_versions(&p.repo, &request(theirs, weights(Method::Ties)), &Silent).expect("nothing to do");
    assert!(matches!(again, MergeOutcome::UpToDate));
}

#[test]
fn changes_add_up_from_the_common_ancestor() {
    let (p, [base, _, theirs]) = parted();
    let done = merged(&p, &request(theirs, weights(Method::TaskArithmetic)));
    assert_eq!(p.read(MODEL), model([6.0, 8.0, 4.0], [1.0, 3.0]));
    assert_eq!(done.recipe.base, Some(base.to_hex()));
}

#[test]
fn globs_take_sides_or_another_strategy() {
    let (p, [.., theirs]) = parted();
    let mut wanted = request(theirs, weights(Method::Average));
    let over = |glob: &str, rule| Override { glob: glob.to_owned(), rule };
    wanted.overrides = vec![
        over("*.a", Rule::Side(Side::Theirs)),
        over("config.json", Rule::Side(Side::Ours)),
        over("layer.*", weights(Method::Ties)),
    ];
    let done = merged(&p, &wanted);
    assert_eq!(p.read(MODEL), model([4.0, 8.0, 4.0], [1.0, 3.0]));
    assert_eq!(p.read("config.json"), b"{}");
    let verified = verify_merge(&p.repo, &done.id, &Silent).expect("verified");
    assert_eq!((verified.files, verified.differing), (3, Vec::<String>::new()));
}

#[test]
fn what_cannot_be_decided_is_listed_and_nothing_changes() {
    let (p, [base, ..]) = parted();
    mdl_repo::create_branch(&p.repo, "other", &base, false).expect("branch");
    go(&p, &base, "other");
    p.write(MODEL, &file(&[("layer.a", &[1.0]), ("layer.c", &[1.0, 1.0])]));
    p.write("config.json", b"exp");
    let theirs = p.commit("other shapes").id;
    go(&p, &mdl_repo::resolve(&p.repo, "main").expect("main"), "main");
    p.write("config.json", b"main");
    let ours = p.commit("both").id;
    let outcome = merge_versions(&p.repo, &request(theirs, weights(Method::Average)), &Silent).expect("told");
    let MergeOutcome::Conflicts(conflicts) = outcome else { unreachable!("{outcome:?}") };
    let found: Vec<_> = conflicts.iter().map(|c| (c.path.as_str(), c.tensor.as_deref(), c.reason)).collect();
    let expected = [
        ("config.json", None, MergeReason::BothChanged),
        (MODEL, Some("layer.c"), MergeReason::Missing),
        (MODEL, Some("layer.a"), MergeReason::Shapes),
        (MODEL, Some("layer.b"), MergeReason::Missing),
    ];
    assert_eq!(found, expected);
    assert_eq!(mdl_repo::resolve(&p.repo, "main").expect("main"), ours);
    assert_eq!(p.read("config.json"), b"main");
    assert!(mdl_repo::status(&p.repo, &Silent).expect("status").is_empty());
    // The flags that the report names resolve it.
    let mut wanted = request(theirs, weights(Method::Average));
    wanted.overrides = vec![Override { glob: "*".to_owned(), rule: Rule::Side(Side::Ours) }];
    merged(&p, &wanted);
    assert_eq!(p.read("config.json"), b"main");
}

#[test]
fn changes_that_no_version_has_stay_and_nothing_is_written() {
    let (p, [_, ours, theirs]) = parted();
    p.write("config.json", b"not committed");
    let wanted = request(theirs, weights(Method::Average));
    let error = merge_versions(&p.repo, &wanted, &Silent).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::User);
    p.write("config.json", b"{}");
    p.write("readme.md", b"mine, not committed");
    merge_versions(&p.repo, &wanted, &Silent).expect_err("in the way");
    assert_eq!(p.read("readme.md"), b"mine, not committed");
    assert_eq!(p.read(MODEL), model([2.0, 0.0, 4.0], [1.0, 3.0]));
    assert_eq!(mdl_repo::resolve(&p.repo, "main").expect("main"), ours);
    assert_eq!(mdl_repo::in_progress(&p.repo).expect("none"), None);
}

#[test]
fn state_of_the_optimizer_is_ours_unless_told() {
    let (p, [base, ..]) = parted();
    let state = |v: f32| file(&[("state.0.exp_avg", &[v])]);
    p.write("optimizer.safetensors", &state(2.0));
    p.commit("ours with state");
    mdl_repo::create_branch(&p.repo, "other", &base, false).expect("branch");
    go(&p, &base, "other");
    p.write("optimizer.safetensors", &state(6.0));
    p.write(MODEL, &model([0.0; 3], [5.0, 5.0]));
    let theirs = p.commit("theirs with state").id;
    let main = mdl_repo::resolve(&p.repo, "main").expect("main");
    go(&p, &main, "main");
    let mut wanted = request(theirs, weights(Method::Average));
    merged(&p, &wanted);
    assert_eq!(p.read("optimizer.safetensors"), state(2.0));
    mdl_repo::reset(&p.repo, &main, true, &Silent).expect("reset");
    wanted.with_state = true;
    merged(&p, &wanted);
    assert_eq!(p.read("optimizer.safetensors"), state(4.0));
}

#[test]
fn a_branch_moves_forward_where_it_can_and_may() {
    let (p, [base, _, theirs]) = parted();
    mdl_repo::reset(&p.repo, &base, true, &Silent).expect("reset");
    let mut wanted = request(theirs, Rule::Side(Side::Theirs));
    wanted.fast_forward = FastForward::Never;
    let done = merged(&p, &wanted);
    assert_eq!(p.repo.odb().commit(&done.id).expect("commit").parents, [base, theirs]);
    assert_eq!(p.read(MODEL), model([4.0, 8.0, 4.0], [1.0, 1.0]));
    mdl_repo::reset(&p.repo, &base, true, &Silent).expect("reset");
    wanted.fast_forward = FastForward::Only;
    let outcome = merge_versions(&p.repo, &wanted, &Silent).expect("forward");
    assert!(matches!(outcome, MergeOutcome::FastForward { to, .. } if to == theirs));
}

#[test]
fn a_recipe_that_was_tampered_with_is_found() {
    let (p, [.., theirs]) = parted();
    let strategy = Strategy { density: Some(0.5), seed: Some(3), ..Strategy::new(Method::DareTies) };
    let done = merged(&p, &request(theirs, Rule::Weights(strategy)));
    for threads in [1, 2, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        let verified = pool.install(|| verify_merge(&p.repo, &done.id, &Silent)).expect("verified");
        assert_eq!(verified.differing, Vec::<String>::new());
    }
    // The same files under another recipe.
    let mut commit = p.repo.odb().commit(&done.id).expect("commit");
    let recipe = commit.meta[mdl_repo::RECIPE_KEY].replace("\"seed\":3", "\"seed\":4");
    commit.meta.insert(mdl_repo::RECIPE_KEY.to_owned(), recipe);
    let transaction = mdl_repo::WriteTransaction::begin(&p.repo).expect("begun");
    let forged = transaction.add(mdl_objects::Kind::Commit, &commit.encode(), [done.id]).expect("stored");
    drop(transaction);
    assert_eq!(verify_merge(&p.repo, &forged, &Silent).expect("made").differing, [MODEL]);
    assert_eq!(verify_merge(&p.repo, &theirs, &Silent).expect_err("no recipe").kind(), ErrorKind::User);
}

#[test]
fn the_best_common_ancestors_of_crossed_histories() {
    let (p, [base, ours, theirs]) = parted();
    assert_eq!(merge_bases(&p.repo, &[ours, theirs]).expect("bases"), [base]);
    assert_eq!(merge_bases(&p.repo, &[ours, base]).expect("bases"), [base]);
    let first = merged(&p, &request(theirs, weights(Method::Average))).id;
    go(&p, &theirs, "exp");
    let second = merged(&p, &request(ours, weights(Method::Average))).id;
    let mut bases = merge_bases(&p.repo, &[first, second]).expect("bases");
    bases.sort();
    let mut both = vec![ours, theirs];
    both.sort();
    assert_eq!(bases, both);
}

fn soup_of(p: &Place, versions: Vec<Id>, kind: SoupKind) -> MergedVersion {
    let request = SoupRequest {
        versions,
        kind,
        measure: None,
        maximize: false,
        overrides: Vec::new(),
        with_state: false,
        message: None,
    };
    match soup(&p.repo, request, &Silent).expect("a soup").0 {
        MergeOutcome::Merged(merged) => merged,
        other => unreachable!("{other:?}"),
    }
}

/// Versions of one tensor, oldest first.
fn run(values: &[f32]) -> (Place, Vec<Id>) {
    let p = place();
    let step = |v: &f32| {
        p.write(MODEL, &file(&[("w", &[*v])]));
        p.write("config.json", format!("{v}").as_bytes());
        p.commit("step").id
    };
    let ids = values.iter().map(step).collect();
    (p, ids)
}

#[test]
fn soups_of_a_run() {
    let (p, mut ids) = run(&[100.0, 1.0, 2.0, 6.0]);
    ids.reverse();
    let done = soup_of(&p, ids[..3].to_vec(), SoupKind::Uniform);
    assert_eq!(p.read(MODEL), file(&[("w", &[3.0])]));
    assert_eq!(p.read("config.json"), b"6", "the newest one's");
    assert_eq!(p.repo.odb().commit(&done.id).expect("commit").parents, ids[..3]);
    assert!(verify_merge(&p.repo, &done.id, &Silent).expect("verified").differing.is_empty());
    let ema = soup_of(&p, ids[..3].to_vec(), SoupKind::Ema { decay: 0.5 });
    // ((1 * 0.5 + 2 * 0.5) * 0.5 + 6 * 0.5)
    assert_eq!(p.read(MODEL), file(&[("w", &[3.75])]));
    assert_eq!(ema.recipe.inputs, [1, 2, 3]);
    assert!(verify_merge(&p.repo, &ema.id, &Silent).expect("verified").differing.is_empty());
}

#[test]
fn a_greedy_soup_keeps_what_measures_no_worse() {
    let (p, mut ids) = run(&[9.0, 4.0, 7.0]);
    ids.reverse();
    // How far the weight is from 6; the values are those of f32.
    let mut measure = |dir: &std::path::Path| {
        let bytes = std::fs::read(dir.join(MODEL)).map_err(|e| e.to_string())?;
        let weight = f32::from_le_bytes(bytes[bytes.len() - 4..].try_into().expect("four bytes"));
        Ok(f64::from((weight - 6.0).abs()))
    };
    let request = SoupRequest {
        versions: ids.clone(),
        kind: SoupKind::Greedy,
        measure: Some(&mut measure),
        maximize: false,
        overrides: Vec::new(),
        with_state: false,
        message: None,
    };
    let (outcome, tried) = soup(&p.repo, request, &Silent).expect("a soup");
    let MergeOutcome::Merged(done) = outcome else { unreachable!("{outcome:?}") };
    assert_eq!(p.read(MODEL), file(&[("w", &[5.5])]), "7 and 4; with 9 it would be worse");
    assert_eq!(
        tried.iter().map(|t| t.value).collect::<Vec<_>>(),
        [1.0, 2.0, 3.0, 0.5, 2.0 / 3.0].map(|v: f64| tried_value(v))
    );
    assert_eq!(tried.iter().filter(|t| t.kept).count(), 1);
    assert_eq!(p.repo.odb().commit(&done.id).expect("commit").parents, ids[..2]);
}

/// As the f32 of the file says it.
fn tried_value(v: f64) -> f64 {
    if v == 2.0 / 3.0 { f64::from((20.0f32 / 3.0 - 6.0).abs()) } else { v }
}
