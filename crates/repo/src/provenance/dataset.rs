//! Data sets of a provenance: digests of files and directories, or what the caller says of an address.

use crate::provenance::{Dataset, redact::redacted_url};
use mdl_store::{RepoError, Result};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

/// Algorithms of digests that are taken, by in-toto's names, with the numbers of their hexadecimal digits.
const ALGORITHMS: [(&str, &[usize]); 6] = [
    ("sha256", &[64]),
    ("sha512", &[128]),
    ("blake3", &[64]),
    ("dirHash", &[64]),
    ("gitCommit", &[40, 64]),
    ("gitTree", &[40, 64]),
];
/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Directories below each other, and files, at most: links may lead in circles.
const DEEPEST: usize = 64;
const MOST_FILES: usize = 1_000_000;

impl Dataset {
    /// Reads `NAME=PLACE`. Of a file that is there the SHA-256 is taken (`sha256`), of a directory in-toto's `dirHash`
    /// (the SHA-256 of what `sha256sum` prints of its files in the order of their names; links count as what they lead
    /// to). Another place is an address, kept without user and password; `@ALGORITHM:HEX` behind it is its digest.
    ///
    /// # Errors
    /// It is not written so; a file cannot be read; a directory has no files, or names that no list can hold.
    pub fn read(text: &str) -> Result<Dataset> {
        let hint = "NAME=FILE, NAME=DIR or NAME=URI, with @sha256:HEX behind an address whose digest is known";
        let bad = |why: &str| RepoError::usage(format!("{text:?} is no data set: {why}"), hint);
        let (name, place) = text.split_once('=').ok_or_else(|| bad("'=' is missing"))?;
        if name.is_empty() || place.is_empty() {
            return Err(bad("a name and a place are wanted"));
        }
        let name = name.to_owned();
        if !place.contains("://") {
            let path = Path::new(place);
            let found = fs::metadata(path).map_err(|_| bad("there is no such file, and it is no address"))?;
            let (algorithm, hex) = match (found.is_dir(), found.is_file()) {
                (true, _) => ("dirHash", directory(&name, path)?),
                (_, true) => ("sha256", file(path)?),
                // A pipe or a device may have no end.
                _ => return Err(bad("it is neither a file nor a directory")),
            };
            return Ok(Dataset { name, uri: None, digest: [(algorithm.to_owned(), hex)].into() });
        }
        let known = place.rsplit_once('@').and_then(|(uri, rest)| {
            let (algorithm, hex) = rest.split_once(':')?;
            let lengths = ALGORITHMS.iter().find(|(name, _)| *name == algorithm)?.1;
            Some((uri, algorithm, hex, lengths))
        });
        let Some((uri, algorithm, hex, lengths)) = known else {
            return Ok(Dataset { name, uri: Some(redacted_url(place)), digest: BTreeMap::new() });
        };
        if !lengths.contains(&hex.len()) || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad(&format!("a {algorithm} has {} hexadecimal digits", lengths[0])));
        }
        let digest = [(algorithm.to_owned(), hex.to_lowercase())].into();
        Ok(Dataset { name, uri: Some(redacted_url(uri)), digest })
    }
}

fn file(path: &Path) -> Result<String> {
    let failed = || RepoError::io(format!("cannot read {}", path.display()));
    let mut file = File::open(path).map_err(failed())?;
    let (mut hash, mut piece) = (Sha256::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece).map_err(failed())? {
            0 => return Ok(hex::encode(hash.finalize())),
            n => hash.update(piece.get(..n).unwrap_or_default()),
        }
    }
}

fn directory(name: &str, top: &Path) -> Result<String> {
    let refused = |why: &str| {
        let hint = "name it by an address and a digest of your own";
        RepoError::user(format!("the data set {name} cannot be hashed: {why}"), hint)
    };
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut waiting = vec![(String::new(), top.to_owned(), DEEPEST)];
    while let Some((prefix, dir, deep)) = waiting.pop() {
        if deep == 0 {
            return Err(refused("it is too deep, or links lead in a circle"));
        }
        let failed = |path: &Path| RepoError::io(format!("cannot read {}", path.display()));
        for entry in fs::read_dir(&dir).map_err(failed(&dir))? {
            let path = entry.map_err(failed(&dir))?.path();
            let own = path.file_name().and_then(|n| n.to_str()).filter(|n| !n.contains(['\n', '\\']));
            let own = own.ok_or_else(|| refused(&format!("no list holds the name {:?}", path.display())))?;
            let rel = format!("{prefix}{own}");
            let found = fs::metadata(&path).map_err(failed(&path))?;
            if found.is_dir() {
                waiting.push((rel + "/", path, deep - 1));
            } else if found.is_file() {
                files.insert(rel, path);
            }
            if files.len() + waiting.len() > MOST_FILES {
                return Err(refused(&format!("it has more than {MOST_FILES} files")));
            }
        }
    }
    if files.is_empty() {
        return Err(refused("it has no files"));
    }
    let mut lines = Sha256::new();
    for (rel, path) in &files {
        lines.update(format!("{}  {rel}\n", file(path)?));
    }
    Ok(hex::encode(lines.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_tell_what_they_are() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("sub")).expect("a directory");
        fs::write(dir.path().join("sub/b"), "two").expect("a file");
        fs::write(dir.path().join("a"), "one").expect("a file");
        let read = |place: &str| Dataset::read(&format!("set={place}"));
        let one = read(&dir.path().join("a").display().to_string()).expect("a file");
        let sha = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
        assert_eq!(one.digest, [("sha256".to_owned(), sha.to_owned())].into());
        let all = read(&dir.path().display().to_string()).expect("a directory");
        let listed = format!("{sha}  a\n{}  sub/b\n", hex::encode(Sha256::digest("two")));
        assert_eq!(all.digest, [("dirHash".to_owned(), hex::encode(Sha256::digest(listed)))].into());
        let hub = read("hf://datasets/wiki@main").expect("an address");
        assert_eq!((hub.uri.as_deref(), hub.digest.len()), (Some("hf://datasets/wiki@main"), 0));
        let known = read(&format!("s3://bucket/x@sha256:{sha}")).expect("an address");
        assert_eq!(
            (known.uri.as_deref(), known.digest.get("sha256").map(String::as_str)),
            (Some("s3://bucket/x"), Some(sha))
        );
        let private = read("https://ada:secret@host/x?X-Amz-Signature=ab").expect("an address");
        assert_eq!(private.uri.as_deref(), Some("https://host/x?X-Amz-Signature=[redacted]"));
        for bad in
            ["", "/nowhere/x", "x", "/dev/zero", "s3://b@sha256:12", &format!("s3://b@sha256:{}", "g".repeat(64))]
        {
            read(bad).expect_err(bad);
        }
        // Links count as what they lead to, but for circles; nothing is not a data set.
        std::os::unix::fs::symlink("a", dir.path().join("link")).expect("a link");
        assert_ne!(read(&dir.path().display().to_string()).expect("a directory").digest, all.digest);
        std::os::unix::fs::symlink(".", dir.path().join("circle")).expect("a link");
        read(&dir.path().display().to_string()).expect_err("a circle");
        fs::create_dir(dir.path().join("sub/empty")).expect("a directory");
        read(&dir.path().join("sub/empty").display().to_string()).expect_err("no files");
        Dataset::read("no-place").expect_err("no '='");
    }
}
