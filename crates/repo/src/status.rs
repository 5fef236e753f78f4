//! What differs between the work tree and a version. Neighbours: `work` lists, `ingest` hashes; `checkout` asks before it
//! overwrites. It must not change anything but the stat cache.

use crate::{
    Result,
    commit::ingest_cached,
    ingest::{Ingest, Policy, Report, Sink},
    progress::Progress,
    repo::Repo,
    tree::Files,
    work::{WorkFile, walk},
};
use mdl_objects::Entry;

/// How a file differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// In the work tree only.
    Added,
    /// In both, with other bytes or another executable bit.
    Modified,
    /// In the version only.
    Deleted,
}

impl Change {
    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Change::Added => "added",
            Change::Modified => "modified",
            Change::Deleted => "deleted",
        }
    }
}

impl Repo {
    /// Differences of the work tree to HEAD, by path.
    ///
    /// # Errors
    /// A bare repository; files that could not be committed; the medium failed.
    pub fn status(&self, progress: &dyn Progress) -> Result<Vec<(String, Change)>> {
        let list = walk(self.need_work()?, self.config.follow_symlinks())?;
        let head = match self.refs.head_commit()? {
            Some(id) => self.odb.files(&self.odb.commit(&id)?.tree)?,
            None => Files::new(),
        };
        progress.begin("hashing", list.iter().map(|f| f.size).sum());
        let mut out = Vec::new();
        for f in &list {
            match head.get(&f.rel) {
                None => out.push((f.rel.clone(), Change::Added)),
                Some(e) if self.differs(f, e, progress)? => out.push((f.rel.clone(), Change::Modified)),
                Some(_) => {}
            }
        }
        progress.end();
        let there = |rel: &str| list.binary_search_by(|f| f.rel.as_str().cmp(rel)).is_ok();
        out.extend(
            head.keys()
                .filter(|rel| !there(rel))
                .map(|rel| (rel.clone(), Change::Deleted)),
        );
        out.sort();
        Ok(out)
    }

    /// Whether a file's bytes or executable bit are not those of an entry.
    pub(crate) fn differs(&self, f: &WorkFile, e: &Entry, progress: &dyn Progress) -> Result<bool> {
        if f.size != e.size || f.executable != e.executable {
            progress.advance(f.size);
            return Ok(true);
        }
        // A damaged container can only equal a version that was committed as plain bytes.
        let policy = Policy {
            max_depth: 0,
            allow_damaged: true,
        };
        let sink = Sink::Ids;
        let mut ingest = Ingest {
            odb: &self.odb,
            sink,
            policy,
            progress,
            report: Report::default(),
        };
        let found = ingest_cached(&mut ingest, f, None)?;
        Ok((found.mode, found.id) != (e.mode, e.id))
    }
}
