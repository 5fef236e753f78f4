//! Mends mutated bytes so that they pass the checks that random bytes never pass: lengths, checksums, hashes, orders.

pub mod objects;
pub mod pack;
pub mod sealed;
pub mod tar;
pub mod tensor;
pub mod words;
pub mod xet;
pub mod zip;

pub use self::{
    objects::{manifest, tree},
    pack::{pack, pack as receive},
    tensor::tensor,
    xet::{xet_shard, xet_xorb},
    zip::rebuild as torch,
};

use crate::{
    codec, http,
    records::{KEYS, values},
};

/// Mends what follows the first byte, by that byte.
fn by_kind(data: &mut Vec<u8>, mend: impl FnOnce(u8, &mut Vec<u8>)) {
    let Some(kind) = data.first().copied() else { return };
    let mut rest = data.split_off(1);
    mend(kind, &mut rest);
    data.append(&mut rest);
}

/// Lengths and order of a commit's fields. Tags stay as they are.
pub fn commit(data: &mut Vec<u8>) {
    by_kind(data, |kind, rest| {
        if kind & 1 == 0 {
            objects::commit(rest);
        }
    });
}

/// Nothing: these files have no checksums inside.
pub fn foreign(_: &mut Vec<u8>) {}

/// Order and ranges of a footer's records. Plans stay as they are.
pub fn index(data: &mut Vec<u8>) {
    by_kind(data, |kind, rest| {
        if kind & 1 == 0 {
            *rest = pack::footer(rest);
        }
    });
}

/// A scheme that is known, and a length that is a whole number of elements.
pub fn segments(data: &mut Vec<u8>) {
    data.resize(data.len().max(codec::HEAD + 1), 0);
    data[codec::HEAD] %= 17;
    data[1] &= !15;
}

/// Checksum lines, and lengths of the values.
pub fn records(data: &mut Vec<u8>) {
    let mut out = Vec::new();
    for (key, mut value) in values(data) {
        sealed::line(key, &mut value);
        value.truncate(usize::from(u16::MAX));
        let number = KEYS.iter().position(|k| *k == key).unwrap_or_default();
        out.push(number as u8);
        out.extend((value.len() as u16).to_le_bytes());
        out.extend(value);
    }
    *data = out;
}

/// The length of the header, and that of the file.
pub fn safetensors(data: &mut Vec<u8>) {
    let Some(text) = data.get(8..) else { return };
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<serde_json::Value>();
    let Some(Ok(header)) = values.next() else { return };
    let len = values.byte_offset();
    let ends = header.as_object().into_iter().flat_map(|o| o.values());
    let ends = ends.filter_map(|t| t.get("data_offsets")?.get(1)?.as_u64());
    let end = ends.filter(|end| *end <= 1 << 14).max().unwrap_or(0) as usize;
    data[..8].copy_from_slice(&(len as u64).to_le_bytes());
    data.resize(8 + len + end, 0);
}

/// As `torch`; of an array file the length of its header.
pub fn npz(data: &mut Vec<u8>) {
    if data.starts_with(b"PK") {
        return zip::rebuild(data);
    }
    let Some(end) = data.iter().position(|b| *b == b'\n') else {
        return;
    };
    if let Some(len) = data.get_mut(8..10).filter(|_| end >= 10) {
        len.copy_from_slice(&((end + 1 - 10) as u16).to_le_bytes());
    }
}

/// A pickle that begins and ends.
pub fn pickle(data: &mut Vec<u8>) {
    if data.first() != Some(&0x80) {
        data.splice(..0, [0x80, 2]);
    }
    if data.last() != Some(&b'.') {
        data.push(b'.');
    }
}

/// Magic, version and numbers that could be.
pub fn gguf(data: &mut Vec<u8>) {
    data.resize(data.len().max(24), 0);
    data[..4].copy_from_slice(b"GGUF");
    data[4..8].copy_from_slice(&[3, 0, 0, 0]);
    for count in [8, 16] {
        data[count + 1..count + 8].fill(0);
    }
}

/// As the file that the first byte says.
pub fn ingest(data: &mut Vec<u8>) {
    by_kind(data, |kind, rest| match kind % 7 {
        0 => safetensors(rest),
        1 => torch(rest),
        2 | 3 => npz(rest),
        4 => gguf(rest),
        _ => {}
    });
}

/// Nothing: text has no checksums.
pub fn text(_: &mut Vec<u8>) {}

/// Checksums of tar headers, and the end of a form.
pub fn http_commit(data: &mut Vec<u8>) {
    by_kind(data, |route, rest| match route % 8 {
        0 | 1 => tar::tar(rest),
        2 => {
            let end = format!("\r\n--{}--\r\n", http::BOUNDARY);
            if !rest.ends_with(end.as_bytes()) {
                rest.extend(end.as_bytes());
            }
        }
        _ => {}
    });
}

/// Nothing: these bodies have no checksums.
pub fn http_hub(_: &mut Vec<u8>) {}

/// A pack that is pushed.
pub fn http_sync(data: &mut Vec<u8>) {
    by_kind(data, |route, rest| {
        if usize::from(route) % (http::PUSH + 1) == http::PUSH {
            pack::pack(rest);
        }
    });
}
