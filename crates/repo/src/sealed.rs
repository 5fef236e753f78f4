//! Sealed records: small values with a header line, a line of JSON, and a checksum of both.

use mdl_store::{RepoError, Result};
use serde::{Serialize, de::DeserializeOwned};

/// A header line, a line of JSON, and the checksum of both.
pub(crate) fn seal(header: &str, value: &impl Serialize) -> Result<Vec<u8>> {
    let json = serde_json::to_string(value).map_err(|e| RepoError::io("cannot write down a shard")(e.into()))?;
    let body = format!("{header}\n{json}\n");
    let sum = blake3::hash(body.as_bytes()).to_hex();
    Ok(format!("{body}{sum}\n").into_bytes())
}

/// What `seal` has written.
pub(crate) fn open<T: DeserializeOwned>(header: &str, key: &str, bytes: &[u8]) -> Result<T> {
    let bad = |why: &str| RepoError::corrupt(key, why);
    let text = std::str::from_utf8(bytes).map_err(|_| bad("not text"))?;
    let (first, rest) = text.split_once('\n').ok_or_else(|| bad("cut off"))?;
    if first != header && first.starts_with("mdl ") {
        return Err(RepoError::user(
            format!("{key} is not of a format this program reads"),
            "it was made by another mdl: use the same one on every host",
        ));
    }
    let (json, sum) = rest.trim_end().split_once('\n').ok_or_else(|| bad("cut off"))?;
    if blake3::hash(format!("{first}\n{json}\n").as_bytes()).to_hex().as_str() != sum {
        return Err(bad("its checksum is wrong; delete it, and let the rank put again"));
    }
    serde_json::from_str(json).map_err(|e| bad(&format!("it makes no sense: {e}")))
}
