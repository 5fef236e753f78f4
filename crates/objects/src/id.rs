//! Object ids: BLAKE3-256 of the logical content, one hash domain per kind.

use crate::Writer;
use mdl_codec::Dtype;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// What an object is. The discriminant is the stored code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Bytes.
    Blob = 1,
    /// dtype, shape and little-endian elements.
    Tensor = 2,
    /// One file as skeleton and extents.
    Manifest = 3,
    /// A directory.
    Tree = 4,
    /// A version.
    Commit = 5,
    /// An annotated tag.
    Tag = 6,
}

impl Kind {
    /// Every kind, in the order of the codes.
    pub const ALL: [Kind; 6] = [Kind::Blob, Kind::Tensor, Kind::Manifest, Kind::Tree, Kind::Commit, Kind::Tag];

    /// The stored code.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind with this code.
    pub fn from_code(code: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.code() == code)
    }

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Blob => "blob",
            Kind::Tensor => "tensor",
            Kind::Manifest => "manifest",
            Kind::Tree => "tree",
            Kind::Commit => "commit",
            Kind::Tag => "tag",
        }
    }

    /// The key-derivation context that separates this kind's hashes from every other kind's.
    pub const fn context(self) -> &'static str {
        match self {
            Kind::Blob => "mdl 2026-11-21 blob v1",
            Kind::Tensor => "mdl 2026-11-21 tensor v1",
            Kind::Manifest => "mdl 2026-11-21 manifest v1",
            Kind::Tree => "mdl 2026-11-21 tree v1",
            Kind::Commit => "mdl 2026-11-21 commit v1",
            Kind::Tag => "mdl 2026-11-21 tag v1",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// 256-bit content id, shown as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id([u8; 32]);

impl Id {
    /// Wraps 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Id {
        Id(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The id of `content` as an object of `kind` (not for tensors, whose header is hashed too: [`tensor_id`]).
    pub fn from_content(kind: Kind, content: &[u8]) -> Id {
        let mut h = IdHasher::new(kind);
        h.update(content);
        h.finish()
    }

    /// All 64 hex digits.
    pub fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// The first 12 hex digits, as listings show them.
    pub fn short(&self) -> String {
        let mut s = self.to_hex();
        s.truncate(12);
        s
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

/// The text is not 64 lower-case hex digits.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("not an object id (64 lower-case hex digits)")]
pub struct ParseIdError;

impl FromStr for Id {
    type Err = ParseIdError;

    fn from_str(s: &str) -> Result<Id, ParseIdError> {
        if s.len() != 64 || s.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(ParseIdError);
        }
        blake3::Hash::from_hex(s).map(|h| Id(*h.as_bytes())).map_err(|_| ParseIdError)
    }
}

/// As its hex digits.
impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Streaming computation of an id.
#[derive(Clone, Debug)]
pub struct IdHasher(blake3::Hasher);

impl IdHasher {
    /// Starts the hash domain of `kind`.
    pub fn new(kind: Kind) -> IdHasher {
        IdHasher(blake3::Hasher::new_derive_key(kind.context()))
    }

    /// Adds content.
    pub fn update(&mut self, bytes: &[u8]) {
        // BLAKE3 splits well above some 128 KiB; below that threads cost more than they give.
        if bytes.len() >= 1 << 20 {
            self.0.update_rayon(bytes);
        } else {
            self.0.update(bytes);
        }
    }

    /// The id of everything added.
    pub fn finish(&self) -> Id {
        Id(*self.0.finalize().as_bytes())
    }
}

/// What a tensor's id covers before the little-endian elements: its dtype code, then its counted dimensions.
pub fn tensor_head(dtype: Dtype, shape: &[u64]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u8(dtype.code());
    w.dims(shape);
    w.bytes
}

/// Starts a tensor's id with its head; the caller adds the elements.
pub fn tensor_hasher(dtype: Dtype, shape: &[u64]) -> IdHasher {
    let mut h = IdHasher::new(Kind::Tensor);
    h.update(&tensor_head(dtype, shape));
    h
}

/// The id of a tensor whose elements are at hand.
pub fn tensor_id(dtype: Dtype, shape: &[u64], elements: &[u8]) -> Id {
    let mut h = tensor_hasher(dtype, shape);
    h.update(elements);
    h.finish()
}
