//! Trouble for one verb: prepared before it, ended after it.

use crate::model::{
    check::Check,
    faults::{Hook, Interruption},
    files::{self, File, NAMES},
    steps::Trouble,
    world::World,
    writers::{self, Write1},
};
use std::{
    path::Path,
    sync::{Arc, Mutex},
};

/// What happened beside a verb.
#[derive(Default)]
pub struct Beside {
    /// Whether a fault happened, and whether the process is gone with it.
    pub fault: bool,
    pub dead: bool,
    /// What a program wrote meanwhile.
    pub wrote: Option<(String, Option<File>)>,
}

type Wrote = Arc<Mutex<Option<(String, Option<File>)>>>;

/// Trouble that has been prepared.
pub struct Rig {
    pub progress: Interruption,
    wrote: Wrote,
}

fn writer(dir: &Path, write: Write1, wrote: &Wrote) -> Hook {
    let (dir, wrote) = (dir.to_owned(), wrote.clone());
    Box::new(move || {
        if writers::write(&dir, &write) {
            let name = NAMES[write.name];
            let found = Some((name.to_owned(), files::read(&dir.join(name))));
            wrote.lock().map(|mut w| *w = found).unwrap_or_default();
        }
    })
}

impl World {
    /// Prepares trouble for a verb of one place; `dir` is where a writer writes.
    pub fn rig(&mut self, trouble: Trouble, at: usize, other: Option<usize>, dir: &Path) -> Rig {
        let wrote = Wrote::default();
        let mut progress = Interruption::default();
        match trouble {
            Trouble::None => {}
            Trouble::Fault { fault, at: n, there } => {
                let whose = other.filter(|_| there).unwrap_or(at);
                self.real(whose).trigger.arm(fault, n);
            }
            Trouble::Writer { write, at: n, by_progress } => {
                let hook = writer(dir, write, &wrote);
                match by_progress {
                    true => progress = Interruption::by_writer(hook, n),
                    false => self.real(at).trigger.arm_hook(hook, n),
                }
            }
            Trouble::Stop { at } => progress = Interruption::by_stop(at),
        }
        Rig { progress, wrote }
    }

    /// Ends the trouble; a process that is gone is followed by another.
    pub fn unrig(&mut self, rig: Rig, trouble: Trouble) -> Check<Beside> {
        let mut beside = Beside::default();
        for (_, real) in self.places.iter_mut().flatten() {
            let (fired, dead) = real.trigger.disarm();
            beside.fault |= fired;
            beside.dead |= dead;
            if dead {
                real.reopen().map_err(|e| format!("cannot be opened after a kill: {e}"))?;
            }
        }
        drop(rig.progress);
        beside.wrote = rig.wrote.lock().map(|mut w| w.take()).unwrap_or_default();
        if let (true, Trouble::Fault { fault, .. }) = (beside.fault, trouble) {
            *self.tally.faults.entry(format!("{fault:?}")).or_default() += 1;
        }
        if beside.wrote.is_some() {
            *self.tally.faults.entry("Writer".to_owned()).or_default() += 1;
        }
        Ok(beside)
    }
}
