//! The header of a safetensors file.

use crate::{RepoError, Result};
use mdl_codec::Dtype;
use mdl_files::SAFETENSORS_TYPES;
use serde_json::{Map, Value, json};

/// The format's own key, which no tensor can have.
const METADATA: &str = "__metadata__";

/// Head of a safetensors file of these tensors, whose bytes follow in this order without gaps: a length of 8 bytes and
/// a JSON document, padded to a multiple of 8.
///
/// # Errors
/// A type that the format lacks; a name that it keeps for itself, or that two tensors have; a file longer than 64 bits
/// can say.
pub fn safetensors_header(tensors: &[(&str, Dtype, &[u64])]) -> Result<Vec<u8>> {
    let (mut header, mut at) = (Map::new(), 0u64);
    for &(name, dtype, shape) in tensors {
        let refuse = |why: &str| {
            let message = format!("tensor {name} cannot be in a safetensors file: {why}");
            RepoError::user(message, "fetch the tensor raw or as .npy, or the file as it is")
        };
        let code = SAFETENSORS_TYPES.iter().find(|(_, of)| *of == dtype);
        let (code, _) = code.ok_or_else(|| refuse(&format!("the format has no type {dtype}")))?;
        let end = dtype.byte_len(shape).and_then(|n| n.checked_add(at)).ok_or_else(|| refuse("it is too long"))?;
        let entry = json!({"dtype": code, "shape": shape, "data_offsets": [at, end]});
        if name == METADATA {
            return Err(refuse("the format keeps that name for itself"));
        }
        if header.insert(name.to_owned(), entry).is_some() {
            return Err(refuse("there are two of that name"));
        }
        at = end;
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_files::{Format, scan};
    use std::path::Path;

    #[test]
    fn headers_are_what_the_reader_reads() {
        let tensors: [(&str, Dtype, &[u64]); 4] = [
            ("z", Dtype::F32, &[2, 3]),
            ("a \" \u{1f9ea}", Dtype::BF16, &[5]),
            ("none", Dtype::I64, &[0, 4]),
            ("one", Dtype::Bool, &[]),
        ];
        let mut file = safetensors_header(&tensors).unwrap();
        assert_eq!(file.len() % 8, 0);
        let start = file.len() as u64;
        file.extend([1; 24 + 10 + 1]);
        let layout = scan(&file, Path::new("x.safetensors")).unwrap();
        assert_eq!(layout.format, Format::Safetensors);
        let mut found: Vec<_> = layout.extents.iter().map(|e| (e.name.as_str(), e.dtype, e.offset - start)).collect();
        found.retain(|f| f.0 != "none");
        assert_eq!(found, [("z", Dtype::F32, 0), (tensors[1].0, Dtype::BF16, 24), ("one", Dtype::Bool, 34)]);
    }

    #[test]
    fn what_the_format_lacks_is_refused_by_name() {
        for (name, dtype, shape) in [
            ("x", Dtype::C128, &[1u64] as &[u64]),
            ("x", Dtype::Opaque, &[1]),
            ("__metadata__", Dtype::F32, &[1]),
            ("x", Dtype::F32, &[1 << 62]),
        ] {
            let e = safetensors_header(&[(name, dtype, shape)]).unwrap_err();
            assert!(e.to_string().contains(name), "{e}");
        }
        let twice = ("x", Dtype::U8, &[1u64] as &[u64]);
        assert!(safetensors_header(&[twice, twice]).is_err());
        let long = ("y", Dtype::U8, &[u64::MAX] as &[u64]);
        assert!(safetensors_header(&[twice, long]).is_err());
    }
}
