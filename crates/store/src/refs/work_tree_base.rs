//! The stored work-tree base: HEAD's commit when the user of this work tree last moved it, which its files come from.
//!
//! Others move branches too: pushes to this repository, and work trees that share its storage. Handles that work for
//! them note nothing, so that what is noted falls behind, and a commit can tell. Before a move both its ends are noted:
//! a kill between a move and its note leaves one that is right. What cannot be read is taken for unknown.

use mdl_objects::Id;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::PathBuf,
};

/// Stands for "no commit".
const NONE: &str = "-";
/// Ends of moves that were begun and, for all that is known, not ended.
const MAX: usize = 8;

/// The note: a file with a line for each commit that it may have been: that of the last whole move first, then those of
/// moves that were begun since.
#[derive(Debug)]
pub struct WorkTreeBase {
    path: PathBuf,
}

impl WorkTreeBase {
    /// The note in this file.
    pub fn new(path: PathBuf) -> WorkTreeBase {
        WorkTreeBase { path }
    }

    /// What it may have been (inner none: there was no commit); none: nothing is known.
    pub fn read(&self) -> Option<Vec<Option<Id>>> {
        let text = fs::read_to_string(&self.path).ok()?;
        // Of a line without an end the move had not begun.
        let (text, _) = text.rsplit_once('\n')?;
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
        let Some(mut all) = self.read() else { return };
        if all.contains(&to) || all.len() < MAX && self.append(&all, to).is_ok() {
            return;
        }
        all.push(to);
        // The first stays: what the files come from, whatever moves were cut off since.
        if all.len() > MAX {
            all.remove(1);
        }
        self.write(&all, true);
    }

    /// One sync, where a replaced file takes one more for its name. A file with a torn line takes none.
    fn append(&self, all: &[Option<Id>], to: Option<Id>) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        let whole: usize = all.iter().map(|id| line(id).len()).sum();
        if file.metadata()?.len() != whole as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        file.write_all(line(&to).as_bytes())?;
        file.sync_data()
    }

    /// HEAD's commit is this.
    pub fn end(&self, at: Option<Id>) {
        // What was noted before the move is right too, if this is lost.
        self.write(&[at], false);
    }

    fn write(&self, all: &[Option<Id>], durable: bool) {
        let text: String = all.iter().map(line).collect();
        // A note that is not written refuses a commit that could have been made: the user says which version is meant,
        // and goes on.
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

fn line(id: &Option<Id>) -> String {
    id.map_or_else(|| NONE.to_owned(), |id| id.to_hex()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_move_are_known_until_it_is_over() {
        let dir = tempfile::tempdir().expect("dir");
        let seen = WorkTreeBase::new(dir.path().join("base"));
        let (a, b) = (Some(Id::from_bytes([1; 32])), Some(Id::from_bytes([2; 32])));
        seen.begin(a);
        assert_eq!(seen.read(), None, "from the unknown");
        seen.end(None);
        seen.begin(a);
        assert_eq!(seen.read(), Some(vec![None, a]));
        seen.end(a);
        seen.begin(b);
        seen.begin(a);
        assert_eq!(seen.read(), Some(vec![a, b]), "a move back to where the files come from");
        let whole = fs::read_to_string(dir.path().join("base")).expect("read");
        for end in 65..130 {
            fs::write(dir.path().join("base"), &whole[..end]).expect("written");
            assert_eq!(seen.read(), Some(vec![a]), "an appended line is there once it is whole");
            seen.begin(Some(Id::from_bytes([3; 32])));
            assert_eq!(seen.read().expect("known").len(), 2);
        }
        for torn in ["", "-", "12ab\n", "x\n-\n"] {
            fs::write(dir.path().join("base"), torn).expect("written");
            assert_eq!(seen.read(), None, "{torn:?}");
        }
        for n in 0..20 {
            seen.end(Some(Id::from_bytes([100; 32])));
            (0..n).for_each(|m| seen.begin(Some(Id::from_bytes([m; 32]))));
            let all = seen.read().expect("known");
            assert_eq!(all.len(), MAX.min(usize::from(n) + 1));
            assert_eq!(all.first(), Some(&Some(Id::from_bytes([100; 32]))), "what the files come from");
            assert_eq!(all.last(), Some(&Some(Id::from_bytes([if n > 0 { n - 1 } else { 100 }; 32]))));
        }
    }
}
