//! The steps of a history. A step says what is tried, not on what: names and versions are picked by numbers when it
//! runs, so that it means something wherever it stands and any of them can be left out.

use crate::model::{faults::Fault, writers::Write1};

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
    Rest(Write1),
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
