//! Runs pushes, and looks at both ends.

use crate::model::{
    check::{Check, fail},
    expect::Expect,
    reference::{Known, Place, branch as full, noted, tag as full_tag},
    rig::Beside,
    steps::{BRANCHES, TAGS, Trouble},
    world::{HUB, World},
};
use mdl_objects::Id;
use mdl_remote::{
    fetch::note_refs,
    push::{Push, push},
    sync::RefMove,
};
use mdl_repo::{HEADS, Progress, RefName, RepoError, Result, TAGS as TAG_PREFIX};

impl World {
    pub fn push(
        &mut self,
        at: usize,
        (branch, tag): (usize, Option<usize>),
        force: bool,
        delete: bool,
        trouble: Trouble,
    ) -> Check {
        let name = tag.map_or_else(|| full(BRANCHES[branch]), |t| full_tag(TAGS[t]));
        let (source, hub) = (self.place(at).clone(), self.place(HUB).clone());
        let new = source.refs.get(&name).copied();
        if new.is_none() && !delete {
            return Ok(());
        }
        let wish = Push { name: name.clone(), new: new.filter(|_| !delete), force, lease: None };
        let dir = self.real(at).dir.clone();
        let rig = self.rig(trouble, at, Some(HUB), &dir);
        let done = self
            .hub()
            .and_then(|peer| push(&self.real(at).repo, &peer, std::slice::from_ref(&wish), "push", &rig.progress));
        // Noted here as well, whatever becomes of the note.
        let result = done.and_then(|pushed| pushed.refs.into_iter().try_for_each(|(_, outcome)| outcome));
        let moved = result.is_ok().then(|| name.strip_prefix(HEADS)).flatten();
        if let Some(branch) = moved {
            self.note(at, branch, wish.new, &rig.progress);
        }
        let beside = self.unrig(rig, trouble)?;
        let mut marked = hub.clone();
        self.marks(HUB, &hub, &source, &mut marked)?;
        let expect = |known: &Known, hub: &Place| {
            let old = hub.refs.get(&name).copied();
            let mut after = hub.clone();
            after.pruned.clone_from(&marked.pruned);
            let Some(new) = wish.new else {
                after.refs.remove(&name);
                let refused = hub.head_ref().as_deref() == Some(&name) && old.is_some();
                return if refused { Expect::Refused } else { Expect::done(after) };
            };
            let tag_stays = name.starts_with(TAG_PREFIX) && old.is_some();
            let forward = old.is_none_or(|old| known.reaches(&known.peel(&new), &known.peel(&old)));
            if old != Some(new) && !force && (tag_stays || !forward) {
                return Expect::Refused;
            }
            let sent = known.reach([new]);
            let has = |id: &Id| source.alive.contains(id);
            // A version that was pruned there, and comes to have a name again.
            let sure = sent.iter().all(has) && !hub.pruned.contains(&known.peel(&new));
            after
                .alive
                .extend(sent.iter().filter(|id| has(id) && !source.pruned.contains(*id) && !hub.pruned.contains(*id)));
            after.refs.insert(name.clone(), new);
            Expect::done(after).unless(sure)
        };
        // A program that wrote did so in another place.
        let there = Beside { fault: beside.fault, dead: beside.dead, wrote: None };
        self.settle(HUB, false, &expect, &result, &there)?;
        let mut here = source;
        let now = self.observe(at)?;
        if let Some(branch) = moved {
            let is = now.refs.get(&noted(branch)).copied();
            let was = here.refs.get(&noted(branch)).copied();
            if is != wish.new && !(beside.fault && is == was) {
                return fail(format!("{branch} was pushed, and is noted as {is:?}"));
            }
            match is {
                Some(id) => drop(here.refs.insert(noted(branch), id)),
                None => drop(here.refs.remove(&noted(branch))),
            }
        }
        if let Some((name, file)) = &beside.wrote {
            let mut work = here.files();
            match file {
                Some(file) => drop(work.insert(name.clone(), file.clone())),
                None => drop(work.remove(name)),
            }
            here.work = Some(work);
        }
        match now.refs == here.refs && now.head == here.head && now.work == here.work && now.pruned == here.pruned {
            true => self.put(at, here),
            false => return fail("a push changed the repository that it came from"),
        }
        Ok(())
    }

    fn note(&self, at: usize, branch: &str, new: Option<Id>, progress: &dyn Progress) {
        let repo = &self.real(at).repo;
        let noted: Result<()> = RefName::parse(&noted(branch)).and_then(|name| {
            let made = RefMove { expected: repo.refs().get(&name)?, name: name.to_string(), new, force: true };
            note_refs(repo, vec![made], true, "push", progress).map(drop)
        });
        let _: std::result::Result<(), RepoError> = noted;
    }
}
