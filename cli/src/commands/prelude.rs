//! What nearly every verb uses: its context, its output, and the types of a repository.

pub use super::shared::{not_found, present_branch, refused};
pub use crate::{
    context::Context,
    errors::{CliError, Result},
    render::{Align, Table, count, entry, size, subject, visible},
};
pub use mdl_objects::Id;
pub use mdl_repo::{HEADS, Head, Missing, RefName, Repo, RepoError, TAGS};
pub use serde_json::{Value, json};
pub use std::{
    io::Write,
    path::{Path, PathBuf},
};
