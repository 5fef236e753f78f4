//! Whether what a verb left is what it may have left: all of it where it was done, nothing where it was refused, and of
//! each name and each file either where trouble cut it short.

use crate::model::{
    check::{Check, fail},
    files::File,
    reference::{Known, Place},
};
use mdl_objects::Id;
use mdl_repo::Head;
use std::collections::BTreeSet;

/// What was, what is, and what may be.
pub struct Judge<'a> {
    pub before: &'a Place,
    pub afters: &'a [Place],
    pub now: &'a Place,
    pub done: bool,
    pub troubled: bool,
    pub wrote: Option<&'a (String, Option<File>)>,
    pub forced: bool,
}

impl Judge<'_> {
    /// The place as it is now, if it may be so.
    pub fn taken_over(&self, known: &Known) -> Check<Place> {
        let Judge { before, now, .. } = self;
        let like = self.afters.iter().find(|a| a.refs == now.refs && a.head == now.head);
        let after = match (self.done, like) {
            (true, None) => {
                return fail(format!(
                    "refs are {:#?}\n  and should be {:#?}",
                    names(now),
                    self.afters.first().map(names)
                ));
            }
            (_, Some(after)) => after,
            (false, None) => self.afters.first().unwrap_or(before),
        };
        if !self.done {
            self.refs_are_old_or_new(after)?;
        }
        self.work_is_right(after)?;
        self.rest_is_right(after)?;
        let mut out = (*now).clone();
        let mut held = known.reach(now.refs.values().copied());
        if let Head::Detached(id) = now.head {
            held.extend(known.reach([id]));
        }
        let mix = |b: &BTreeSet<Id>, a: &BTreeSet<Id>| -> BTreeSet<Id> {
            match self.done {
                true => a.clone(),
                false => a.iter().filter(|id| b.contains(*id) || held.contains(*id)).copied().collect(),
            }
        };
        out.alive = mix(&before.alive, &after.alive);
        out.own = mix(&before.own, &after.own);
        out.fetched = mix(&before.fetched, &after.fetched);
        if let Some(id) = out.base.filter(|id| out.base_gone && out.alive.contains(id)) {
            return fail(format!("{} is gone, and must be there", id.short()));
        }
        out.shards = after.shards.clone();
        out.logged = before.logged.intersection(&after.logged).copied().collect();
        let changed = |name: &String| before.refs.get(name) != now.refs.get(name);
        for name in before.refs.keys().chain(now.refs.keys()).filter(|name| changed(name)) {
            let ends = [before.refs.get(name), now.refs.get(name)];
            out.logged.extend(ends.into_iter().flatten().map(|id| known.peel(id)));
        }
        if !self.troubled && before.tip() != now.tip() {
            out.logged.extend([before.tip(), now.tip()].into_iter().flatten());
        }
        Ok(out)
    }

    fn refs_are_old_or_new(&self, after: &Place) -> Check {
        let Judge { before, now, .. } = self;
        let all: BTreeSet<&String> = [before, now, &after].iter().flat_map(|p| p.refs.keys()).collect();
        for name in all {
            let (was, is, to_be) = (before.refs.get(name), now.refs.get(name), after.refs.get(name));
            if is != was && !(self.troubled && is == to_be) {
                return fail(format!("{name} moved from {was:?} to {is:?}, and the verb failed"));
            }
        }
        if now.head != before.head && !(self.troubled && now.head == after.head) {
            return fail(format!("HEAD moved from {:?} to {:?}, and the verb failed", before.head, now.head));
        }
        Ok(())
    }

    fn work_is_right(&self, after: &Place) -> Check {
        let (was, is, to_be) = (self.before.files(), self.now.files(), after.files());
        let all: BTreeSet<&String> = [&was, &is, &to_be].iter().flat_map(|f| f.keys()).collect();
        let base = self.before.base.is_some().then_some(());
        for name in all {
            let (w, i, t) = (was.get(name), is.get(name), to_be.get(name));
            let written = self.wrote.filter(|(n, _)| n == name).map(|(_, file)| file.as_ref());
            let right = match (written, self.done) {
                // What a program wrote stays, unless that was in a version, or was given up.
                (Some(v), _) => {
                    let replaceable = self.forced || v.is_none() || base.is_some() && v == w;
                    i == v || replaceable && (i == t || i == w)
                }
                (None, true) => i == t,
                (None, false) => i == w || (self.troubled || self.wrote.is_some()) && i == t,
            };
            if !right {
                return fail(format!(
                    "{name} is {i:?}; it was {w:?}, is to be {t:?}, and meanwhile was written as {written:?}"
                ));
            }
        }
        Ok(())
    }

    fn rest_is_right(&self, after: &Place) -> Check {
        let Judge { before, now, .. } = self;
        let quiet = !self.troubled && self.wrote.is_none();
        let bases = [before.base, after.base, now.tip()];
        if now.base != if self.done { after.base } else { before.base } && (quiet || !bases.contains(&now.base)) {
            return fail(format!(
                "the files are said to be of {:?}: {:?} before, {:?} after",
                now.base, before.base, after.base
            ));
        }
        let right = match self.done {
            true => now.pruned == after.pruned,
            false if self.troubled => {
                before.pruned.intersection(&after.pruned).all(|id| now.pruned.contains(id))
                    && now.pruned.iter().all(|id| before.pruned.contains(id) || after.pruned.contains(id))
            }
            false => now.pruned == before.pruned,
        };
        match right {
            true => Ok(()),
            false => fail(format!("pruned are {:?}; before {:?}, after {:?}", now.pruned, before.pruned, after.pruned)),
        }
    }
}

fn names(place: &Place) -> (Vec<(String, String)>, Head) {
    let refs = place.refs.iter().map(|(name, id)| (name.clone(), id.short()));
    (refs.collect(), place.head.clone())
}
