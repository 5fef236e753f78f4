//! Writes GGUF files.

/// One tensor: name, dimensions slowest first, type number, bytes.
pub struct Tensor {
    pub name: String,
    pub shape: Vec<u64>,
    pub of: u32,
    pub data: Vec<u8>,
}

/// A tensor with made-up bytes.
pub fn tensor(name: &str, shape: &[u64], of: u32, bytes: usize) -> Tensor {
    Tensor { name: name.into(), shape: shape.into(), of, data: vec![3; bytes] }
}

fn text(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

/// A file of these tensors, with some metadata and this alignment.
pub fn file(tensors: &[Tensor], alignment: u32) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend(3u64.to_le_bytes());
    text(&mut out, "general.architecture");
    out.extend(8u32.to_le_bytes());
    text(&mut out, "tiny");
    text(&mut out, "tokens");
    out.extend(9u32.to_le_bytes());
    out.extend(8u32.to_le_bytes());
    out.extend(2u64.to_le_bytes());
    text(&mut out, "a");
    text(&mut out, "bc");
    text(&mut out, "general.alignment");
    out.extend(4u32.to_le_bytes());
    out.extend(alignment.to_le_bytes());
    let mut at = 0u64;
    for t in tensors {
        text(&mut out, &t.name);
        out.extend((t.shape.len() as u32).to_le_bytes());
        t.shape.iter().rev().for_each(|d| out.extend(d.to_le_bytes()));
        out.extend(t.of.to_le_bytes());
        out.extend(at.to_le_bytes());
        at = (at + t.data.len() as u64).next_multiple_of(alignment.into());
    }
    for t in tensors {
        out.resize(out.len().next_multiple_of(alignment as usize), 0);
        out.extend(&t.data);
    }
    out
}
