//! Signing by `ssh-keygen -Y sign`, as git does: for keys that want a passphrase or a touch, which it asks for.

use crate::signing::NAMESPACE;
use mdl_store::{RepoError, Result};
use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// The armoured signature of these bytes by the key in a file.
pub(super) fn sign(key: &Path, bytes: &[u8]) -> Result<String> {
    let failed = || RepoError::io("cannot run ssh-keygen");
    let mut child = Command::new("ssh-keygen")
        .args(["-Y", "sign", "-n", NAMESPACE, "-f"])
        .arg(key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed())?;
    // It reads all of it before it answers; where it ends early, its status says why.
    let written = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(bytes));
    let done = child.wait_with_output().map_err(failed())?;
    let text = String::from_utf8(done.stdout).unwrap_or_default();
    if done.status.success() && written.is_ok() && !text.is_empty() {
        return Ok(text);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let said = said.lines().find(|line| !line.starts_with("Signing data")).unwrap_or("it says nothing").trim();
    let message = format!("ssh-keygen did not sign with {}: {said}", key.display());
    Err(RepoError::user(message, "load the key with `ssh-add`, or run it where the passphrase can be asked for"))
}
