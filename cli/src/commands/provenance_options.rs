//! Options about provenance: what a version says of the code, the command and the data that it comes from.

use super::prelude::*;
use mdl_repo::provenance::{Wanted, capture};

#[derive(Clone, Debug, Default, clap::Args)]
pub struct ProvenanceOptions {
    /// Say with the version where it comes from: git's revision of the code around the current directory, the
    /// environment, and what the options below name. `commit.provenance` asks for it each time.
    #[arg(long)]
    provenance: bool,
    /// Command that made the version, such as 'python train.py --lr 1e-3'. Values of options whose names speak of
    /// tokens, keys and passwords are left out.
    #[arg(long, value_name = "TEXT")]
    command: Option<String>,
    /// Data set that it was trained on, with its digest: of a file or a directory it is computed, of another place it
    /// may stand behind the address, as @sha256:HEX. May be repeated.
    #[arg(long, value_name = "NAME=PLACE")]
    dataset: Vec<String>,
}

impl ProvenanceOptions {
    /// The record as a commit has it; none: nothing asks for it.
    pub fn captured(&self, repo: &Repo) -> Result<Option<String>> {
        let command = self.command.as_deref().map(|c| c.split_whitespace().map(str::to_owned).collect());
        let asked = self.provenance || command.is_some() || !self.dataset.is_empty();
        if !asked && !repo.config().captures_provenance() {
            return Ok(None);
        }
        let directory = std::env::current_dir().map_err(RepoError::io("cannot tell the current directory"))?;
        let wanted =
            Wanted { command: command.unwrap_or_default(), datasets: self.dataset.clone(), ..Wanted::default() };
        Ok(Some(capture(&directory, &wanted)?.to_text()?))
    }
}
