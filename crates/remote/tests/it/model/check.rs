//! What holds after every step, and what is looked at now and then: versions come back bit for bit, the status is true,
//! a check of everything finds nothing, and in a damaged copy it does.

use crate::model::{
    files::{File, Files, Rng},
    real::{Real, Setup, engine},
    reference::Known,
    world::{HUB, PARTIAL, World},
};
use mdl_objects::Id;
use mdl_repo::{CheckoutOptions, Repo, Silent, storage::LocalStorage};
use std::{fs, path::Path, sync::Arc};
use tempfile::TempDir;

/// What a check comes to: nothing, or what was found.
pub type Check<T = ()> = Result<T, String>;

pub fn fail<T>(what: impl Into<String>) -> Check<T> {
    Err(what.into())
}

/// All files of a version, through the library's own reading.
pub fn restore(repo: &Repo, id: &Id) -> mdl_repo::Result<Files> {
    let mut out = Files::new();
    for (rel, entry) in mdl_repo::files(repo, id)? {
        let mut bytes = Vec::new();
        repo.odb().stream_files(&entry, &Silent, &mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        let file = File { bytes: Arc::new(bytes), exec: entry.executable };
        out.insert(rel, file);
    }
    Ok(out)
}

/// A version must be what it was.
fn comes_back(known: &Known, repo: &Repo, id: &Id) -> Check {
    let found = restore(repo, id).map_err(|e| format!("version {} cannot be read: {e}", id.short()))?;
    if found != known.files(id) {
        return fail(format!("version {} is {found:?}\n  and was {:?}", id.short(), known.files(id)));
    }
    Ok(())
}

/// The same by way of a checkout into a new directory.
fn comes_back_on_disk(known: &Known, repo: &Repo, id: &Id, root: &Path) -> Check {
    let dir = TempDir::new_in(root).map_err(|e| e.to_string())?;
    let done = mdl_repo::checkout_to(repo, id, dir.path(), &CheckoutOptions::default(), &Silent);
    done.map_err(|e| format!("version {} cannot be checked out: {e}", id.short()))?;
    let (found, odd) = crate::model::files::read_all(dir.path());
    match odd.is_empty() && found == known.files(id) {
        true => Ok(()),
        false => fail(format!("version {} checked out is {found:?} {odd:?}", id.short())),
    }
}

impl World {
    /// After each step: one version of one place, and at times the status of its work tree.
    pub fn look(&mut self, at: usize, rng: &mut Rng) -> Check {
        self.refresh_partial();
        let (place, real) = (self.place(at), self.real(at));
        let alive: Vec<&Id> = place.alive.iter().collect();
        let restored = u64::from(!alive.is_empty());
        if !alive.is_empty() {
            let id = alive[rng.below(alive.len() as u64) as usize];
            match rng.chance(15) {
                true => comes_back_on_disk(&self.known, &real.repo, id, self.root.path())?,
                false => comes_back(&self.known, &real.repo, id)?,
            }
        }
        let readable = self.place(at).work_tree_base().is_none_or(|base| self.place(at).can_read(&self.known, &base));
        if place.work.is_some() && readable && rng.chance(35) {
            self.status_is_true(at)?;
        }
        self.tally.restored += restored;
        Ok(())
    }

    pub fn status_is_true(&self, at: usize) -> Check {
        let place = self.place(at);
        if !place.work_tree_base().is_none_or(|base| place.can_read(&self.known, &base)) {
            return Ok(());
        }
        let status = mdl_repo::status(&self.real(at).repo, &Silent).map_err(|e| format!("status: {e}"))?;
        let said: Vec<(String, &str)> = status.into_iter().map(|(rel, change)| (rel, change.name())).collect();
        let is = self.place(at).changes(&self.known);
        match said == is {
            true => Ok(()),
            false => fail(format!("status says {said:?}, and it is {is:?}")),
        }
    }

    /// Now and then: every version of every place, and a check of all that is stored.
    pub fn look_at_all(&mut self) -> Check {
        self.refresh_partial();
        for at in 0..self.places.len() {
            let Some((place, real)) = &mut self.places[at] else {
                continue;
            };
            real.reopen().map_err(|e| format!("cannot be opened: {e}"))?;
            let report = mdl_repo::fsck(&real.repo, false, &Silent).map_err(|e| format!("fsck: {e}"))?;
            if !report.problems.is_empty() {
                return fail(format!("place {at}: fsck finds {:#?}", report.problems));
            }
            for id in &place.alive {
                comes_back(&self.known, &real.repo, id).map_err(|e| format!("place {at}: {e}"))?;
            }
            self.tally.restored += place.alive.len() as u64;
            if at == PARTIAL {
                // What was committed there from files there needs nobody else.
                let store = real.store();
                let alone = LocalStorage::new(&store);
                let alone = Repo::with_storage(Arc::new(alone), engine(), None, Some(store), None);
                let alone = alone.map_err(|e| e.to_string())?;
                for id in &place.own {
                    comes_back(&self.known, &alone, id).map_err(|e| format!("without its origin: {e}"))?;
                }
            }
            if place.work.is_some() && place.work_tree_base().is_none_or(|base| place.can_read(&self.known, &base)) {
                self.status_is_true(at)?;
            }
        }
        self.tally.checks += 1;
        Ok(())
    }

    /// In a copy with a flipped bit a check finds damage, and nothing comes back wrong.
    pub fn damage(&mut self, at: usize, seed: u64) -> Check {
        let mut rng = Rng(seed);
        let copy = TempDir::new_in(self.root.path()).map_err(|e| e.to_string())?;
        let real = self.real(at);
        let to = if real.bare { copy.path().to_owned() } else { copy.path().join(".mdl") };
        copy_dir(&real.store(), &to).map_err(|e| e.to_string())?;
        let packs: Vec<_> = fs::read_dir(to.join("packs")).into_iter().flatten().flatten().collect();
        if packs.is_empty() || at == PARTIAL {
            return Ok(());
        }
        let mut paths: Vec<_> = packs.iter().map(|p| p.path()).collect();
        paths.sort();
        let path = &paths[rng.below(paths.len() as u64) as usize];
        let mut bytes = fs::read(path).map_err(|e| e.to_string())?;
        let i = rng.below(bytes.len() as u64) as usize;
        bytes[i] ^= 1 << rng.below(8);
        fs::write(path, bytes).map_err(|e| e.to_string())?;
        let repo = Real::open(copy.path(), real.bare, Setup::default()).map_err(|e| e.to_string())?.repo;
        let report = mdl_repo::fsck(&repo, false, &Silent).map_err(|e| format!("fsck of a damaged copy: {e}"))?;
        if report.problems.is_empty() {
            return fail(format!("fsck misses a flipped bit at {i} of {}", path.display()));
        }
        for id in &self.place(at).alive {
            match restore(&repo, id) {
                Ok(found) if found != self.known.files(id) => {
                    return fail(format!("version {} of a damaged copy is wrong: {found:?}", id.short()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a place may be asked for work there.
    pub fn is_there(&self, at: usize) -> bool {
        self.places.get(at).is_some_and(Option::is_some)
    }

    /// A place with a work tree, near the one that was meant.
    pub fn with_work(&self, at: usize) -> usize {
        if at != HUB && self.is_there(at) { at } else { 0 }
    }
}

fn copy_dir(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true if entry.file_name() == "index" => {}
            true => copy_dir(&entry.path(), &to)?,
            false => drop(fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}
