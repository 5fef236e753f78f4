//! Finds the commit that a release is built from, for `mdl --version`.
//!
//! `MDL_COMMIT` names it; else git does, where the sources are a checkout of their own. From an archive of sources, and
//! in builds for development (which would be linked anew after each commit), there is none.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Digits that are told.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=MDL_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let given = env::var("MDL_COMMIT").ok().filter(|id| !id.is_empty());
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let found = given.or_else(|| is_release.then(of_checkout).flatten());
    let commit = found.filter(|id| id.len() >= DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit()));
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let long = commit.map_or(version.clone(), |id| format!("{version} ({})", &id[..DIGITS]));
    println!("cargo::rustc-env=MDL_LONG_VERSION={long}");
}

/// The commit of the work tree that begins at the workspace. One that lies in another project's is not asked.
fn of_checkout() -> Option<String> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    let root = manifest.parent()?.to_owned();
    if !root.join(".git").exists() {
        return None;
    }
    let commit = git(&root, &["rev-parse", "HEAD"])?;
    // HEAD names a branch, whose file is moved by a commit, or refs are packed.
    for name in ["HEAD", "packed-refs", &git(&root, &["rev-parse", "--symbolic-full-name", "HEAD"])?] {
        let path = root.join(git(&root, &["rev-parse", "--git-path", name])?);
        if path.is_file() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    Some(commit)
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    let done = Command::new("git").arg("-C").arg(root).args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(done.stdout).ok()?.trim().to_owned())
}
