//! Runs the user's editor on a text, such as a commit message.

use super::prelude::*;
use std::{
    env, fs,
    io::{self, IsTerminal},
    process::Command,
};

/// What the editor leaves of `text`, as the file `name` in the repository's directory. Where no editor can be asked,
/// `missing` is the error and `hint` what to do instead.
pub fn edited(repo: &Repo, name: &str, text: &str, missing: &str, hint: &str) -> Result<String> {
    let editor = ["MDL_EDITOR", "VISUAL", "EDITOR"].iter().find_map(|k| env::var(k).ok().filter(|v| !v.is_empty()));
    let (Some(editor), Some(dir), true) = (editor, repo.dir(), io::stdin().is_terminal()) else {
        return Err(CliError::usage(missing, hint));
    };
    let file = dir.join(name);
    let failed = |e: io::Error| RepoError::io(format!("cannot edit {}", file.display()))(e);
    fs::write(&file, text).map_err(failed)?;
    // Editors come with arguments ("code --wait"), which the shell takes apart.
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(&file).status();
    let ended_well = status.map_err(failed)?.success();
    let text = fs::read_to_string(&file).map_err(failed)?;
    let _ = fs::remove_file(&file);
    if ended_well { Ok(text) } else { Err(refused(format!("{editor} failed"), hint)) }
}
