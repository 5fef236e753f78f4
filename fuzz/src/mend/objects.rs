//! Mends canonical objects: what can be read of mutated bytes is put in order and counted anew.

use mdl_codec::Dtype;
use mdl_objects::{Chunk, Entry, Manifest, Mode, ObjectError, Reader, TensorRef, Tree, ViewRef, Writer, check_name};

type Parsed<T> = Result<T, ObjectError>;

/// Entries until the first that makes no sense, by their names.
pub fn tree(data: &mut Vec<u8>) {
    let mut r = Reader::new(data);
    let mut entries = Vec::new();
    if r.u8().is_ok() && r.varint().is_ok() {
        while let Ok(entry) = entry(&mut r) {
            entries.push(entry);
        }
    }
    entries.retain(|e: &Entry| check_name(&e.name).is_ok());
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries.dedup_by(|a, b| a.name == b.name);
    *data = Tree { entries }.encode();
}

fn entry(r: &mut Reader<'_>) -> Parsed<Entry> {
    let (name, code) = (r.str()?, r.u8()?);
    let mode = [Mode::Blob, Mode::Manifest, Mode::Tree][usize::from(code) % 3];
    Ok(Entry { name, mode, executable: code & 0x80 != 0 && mode != Mode::Tree, size: r.varint()?, id: r.id()? })
}

/// Parts until the first that makes no sense; the file is as long as they are together.
pub fn manifest(data: &mut Vec<u8>) {
    let mut manifest = Manifest {
        format: data.get(1).copied().unwrap_or(0),
        size: 0,
        skeleton: Vec::new(),
        tensors: Vec::new(),
        views: Vec::new(),
    };
    let _ = parts(data, &mut manifest);
    let gaps: u64 = manifest.skeleton.iter().fold(0, |n, c| n.wrapping_add(c.len));
    let tensors = manifest.tensors.iter().filter_map(TensorRef::byte_len).fold(0u64, u64::wrapping_add);
    manifest.size = gaps.wrapping_add(tensors);
    *data = manifest.encode();
}

fn parts(data: &[u8], out: &mut Manifest) -> Parsed<()> {
    let mut r = Reader::new(data);
    let _head = (r.u8()?, r.u8()?, r.varint()?);
    for _ in 0..r.varint()? {
        let (len, id) = (r.varint()?, r.id()?);
        out.skeleton.push(Chunk { id, len: len.max(1) });
    }
    let mut end = 0u64;
    for _ in 0..r.varint()? {
        let (name, gap) = (r.str()?, r.varint()?);
        let t = TensorRef { name, offset: end.wrapping_add(gap), dtype: dtype(r.u8()?), shape: r.dims()?, id: r.id()? };
        end = t.offset.wrapping_add(t.byte_len().unwrap_or(0));
        out.tensors.push(t);
    }
    for _ in 0..r.varint()? {
        let (name, tensor) = (r.str()?, r.varint()?);
        let count = out.tensors.len().max(1) as u64;
        out.views.push(ViewRef {
            name,
            tensor: (tensor % count) as u32,
            offset: r.varint()?,
            dtype: dtype(r.u8()?),
            shape: r.dims()?,
            strides: r.dims()?,
        });
    }
    Ok(())
}

fn dtype(code: u8) -> Dtype {
    Dtype::ALL[usize::from(code) % Dtype::ALL.len()]
}

/// Fields until the first whose length leaves the bytes, by their numbers.
pub fn commit(data: &mut Vec<u8>) {
    let mut fields = Vec::new();
    let mut r = Reader::new(data);
    let version = r.u8().unwrap_or(1);
    while let Ok(number) = r.varint() {
        let Ok(len) = r.varint() else { break };
        let len = (len as usize).min(r.remaining());
        let Ok(bytes) = r.take(len) else { break };
        fields.push((number, bytes.to_vec()));
    }
    fields.sort_by_key(|f| f.0);
    fields.dedup_by_key(|f| f.0);
    let mut w = Writer::default();
    w.u8(version);
    for (number, bytes) in fields {
        w.varint(number);
        w.varint(bytes.len() as u64);
        w.bytes.extend(bytes);
    }
    *data = w.bytes;
}
