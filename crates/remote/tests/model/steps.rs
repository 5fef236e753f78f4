//! The steps of a history, made from a seed. A step says what is tried, not on what: names and versions are picked by numbers
//! when it runs, so that it means something wherever it stands and any of them can be left out.

use crate::{
    faults::Fault,
    files::{How, NAMES, Rng, Write1},
};

/// Short names of branches and tags.
pub const BRANCHES: [&str; 4] = ["main", "a", "b", "run/1"];
pub const TAGS: [&str; 2] = ["t1", "t2"];

/// What a commit takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    WorkTree,
    /// A directory of the work tree.
    Dir,
    /// A file of the work tree.
    OneFile,
    /// Files in memory.
    Memory(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    /// As the settings say: nothing here is old enough to go.
    Plain,
    /// Without a time of grace; the reflog keeps.
    NoGrace,
    /// Neither keeps.
    Now,
}

/// One try. Numbers pick among what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    Write(Write1),
    /// Through a map that stays open over steps.
    HeldMap(Write1),
    /// Long enough for files to have been left alone.
    Rest,
    Reopen,
    Commit {
        source: Source,
        branch: Option<usize>,
        label: bool,
    },
    Checkout {
        version: usize,
        force: bool,
    },
    CheckoutOnly {
        version: usize,
        name: usize,
        force: bool,
    },
    CheckoutTo {
        version: usize,
        force: bool,
    },
    Switch {
        branch: usize,
        force: bool,
    },
    SwitchNew {
        branch: usize,
        start: Option<usize>,
        force: bool,
    },
    Merge {
        version: usize,
    },
    Reset {
        version: usize,
        hard: bool,
    },
    Branch {
        branch: usize,
        version: usize,
        force: bool,
    },
    DeleteBranch {
        branch: usize,
        force: bool,
    },
    RenameBranch {
        from: usize,
        to: usize,
    },
    Tag {
        tag: usize,
        version: usize,
        annotated: bool,
        force: bool,
    },
    DeleteTag {
        tag: usize,
    },
    Prune {
        branch: Option<usize>,
        latest: u64,
        every: Option<u64>,
    },
    Undo {
        version: Option<usize>,
    },
    Gc(Collect),
    Compact,
    Fsck {
        quick: bool,
    },
    Clone {
        partial: bool,
    },
    Fetch,
    Pull {
        branch: usize,
    },
    Push {
        branch: usize,
        tag: Option<usize>,
        force: bool,
        delete: bool,
    },
    Watch {
        branch: usize,
        seed: u64,
    },
    Put {
        session: usize,
        rank: u32,
        seed: u64,
        stage: bool,
    },
    Join {
        session: usize,
        ranks: u32,
    },
    Damage {
        seed: u64,
    },
}

/// What else happens while a verb runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// A fault at the nth call, here or where a transfer goes to or comes from.
    Fault {
        fault: Fault,
        at: u64,
        there: bool,
    },
    /// A program writes at the nth call of the storage, or at the nth report of progress.
    Writer {
        write: Write1,
        at: u64,
        by_progress: bool,
    },
    /// The user gives up at the nth time that the verb asks.
    Stop {
        at: u64,
    },
}

#[derive(Clone, Debug)]
pub struct Step {
    /// Which repository, if it is there.
    pub place: usize,
    pub verb: Verb,
    pub trouble: Trouble,
}

fn write(rng: &mut Rng) -> Write1 {
    let how = match rng.below(100) {
        0..18 => How::Replace,
        18..34 => How::Overwrite,
        34..60 => How::Train,
        60..67 => How::Append,
        67..80 => How::Map,
        80..88 => How::Remove,
        88..93 => How::ToggleExec,
        _ => How::Copy,
    };
    // Names that are in each other's way are rare.
    let names = if rng.chance(6) { NAMES.len() } else { NAMES.len() - 2 };
    Write1 {
        name: rng.below(names as u64) as usize,
        how,
        seed: rng.next() >> 1,
    }
}

