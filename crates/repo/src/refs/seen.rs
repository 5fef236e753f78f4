//! What HEAD's commit was when the user of this work tree last moved it: what the files here are of. Neighbours: `refs` notes its own
//! moves, `status`, `commit` and `checkout` ask. It must not decide anything.
//!
//! Others move branches too: pushes to this repository, and work trees that share its storage. Handles that work for them note nothing,
//! so that what is noted falls behind, and a commit can tell. Before a move both its ends are noted: a kill between a move and its note
//! leaves one that is right. What cannot be read is taken for unknown.

use mdl_objects::Id;
use std::{
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
};

/// Stands for "no commit".
const NONE: &str = "-";
/// Ends of moves that were begun and, for all that is known, not ended.
const MAX: usize = 8;

/// The note: a file with a line for each commit that it may have been, the last one last.
#[derive(Debug)]
pub(crate) struct Seen {
    path: PathBuf,
}

impl Seen {
    pub fn new(path: PathBuf) -> Seen {
        Seen { path }
    }

    /// What it may have been (inner none: there was no commit); none: nothing is known.
    pub fn read(&self) -> Option<Vec<Option<Id>>> {
        let text = fs::read_to_string(&self.path).ok()?;
        let line = |line: &str| match line {
            NONE => Some(None),
            hex => hex.parse().ok().map(Some),
        };
        let all = text.lines().map(line).collect::<Option<Vec<_>>>()?;
        (!all.is_empty()).then_some(all)
    }

    /// HEAD's commit is about to become this.
    pub fn begin(&self, to: Option<Id>) {
        // From the unknown nothing follows but what it will be, which is noted then.
        if let Some(mut all) = self.read() {
            all.retain(|id| *id != to);
            all.push(to);
            self.write(&all[all.len().saturating_sub(MAX)..], true);
        }
    }

    /// HEAD's commit is this.
    pub fn end(&self, at: Option<Id>) {
        // What was noted before the move is right too, if this is lost.
        self.write(&[at], false);
    }

    fn write(&self, all: &[Option<Id>], durable: bool) {
        let line = |id: &Option<Id>| id.map_or_else(|| NONE.to_owned(), |id| id.to_hex()) + "\n";
        let text: String = all.iter().map(line).collect();
        // A note that is not written refuses a commit that could have been made: the user says which version is meant, and goes on.
        let _ = self.replace(&text, durable);
    }

    fn replace(&self, text: &str, durable: bool) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        if durable {
            file.sync_data()?;
        }
        fs::rename(&new, &self.path)?;
        match self.path.parent() {
            Some(dir) if durable => File::open(dir)?.sync_all(),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_move_are_known_until_it_is_over() {
        let dir = tempfile::tempdir().expect("dir");
        let seen = Seen::new(dir.path().join("base"));
        let (a, b) = (Some(Id::from_bytes([1; 32])), Some(Id::from_bytes([2; 32])));
        seen.begin(a);
        assert_eq!(seen.read(), None, "from the unknown");
        seen.end(None);
        seen.begin(a);
        assert_eq!(seen.read(), Some(vec![None, a]));
        seen.end(a);
        seen.begin(b);
        seen.begin(a);
        assert_eq!(seen.read(), Some(vec![b, a]));
        for torn in ["", "12ab\n", "-\nx"] {
            fs::write(dir.path().join("base"), torn).expect("written");
            assert_eq!(seen.read(), None, "{torn:?}");
        }
    }
}
