//! Stores files ahead of their commit: each rank of a sharded save puts its own, one of them joins all into a version.
//! Neighbours: `contents` says what a file is, `commit` joins. It must not move a ref.

use crate::{
    Result,
    commit::ingest_file,
    contents::{NewFile, Stored, check_names},
    ingest::{Hints, Ingest, Policy, Report, STORING, Sink},
    pack::PackWriter,
    progress::{Progress, go_on},
    repo::Repo,
    tree::Files,
};

impl Repo {
    /// Stores files durably without making a version of them: differences are taken to the version that `branch` (or HEAD)
    /// stands at. What is never joined is collected by `gc` once its grace period is over.
    ///
    /// # Errors
    /// Damaged or unsuitable files; the medium failed.
    pub fn stage(&self, files: &[NewFile], branch: Option<&str>, progress: &dyn Progress) -> Result<Vec<Stored>> {
        check_names(files)?;
        let held = self.write_lock()?;
        self.odb.refresh();
        let parent = self.parent_of(branch)?;
        self.rely_on(&held, parent)?;
        let old = match parent {
            Some(id) => self.odb.files(&self.odb.commit(&id)?.tree)?,
            None => Files::new(),
        };
        let mut pack = PackWriter::new(&*self.storage)?;
        let (mut done, mut before) = (Vec::with_capacity(files.len()), 0);
        let hints = Hints::default();
        let mut ingest = Ingest {
            odb: &self.odb,
            sink: Sink::Pack(&mut pack),
            policy: Policy {
                max_depth: self.config.max_depth(),
                allow_damaged: false,
            },
            hints: &hints,
            progress,
            report: Report::default(),
        };
        for file in files {
            go_on(progress, STORING)?;
            let stored = ingest_file(&mut ingest, file, old.get(&file.rel))?;
            let report = std::mem::take(&mut ingest.report);
            let after = ingest.payload_bytes();
            done.push(Stored::new(
                (&stored, file.executable),
                after - before,
                report.total,
                report.tensors,
            ));
            before = after;
        }
        drop(ingest);
        if pack.is_empty() {
            return Ok(done);
        }
        go_on(progress, STORING)?;
        let written = pack.finish(&held)?;
        self.odb.note_pack(written)?;
        Ok(done)
    }
}
