//! Hub route `POST .../preupload/{rev}`: which files go inside the commit, and which as LFS objects before it.

use crate::{
    content::{self, Reader},
    hub::{
        files::{self, LARGE, is_lfs},
        info::says_yes,
    },
    request::prelude::*,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use std::time::Duration;

/// Extensions of files with tensors: uploaded as LFS, so that they are not sent as base64.
const TENSORS: [&str; 12] =
    [".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".npy", ".npz", ".onnx", ".pickle", ".pkl", ".pt", ".pth"];

/// Query parameters of the upload routes.
#[derive(Debug, Deserialize)]
pub(super) struct UploadQuery {
    create_pr: Option<String>,
}

impl UploadQuery {
    /// Refuses what is not supported.
    pub(super) fn check(&self) -> Result<()> {
        match says_yes(self.create_pr.as_deref()) {
            true => Err(Problem::usage("there are no pull requests here").hint("upload to a branch of its own")),
            false => Ok(()),
        }
    }
}

#[derive(Debug, Deserialize)]
struct AskedFile {
    path: String,
    #[serde(default)]
    sample: String,
    #[serde(default)]
    size: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct AskedFiles {
    files: Vec<AskedFile>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    path: String,
    upload_mode: &'static str,
    should_ignore: bool,
    /// Current `oid`, which the client compares: then it need not send the same again.
    #[serde(skip_serializing_if = "Option::is_none")]
    oid: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Answers {
    files: Vec<Answer>,
}

/// Whether a file is small text, which goes inside the commit.
fn is_regular(file: &AskedFile) -> bool {
    let name = file.path.to_ascii_lowercase();
    let text = || {
        let sample = BASE64_STANDARD.decode(&file.sample).unwrap_or_else(|_| vec![0]);
        let cut = match std::str::from_utf8(&sample) {
            Ok(_) => true,
            // The sample may end in the middle of a character.
            Err(e) => e.error_len().is_none() && sample.len() - e.valid_up_to() < 4,
        };
        cut && !sample.contains(&0)
    };
    let tensors = name.ends_with(".safetensors") || TENSORS.iter().any(|end| name.ends_with(end));
    file.size < LARGE && (file.size == 0 || (!tensors && text()))
}

/// `POST /api/models/{owner}/{name}/preupload/{rev}`.
pub(super) async fn modes(
    Write(access): Write,
    Path(at): Path<AtRev>,
    Query(query): Query<UploadQuery>,
    Body(asked): Body<AskedFiles>,
) -> Result<Json<Answers>> {
    query.check()?;
    let paths: Vec<String> = asked.files.iter().map(|f| f.path.clone()).collect();
    let there = access.work(move |repo| Ok(present(repo, &at.rev, &paths))).await?;
    let mut files = Vec::with_capacity(asked.files.len());
    for (file, entry) in asked.files.into_iter().zip(there) {
        let lfs = !is_regular(&file);
        let oid = match entry.filter(|e| e.size == file.size) {
            Some(entry) => known(&access.reader(), &entry, lfs).await,
            None => None,
        };
        files.push(Answer {
            upload_mode: if lfs { "lfs" } else { "regular" },
            should_ignore: false,
            oid,
            path: file.path,
        });
    }
    Ok(Json(Answers { files }))
}

/// The entries at these paths, as far as there are any.
fn present(repo: &Repo, rev: &str, paths: &[String]) -> Vec<Option<Entry>> {
    let id = revision::resolve(repo, rev).ok();
    let tree = id.and_then(|id| Some(Version::read(repo, id).ok()?.tree));
    let find = |path: &String| {
        let entry = files::find(repo.odb(), &tree?, path).ok().flatten()?;
        (entry.mode != Mode::Tree).then_some(entry)
    };
    paths.iter().map(find).collect()
}

/// Returns the `oid` that the client compares. Of large files only if it is known already: an upload is faster than
/// waiting for the decoding.
async fn known(reader: &Reader, entry: &Entry, lfs: bool) -> Option<String> {
    let wait = if is_lfs(entry) { Duration::ZERO } else { Duration::from_secs(1) };
    let digests = content::digests(reader, entry, wait).await.ok().flatten()?;
    Some(if lfs { hex::encode(digests.sha256) } else { hex::encode(digests.git) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regular(path: &str, sample: &[u8], size: u64) -> bool {
        is_regular(&AskedFile { path: path.to_owned(), sample: BASE64_STANDARD.encode(sample), size })
    }

    #[test]
    fn only_small_text_goes_inside_the_commit() {
        assert!(regular("config.json", b"{}", 2));
        assert!(regular("README.md", "é".as_bytes().split_at(1).0, 600));
        assert!(regular("empty.bin", b"", 0));
        for (path, sample, size) in [
            ("model.safetensors", b"{}".as_slice(), 2),
            ("a.PT", b"abc", 3),
            ("x.dat", b"a\0b", 3),
            ("x.dat", b"\xff\xfe text", 7),
            ("big.json", b"{}", LARGE),
        ] {
            assert!(!regular(path, sample, size), "{path}");
        }
    }
}
