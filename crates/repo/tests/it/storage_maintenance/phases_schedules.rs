//! Writers and collectors in arbitrary order, one step at a time, under a clock that is moved by hand: whatever the
//! schedule, what a moved ref reaches stays.

use super::{setup::*, unlocked::*};
use crate::support::bare_commit;
use mdl_objects::{Entry, Id, Kind, Mode, Tree};
use mdl_repo::{RefName, Repo, Silent, WriteTransaction, pack::PackWriter};

const WRITERS: usize = 3;
const BLOBS: u64 = 4;
const STEPS: usize = 100;
const SCHEDULES: u64 = 600;

/// A commit in the making.
struct Making<'r> {
    repo: &'r Repo,
    transaction: WriteTransaction<'r>,
    pack: Option<PackWriter>,
    blobs: Vec<u8>,
    commit: Option<Id>,
}

fn add(m: &mut Making<'_>, kind: Kind, bytes: &[u8]) -> Id {
    let id = Id::from_content(kind, bytes);
    let pack = m.pack.as_mut().expect("not published yet");
    if pack.get(&id).is_none() && !m.repo.odb().contains(&id).expect("contains") {
        add_object(pack, kind, bytes);
    }
    id
}

fn begin(repo: &Repo) -> Making<'_> {
    let transaction = WriteTransaction::begin(repo).expect("begin");
    let pack = Some(transaction.pack([]).expect("pack"));
    Making { repo, transaction, pack, blobs: Vec::new(), commit: None }
}

/// A writer that wants to hold on to what was made before, if it is there.
fn take_up(repo: &Repo, commit: Id) -> Option<Making<'_>> {
    let transaction = WriteTransaction::begin_at(repo, &commit).ok()?;
    Some(Making { repo, transaction, pack: None, blobs: Vec::new(), commit: Some(commit) })
}

/// What a blob looked up now would be stored as, or found as.
fn look(m: &mut Making<'_>, blob: u8) {
    if m.pack.is_some() {
        add(m, Kind::Blob, &[blob; 40]);
        m.blobs.push(blob);
    }
}

/// A tree of the blobs, and a commit of that: the same blobs are the same tree, so that both are found again too.
fn publish(m: &mut Making<'_>) -> mdl_repo::Result<()> {
    if m.pack.is_none() || m.blobs.is_empty() {
        return Ok(());
    }
    m.blobs.sort_unstable();
    m.blobs.dedup();
    let entry = |b: &u8| Entry {
        name: format!("{b}"),
        mode: Mode::Blob,
        executable: false,
        size: 40,
        id: Id::from_content(Kind::Blob, &[*b; 40]),
    };
    let tree = Tree { entries: m.blobs.iter().map(entry).collect() };
    let tree = add(m, Kind::Tree, &tree.encode());
    let commit = bare_commit(tree, 1);
    m.commit = Some(add(m, Kind::Commit, &commit.encode()));
    match m.pack.take() {
        Some(pack) => m.transaction.publish(pack).map(drop),
        None => Ok(()),
    }
}

/// Moves the writer's branch to what it made, or gives up. Whether it moved.
fn end(m: Making<'_>, name: &str) -> bool {
    let Some(commit) = m.commit else { return false };
    let full = RefName::branch(name).expect("a name");
    let who = m.repo.config().signature();
    let old = m.repo.refs().get(&full).expect("ref");
    m.transaction.update_ref(&full, old, Some(commit), &who, "made").is_ok()
}

fn run_schedule(seed: u64) -> (usize, u64) {
    let (storage, _) = unlocked();
    let mut noise = Noise(seed);
    let mut pick = |n: u64| noise.next() % n;
    // One handle for each transaction, which outlives it.
    let handles: Vec<Repo> = (0..STEPS).map(|_| at(&storage)).collect();
    let mut making: [Option<Making<'_>>; WRITERS] = Default::default();
    let (mut moved, mut deleted, mut made) = (0, 0, Vec::new());
    for handle in &handles {
        let w = pick(WRITERS as u64) as usize;
        let name = format!("branch-{w}");
        match pick(19) {
            0 | 1 => making[w] = Some(begin(handle)),
            2 if !made.is_empty() => making[w] = take_up(handle, made[pick(made.len() as u64) as usize]),
            3..6 => {
                let blob = pick(BLOBS) as u8;
                if let Some(m) = &mut making[w] {
                    look(m, blob);
                }
            }
            6 | 7 => {
                if making[w].as_mut().is_some_and(|m| publish(m).is_err()) {
                    making[w] = None;
                }
                made.extend(making[w].as_ref().and_then(|m| m.commit));
            }
            8 | 9 => moved += usize::from(making[w].take().is_some_and(|m| end(m, &name))),
            10 | 11 => {
                let repo = at(&storage);
                if repo.refs().get(&RefName::branch(&name).expect("a name")).expect("ref").is_some() {
                    drop_branch(&repo, &name);
                }
            }
            12 | 13 => pass(&storage, GRACE / 8 * pick(9) as u32),
            14 => {
                let repo = at(&storage);
                mdl_repo::compact(&repo, &Default::default(), &Silent).expect("compact");
            }
            _ => deleted += collect(&at(&storage), GRACE).packs_deleted,
        }
        let repo = at(&storage);
        let report = fsck(&repo);
        assert_eq!(report.problems, [], "schedule {seed}");
    }
    (moved, deleted)
}

#[test]
fn no_schedule_loses_what_a_ref_holds() {
    let all: Vec<(usize, u64)> = (0..SCHEDULES).map(run_schedule).collect();
    let (moved, deleted) = all.iter().fold((0, 0), |(m, d), x| (m + x.0, d + x.1));
    println!("{moved} refs moved, {deleted} packs deleted");
    assert!(moved > 100 && deleted > 100, "{moved} {deleted}");
}
