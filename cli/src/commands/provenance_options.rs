//! Options about provenance: what a version says of the code, the command and the data that it comes from.

use super::prelude::*;
use mdl_repo::provenance::{Wanted, capture};

#[derive(Clone, Debug, Default, clap::Args)]
pub struct ProvenanceOptions {
    /// Say with the version where it comes from: git's revision of the code around the current directory, the
    /// environment, the command and the data sets. `commit.provenance` asks for it each time.
    #[arg(long)]
    provenance: bool,
    /// Data set that it was trained on, with its digest: of a file or a directory it is computed, of another place it
    /// may stand behind the address, as @sha256:HEX. May be repeated; asks for --provenance.
    #[arg(long, value_name = "NAME=PLACE")]
    dataset: Vec<String>,
}

impl ProvenanceOptions {
    /// The record as a commit has it, with the words of the command that made the version where they are known; none:
    /// nothing asks for it.
    pub fn captured(&self, repo: &Repo, command: Vec<String>) -> Result<Option<String>> {
        if !self.provenance && self.dataset.is_empty() && !repo.config().captures_provenance() {
            return Ok(None);
        }
        let directory = std::env::current_dir().map_err(RepoError::io("cannot tell the current directory"))?;
        let wanted = Wanted { command, datasets: self.dataset.clone(), ..Wanted::default() };
        Ok(Some(capture(&directory, &wanted)?.to_text()?))
    }

    /// With the rest asked for too.
    pub fn asked_if(mut self, asked: bool) -> ProvenanceOptions {
        self.provenance |= asked;
        self
    }
}
