//! What other systems write of checkpoints, as an import reads it: the Hugging Face Hub, git-lfs, DVC, W&B.

pub mod dvc;
pub mod hub;
pub mod lfs;
pub mod wandb;

/// Why a file of another system cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not UTF-8.
    #[error(transparent)]
    Text(#[from] std::str::Utf8Error),
    /// Not YAML, or not of the members that are wanted.
    #[error(transparent)]
    Yaml(#[from] Box<serde_saphyr::Error>),
    /// Not JSON, or not of the members that are wanted.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A path that leads elsewhere.
    #[error("it names {0:?}")]
    Path(String),
    /// A file whose bytes nothing identifies.
    #[error("it has no MD5 of {0}")]
    Digest(String),
}

/// Whether text is an id of so many bytes, in hexadecimal digits.
fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|b| b.is_ascii_hexdigit())
}