fn trouble(rng: &mut Rng) -> Trouble {
    // Early calls are reached by all verbs, late ones by few.
    let bits = rng.below(8);
    let at = 1 + rng.below(1 << bits);
    match rng.below(100) {
        0..70 => Trouble::None,
        70..84 => {
            let all = [
                Fault::Fail,
                Fault::FailRead,
                Fault::LoseReply,
                Fault::Full,
                Fault::Kill,
                Fault::Tear,
            ];
            let fault = all[rng.below(6) as usize];
            Trouble::Fault {
                fault,
                at: if matches!(fault, Fault::Fail | Fault::FailRead) {
                    at
                } else {
                    1 + at / 4
                },
                there: rng.chance(40),
            }
        }
        84..97 => Trouble::Writer {
            write: Write1 {
                name: rng.below(NAMES.len() as u64 - 2) as usize,
                ..write(rng)
            },
            at: 1 + at / 2,
            by_progress: rng.chance(50),
        },
        _ => Trouble::Stop { at: 1 + at / 4 },
    }
}

fn verb(rng: &mut Rng, rests: bool) -> Verb {
    let version = rng.below(1 << 16) as usize;
    let branch = rng.below(BRANCHES.len() as u64) as usize;
    let (force, few) = (rng.chance(20), rng.chance(25));
    let tag = rng.below(2) as usize;
    match rng.below(1000) {
        0..280 => Verb::Write(write(rng)),
        280..300 => Verb::HeldMap(write(rng)),
        300..306 if rests => Verb::Rest,
        300..316 => Verb::Reopen,
        316..500 => Verb::Commit {
            source: match rng.below(100) {
                0..78 => Source::WorkTree,
                78..85 => Source::Dir,
                85..90 => Source::OneFile,
                _ => Source::Memory(rng.next()),
            },
            branch: few.then_some(branch),
            label: rng.chance(30),
        },
        500..550 => Verb::Checkout { version, force },
        550..565 => Verb::CheckoutOnly {
            version,
            name: rng.below(NAMES.len() as u64) as usize,
            force,
        },
        565..575 => Verb::CheckoutTo { version, force },
        575..625 => Verb::Switch { branch, force },
        625..640 => Verb::SwitchNew {
            branch,
            start: few.then_some(version),
            force,
        },
        640..660 => Verb::Merge { version },
        660..680 => Verb::Reset {
            version,
            hard: rng.chance(50),
        },
        680..700 => Verb::Branch { branch, version, force },
        700..718 => Verb::DeleteBranch {
            branch,
            force: rng.chance(50),
        },
        718..724 => Verb::RenameBranch {
            from: branch,
            to: rng.below(BRANCHES.len() as u64) as usize,
        },
        724..740 => Verb::Tag {
            tag,
            version,
            annotated: rng.chance(50),
            force,
        },
        740..750 => Verb::DeleteTag { tag },
        750..768 => Verb::Prune {
            branch: rng.chance(60).then_some(branch),
            latest: 1 + rng.below(4),
            every: few.then(|| 1 + rng.below(4)),
        },
        768..780 => Verb::Undo {
            version: rng.chance(50).then_some(version),
        },
        780..820 => Verb::Gc(match rng.below(100) {
            0..34 => Collect::Plain,
            34..67 => Collect::NoGrace,
            _ => Collect::Now,
        }),
        820..838 => Verb::Compact,
        838..852 => Verb::Fsck { quick: rng.chance(50) },
        852..872 => Verb::Clone {
            partial: rng.chance(50),
        },
        872..894 => Verb::Fetch,
        894..912 => Verb::Pull { branch },
        912..948 => Verb::Push {
            branch,
            tag: few.then_some(tag),
            force,
            delete: rng.chance(8),
        },
        948..968 => Verb::Watch {
            branch,
            seed: rng.next(),
        },
        968..983 => Verb::Put {
            session: tag,
            rank: rng.below(2) as u32,
            seed: rng.next(),
            stage: rng.chance(40),
        },
        983..995 => Verb::Join {
            session: tag,
            ranks: 1 + rng.below(2) as u32,
        },
        _ => Verb::Damage { seed: rng.next() },
    }
}

/// The history of a seed. `rests`: with steps that take seconds.
pub fn history(seed: u64, len: usize, rests: bool) -> Vec<Step> {
    let mut rng = Rng(seed.wrapping_mul(0x2545_F491_4F6C_DD1D));
    let mut steps = Vec::with_capacity(len);
    for _ in 0..len {
        let place = match rng.below(100) {
            0..62 => 0,
            62..80 => 1,
            80..94 => 2,
            _ => 3,
        };
        let verb = verb(&mut rng, rests);
        let trouble = trouble(&mut rng);
        steps.push(Step { place, verb, trouble });
    }
    steps
}
