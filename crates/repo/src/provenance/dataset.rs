//! Data sets of a provenance: digests of files and directories, or what the caller says of an address.

use crate::provenance::Dataset;
use mdl_store::{RepoError, Result};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

/// Files of a directory at most.
const MOST_FILES: usize = 1_000_000;
/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

impl Dataset {
    /// Reads `NAME=PLACE`. Of a file that is there the SHA-256 is taken (`sha256`), of a directory in-toto's `dirHash`
    /// (the SHA-256 of what `sha256sum` prints of its files in the order of their names). Another place is an address;
    /// `@ALGORITHM:HEX` behind it is its digest.
    ///
    /// # Errors
    /// It is not written so; a file cannot be read.
    pub fn read(text: &str) -> Result<Dataset> {
        let bad =
            |why: &str| RepoError::usage(format!("{text:?} is no data set: {why}"), "NAME=FILE, NAME=DIR or NAME=URI");
        let (name, place) = text.split_once('=').ok_or_else(|| bad("'=' is missing"))?;
        if name.is_empty() || place.is_empty() {
            return Err(bad("a name and a place are wanted"));
        }
        let path = Path::new(place);
        if let Ok(found) = fs::metadata(path) {
            let (algorithm, hex) = match found.is_dir() {
                true => ("dirHash", directory(path)?),
                false => ("sha256", file(path)?),
            };
            let digest = [(algorithm.to_owned(), hex)].into();
            return Ok(Dataset { name: name.to_owned(), uri: None, digest });
        }
        let (uri, digest) = match place.rsplit_once('@').and_then(|(uri, rest)| Some((uri, rest.split_once(':')?))) {
            Some((uri, (algorithm, hex))) if is_digest(algorithm, hex) => {
                (uri, [(algorithm.to_owned(), hex.to_lowercase())].into())
            }
            _ => (place, Default::default()),
        };
        if !uri.contains(':') {
            return Err(bad("there is no such file, and it is no address"));
        }
        Ok(Dataset { name: name.to_owned(), uri: Some(uri.to_owned()), digest })
    }
}

fn is_digest(algorithm: &str, hex: &str) -> bool {
    let is_word = !algorithm.is_empty() && algorithm.chars().all(|c| c.is_ascii_alphanumeric());
    is_word && hex.len() >= 32 && hex.len() <= 128 && hex.chars().all(|c| c.is_ascii_hexdigit())
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

/// Names with their paths, in the order of the names' bytes.
fn directory(top: &Path) -> Result<String> {
    let (mut files, mut waiting) = (Vec::<(Vec<u8>, PathBuf)>::new(), vec![(Vec::new(), top.to_owned())]);
    while let Some((prefix, dir)) = waiting.pop() {
        let failed = || RepoError::io(format!("cannot read {}", dir.display()));
        for entry in fs::read_dir(&dir).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let mut name = prefix.clone();
            name.extend(entry.file_name().as_encoded_bytes());
            let kind = entry.file_type().map_err(failed())?;
            if kind.is_dir() {
                name.push(b'/');
                waiting.push((name, entry.path()));
            } else if kind.is_file() {
                files.push((name, entry.path()));
            }
            if files.len() + waiting.len() > MOST_FILES {
                let message = format!("{} has more than {MOST_FILES} files", top.display());
                return Err(RepoError::user(message, "name it by an address and a digest of your own"));
            }
        }
    }
    files.sort();
    let mut hash = Sha256::new();
    for (name, path) in files {
        hash.update(file(&path)?);
        hash.update(b"  ");
        hash.update(&name);
        hash.update(b"\n");
    }
    Ok(hex::encode(hash.finalize()))
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
        for bad in ["", "/nowhere/x", "x"] {
            read(bad).expect_err(bad);
        }
        Dataset::read("no-place").expect_err("no '='");
    }
}
